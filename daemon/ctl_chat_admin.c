#include "daemon/ctl_chat_admin.h"

#include "util/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* SLACK: counters are published between steps, so that the last token may be missing yet, and
 * a stop token is counted by the reply alone. */
enum { REPLY_MAX = 256 << 10, PATIENCE_MS = 500, SLACK = 2 };

static int connect_to(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd;

    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    memcpy(address.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

static bool read_line(int fd, char *reply)
{
    uint64_t deadline = clock_ms() + PATIENCE_MS;
    size_t used = 0;

    for (;;) {
        struct pollfd wait = { .fd = fd, .events = POLLIN };
        uint64_t now = clock_ms();
        if (now >= deadline || used == REPLY_MAX)
            return false;
        if (poll(&wait, 1, (int)(deadline - now)) <= 0)
            continue;
        ssize_t n = recv(fd, reply + used, REPLY_MAX - used, 0);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n <= 0)
            return false;
        char *end = memchr(reply + used, '\n', (size_t)n);
        used += (size_t)n;
        if (end) {
            *end = '\0';
            return true;
        }
    }
}

json_t *chat_admin_stats(const char *path)
{
    static const char question[] = "{\"id\":1,\"cmd\":\"stats\"}\n";
    json_t *root = NULL, *data = NULL;
    int fd = path ? connect_to(path) : -1;
    char *reply = fd >= 0 ? malloc(REPLY_MAX + 1) : NULL;

    if (reply && send(fd, question, sizeof question - 1, MSG_NOSIGNAL) > 0 && read_line(fd, reply))
        root = json_loads(reply, JSON_ALLOW_NUL, NULL);
    if (json_is_true(json_object_get(root, "ok")))
        data = json_incref(json_object_get(root, "data"));
    json_decref(root);
    free(reply);
    if (fd >= 0)
        close(fd);
    return data;
}

static uint64_t count(const json_t *data, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(data, key));

    return n > 0 ? (uint64_t)n : 0;
}

struct chat_counters chat_admin_counters(const char *path)
{
    json_t *data = chat_admin_stats(path);
    struct chat_counters c = {
        .known = data != NULL,
        .hits = count(data, "expert_hits"),
        .misses = count(data, "expert_misses"),
        .submitted = count(data, "n_submitted"),
        .generated = count(data, "generated_tokens"),
        .running = count(data, "running"),
        .waiting = count(data, "waiting"),
    };

    json_decref(data);
    return c;
}

double chat_admin_hit_rate(const struct chat_counters *before, const struct chat_counters *after,
                           uint32_t n_generated, uint64_t *n_others)
{
    if (!before->known || !after->known || after->submitted <= before->submitted ||
        after->generated + SLACK < before->generated + n_generated ||
        after->hits < before->hits ||
        after->misses < before->misses)
        return -1.0;
    uint64_t hits = after->hits - before->hits, misses = after->misses - before->misses;
    *n_others = after->submitted - before->submitted - 1;
    return hits + misses ? (double)hits / (double)(hits + misses) : -1.0;
}
