/* client: one TCP connection of a worker: how many there are, and how long each may take.
 *
 * From its accept on: before libmicrohttpd has it (door.h) its socket is ours.
 *
 * libmicrohttpd's timeout is inactivity only, so a header of one byte per second would live
 * for ever; the deadlines here are cumulative and shut the socket down.
 *
 * One more than http.connections closes the connection that has been idle longest, whosever it
 * is, and waits in the backlog while none is. One more than http.per_address closes the idlest of
 * its own address; where all are at work it is taken and told so. Worker's thread. */
#ifndef DAEMON_CLIENT_H
#define DAEMON_CLIENT_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <systemd/sd-event.h>

struct conf;
struct exchange;
struct listener;

enum client_wait {
    CLIENT_IDLE,   /* between requests: idle_timeout, header_timeout for the first */
    CLIENT_HEADER, /* the request line came: header_timeout */
    CLIENT_BODY,   /* body_timeout */
    CLIENT_BUSY,   /* ours to answer: no deadline */
};

struct client {
    struct client *next, *prev;
    struct clients *all; /* borrowed */
    struct listener *listener; /* borrowed */
    int fd;              /* owned until it is inside, then borrowed from libmicrohttpd */
    bool inside;         /* libmicrohttpd has it */
    struct MHD_Connection *connection; /* borrowed, while it is inside */
    bool between;        /* a request was completed in this turn */
    bool back;           /* inside, suspended, and at the door with its next request */
    uint32_t n_looked;   /* requests that were looked at and have not begun */
    uint64_t looked_until; /* the end of the last one, in bytes of the connection; 0: not known */
    bool leaving;        /* refused at the door; what it still sends is swallowed */
    uint32_t seen;       /* at the door: bytes that were looked at, or swallowed */
    struct sockaddr_storage address;
    enum client_wait wait;
    uint64_t since_ns; /* of this wait */
    uint64_t due_us;   /* its end, by the loop's clock */
    uint64_t read;     /* CLIENT_BODY: what libmicrohttpd had read at the last look */
    bool had_unread;   /* and whether there was more */
    bool overflow;     /* one connection too many, and nobody to displace when it came */
    bool shut;         /* we have shut it down */
    struct exchange *exchange; /* under way; borrowed */
    sd_event_source *deadline; /* owned */
    sd_event_source *socket;   /* owned: at the door, all that comes; inside, that the other side
                                  has closed its half */
};

struct clients {
    sd_event *loop;          /* borrowed */
    const struct conf *conf; /* borrowed */
    struct client *first;    /* newest first; owned */
    struct client *arriving; /* on its way into libmicrohttpd */
    uint32_t n;              /* open */
    uint32_t n_shut, n_idle; /* of these: shut down and soon closed; idle and not shut */
    uint32_t n_between;
};

enum { CLIENT_NAME = 48 };
/* "192.0.2.7", or the network "2001:db8:0:1::/64" that an IPv6 client can pick addresses of. */
const char *client_name(char buf[CLIENT_NAME], const struct client *c);
/* A number for it: those of one name take turns with others as one. */
uint64_t client_key(const struct client *c);

void clients_init(struct clients *all, sd_event *loop, const struct conf *conf);
void clients_done(struct clients *all); /* closes those at the door */
/* A connection that was accepted: it waits at the door. Takes fd, also when there is no memory. */
void client_open(struct clients *all, struct listener *l, int fd,
                 const struct sockaddr_storage *from);
/* For MHD_OPTION_NOTIFY_CONNECTION, cls being the struct clients. */
void clients_notify(void *cls, struct MHD_Connection *connection, void **socket_context,
                    enum MHD_ConnectionNotificationCode code);
/* At a drain: closes who is between requests. Who came a moment ago or has begun to ask gets a
 * second to send the whole request; as long as there are such, clients_expected says so. */
void clients_drain(struct clients *all);
bool clients_expected(const struct clients *all);
/* Is there room for one more? When there is none the idlest is closed, which makes some as soon
 * as libmicrohttpd notices; nobody is closed who came, or was answered, a moment ago. */
bool clients_room(struct clients *all);
/* Whether there is, or can be made, room. */
bool clients_may_come(const struct clients *all);

/* NULL when there was no memory for one: then the request is to be dropped. */
struct client *client_of(struct MHD_Connection *connection);
/* Whether its address may have it: others of it may have turned out to be idle since it came. */
bool client_has_room(struct client *c);
void client_wait(struct client *c, enum client_wait wait);
/* Whether the other side's end is looked for. libmicrohttpd does not look while a connection is
 * suspended, and misses an end that comes together with the last bytes; client_wait looks in
 * all but CLIENT_BUSY. */
void client_watch(struct client *c, bool on);
/* Ends the connection: as soon as libmicrohttpd looks at it again, at the door at once, and then
 * c is gone. */
void client_shut(struct client *c);

/* A request was completed; when the connection is kept, its next one is for the door. */
void client_completed(struct client *c);
/* After libmicrohttpd has run: those who were completed go back to the door. */
void clients_turn(struct clients *all);
/* Whether libmicrohttpd has read nothing that was not looked at. Asked once a request was read
 * whole; if not so the connection is to end with its answer. */
bool client_in_step(const struct client *c);

/* ---- for the door ---- */

bool client_at_door(const struct client *c);
/* How many bytes of the connection were read; false where nobody counts. */
bool client_read(const struct client *c, uint64_t *out);

/* Closes and frees one that is not inside; shuts one that is back. */
void client_close(struct client *c);
void client_leaves(struct client *c, uint32_t patience_ms);
/* Before MHD_add_connection, which calls clients_notify; and after it, when that failed. */
void client_goes_in(struct client *c);
void client_goes_on(struct client *c); /* one that is back */
void clients_not_taken(struct clients *all);

#endif
