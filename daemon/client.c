#include "daemon/client.h"

#include "daemon/conf.h"
#include "daemon/door.h"
#include "daemon/exchange.h"
#include "daemon/log.h"
#include "util/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define GRACE_NS UINT64_C(100000000)
/* From connecting to asking, at a drain: a round trip and some patience. */
enum { ARRIVING_MS = 1000 };

void clients_init(struct clients *all, sd_event *loop, const struct conf *conf)
{
    *all = (struct clients){ .loop = loop, .conf = conf };
}

void client_watch(struct client *c, bool on)
{
    if (c->inside)
        sd_event_source_set_enabled(c->socket, on && !c->shut ? SD_EVENT_ON : SD_EVENT_OFF);
}

void client_shut(struct client *c)
{
    if (!c->inside) {
        client_close(c);
        return;
    }
    if (!c->shut) {
        c->all->n_shut++;
        c->all->n_idle -= c->wait == CLIENT_IDLE;
    }
    c->shut = true;
    client_watch(c, false);
    shutdown(c->fd, SHUT_RDWR);
}

static const char *wait_name(enum client_wait wait)
{
    static const char *const names[] = { "idle", "header", "body", "busy" };

    return names[wait];
}

static int expired(sd_event_source *source, uint64_t usec, void *ctx)
{
    struct client *c = ctx;

    (void)source;
    (void)usec;
    log_line(c->wait == CLIENT_IDLE ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO,
             "connection closed: too slow wait=%s", wait_name(c->wait));
    if (c->exchange && c->wait == CLIENT_BODY)
        exchange_body_late(c->exchange);
    if (c->inside)
        client_shut(c);
    else
        door_late(c);
    return 0;
}

/* Something came that nobody has looked at yet. */
static bool has_unread(const struct client *c)
{
    int unread = 0, seen = c->inside || c->leaving ? 0 : (int)c->seen;

    return ioctl(c->fd, FIONREAD, &unread) == 0 && unread > seen;
}

static int on_socket(sd_event_source *source, int fd, uint32_t events, void *ctx)
{
    struct client *c = ctx;

    (void)source;
    (void)fd;
    if (!c->inside)
        door_look(c, events);
    else if (c->exchange && c->exchange->suspended)
        exchange_client_left(c->exchange);
    else if (!has_unread(c))
        client_shut(c); /* all that came was read, and it is no whole request */
    return 0;
}

static uint32_t patience_ms(const struct client *c, enum client_wait wait)
{
    const struct conf *conf = c->all->conf;

    switch (wait) {
    case CLIENT_IDLE:
        return c->since_ns ? conf->idle_timeout_ms : conf->header_timeout_ms;
    case CLIENT_HEADER:
        return conf->header_timeout_ms;
    case CLIENT_BODY:
        return conf->body_timeout_ms;
    default:
        return 0;
    }
}

void client_wait(struct client *c, enum client_wait wait)
{
    uint64_t us = (uint64_t)patience_ms(c, wait) * 1000, now = 0;

    if (!c->shut)
        c->all->n_idle += (wait == CLIENT_IDLE) - (c->wait == CLIENT_IDLE);
    c->wait = wait;
    c->since_ns = clock_ns();
    client_watch(c, wait != CLIENT_BUSY);
    if (us == 0) {
        sd_event_source_set_enabled(c->deadline, SD_EVENT_OFF);
        return;
    }
    sd_event_now(c->all->loop, CLOCK_MONOTONIC, &now);
    sd_event_source_set_time(c->deadline, now + us);
    sd_event_source_set_enabled(c->deadline, SD_EVENT_ONESHOT);
}

const char *client_name(char buf[CLIENT_NAME], const struct client *c)
{
    const struct in6_addr *six = &((const struct sockaddr_in6 *)&c->address)->sin6_addr;
    const void *four = &((const struct sockaddr_in *)&c->address)->sin_addr;
    struct in6_addr network = { 0 };

    buf[0] = '\0';
    if (c->address.ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(six))
        four = &six->s6_addr[12];
    else if (c->address.ss_family == AF_INET6) {
        /* A household has a /64; the loopback address is nobody's network. */
        if (IN6_IS_ADDR_LOOPBACK(six))
            return inet_ntop(AF_INET6, six, buf, CLIENT_NAME);
        memcpy(&network, six, 8);
        inet_ntop(AF_INET6, &network, buf, CLIENT_NAME - sizeof "/64");
        memcpy(buf + strlen(buf), "/64", sizeof "/64");
        return buf;
    } else if (c->address.ss_family != AF_INET)
        return buf;
    return inet_ntop(AF_INET, four, buf, CLIENT_NAME);
}

uint64_t client_key(const struct client *c)
{
    char name[CLIENT_NAME];
    uint64_t key = 0xcbf29ce484222325u; /* FNV-1a (Fowler, Noll, Vo) */

    client_name(name, c);
    for (const char *p = name; *p; p++)
        key = (key ^ (unsigned char)*p) * 0x100000001b3u;
    return key;
}

static bool same_address(const struct client *a, const struct client *b)
{
    char of_a[CLIENT_NAME], of_b[CLIENT_NAME];

    return strcmp(client_name(of_a, a), client_name(of_b, b)) == 0;
}

/* Of those with the address of `like`, but not like itself; of all when it is NULL. */
static struct client *oldest_idle(struct clients *all, const struct client *like)
{
    struct client *found = NULL;

    for (struct client *c = all->first; c; c = c->next) {
        if (c == like || c->wait != CLIENT_IDLE || c->shut || (like && !same_address(c, like)) ||
            has_unread(c))
            continue;
        if (!found || c->since_ns < found->since_ns)
            found = c;
    }
    return found;
}

static uint32_t count_like(const struct clients *all, const struct client *like)
{
    uint32_t n = 0;

    for (const struct client *c = all->first; c; c = c->next)
        n += !c->shut && same_address(c, like);
    return n;
}

/* False when c is one too many of its address, and nobody of it is to be displaced. */
static bool make_room(struct client *c)
{
    struct clients *all = c->all;

    if (count_like(all, c) <= all->conf->per_address)
        return true;
    struct client *idle = oldest_idle(all, c);
    if (idle)
        client_shut(idle);
    return idle != NULL;
}

bool client_has_room(struct client *c)
{
    if (c->overflow)
        c->overflow = !make_room(c);
    return !c->overflow;
}

bool clients_room(struct clients *all)
{
    if (all->n < all->conf->connections)
        return true;
    if (all->n - all->n_shut >= all->conf->connections && all->n_idle > 0) {
        struct client *idle = oldest_idle(all, NULL);
        /* A new one gets a moment to send its request. */
        if (idle && clock_ns() - idle->since_ns >= GRACE_NS) {
            log_line(LOG_LEVEL_DEBUG, "connection closed: idle, and others wait");
            client_shut(idle);
        }
    }
    return all->n < all->conf->connections;
}

bool clients_may_come(const struct clients *all)
{
    return all->n < all->conf->connections || all->n_idle > 0;
}

static int add_sources(struct client *c)
{
    sd_event *loop = c->all->loop;

    if (sd_event_add_time(loop, &c->deadline, CLOCK_MONOTONIC, UINT64_MAX, 10000, expired, c) < 0)
        return -1;
    /* Edge-triggered: what is looked at stays in the socket. */
    return sd_event_add_io(loop, &c->socket, c->fd, EPOLLIN | EPOLLRDHUP | EPOLLET, on_socket, c);
}

void client_open(struct clients *all, struct listener *l, int fd,
                 const struct sockaddr_storage *from)
{
    struct client *c = calloc(1, sizeof *c);

    if (!c) {
        close(fd);
        return;
    }
    c->all = all;
    c->listener = l;
    c->fd = fd;
    c->address = *from;
    c->next = all->first;
    if (c->next)
        c->next->prev = c;
    all->first = c;
    all->n++;
    all->n_idle++; /* it begins so */
    if (add_sources(c) < 0) {
        client_close(c);
        return;
    }
    client_wait(c, CLIENT_IDLE);
    c->overflow = !make_room(c);
}

static void forget(struct client *c)
{
    *(c->prev ? &c->prev->next : &c->all->first) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    c->all->n--;
    if (c->shut)
        c->all->n_shut--;
    else
        c->all->n_idle -= c->wait == CLIENT_IDLE;
    sd_event_source_disable_unref(c->deadline);
    sd_event_source_disable_unref(c->socket);
    free(c);
}

void client_close(struct client *c)
{
    int fd = c->fd;

    forget(c); /* the loop must not look at a closed descriptor */
    close(fd);
}

void client_leaves(struct client *c, uint32_t patience)
{
    uint64_t now = 0;

    c->leaving = true;
    c->seen = 0;
    sd_event_source_set_io_events(c->socket, EPOLLIN | EPOLLRDHUP);
    sd_event_now(c->all->loop, CLOCK_MONOTONIC, &now);
    sd_event_source_set_time(c->deadline, now + (uint64_t)patience * 1000);
    sd_event_source_set_enabled(c->deadline, SD_EVENT_ONESHOT);
}

void client_goes_in(struct client *c)
{
    c->inside = true;
    c->all->arriving = c;
    sd_event_source_set_io_events(c->socket, EPOLLRDHUP);
}

void clients_not_taken(struct clients *all)
{
    if (all->arriving)
        forget(all->arriving);
    all->arriving = NULL;
}

void clients_notify(void *cls, struct MHD_Connection *connection, void **socket_context,
                    enum MHD_ConnectionNotificationCode code)
{
    struct clients *all = cls;

    (void)connection;
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *socket_context = all->arriving;
        all->arriving = NULL;
    } else if (*socket_context) {
        forget(*socket_context);
    }
}

static bool is_arriving(const struct client *c)
{
    bool new = clock_ns() - c->since_ns < ARRIVING_MS * UINT64_C(1000000);

    return has_unread(c) || (!c->inside && (c->seen > 0 || new));
}

void clients_drain(struct clients *all)
{
    uint64_t now = 0;

    sd_event_now(all->loop, CLOCK_MONOTONIC, &now);
    for (struct client *c = all->first, *next; c; c = next) {
        next = c->next;
        if (c->wait != CLIENT_IDLE || c->shut || c->leaving)
            continue;
        if (is_arriving(c))
            sd_event_source_set_time(c->deadline, now + ARRIVING_MS * 1000);
        else
            client_shut(c);
    }
}

bool clients_expected(const struct clients *all)
{
    for (const struct client *c = all->first; c; c = c->next)
        if (c->wait == CLIENT_IDLE && !c->shut && !c->leaving)
            return true;
    return false;
}

void clients_done(struct clients *all)
{
    for (struct client *c = all->first, *next; c; c = next) {
        next = c->next;
        if (!c->inside)
            client_close(c);
    }
}

struct client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}
