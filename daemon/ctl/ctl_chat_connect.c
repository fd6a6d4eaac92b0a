/* Before the first question, and whenever the server says that it is not ready. */
#include "daemon/ctl/ctl_chat.h"

#include "daemon/ctl/ctl_chat_http.h"
#include "daemon/ctl/ctl_chat_private.h"
#include "util/clock.h"
#include "util/err.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

enum {
    ASK_MS = 3000,
    PAUSE_MS = 200,
    PATIENCE_MS = 60000, /* without a sign that anything moves on */
    BAR = 24,
};

struct waiting {
    struct chat_session *s;
    struct err *err;
    uint64_t since_ms; /* something moved on */
    double progress;
    bool told;
};

static bool go_on(void *ctx)
{
    struct chat_session *s = ctx;

    return !chat_signals_take(&s->signals);
}

static enum chat_http_end ask(struct chat_session *s, const char *path, struct err *err)
{
    struct chat_http_events events = { .ctx = s, .go_on = go_on, .tick_ms = PAUSE_MS };

    return chat_http_ask(s->http, path, NULL, 0, ASK_MS, &events, err);
}

static int interrupted(struct chat_session *s, struct err *err)
{
    s->signals.interrupt = false;
    err_set(err, ERR_CANCELLED, "interrupted while waiting for the server");
    return EXIT_FAILED;
}

static int no_daemon(struct err *err)
{
    struct err why = *err;

    err_set(err, ERR_CLOSED,
            "no daemon: %.300s; start colizigd, name another server with --url, or let chat "
            "start one: colizigctl chat --model DIR", why.text);
    return EXIT_NO_DAEMON;
}

static void show_loading(struct waiting *w, double progress)
{
    char bar[BAR + 1];
    size_t filled = (size_t)(progress * BAR);

    if (progress > w->progress) {
        w->progress = progress;
        w->since_ms = clock_ms();
    }
    memset(bar, ' ', BAR);
    memset(bar, '#', filled < BAR ? filled : BAR);
    bar[BAR] = '\0';
    chat_draw_status(&w->s->draw, "loading the model [%s] %3.0f %%", bar, progress * 100.0);
    if (!w->told && !w->s->draw.terminal)
        chat_draw_note(&w->s->draw, "waiting: the model is still loading");
    w->told = true;
}

/* EXIT_FINE to go on waiting, else the end of it. */
static int look_at_state(struct waiting *w)
{
    struct chat_session *s = w->s;
    const struct buf *body = chat_http_body(s->http);
    json_t *root = json_loadb(body->data ? body->data : "", body->size, 0, NULL);
    const char *state = json_string_value(json_object_get(root, "status"));
    int status = EXIT_FINE;

    if (state && strcmp(state, "loading") == 0) {
        show_loading(w, json_number_value(json_object_get(root, "progress")));
    } else if (state && strcmp(state, "draining") == 0) {
        err_set(w->err, ERR_CLOSED, "the server is shutting down");
        status = EXIT_FAILED;
    } else {
        chat_draw_status(&s->draw, "waiting for the engine, which is being started again");
    }
    json_decref(root);
    return status;
}

/* Whoever serves without this page is no colizigd, and is taken as ready. */
static bool is_answer(long http_status)
{
    return http_status != 503;
}

static int give_up(struct waiting *w)
{
    if (w->err->kind == ERR_NONE)
        err_set(w->err, ERR_IO, "nothing moved on");
    err_within(w->err, "the server was not ready within %d s", PATIENCE_MS / 1000);
    return EXIT_FAILED;
}

static int await_ready(struct chat_session *s, struct err *err)
{
    struct waiting w = { .s = s, .err = err, .since_ms = clock_ms() };
    int status = EXIT_FINE;

    for (;;) {
        struct pollfd pause = { .fd = s->signals.fd, .events = POLLIN };
        err->kind = ERR_NONE;
        enum chat_http_end end = ask(s, "/readyz", err);
        if (end == CHAT_HTTP_INTERRUPTED)
            return interrupted(s, err);
        if (s->private && !chat_private_lives(s->private, &status, err))
            return status;
        if (end == CHAT_HTTP_NO_SERVER)
            return no_daemon(err);
        if (end == CHAT_HTTP_FAILED)
            return EXIT_FAILED;
        if (end == CHAT_HTTP_DONE && is_answer(chat_http_status(s->http)))
            return EXIT_FINE;
        if (end == CHAT_HTTP_DONE && (status = look_at_state(&w)) != EXIT_FINE)
            return status;
        if (end == CHAT_HTTP_LOST)
            chat_draw_status(&s->draw, "waiting for %s", chat_http_base(s->http));
        if (clock_ms() > w.since_ms + PATIENCE_MS)
            return give_up(&w);
        if (poll(&pause, 1, PAUSE_MS) > 0 && chat_signals_take(&s->signals))
            return interrupted(s, err);
    }
}

/* ---- the model ---- */

static void read_model(struct chat_session *s, const json_t *root)
{
    static const char *const keys[] = { "context_length", "max_model_len" };
    const json_t *model = json_array_get(json_object_get(root, "data"), 0);
    const char *id = json_string_value(json_object_get(model, "id"));
    json_int_t context = 0;

    snprintf(s->model, sizeof s->model, "%s", id ? id : "default");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && context <= 0; i++)
        context = json_integer_value(json_object_get(model, keys[i]));
    s->context = context > 0 ? (uint64_t)context : 0;
}

static int refused(struct chat_session *s, struct err *err)
{
    const struct buf *body = chat_http_body(s->http);
    struct chat_answer a = { .status = chat_http_status(s->http) };

    chat_answer_read_error(&a, body->data, body->size);
    err_set(err, ERR_IO, "%.200s refused (%ld%s%.60s): %.200s%s", chat_http_base(s->http),
            a.status, a.code[0] ? " " : "", a.code, a.message,
            a.status == 401 ? "; give a key with --api-key" : "");
    return EXIT_FAILED;
}

static int learn_model(struct chat_session *s, struct err *err)
{
    enum chat_http_end end = ask(s, "/v1/models", err);
    const struct buf *body = chat_http_body(s->http);

    if (end == CHAT_HTTP_INTERRUPTED)
        return interrupted(s, err);
    if (end == CHAT_HTTP_NO_SERVER)
        return no_daemon(err);
    if (end != CHAT_HTTP_DONE)
        return EXIT_FAILED;
    if (chat_http_status(s->http) != 200)
        return refused(s, err);
    json_t *root = json_loadb(body->data ? body->data : "", body->size, 0, NULL);
    if (!json_is_array(json_object_get(root, "data"))) {
        json_decref(root);
        err_set(err, ERR_FORMAT, "%.200s answers, but not as an OpenAI-compatible server; is "
                                 "--url right?", chat_http_base(s->http));
        return EXIT_FAILED;
    }
    read_model(s, root);
    json_decref(root);
    return EXIT_FINE;
}

int chat_connect(struct chat_session *s, struct err *err)
{
    int status = await_ready(s, err);

    if (status == EXIT_FINE)
        status = learn_model(s, err);
    chat_draw_no_status(&s->draw);
    return status;
}
