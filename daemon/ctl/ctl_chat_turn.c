/* A question, its answer, and what is kept of both. */
#include "daemon/ctl/ctl_chat.h"

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_chat_admin.h"
#include "daemon/ctl/ctl_chat_private.h"
#include "util/clock.h"
#include "util/err.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    QUIET_NS = 1000000000,  /* so long nothing is said about waiting */
    LOOK_NS = 2000000000,   /* between two looks at the queue */
    MAX_TRIES = 4,
};

/* ---- while it runs ---- */

struct turning {
    struct chat_session *s;
    uint64_t started_ns, looked_ns;
    bool reading, answering;
    char queue[64];
};

static void on_part(void *ctx, enum chat_part part, const char *text, size_t size)
{
    struct turning *t = ctx;

    t->answering = true;
    chat_draw_part(&t->s->draw, part, text, size);
    chat_draw_flush(&t->s->draw);
}

static void on_progress(void *ctx, const struct chat_progress *p)
{
    struct turning *t = ctx;
    char done[CTL_BYTES_TEXT], total[CTL_BYTES_TEXT], left[40] = "";

    t->reading = true;
    if (p->left_ms >= 1000)
        snprintf(left, sizeof left, ", about %" PRIu64 " s more", p->left_ms / 1000);
    chat_draw_status(&t->s->draw, "reading the prompt: %s of %s tokens%s",
                     ctl_grouped(done, p->done), ctl_grouped(total, p->total), left);
}

/* Only while we wait for a place can this be about the queue. */
static void look_at_queue(struct turning *t, uint64_t now)
{
    if (t->looked_ns && now < t->looked_ns + LOOK_NS)
        return;
    t->looked_ns = now;
    struct chat_counters c = chat_admin_counters(t->s->socket);
    t->queue[0] = '\0';
    if (c.known && c.waiting > 0)
        snprintf(t->queue, sizeof t->queue, "; %" PRIu64 " running, %" PRIu64 " waiting",
                 c.running, c.waiting);
}

static bool go_on(void *ctx)
{
    struct turning *t = ctx;
    struct chat_session *s = t->s;
    uint64_t now = clock_ns();

    if (chat_signals_take(&s->signals) || !chat_draw_flush(&s->draw))
        return false;
    if (!t->reading && !t->answering && now > t->started_ns + QUIET_NS && s->draw.terminal) {
        look_at_queue(t, now);
        chat_draw_status(&s->draw, "waiting, %" PRIu64 " s%s",
                         (now - t->started_ns) / 1000000000, t->queue);
    }
    return true;
}

/* ---- the conversation ---- */

static json_t *message(const char *role, const char *text, size_t size)
{
    return json_pack("{s:s, s:s%}", "role", role, "content", text, size);
}

static json_t *with_question(const struct chat_session *s, const char *question)
{
    json_t *list = json_array();

    if (s->system)
        json_array_append_new(list, message("system", s->system, strlen(s->system)));
    json_array_extend(list, s->messages);
    json_array_append_new(list, message("user", question, strlen(question)));
    return list;
}

/* A broken answer is not kept: the model would be made to believe that it had said that. One
 * that the person stopped is, as far as it was seen. */
static void keep(struct chat_session *s, const char *question, const struct chat_answer *a)
{
    bool whole = a->outcome == CHAT_ANSWERED;

    s->last_kept = whole || (a->outcome == CHAT_STOPPED && a->content.size > 0);
    if (!s->last_kept)
        return;
    json_array_append_new(s->messages, message("user", question, strlen(question)));
    json_array_append_new(s->messages,
                          message("assistant", a->content.size ? a->content.data : "",
                                  a->content.size));
}

void chat_forget_all(struct chat_session *s)
{
    json_array_clear(s->messages);
    s->last_kept = false;
}

size_t chat_forget_oldest(struct chat_session *s, size_t n_turns)
{
    size_t have = json_array_size(s->messages) / 2, n = n_turns < have ? n_turns : have;

    for (size_t i = 0; i < 2 * n; i++)
        json_array_remove(s->messages, 0);
    if (n == have)
        s->last_kept = false;
    return n;
}

void chat_forget_last(struct chat_session *s)
{
    size_t n = json_array_size(s->messages);

    if (s->last_kept && n >= 2) {
        json_array_remove(s->messages, n - 1);
        json_array_remove(s->messages, n - 2);
    }
    s->last_kept = false;
}

/* ---- asking ---- */

static bool not_ready(const struct chat_answer *a)
{
    return a->outcome == CHAT_REFUSED && a->status == 503 &&
           (strcmp(a->code, "model_loading") == 0 || strcmp(a->code, "engine_unavailable") == 0);
}

/* True when it is worth another try; then the answer was freed. */
static bool try_again(struct chat_session *s, struct chat_answer *a)
{
    struct err err = { 0 };

    if (not_ready(a)) {
        if (chat_connect(s, &err) != EXIT_FINE) {
            snprintf(a->message, sizeof a->message, "%s", err.text);
            a->outcome = err.kind == ERR_CANCELLED ? CHAT_STOPPED : CHAT_REFUSED;
            return false;
        }
    } else if (chat_answer_no_switch(a) && s->sampling.thinking != CHAT_THINK_DEFAULT &&
               !s->sampling.soft_switch) {
        s->sampling.soft_switch = true;
        chat_draw_note(&s->draw, "(the server takes no switch for thinking; \"%s\" goes behind "
                                 "the question instead)",
                       s->sampling.thinking == CHAT_THINK_ON ? "/think" : "/no_think");
    } else {
        return false;
    }
    chat_answer_done(a);
    return true;
}

static void count_turn(struct chat_session *s, const struct chat_answer *a)
{
    s->n_turns += s->last_kept;
    s->n_generated += a->n_generated;
    if (a->tokens_per_s > 0.0)
        s->generating_s += a->n_generated / a->tokens_per_s;
}

void chat_turn_ask(struct chat_session *s, const char *question, struct chat_turn *turn)
{
    json_t *messages = with_question(s, question);
    struct chat_question q = s->sampling;
    struct chat_counters before;

    *turn = (struct chat_turn){ .hit_rate = -1.0 };
    chat_draw_measure(&s->draw);
    for (int tries = 1;; tries++) {
        struct turning t = { .s = s, .started_ns = clock_ns() };
        struct chat_view view = { &t, on_part, on_progress, go_on };
        q.messages = messages;
        q.model = s->model;
        q.soft_switch = s->sampling.soft_switch;
        before = chat_admin_counters(s->socket);
        chat_answer_ask(&turn->answer, s->http, &q, &view);
        if (tries == MAX_TRIES || !try_again(s, &turn->answer))
            break;
    }
    struct chat_counters after = chat_admin_counters(before.known ? s->socket : NULL);
    turn->hit_rate = chat_admin_hit_rate(&before, &after, turn->answer.n_generated,
                                         &turn->n_others);
    s->signals.interrupt = false;
    chat_draw_end(&s->draw);
    keep(s, question, &turn->answer);
    count_turn(s, &turn->answer);
    json_decref(messages);
}

void chat_turn_done(struct chat_turn *turn)
{
    chat_answer_done(&turn->answer);
}

int chat_turn_status(const struct chat_turn *turn)
{
    switch (turn->answer.outcome) {
    case CHAT_ANSWERED:
        return EXIT_FINE;
    case CHAT_NO_SERVER:
        return EXIT_NO_DAEMON;
    default:
        return EXIT_FAILED;
    }
}

/* ---- telling ---- */

static void put(char *line, size_t cap, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

static void put(char *line, size_t cap, const char *fmt, ...)
{
    size_t n = strlen(line);
    va_list args;

    va_start(args, fmt);
    vsnprintf(line + n, cap - n, fmt, args);
    va_end(args);
}

static void tell_figures(struct chat_session *s, const struct chat_turn *turn)
{
    const struct chat_answer *a = &turn->answer;
    char line[256] = "";

    put(line, sizeof line, "[%s%" PRIu32 " token%s", a->has_usage ? "" : "about ",
        a->n_generated, a->n_generated == 1 ? "" : "s");
    if (a->tokens_per_s > 0.0)
        put(line, sizeof line, ", %.1f tokens/s", a->tokens_per_s);
    if (a->first_s > 0.0)
        put(line, sizeof line, ", first after %.2f s", a->first_s);
    if (a->n_prompt)
        put(line, sizeof line, ", prompt %" PRIu32, a->n_prompt);
    if (a->n_cached)
        put(line, sizeof line, " (%" PRIu32 " cached)", a->n_cached);
    if (turn->hit_rate >= 0.0)
        put(line, sizeof line, ", expert hit rate %.1f %%", turn->hit_rate * 100.0);
    if (turn->hit_rate >= 0.0 && turn->n_others)
        put(line, sizeof line, " with %" PRIu64 " other request%s", turn->n_others,
            turn->n_others == 1 ? "" : "s");
    put(line, sizeof line, "]");
    chat_draw_note(&s->draw, "%s", line);
}

static void tell_overflow(struct chat_session *s, const struct chat_answer *a)
{
    uint64_t context = a->n_ctx ? a->n_ctx : s->context;
    char have[CTL_BYTES_TEXT], most[CTL_BYTES_TEXT];

    chat_draw_fault(&s->draw, "the conversation does not fit (%ld %s): %s", a->status, a->code,
                    a->message);
    if (a->n_prompt_tokens && context)
        chat_draw_fault(&s->draw, "it has %s tokens, the context has %s",
                        ctl_grouped(have, a->n_prompt_tokens), ctl_grouped(most, context));
    chat_draw_fault(&s->draw, "/forget drops the oldest turn and /retry asks again; /reset starts "
                              "over; the daemon's engine.context (--context) makes it larger");
}

static void tell_refused(struct chat_session *s, const struct chat_answer *a)
{
    if (strcmp(a->code, "context_length_exceeded") == 0) {
        tell_overflow(s, a);
        return;
    }
    chat_draw_fault(&s->draw, "refused (%ld%s%s): %s%s", a->status, a->code[0] ? " " : "",
                    a->code, a->message,
                    a->status == 401                  ? "; give a key with --api-key"
                    : a->status == 503 && a->code[0] ? "; /retry asks again"
                                                      : "");
}

static void tell_end_of_private(struct chat_session *s)
{
    struct err err = { 0 };
    int status;

    if (s->private && !chat_private_lives(s->private, &status, &err))
        chat_draw_fault(&s->draw, "%s", err.text);
}

void chat_turn_tell(struct chat_session *s, const struct chat_turn *turn)
{
    const struct chat_answer *a = &turn->answer;

    switch (a->outcome) {
    case CHAT_ANSWERED:
        if (strcmp(a->finish, "length") == 0)
            chat_draw_note(&s->draw, "[the limit of tokens ended it]");
        tell_figures(s, turn);
        break;
    case CHAT_STOPPED:
        chat_draw_note(&s->draw, s->last_kept ? "[stopped; the conversation keeps what came]"
                                              : "[stopped before an answer; /retry asks again]");
        break;
    case CHAT_REFUSED:
        tell_refused(s, a);
        break;
    case CHAT_BROKEN:
        chat_draw_fault(&s->draw, "the answer broke off (%s): %s; it is not kept, /retry asks "
                                  "again", a->code[0] ? a->code : "no code", a->message);
        break;
    case CHAT_LOST:
        chat_draw_fault(&s->draw, "%s; the answer is not kept, /retry asks again", a->message);
        tell_end_of_private(s);
        break;
    case CHAT_NO_SERVER:
        chat_draw_fault(&s->draw, "%s; is colizigd running? /retry asks again", a->message);
        tell_end_of_private(s);
        break;
    }
}
