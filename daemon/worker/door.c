#include "daemon/worker/door.h"

#include "daemon/base/log.h"
#include "daemon/conf/conf.h"
#include "daemon/openai/api_error.h"
#include "daemon/worker/ahead.h"
#include "daemon/worker/bare.h"
#include "daemon/worker/client.h"
#include "daemon/worker/head.h"
#include "daemon/worker/listener.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum {
    /* A refused client that goes on sending reads no answer until it is done, and a close before
     * that throws the answer away: so much is taken from it, for so long. */
    SWALLOW_SIZE = 2 << 20,
    SWALLOW_MS = 2000,
    SWALLOW_STEP = 16 << 10,
};

static void refuse(struct client *c, const struct api_error *e)
{
    char id[REQUEST_NAME], address[CLIENT_NAME];

    bare_name_request(id);
    bare_answer(c->fd, e, id);
    log_line(LOG_LEVEL_INFO, "request id=%s method=? route=? status=%d code=%s client=%s", id,
             e->status, e->code, client_name(address, c));
    shutdown(c->fd, SHUT_WR);
    client_leaves(c, SWALLOW_MS);
}

static void swallow(struct client *c)
{
    char bytes[SWALLOW_STEP];

    while (c->seen < SWALLOW_SIZE) {
        ssize_t n = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (n > 0) {
            c->seen += (uint32_t)n;
            continue;
        }
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        break;
    }
    client_close(c);
}

/* libmicrohttpd closes the socket also when it does not take it. */
static void let_in(struct client *c)
{
    struct clients *all = c->all;
    const struct sockaddr *from = (const struct sockaddr *)&c->address;
    socklen_t size = c->address.ss_family == AF_INET6 ? sizeof(struct sockaddr_in6)
                                                      : sizeof(struct sockaddr_in);

    if (c->back) {
        client_goes_on(c);
        return;
    }
    client_goes_in(c);
    if (MHD_add_connection(c->listener->daemon, c->fd, from, size) == MHD_YES)
        return;
    log_line(LOG_LEVEL_WARNING, "a connection was lost: libmicrohttpd did not take it");
    clients_not_taken(all);
}

bool door_look(struct client *c, uint32_t events)
{
    char bytes[HEAD_MAX + 1];
    struct api_error e;
    struct ahead ahead;
    uint64_t read;

    if (c->leaving) {
        swallow(c);
        return false;
    }
    ssize_t n = recv(c->fd, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0) {
        client_close(c);
        return false;
    }
    c->seen = (uint32_t)n;
    int fine = ahead_look(&ahead, bytes, (size_t)n, &e);
    if (fine > 0) {
        c->n_looked = ahead.n;
        c->looked_until = ahead.size && client_read(c, &read) ? read + ahead.size : 0;
        let_in(c);
        return false;
    }
    bool begins = c->back && c->wait == CLIENT_IDLE;
    if (begins)
        client_wait(c, CLIENT_HEADER);
    if (fine < 0)
        refuse(c, &e);
    else if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        client_close(c); /* all that came is no whole head, and no more comes */
    else
        return !begins;
    return false;
}

void door_late(struct client *c)
{
    struct api_error e;

    if (c->leaving || c->seen == 0) {
        client_close(c);
        return;
    }
    api_error_set(&e, 408, "request_timeout", NULL,
                  "The request's header did not arrive within %" PRIu32 " ms.",
                  c->all->conf->header_timeout_ms);
    e.hopeless = false;
    refuse(c, &e);
}
