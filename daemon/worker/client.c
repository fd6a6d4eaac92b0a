#include "daemon/worker/client.h"

#include "daemon/base/log.h"
#include "daemon/conf/conf.h"
#include "daemon/worker/door.h"
#include "daemon/worker/exchange.h"
#include "util/clock.h"
#include "util/fnv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <linux/tcp.h>
#include <unistd.h>

#define GRACE_NS UINT64_C(100000000)
/* From connecting to asking, at a drain: a round trip and some patience. */
enum { ARRIVING_MS = 1000 };
/* While a body comes: whether it still does. */
enum { BODY_LOOK_US = 1000000 };

bool client_at_door(const struct client *c)
{
    return !c->inside || c->back;
}

/* The end of the other side counts as a byte: no more come then. */
bool client_read(const struct client *c, uint64_t *out)
{
    struct tcp_info info = { 0 };
    socklen_t size = sizeof info;
    int unread = 0;

    if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &size) < 0 ||
        size < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof info.tcpi_bytes_received ||
        ioctl(c->fd, FIONREAD, &unread) < 0)
        return false;
    *out = info.tcpi_bytes_received - (uint64_t)unread;
    return true;
}

bool client_in_step(const struct client *c)
{
    uint64_t read;

    return c->n_looked > 0 ||
           (c->looked_until && client_read(c, &read) && read <= c->looked_until);
}

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
    if (c->back)
        MHD_resume_connection(c->connection); /* to notice */
    c->back = false;
}

static const char *wait_name(enum client_wait wait)
{
    static const char *const names[] = { "idle", "header", "body", "busy" };

    return names[wait];
}

/* Something came that nobody has looked at yet. */
static bool has_unread(const struct client *c)
{
    int unread = 0, seen = client_at_door(c) && !c->leaving ? (int)c->seen : 0;

    return ioctl(c->fd, FIONREAD, &unread) == 0 && unread > seen;
}

static void set_deadline(struct client *c, uint64_t us)
{
    sd_event_source_set_time(c->deadline, us);
    sd_event_source_set_enabled(c->deadline, SD_EVENT_ONESHOT);
}

/* libmicrohttpd stands still before the line of a chunk that is longer than its buffer. Between two
 * looks it has run, and had something to read. */
static void look_at_body(struct client *c, uint64_t now_us)
{
    uint64_t read = 0, again_us = now_us + BODY_LOOK_US;
    bool known = client_read(c, &read), unread = has_unread(c);

    if (known && c->exchange && unread && c->had_unread && read == c->read) {
        exchange_body_stuck(c->exchange);
        client_shut(c);
        return;
    }
    c->read = read;
    c->had_unread = known && unread;
    set_deadline(c, again_us < c->due_us ? again_us : c->due_us);
}

static int expired(sd_event_source *source, uint64_t usec, void *ctx)
{
    struct client *c = ctx;
    uint64_t now = usec;

    (void)source;
    sd_event_now(c->all->loop, CLOCK_MONOTONIC, &now);
    if (c->inside && c->wait == CLIENT_BODY && now < c->due_us) {
        look_at_body(c, now);
        return 0;
    }
    /* When it was us who were late, what came in time may wait behind this very event. */
    if (client_at_door(c) && !c->leaving && has_unread(c) && !door_look(c, 0))
        return 0;
    log_line(c->wait == CLIENT_IDLE ? LOG_LEVEL_DEBUG : LOG_LEVEL_INFO,
             "connection closed: too slow wait=%s", wait_name(c->wait));
    if (c->exchange && c->wait == CLIENT_BODY)
        exchange_body_late(c->exchange);
    if (client_at_door(c))
        door_late(c);
    else
        client_shut(c);
    return 0;
}

static int on_socket(sd_event_source *source, int fd, uint32_t events, void *ctx)
{
    struct client *c = ctx;

    (void)source;
    (void)fd;
    if (client_at_door(c))
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
    c->due_us = now + us;
    c->had_unread = false;
    set_deadline(c, wait == CLIENT_BODY && us > BODY_LOOK_US ? now + BODY_LOOK_US : c->due_us);
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

    client_name(name, c);
    return fnv(FNV_BEGIN, name, strlen(name));
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
    c->all->n_between -= c->between;
    sd_event_source_disable_unref(c->deadline);
    sd_event_source_disable_unref(c->socket);
    free(c);
}

void client_close(struct client *c)
{
    int fd = c->fd;

    if (c->inside) {
        client_shut(c);
        return;
    }
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

void client_goes_on(struct client *c)
{
    c->back = false;
    sd_event_source_set_io_events(c->socket, EPOLLRDHUP);
    if (c->wait == CLIENT_IDLE)
        client_wait(c, CLIENT_HEADER);
    MHD_resume_connection(c->connection);
}

void client_completed(struct client *c)
{
    c->exchange = NULL;
    client_wait(c, CLIENT_IDLE);
    c->all->n_between += !c->between;
    c->between = true;
}

static void goes_back(struct client *c)
{
    c->back = true;
    c->seen = 0;
    MHD_suspend_connection(c->connection);
    sd_event_source_set_io_events(c->socket, EPOLLIN | EPOLLRDHUP | EPOLLET);
    client_watch(c, true);
}

/* Not in the moment of completion: then it is not said yet whether the connection is kept. One that
 * is not has gone by now. */
void clients_turn(struct clients *all)
{
    for (struct client *c = all->first; c && all->n_between > 0; c = c->next) {
        if (!c->between)
            continue;
        c->between = false;
        all->n_between--;
        if (!c->exchange && !c->shut && c->n_looked == 0)
            goes_back(c);
    }
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

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        *socket_context = all->arriving;
        if (all->arriving)
            all->arriving->connection = connection;
        all->arriving = NULL;
    } else if (*socket_context) {
        forget(*socket_context);
    }
}

static bool is_arriving(const struct client *c)
{
    bool new = clock_ns() - c->since_ns < ARRIVING_MS * UINT64_C(1000000);

    return has_unread(c) || (client_at_door(c) && c->seen > 0) || (!c->inside && new);
}

/* Between requests, or at the door with a part of one. */
static bool may_ask(const struct client *c)
{
    return !c->shut && !c->leaving &&
           (c->wait == CLIENT_IDLE || (c->wait == CLIENT_HEADER && c->back));
}

void clients_drain(struct clients *all)
{
    uint64_t now = 0;

    sd_event_now(all->loop, CLOCK_MONOTONIC, &now);
    for (struct client *c = all->first, *next; c; c = next) {
        next = c->next;
        if (!may_ask(c))
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
        if (may_ask(c))
            return true;
    return false;
}

void clients_done(struct clients *all)
{
    for (struct client *c = all->first, *next; c; c = next) {
        next = c->next;
        if (client_at_door(c))
            client_close(c);
    }
}

struct client *client_of(struct MHD_Connection *connection)
{
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

    return info ? info->socket_context : NULL;
}
