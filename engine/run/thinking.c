#include "run/thinking.h"

#include "util/err.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int check_ids(const char *name, const uint32_t *ids, uint32_t n, uint32_t vocab,
                     struct err *err)
{
    if (n > CZ_MAX_FORCED)
        return err_set(err, ERR_INPUT, "%s: %" PRIu32 " tokens, and at most %d can be forced", name,
                       n, CZ_MAX_FORCED);
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] >= vocab)
            return err_set(err, ERR_INPUT, "%s: token %" PRIu32 " of a vocabulary of %" PRIu32,
                           name, ids[i], vocab);
    return 0;
}

static bool holds(const uint32_t *ids, uint32_t n, uint32_t token)
{
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] == token)
            return true;
    return false;
}

int thinking_check(const struct cz_request *r, uint32_t vocab, struct err *err)
{
    const struct cz_thinking *t = &r->thinking;

    if (check_ids("closing", t->closing, t->n_closing, vocab, err) < 0 ||
        check_ids("forced", r->forced, r->n_forced, vocab, err) < 0 ||
        check_ids("forced_behind", r->forced_behind, r->n_forced_behind, vocab, err) < 0)
        return -1;
    if (!t->inside && !t->may_open)
        return 0;
    if (t->close >= vocab || (!t->inside && t->open >= vocab))
        return err_set(err, ERR_INPUT, "thinking: its marks %" PRIu32 " and %" PRIu32
                       " are no tokens of a vocabulary of %" PRIu32, t->open, t->close, vocab);
    if (t->call_closes && t->call >= vocab)
        return err_set(err, ERR_INPUT, "thinking: the mark of a call, %" PRIu32
                       ", is no token of a vocabulary of %" PRIu32, t->call, vocab);
    if (t->n_closing > 0 && !holds(t->closing, t->n_closing, t->close))
        return err_set(err, ERR_INPUT, "thinking: closing does not hold the mark that closes");
    if (t->n_closing == 0 && t->budget != CZ_NO_BUDGET)
        return err_set(err, ERR_INPUT, "thinking: a budget needs closing tokens");
    return 0;
}

uint64_t thinking_most(void)
{
    return 3ull * CZ_MAX_FORCED * sizeof(uint32_t);
}

static const uint32_t *keep(uint32_t **at, const uint32_t *ids, uint32_t n)
{
    uint32_t *kept = *at;

    if (n)
        memcpy(kept, ids, n * sizeof *kept);
    *at += n;
    return kept;
}

int thinking_open(struct thinking *out, const struct cz_request *r, struct err *err)
{
    struct thinking t = { .rules = r->thinking, .n_forced = r->n_forced,
                          .n_forced_behind = r->n_forced_behind };
    uint32_t n = t.rules.n_closing + t.n_forced + t.n_forced_behind;

    if (n > 0) {
        uint32_t *at = t.ids = malloc(n * sizeof *t.ids);
        if (!at)
            return err_set(err, ERR_NOMEM, "%" PRIu32 " tokens to force", n);
        t.rules.closing = keep(&at, r->thinking.closing, t.rules.n_closing);
        t.forced = keep(&at, r->forced, t.n_forced);
        t.forced_behind = keep(&at, r->forced_behind, t.n_forced_behind);
    }
    *out = t;
    return 0;
}

void thinking_close(struct thinking *t)
{
    free(t->ids);
    *t = (struct thinking){ 0 };
}

/* What is forced behind the mark stands in place of what closing has there: whoever gives both
 * wants the reply to go on alike, whoever said `close`. */
static void close_it(struct thinking *t, struct thinking_words *out)
{
    const struct cz_thinking *r = &t->rules;
    uint32_t n = r->n_closing;

    t->phase = THINKING_BEHIND;
    if (t->n_forced_behind > 0) {
        for (n = 0; r->closing[n] != r->close;)
            n++;
        n++;
    }
    out->ids[0] = r->closing;
    out->n[0] = n;
    out->ids[1] = t->forced_behind;
    out->n[1] = t->n_forced_behind;
}

/* Enters, or counts what was said inside. */
static void look_at_budget(struct thinking *t, struct thinking_words *out)
{
    if (t->rules.n_closing > 0 && t->n_inside >= t->rules.budget)
        close_it(t, out);
}

void thinking_begin(struct thinking *t, struct thinking_words *out)
{
    *out = (struct thinking_words){ 0 };
    t->n_inside = 0;
    t->phase = t->rules.inside     ? THINKING_INSIDE
               : t->rules.may_open ? THINKING_UNDECIDED
                                   : THINKING_BEHIND;
    if (t->phase == THINKING_INSIDE) {
        look_at_budget(t, out);
    } else if (t->phase == THINKING_BEHIND) {
        out->ids[0] = t->forced;
        out->n[0] = t->n_forced;
    }
}

static void take_first(struct thinking *t, uint32_t token, struct thinking_words *out)
{
    if (token == t->rules.open) {
        t->phase = THINKING_INSIDE;
        look_at_budget(t, out);
        return;
    }
    t->phase = THINKING_BEHIND;
    out->instead = t->n_forced > 0;
    out->ids[0] = t->forced;
    out->n[0] = t->n_forced;
}

static void take_inside(struct thinking *t, uint32_t token, bool stop, struct thinking_words *out)
{
    if (stop) {
        out->instead = t->rules.n_closing > 0;
        if (out->instead)
            close_it(t, out);
    } else if (token == t->rules.close) {
        t->phase = THINKING_BEHIND;
        out->ids[0] = t->forced_behind;
        out->n[0] = t->n_forced_behind;
    } else if (t->rules.call_closes && token == t->rules.call) {
        t->phase = THINKING_BEHIND;
    } else {
        t->n_inside++;
        look_at_budget(t, out);
    }
}

void thinking_take(struct thinking *t, uint32_t token, bool stop, struct thinking_words *out)
{
    *out = (struct thinking_words){ 0 };
    if (t->phase == THINKING_UNDECIDED)
        take_first(t, token, out);
    else if (t->phase == THINKING_INSIDE)
        take_inside(t, token, stop, out);
}
