/* Frames from another process of ours that a client broke into. The first byte says who reads
 * them: a worker's link, the engine's door (the whole of it, with a scripted engine behind), or
 * a bare channel whose reader uses every field as the supervisor and the workers do. The second
 * byte: in what pieces they come.
 *
 * Frames are given as TYPE ID LENGTH LENGTH BODY, so that a mutation leaves the other frames
 * whole; with bit 7 of the first byte bodies of a fixed size are cut or filled to it. With bit 2
 * they are raw, heads and all. */
#include "tests/fuzz/fuzz.h"

#include "daemon/base/log.h"
#include "daemon/conf/conf.h"
#include "daemon/host/engine_host.h"
#include "daemon/sandbox/sandbox.h"
#include "daemon/wire/channel.h"
#include "daemon/wire/link.h"
#include "util/err.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

enum { N_OWNERS = 4, ALL_CAP = 1 << 18, SMALL_OUTBOX = 512, PATIENCE_MS = 60000 };

struct frames {
    uint8_t *bytes; /* owned */
    size_t size;
    size_t piece;                     /* how many are written at a time */
    size_t with_fd[16], n_with_fd;    /* positions of heads that say a descriptor comes along */
};

/* Of those with nothing behind their struct; 0: any. */
static const size_t fixed_size[WIRE_N_TYPES] = {
    [WIRE_HELLO] = sizeof(struct wire_hello),       [WIRE_ACCEPTED] = sizeof(struct wire_accepted),
    [WIRE_PROGRESS] = sizeof(struct wire_progress), [WIRE_FINISHED] = sizeof(struct wire_finished),
    [WIRE_READY] = sizeof(struct wire_ready),       [WIRE_PULSE] = sizeof(struct wire_pulse),
    [WIRE_PEER] = sizeof(struct wire_peer),         [WIRE_LOST] = sizeof(struct wire_peer),
    [WIRE_DRAIN] = sizeof(struct wire_drain),       [WIRE_ADJUST] = sizeof(struct wire_adjust),
    [WIRE_COUNT] = sizeof(struct wire_count),       [WIRE_NEXT] = sizeof(struct wire_next),
};

/* Returns what the frame takes. */
static size_t put_frame(uint8_t *to, const uint8_t *from, size_t body, bool fit)
{
    size_t size = fit && from[0] < WIRE_N_TYPES && fixed_size[from[0]] ? fixed_size[from[0]] : body;
    struct wire_head head = { .size = (uint32_t)(sizeof head + size), .type = from[0],
                              .id = from[1],
                              .flags = from[0] == WIRE_PEER ? WIRE_FLAG_FD : 0 };

    memcpy(to, &head, sizeof head);
    memset(to + sizeof head, 0, size);
    memcpy(to + sizeof head, from + 4, body < size ? body : size);
    return head.size;
}

static void make_frames(struct frames *f, const uint8_t *data, size_t size, uint8_t choice)
{
    size_t at = 0;

    f->bytes = malloc(size * 5 + (size / 4 + 1) * 512);
    MUST(f->bytes);
    if (choice & 4) {
        memcpy(f->bytes, data, size);
        f->size = size;
        return;
    }
    while (at + 4 <= size) {
        size_t body = data[at + 2] | (size_t)data[at + 3] << 8;
        if (body > size - at - 4)
            body = size - at - 4;
        if (data[at] == WIRE_PEER && f->n_with_fd < sizeof f->with_fd / sizeof *f->with_fd)
            f->with_fd[f->n_with_fd++] = f->size;
        f->size += put_frame(f->bytes + f->size, data + at, body, choice & 128);
        at += 4 + body;
    }
}

/* Writes the next piece, with a descriptor where a head says so. False: all is written. */
static bool write_piece(const struct frames *f, size_t *at, int fd)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    size_t n = f->size - *at < f->piece ? f->size - *at : f->piece;
    bool with_fd = false;

    for (size_t i = 0; i < f->n_with_fd; i++) {
        if (f->with_fd[i] == *at)
            with_fd = true;
        else if (f->with_fd[i] > *at && f->with_fd[i] - *at < n)
            n = f->with_fd[i] - *at;
    }
    if (n == 0)
        return false;
    struct iovec part = { f->bytes + *at, n };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    if (with_fd) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &fd, sizeof fd);
    }
    ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0)
        return false; /* the other side has ended the channel, or reads no more */
    *at += (size_t)sent;
    return true;
}

static void make_pair(int pair[2])
{
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
}

static void turn(sd_event *loop)
{
    for (int i = 0; i < 1000 && sd_event_run(loop, 0) > 0; i++)
        ;
}

static size_t drain(int fd)
{
    char bytes[4096];
    size_t total = 0;
    ssize_t n;

    while ((n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0)
        total += (size_t)n;
    return total;
}

/* ---- a worker's link ---- */

struct owner {
    struct link *link;
    uint64_t id, cancels; /* another request, cancelled by this one's next word */
    unsigned last_words, tokens, metrics, answers;
};

static void word(struct owner *o)
{
    MUST(o->last_words == 0);
    if (o->cancels)
        link_cancel(o->link, o->cancels);
}

static void last_word(struct owner *o)
{
    word(o);
    o->last_words++;
}

static void on_accepted(void *owner, uint32_t place)
{
    (void)place;
    word(owner);
}

static void on_progress(void *owner, uint32_t n_done, uint32_t n_total, uint32_t n_cached)
{
    MUST(n_done <= n_total && n_cached <= n_done);
    word(owner);
}

static void on_tokens(void *owner, uint32_t choice, const uint32_t *tokens, uint32_t n,
                      const struct cz_logprobs *logprobs)
{
    struct owner *o = owner;

    MUST(n > 0 && choice < CZ_MAX_CHOICES);
    for (uint32_t i = 0; i < n; i++)
        o->tokens += tokens[i];
    for (uint32_t i = 0; logprobs && i < n; i++) {
        MUST(logprobs[i].n_top <= CZ_MAX_TOP);
        for (uint32_t k = 0; k < logprobs[i].n_top; k++)
            o->tokens += logprobs[i].top[k].token;
    }
    if (o->link && (tokens[0] & 1))
        link_next(o->link, o->id, choice);
    word(o);
}

static void on_refused(void *owner, enum err_kind kind, uint32_t retry_after_s, const char *text)
{
    (void)retry_after_s;
    MUST(kind > ERR_NONE && kind <= ERR_CLOSED && strlen(text) < 512);
    last_word(owner);
}

static void on_finished(void *owner, uint32_t choice, bool more, enum cz_finish reason,
                        const struct cz_usage *usage)
{
    (void)usage;
    MUST(reason <= CZ_FINISH_LENGTH && choice + more < CZ_MAX_CHOICES);
    if (more)
        word(owner);
    else
        last_word(owner);
}

static void on_failed(void *owner, enum err_kind kind, const char *text, const struct cz_usage *u)
{
    (void)u;
    MUST(kind > ERR_NONE && kind <= ERR_CLOSED && strlen(text) < 512);
    last_word(owner);
}

static void on_metrics(void *owner, const char *text, size_t size)
{
    struct owner *o = owner;

    for (size_t i = 0; text && i < size; i++)
        o->tokens += (uint8_t)text[i];
    o->metrics++;
}

static void on_recalled(void *owner, const struct wire_recalled *m)
{
    struct owner *o = owner;

    MUST(o->answers++ == 0 && (!m || m->n_looked <= 3));
}

static const struct wire_hello ready = { .vocab = 1000, .context = 100, .state = ENGINE_READY };

static void submit_all(struct link *l, struct owner *owners, uint8_t choice)
{
    static const uint32_t prompt[] = { 1, 2, 3 }, stops[] = { 7 };
    static const struct cz_bias bias[] = { { 5, 1.0f } };
    static const struct link_from from = { "req_1", "127.0.0.1" };
    static const struct wire_wanted wanted[3] = { { .message = 1 } };
    static const struct link_question question = { wanted, 3, 1 << 16 };
    const struct cz_request request = { .client = 9, .prompt = prompt, .n_prompt = 3,
                                        .stop_ids = stops, .n_stop_ids = 1, .bias = bias,
                                        .n_bias = 1, .n_choices = 2, .logprobs = true,
                                        .n_top = 1, .forced = prompt, .n_forced = 2,
                                        .forced_behind = stops, .n_forced_behind = 1,
                                        .thinking = { .closing = prompt, .n_closing = 3 } };
    struct err err;

    for (uint32_t i = 0; i < N_OWNERS; i++) {
        owners[i].link = l;
        MUST(link_submit(l, &owners[i], &request, &from, &owners[i].id, &err) == 0);
    }
    for (uint32_t i = 0; i < 2; i++) /* these have the numbers behind the requests' */
        MUST(link_ask_metrics(l, &owners[i], on_metrics, &err) == 0);
    link_count(l, &(struct wire_count){ .kind = COUNT_HTTP, .status = 200 });
    for (uint32_t i = 0; i < N_OWNERS; i++) /* and the first of these the one behind */
        MUST(link_recall(l, &owners[i], &question, on_recalled, &err) == 0);
    if (choice & 32)
        link_forget_recall(l, &owners[1]);
    if (choice & 8)
        owners[0].cancels = owners[1].id;
    if (choice & 16)
        owners[2].cancels = owners[2].id;
}

static void try_link(struct frames *f, uint8_t choice)
{
    static const struct link_events events = { on_accepted, on_refused, on_progress,
                                               on_tokens,   on_finished, on_failed };
    struct wire_head head = { sizeof head + sizeof ready, WIRE_HELLO, 0, 0 };
    struct owner owners[N_OWNERS] = { 0 };
    struct link *l = NULL;
    struct err err = { 0 };
    sd_event *loop = NULL;
    size_t at = 0;
    int pair[2];

    make_pair(pair);
    MUST(sd_event_new(&loop) >= 0);
    MUST(link_open(&l, loop, &events, &err) == 0 && link_attach(l, pair[0], &err) == 0);
    MUST(write(pair[1], &head, sizeof head) == sizeof head);
    MUST(write(pair[1], &ready, sizeof ready) == sizeof ready);
    turn(loop);
    MUST(link_status(l)->connected && link_status(l)->hello.vocab == ready.vocab);
    submit_all(l, owners, choice);
    while (write_piece(f, &at, pair[1])) {
        turn(loop);
        drain(pair[1]);
    }
    link_cancel(l, owners[3].id);
    link_forget_metrics(l, &owners[1]);
    MUST(link_live(l) <= N_OWNERS);
    close(pair[1]);
    turn(loop);
    MUST(!link_status(l)->connected && link_live(l) == 0);
    MUST(link_submit(l, &owners[0], &(struct cz_request){ .n_prompt = 1 },
                     &(struct link_from){ "", "" }, &owners[0].id, &err) < 0);
    for (uint32_t i = 0; i < N_OWNERS; i++)
        MUST(owners[i].last_words <= 1 && owners[i].metrics <= 1);
    link_close(l);
    sd_event_unref(loop);
}

/* ---- a bare channel, both ways ---- */

struct reader {
    struct channel *channel;
    uint8_t choice;
    uint32_t sum;
    unsigned n_closed;
};

static uint32_t touch(const void *bytes, size_t size)
{
    uint32_t sum = 0;

    for (size_t i = 0; i < size; i++)
        sum += ((const uint8_t *)bytes)[i];
    return sum;
}

static uint32_t use_reply(const struct wire_remember *m)
{
    struct wire_reply_view v;
    size_t size = 0;

    MUST(m->n_keys > 0 && m->n_keys <= WIRE_MAX_REPLY_KEYS);
    wire_reply_view(&v, m);
    for (uint32_t i = 0; i < m->n_calls; i++)
        size += (size_t)v.calls[i].name_size + v.calls[i].arguments_size;
    return touch(v.keys, m->n_keys * sizeof *v.keys) + touch(v.ids, m->n_ids * sizeof *v.ids) +
           touch(v.tail, m->tail_size) + touch(v.reasoning, m->reasoning_size) +
           touch(v.call_text, size);
}

/* What stands behind the fixed struct, by its own counts and not by the frame's size. */
static uint32_t use_body(uint16_t type, const void *body)
{
    const struct wire_submit *submit = body;
    const struct wire_tokens *tokens = body;
    const struct wire_text *text = body;
    const struct wire_answer *answer = body;
    const struct wire_failed *failed = body;
    const struct wire_adjust *adjust = body;
    const struct wire_finished *finished = body;
    const struct wire_next *next = body;
    const struct wire_recall *recall = body;
    const struct wire_recalled *recalled = body;
    const struct wire_recalled_reply *reply = NULL;
    const uint32_t *ids = (const uint32_t *)(submit + 1);
    size_t n_ids = 0;

    switch (type) {
    case WIRE_SUBMIT:
        MUST(strlen(submit->request) < sizeof submit->request);
        MUST(strlen(submit->address) < sizeof submit->address);
        MUST(submit->n_choices <= CZ_MAX_CHOICES && submit->n_top <= CZ_MAX_TOP);
        n_ids = submit->n_prompt + submit->n_stop_ids + submit->n_closing + submit->n_forced +
                submit->n_forced_behind;
        return touch(ids, n_ids * sizeof *ids) +
               touch(ids + n_ids, submit->n_bias * sizeof(struct cz_bias));
    case WIRE_TOKENS:
        return touch(tokens + 1, tokens->n * (sizeof *ids + (tokens->logprobs
                                                                 ? sizeof(struct cz_logprobs)
                                                                 : 0)));
    case WIRE_FINISHED:
        MUST(finished->choice + finished->more < CZ_MAX_CHOICES);
        return finished->reason;
    case WIRE_NEXT:
        MUST(next->choice < CZ_MAX_CHOICES);
        return next->choice;
    case WIRE_STATUS:
    case WIRE_ASK:
    case WIRE_METRICS_TEXT:
        return touch(text + 1, text->size);
    case WIRE_ANSWER:
        MUST(answer->kind <= ERR_CLOSED);
        return touch(answer + 1, answer->text_size);
    case WIRE_FAILED:
        return touch(failed + 1, failed->text_size);
    case WIRE_ADJUST:
        MUST(adjust->log_level >= LOG_LEVEL_ERR && adjust->log_level <= LOG_LEVEL_DEBUG);
        return adjust->queue;
    case WIRE_REMEMBER:
        return use_reply(body);
    case WIRE_RECALL:
        return touch(recall + 1, recall->n * sizeof(struct wire_wanted));
    case WIRE_RECALLED:
        for (uint32_t i = 0; i < recalled->n; i++) {
            reply = wire_recalled_next(recalled, reply);
            n_ids += use_reply((const struct wire_remember *)(reply + 1));
        }
        return (uint32_t)n_ids;
    default:
        return 0;
    }
}

static void on_frame(void *ctx, const struct wire_head *head, const void *body, size_t size,
                     int fd)
{
    struct reader *r = ctx;
    const struct channel_part part = { body, size };
    struct err err;

    MUST(head->size == sizeof *head + size && (uintptr_t)body % 8 == 0);
    MUST((fd >= 0) == (head->type == WIRE_PEER));
    r->sum += touch(body, size) + use_body(head->type, body);
    /* Said back, to fill the outbox. */
    if (channel_send(r->channel, head->type, head->id, &part, 1, fd, &err) < 0)
        MUST(err.kind == ERR_BUSY || err.kind == ERR_CLOSED);
    MUST(channel_queued(r->channel) <= (r->choice & 8 ? SMALL_OUTBOX : ALL_CAP));
    if (fd >= 0)
        close(fd);
    if ((r->choice & 32) && r->channel && head->id == 77) {
        channel_close(r->channel);
        r->channel = NULL;
    }
}

static void on_closed(void *ctx, const struct err *why)
{
    struct reader *r = ctx;

    MUST(why->kind != ERR_NONE && why->text[0]);
    r->n_closed++;
}

static void try_channel(struct frames *f, uint8_t choice)
{
    struct reader r = { .choice = choice };
    const struct channel_events events = { &r, on_frame, on_closed };
    sd_event *loop = NULL;
    struct err err = { 0 };
    size_t at = 0;
    int pair[2], small = 4096;

    make_pair(pair);
    MUST(sd_event_new(&loop) >= 0);
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    MUST(channel_open(&r.channel, loop, pair[0], choice & 8 ? SMALL_OUTBOX : ALL_CAP, &events,
                      &err) == 0);
    while (write_piece(f, &at, pair[1])) {
        turn(loop);
        if (choice & 16) /* else the other side does not read, until the end */
            drain(pair[1]);
    }
    if (r.channel && (choice & 64) && channel_flush(r.channel, 0, &err) < 0)
        MUST(err.kind == ERR_BUSY || err.kind == ERR_CLOSED);
    do {
        turn(loop);
    } while (drain(pair[1]) > 0);
    close(pair[1]);
    turn(loop);
    MUST(r.channel ? r.n_closed == 1 : r.n_closed == 0);
    channel_close(r.channel);
    sd_event_unref(loop);
}

/* ---- the engine's door ---- */

/* What the scripted engine does; the second one never gets as far as READY. */
static const char *const scripts[] = {
    "{\"token_ms\":0,\"prefill_ms\":0,\"n_tokens\":3,\"vocab\":1000}",
    "{\"open_error\":\"this model cannot be read\"}",
    "{\"token_ms\":0,\"prefill_ms\":0,\"fail_after\":2,\"load_ms\":3,\"queue\":1,\"sequences\":1}",
    "{\"token_ms\":1,\"prefill_ms\":1,\"n_tokens\":2,\"vocab\":1000}",
};
enum { N_SCRIPTS = sizeof scripts / sizeof *scripts };

static char top[] = "/tmp/fuzz-wire-XXXXXX", dirs[N_SCRIPTS][64];

static void remove_scripts(void)
{
    char path[96];

    for (size_t i = 0; i < N_SCRIPTS; i++) {
        snprintf(path, sizeof path, "%.64s/fake.json", dirs[i]);
        unlink(path);
        rmdir(dirs[i]);
    }
    rmdir(top);
}

static void write_scripts(void)
{
    char path[128];

    MUST(mkdtemp(top));
    for (size_t i = 0; i < N_SCRIPTS; i++) {
        snprintf(dirs[i], sizeof dirs[i], "%s/%zu", top, i);
        snprintf(path, sizeof path, "%.64s/fake.json", dirs[i]);
        MUST(mkdir(dirs[i], 0700) == 0);
        FILE *script = fopen(path, "w");
        MUST(script && fputs(scripts[i], script) >= 0 && fclose(script) == 0);
    }
    atexit(remove_scripts);
}

struct door {
    struct conf conf;
    pthread_t thread;
    int supervisor, its_end; /* of its channel */
    int status;
};

static void *door_main(void *ctx)
{
    struct door *d = ctx;
    struct err err;

    MUST(sandbox_enter(0, &err) == 0); /* as an engine's process begins; this thread's alone */
    d->status = engine_host_run(&d->conf, d->its_end);
    return NULL;
}

/* The next frame of the door to the supervisor; false at the end. */
static bool next_frame(const struct door *d, struct wire_head *head)
{
    static _Alignas(8) char body[1 << 20];
    struct err err;
    size_t have = 0, want = sizeof *head;

    while (have < want) {
        struct pollfd wait = { d->supervisor, POLLIN, 0 };
        MUST(poll(&wait, 1, PATIENCE_MS) == 1);
        bool in_head = have < sizeof *head;
        ssize_t n = read(d->supervisor, in_head ? (char *)head + have : body + have - sizeof *head,
                         want - have);
        if (n == 0 || (n < 0 && errno == ECONNRESET)) /* reset: it left something unread */
            return false;
        MUST(n > 0);
        have += (size_t)n;
        if (in_head && have == sizeof *head) {
            want = head->size;
            MUST(want >= have && want <= sizeof body);
        }
    }
    if (wire_check(head, body, want - sizeof *head, &err) < 0)
        fuzz_broken(err.text);
    const struct wire_answer *answer = (const struct wire_answer *)body;
    if (head->type == WIRE_ANSWER && answer->kind == ERR_NONE) {
        json_t *data = json_loadb((const char *)(answer + 1), answer->text_size, 0, NULL);
        MUST(data);
        json_decref(data);
    }
    return true;
}

static void open_door(struct door *d, uint32_t script)
{
    struct wire_head head = { 0 };
    int pair[2];

    conf_init(&d->conf);
    d->conf.model_dir = d->conf.model_name = dirs[script];
    d->conf.engine.model_dir = dirs[script];
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    d->supervisor = pair[0];
    d->its_end = pair[1];
    MUST(pthread_create(&d->thread, NULL, door_main, d) == 0);
    while (script == 0 && head.type != WIRE_READY)
        MUST(next_frame(d, &head));
}

/* It stops when told, whatever workers did. A broken one leaves by itself. */
static void close_door(struct door *d, bool broken)
{
    struct {
        struct wire_head head;
        struct wire_drain drain;
    } stop = { { sizeof stop.head + sizeof stop.drain, WIRE_DRAIN, 0, 0 }, { 60000, DRAIN_STOP } };
    struct wire_head head;

    if (!broken)
        MUST(send(d->supervisor, &stop, stop.head.size, MSG_NOSIGNAL) == stop.head.size);
    while (next_frame(d, &head))
        ;
    MUST(pthread_join(d->thread, NULL) == 0);
    MUST(broken ? d->status != 0 : d->status == 0);
    close(d->supervisor);
}

/* Gives the door a worker's end of a channel. */
static void send_peer(const struct door *d, int fd)
{
    struct {
        struct wire_head head;
        struct wire_peer peer;
    } message = { { sizeof message, WIRE_PEER, WIRE_FLAG_FD, 0 }, { 0, 1 } };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = { 0 };
    struct iovec part = { &message, sizeof message };
    struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                        .msg_controllen = sizeof control.bytes };
    struct cmsghdr *head = CMSG_FIRSTHDR(&m);

    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    MUST(sendmsg(d->supervisor, &m, MSG_NOSIGNAL) == sizeof message || errno == EPIPE);
}

/* Questions of the admin socket, changed settings and other workers come by the supervisor, in
 * frames that are as they should be. */
static void send_for_supervisor(const struct door *d, const struct frames *f)
{
    struct wire_head head;
    struct err err;

    for (size_t at = 0; at + sizeof head <= f->size; at += head.size) {
        memcpy(&head, f->bytes + at, sizeof head);
        if (head.size < sizeof head || head.size > f->size - at)
            return;
        if (head.type != WIRE_ASK && head.type != WIRE_ADJUST && head.type != WIRE_CANCEL &&
            head.type != WIRE_READY)
            continue;
        char *body = malloc(head.size);
        MUST(body);
        memcpy(body, f->bytes + at + sizeof head, head.size - sizeof head);
        if (wire_check(&head, body, head.size - sizeof head, &err) == 0)
            send(d->supervisor, f->bytes + at, head.size, MSG_NOSIGNAL | MSG_DONTWAIT);
        free(body);
    }
}

/* Until the door has closed its end: it has seen everything, and not fallen over it. */
static void wait_for_end(int fd)
{
    struct pollfd wait = { fd, POLLIN, 0 };
    char bytes[4096];
    ssize_t n;

    do {
        MUST(poll(&wait, 1, PATIENCE_MS) == 1);
        n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    } while (n > 0 || (n < 0 && errno == EAGAIN));
}

/* One door serves most inputs, so that what one leaves behind is met by the next; with bit 3 of
 * the choice it is a new one, with some script, that is stopped while requests run. */
static void try_door(struct frames *f, uint8_t choice)
{
    static struct door lasting;
    struct door new, *d = &lasting;
    uint32_t script = choice >> 5 & 3;
    size_t at = 0;
    int pair[2];

    if (!dirs[0][0])
        write_scripts();
    if (choice & 8) {
        d = &new;
        open_door(d, script);
    } else if (!lasting.thread) {
        open_door(d, 0);
    }
    make_pair(pair);
    send_peer(d, pair[1]);
    close(pair[1]);
    send_for_supervisor(d, f);
    while (write_piece(f, &at, pair[0]))
        drain(pair[0]);
    if (choice & 8) {
        close_door(d, script == 1);
    } else {
        shutdown(pair[0], SHUT_WR);
        wait_for_end(pair[0]);
        drain(d->supervisor);
    }
    close(pair[0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct frames f = { 0 };

    log_level(-1); /* lines about bad frames would be all one sees; ADJUST turns them on */
    if (size < 2 || size > ALL_CAP / 8)
        return 0;
    f.piece = data[1] ? data[1] * 4u : SIZE_MAX;
    make_frames(&f, data + 2, size - 2, data[0]);
    switch (data[0] & 3) {
    case 0:
        try_link(&f, data[0]);
        break;
    case 1:
        try_door(&f, data[0]);
        break;
    default:
        try_channel(&f, data[0]);
    }
    free(f.bytes);
    return 0;
}
