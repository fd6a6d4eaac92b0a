/* Lines of the admin socket, from a client that may do anything: every line that is a command
 * is answered by one line of JSON, a watch by some, and the next is looked at only then. The
 * first byte says how commands end, whether others are there and who asks; the second in what
 * pieces the rest comes. There, a byte of 1 stands for 16 KiB of blanks. */
#include "tests/fuzz/fuzz.h"

#include "daemon/admin/admin.h"
#include "daemon/base/log.h"
#include "util/err.h"

#include <errno.h>
#include <grp.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { N_ASKED = 4, N_OTHERS = 20, BLANKS = 16 << 10, MOST_BLANKS = 8 };

/* What the supervisor and the engine would do. */
struct house {
    struct admin *admin;
    sd_event *loop;
    uint8_t choice;
    uint64_t asked[N_ASKED];
    unsigned n_asked;
    bool stranger; /* who asks may look, and change nothing */
};

static json_t *status(void *ctx)
{
    struct house *h = ctx;

    return h->choice & 1 ? NULL : json_pack("{s:s,s:i}", "phase", "serving", "restarts", 0);
}

static int later(struct house *h, uint64_t id, struct err *err)
{
    if ((h->choice & 2) || h->n_asked == N_ASKED)
        return err_set(err, ERR_CLOSED, "the engine is not there");
    h->asked[h->n_asked++] = id;
    return 0;
}

static int ask(void *ctx, uint64_t id, const char *question, struct err *err)
{
    json_t *root = json_loads(question, JSON_REJECT_DUPLICATES, NULL);
    const char *command = json_string_value(json_object_get(root, "cmd"));
    const struct house *h = ctx;

    MUST(command && !strchr(question, '\n'));
    MUST(!h->stranger || strcmp(command, "cancel") != 0);
    json_decref(root);
    return later(ctx, id, err);
}

static int reload(void *ctx, uint64_t id, struct err *err)
{
    const struct house *h = ctx;

    MUST(!h->stranger);
    return later(ctx, id, err);
}

static int budget(void *ctx, uint64_t id, uint64_t ram, struct err *err)
{
    const struct house *h = ctx;

    MUST(!h->stranger && ram > 0);
    return later(ctx, id, err);
}

static int drain(void *ctx, uint32_t timeout_ms, struct err *err)
{
    struct house *h = ctx;

    (void)timeout_ms;
    MUST(!h->stranger);
    return h->choice & 2 ? err_set(err, ERR_BUSY, "draining already") : 0;
}

static int set_log(void *ctx, int level, struct err *err)
{
    struct house *h = ctx;

    MUST(!h->stranger && level >= LOG_LEVEL_ERR && level <= LOG_LEVEL_DEBUG);
    return h->choice & 2 ? err_set(err, ERR_INPUT, "no") : 0;
}

static void answer_all(struct house *h)
{
    static const char data[] = "{\"layers\":[1,2,3]}", broken[] = "{\"layers\":", why[] = "no";

    while (h->n_asked > 0) {
        uint64_t id = h->asked[--h->n_asked];
        switch (h->choice >> 2 & 3) {
        case 0:
            admin_answer(h->admin, id, ERR_NONE, data, sizeof data - 1);
            break;
        case 1:
            admin_answer(h->admin, id, ERR_BUSY, why, sizeof why - 1);
            break;
        case 2:
            admin_answer(h->admin, id, ERR_NONE, broken, sizeof broken - 1);
            break;
        default:
            admin_fail_questions(h->admin);
        }
        admin_answer(h->admin, id, ERR_NONE, data, sizeof data - 1); /* once more: too late */
    }
}

static struct sockaddr_un address = { .sun_family = AF_UNIX };

static void remove_socket(void)
{
    unlink(address.sun_path);
    *strrchr(address.sun_path, '/') = '\0';
    rmdir(address.sun_path);
}

static void open_admin(struct house *h)
{
    static const struct admin_ops template = { .status = status, .ask = ask, .reload = reload,
                                               .budget = budget, .drain = drain,
                                               .set_log = set_log };
    struct admin_ops ops = template;
    char dir[] = "/tmp/fuzz-admin-XXXXXX";
    struct err err;
    int stale, fd, second;

    MUST(mkdtemp(dir) && chmod(dir, 0711) == 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", dir);
    MUST(admin_listen(&stale, address.sun_path, &err) == 0);
    close(stale); /* its file stays, and stands in nobody's way */
    MUST(admin_listen(&fd, address.sun_path, &err) == 0);
    MUST(admin_listen(&second, address.sun_path, &err) < 0 && err.kind == ERR_IO);
    MUST(sd_event_new(&h->loop) >= 0);
    MUST(chmod(address.sun_path, 0666) == 0); /* who may ask is not left to the file alone */
    ops.ctx = h;
    MUST(admin_open(&h->admin, h->loop, fd, &ops, &err) == 0);
    atexit(remove_socket);
}

static void turn(struct house *h)
{
    for (int i = 0; i < 1000 && sd_event_run(h->loop, 0) > 0; i++)
        ;
}

/* What was said so far; at most cap bytes are kept. */
struct replies {
    char *bytes; /* owned */
    size_t size;
};

static void take_replies(struct replies *r, int fd)
{
    char bytes[4096];
    ssize_t n;

    while ((n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) {
        r->bytes = realloc(r->bytes, r->size + (size_t)n);
        MUST(r->bytes);
        memcpy(r->bytes + r->size, bytes, (size_t)n);
        r->size += (size_t)n;
    }
}

/* True unless it is one of a watch, with more to come. */
static bool check_reply(const char *line, size_t size)
{
    json_t *root = json_loadb(line, size, JSON_REJECT_DUPLICATES, NULL);
    const json_t *ok = json_object_get(root, "ok");
    const json_t *error = json_object_get(root, "error");

    MUST(json_is_boolean(ok) && json_object_get(root, "id"));
    MUST(json_is_true(ok) ? json_object_get(root, "data") != NULL
                          : json_is_string(json_object_get(error, "kind")) &&
                                json_is_string(json_object_get(error, "message")));
    bool last = !json_object_get(root, "more");
    json_decref(root);
    return last;
}

static void check_replies(const struct replies *r, size_t n_lines)
{
    size_t n = 0;

    for (size_t at = 0; at < r->size;) {
        const char *end = memchr(r->bytes + at, '\n', r->size - at);
        MUST(end);
        n += check_reply(r->bytes + at, (size_t)(end - r->bytes) - at);
        at = (size_t)(end - r->bytes) + 1;
    }
    MUST(n <= n_lines + 1); /* and one for a line that was too long */
}

static int connect_to_it(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    MUST(fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

/* As nobody, where the fuzzer runs as root and can become nobody for a moment. */
static int connect_as_stranger(struct house *h)
{
    gid_t groups[64];
    int n = getgroups(64, groups);

    h->stranger = geteuid() == 0 && n >= 0 && setgroups(0, NULL) == 0;
    if (h->stranger)
        MUST(setegid(65534) == 0 && seteuid(65534) == 0);
    int fd = connect_to_it();
    if (h->stranger)
        MUST(seteuid(0) == 0 && setegid(0) == 0 && setgroups((size_t)n, groups) == 0);
    return fd;
}

/* The caller's. */
static uint8_t *expand(const uint8_t *data, size_t *size)
{
    uint8_t *out = malloc(*size + (size_t)MOST_BLANKS * BLANKS), *to = out;

    MUST(out);
    for (size_t i = 0, n = 0; i < *size; i++) {
        bool blanks = data[i] == 1 && n++ < MOST_BLANKS;
        memset(to, blanks ? ' ' : data[i], blanks ? BLANKS : 1);
        to += blanks ? BLANKS : 1;
    }
    *size = (size_t)(to - out);
    return out;
}

/* Sends it all; returns how many lines that were. */
static size_t say(struct house *h, int fd, const uint8_t *data, size_t size, size_t piece,
                  struct replies *replies)
{
    size_t n_lines = 0;

    for (size_t at = 0; at < size;) {
        size_t n = size - at < piece ? size - at : piece;
        ssize_t sent = send(fd, data + at, n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent <= 0)
            break; /* dropped for what it said, or not read while a command is under way */
        for (ssize_t i = 0; i < sent; i++)
            n_lines += data[at + (size_t)i] == '\n';
        at += (size_t)sent;
        turn(h);
        if (!(h->choice & 16))
            answer_all(h);
        take_replies(replies, fd);
    }
    return n_lines;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct house house;
    struct replies replies = { 0 };
    int others[N_OTHERS], n_others = 0;

    if (size < 2)
        return 0;
    if (!house.admin)
        open_admin(&house);
    log_level(-1);
    house.choice = data[0];
    house.n_asked = 0;
    house.stranger = false;
    while ((house.choice & 64) && n_others < N_OTHERS)
        others[n_others++] = connect_to_it();
    turn(&house);
    int fd = house.choice & 128 ? connect_as_stranger(&house) : connect_to_it();
    turn(&house);
    size_t whole = size - 2;
    uint8_t *lines = expand(data + 2, &whole);
    size_t n_lines = say(&house, fd, lines, whole, data[1] ? data[1] * 8u : whole, &replies);
    free(lines);
    if (house.choice & 32)
        shutdown(fd, SHUT_WR);
    do {
        answer_all(&house);
        turn(&house);
        take_replies(&replies, fd);
    } while (house.n_asked > 0);
    check_replies(&replies, n_lines);
    close(fd);
    while (n_others > 0)
        close(others[--n_others]);
    turn(&house);
    free(replies.bytes);
    return 0;
}
