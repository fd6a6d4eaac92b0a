/* Lines of the admin socket, from a client that may do anything: every line that is a command
 * is answered by one line of JSON, and the next is looked at only then. The first byte says how
 * commands end, the second in what pieces the rest comes. */
#include "tests/fuzz/fuzz.h"

#include "daemon/admin.h"
#include "daemon/log.h"
#include "util/err.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { N_ASKED = 4 };

/* What the supervisor and the engine would do. */
struct house {
    struct admin *admin;
    sd_event *loop;
    uint8_t choice;
    uint64_t asked[N_ASKED];
    unsigned n_asked;
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
    MUST(question[0] && !strchr(question, '\n'));
    return later(ctx, id, err);
}

static int reload(void *ctx, uint64_t id, struct err *err)
{
    return later(ctx, id, err);
}

static int budget(void *ctx, uint64_t id, uint64_t ram, struct err *err)
{
    (void)ram;
    return later(ctx, id, err);
}

static int drain(void *ctx, uint32_t timeout_ms, struct err *err)
{
    struct house *h = ctx;

    (void)timeout_ms;
    return h->choice & 2 ? err_set(err, ERR_BUSY, "draining already") : 0;
}

static int set_log(void *ctx, int level, struct err *err)
{
    struct house *h = ctx;

    MUST(level >= LOG_LEVEL_ERR && level <= LOG_LEVEL_DEBUG);
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

    MUST(mkdtemp(dir));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", dir);
    MUST(admin_listen(&stale, address.sun_path, &err) == 0);
    close(stale); /* its file stays, and stands in nobody's way */
    MUST(admin_listen(&fd, address.sun_path, &err) == 0);
    MUST(admin_listen(&second, address.sun_path, &err) < 0 && err.kind == ERR_IO);
    MUST(sd_event_new(&h->loop) >= 0);
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

static void check_reply(const char *line, size_t size)
{
    json_t *root = json_loadb(line, size, JSON_REJECT_DUPLICATES, NULL);
    const json_t *ok = json_object_get(root, "ok");
    const json_t *error = json_object_get(root, "error");

    MUST(json_is_boolean(ok) && json_object_get(root, "id"));
    MUST(json_is_true(ok) ? json_object_get(root, "data") != NULL
                          : json_is_string(json_object_get(error, "kind")) &&
                                json_is_string(json_object_get(error, "message")));
    json_decref(root);
}

static void check_replies(const struct replies *r, size_t n_lines)
{
    size_t n = 0;

    for (size_t at = 0; at < r->size; n++) {
        const char *end = memchr(r->bytes + at, '\n', r->size - at);
        MUST(end);
        check_reply(r->bytes + at, (size_t)(end - r->bytes) - at);
        at = (size_t)(end - r->bytes) + 1;
    }
    MUST(n <= n_lines + 1); /* and one for a line that was too long */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct house house;
    struct replies replies = { 0 };
    size_t n_lines = 0;

    if (size < 2)
        return 0;
    if (!house.admin)
        open_admin(&house);
    log_level(-1);
    house.choice = data[0];
    house.n_asked = 0;
    size_t piece = data[1] ? data[1] : size;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    turn(&house);
    for (size_t at = 2; at < size;) {
        size_t n = size - at < piece ? size - at : piece;
        if (send(fd, data + at, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
            break; /* dropped for what it said */
        for (size_t i = 0; i < n; i++)
            n_lines += data[at + i] == '\n';
        at += n;
        turn(&house);
        if (!(house.choice & 16))
            answer_all(&house);
        take_replies(&replies, fd);
    }
    if (house.choice & 32)
        shutdown(fd, SHUT_WR);
    do {
        answer_all(&house);
        turn(&house);
        take_replies(&replies, fd);
    } while (house.n_asked > 0);
    check_replies(&replies, n_lines);
    close(fd);
    turn(&house);
    free(replies.bytes);
    return 0;
}
