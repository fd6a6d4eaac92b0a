/* Every check is of the form "the body is exactly as long as its struct and counts say". */
#include "daemon/wire/wire.h"

#include "util/size.h"

#include <inttypes.h>
#include <string.h>

static int wrong(struct err *err, const char *type, const char *what)
{
    return err_set(err, ERR_FORMAT, "%s message: %s", type, what);
}

static int check_size(const char *type, size_t have, uint64_t need, struct err *err)
{
    if (have != need)
        return err_set(err, ERR_FORMAT, "%s message: %zu bytes where %" PRIu64 " belong", type,
                       have, need);
    return 0;
}

/* A fixed struct with nothing behind it. */
static int check_plain(const char *type, size_t have, size_t need, struct err *err)
{
    return check_size(type, have, need, err);
}

static int check_text(const char *type, const char *body, size_t size, size_t fixed,
                      uint32_t text_size, struct err *err)
{
    if (check_size(type, size, (uint64_t)fixed + text_size, err) < 0)
        return -1;
    if (memchr(body + fixed, '\0', text_size))
        return wrong(err, type, "a zero byte in its text");
    return 0;
}

static int check_hello(const void *body, size_t size, struct err *err)
{
    const struct wire_hello *m = body;

    if (check_plain("HELLO", size, sizeof *m, err) < 0)
        return -1;
    if (m->n_stop_ids > sizeof m->stop_ids / sizeof m->stop_ids[0])
        return wrong(err, "HELLO", "too many stop ids");
    if (m->state > ENGINE_FAILED || m->percent > 100)
        return wrong(err, "HELLO", "unknown state");
    if (!memchr(m->fault, '\0', sizeof m->fault))
        return wrong(err, "HELLO", "a text without an end");
    return 0;
}

static int check_submit(const void *body, size_t size, struct err *err)
{
    const struct wire_submit *m = body;

    if (size < sizeof *m)
        return wrong(err, "SUBMIT", "cut short");
    if (!memchr(m->request, '\0', sizeof m->request) ||
        !memchr(m->address, '\0', sizeof m->address))
        return wrong(err, "SUBMIT", "a name without an end");
    if (m->n_prompt == 0)
        return wrong(err, "SUBMIT", "no prompt");
    if (m->n_stop_ids > CZ_MAX_STOP_IDS)
        return wrong(err, "SUBMIT", "too many stop ids");
    if (m->n_bias > CZ_MAX_BIAS)
        return wrong(err, "SUBMIT", "too many biases");
    if (m->n_choices > CZ_MAX_CHOICES || m->n_top > CZ_MAX_TOP)
        return wrong(err, "SUBMIT", "too many choices or logprobs");
    if (m->uncached > 1 || m->logprobs > 1 || m->think_inside > 1 || m->think_may_open > 1 || m->think_call_closes > 1)
        return wrong(err, "SUBMIT", "a yes or no that is neither");
    if (m->n_closing > CZ_MAX_FORCED || m->n_forced > CZ_MAX_FORCED ||
        m->n_forced_behind > CZ_MAX_FORCED)
        return wrong(err, "SUBMIT", "too many forced tokens");
    /* 32-bit counts, few of them, times at most 8 cannot wrap 64 bits. */
    uint64_t n_ids = (uint64_t)m->n_prompt + m->n_stop_ids + m->n_closing + m->n_forced +
                     m->n_forced_behind;
    return check_size("SUBMIT", size,
                      sizeof *m + n_ids * sizeof(uint32_t) +
                          (uint64_t)m->n_bias * sizeof(struct cz_bias),
                      err);
}

static int check_refused(const void *body, size_t size, struct err *err)
{
    const struct wire_refused *m = body;

    if (size < sizeof *m)
        return wrong(err, "REFUSED", "cut short");
    if (m->kind == ERR_NONE || m->kind > ERR_CLOSED)
        return wrong(err, "REFUSED", "unknown kind of error");
    return check_text("REFUSED", body, size, sizeof *m, m->text_size, err);
}

static int check_failed(const void *body, size_t size, struct err *err)
{
    const struct wire_failed *m = body;

    if (size < sizeof *m)
        return wrong(err, "FAILED", "cut short");
    if (m->kind == ERR_NONE || m->kind > ERR_CLOSED)
        return wrong(err, "FAILED", "unknown kind of error");
    return check_text("FAILED", body, size, sizeof *m, m->text_size, err);
}

static int check_answer(const void *body, size_t size, struct err *err)
{
    const struct wire_answer *m = body;

    if (size < sizeof *m)
        return wrong(err, "ANSWER", "cut short");
    if (m->kind > ERR_CLOSED)
        return wrong(err, "ANSWER", "unknown kind of error");
    return check_text("ANSWER", body, size, sizeof *m, m->text_size, err);
}

static int check_tokens(const void *body, size_t size, struct err *err)
{
    const struct wire_tokens *m = body;

    if (size < sizeof *m)
        return wrong(err, "TOKENS", "cut short");
    if (m->n == 0)
        return wrong(err, "TOKENS", "no tokens");
    if (m->choice >= CZ_MAX_CHOICES || m->logprobs > 1)
        return wrong(err, "TOKENS", "a number that has no meaning");
    uint64_t each = sizeof(uint32_t) + (m->logprobs ? sizeof(struct cz_logprobs) : 0);
    if (check_size("TOKENS", size, sizeof *m + m->n * each, err) < 0)
        return -1;
    const struct cz_logprobs *l = (const struct cz_logprobs *)((const uint32_t *)(m + 1) + m->n);
    for (uint32_t i = 0; m->logprobs && i < m->n; i++)
        if (l[i].n_top > CZ_MAX_TOP)
            return wrong(err, "TOKENS", "too many logprobs");
    return 0;
}

static int check_finished(const void *body, size_t size, struct err *err)
{
    const struct wire_finished *m = body;

    if (check_plain("FINISHED", size, sizeof *m, err) < 0)
        return -1;
    if (m->reason > CZ_FINISH_LENGTH)
        return wrong(err, "FINISHED", "unknown reason");
    if (m->choice >= CZ_MAX_CHOICES || m->more > 1 ||
        (m->more && m->choice + 1 == CZ_MAX_CHOICES))
        return wrong(err, "FINISHED", "a choice that cannot be");
    return 0;
}

static int check_next(const void *body, size_t size, struct err *err)
{
    const struct wire_next *m = body;

    if (check_plain("NEXT", size, sizeof *m, err) < 0)
        return -1;
    return m->choice >= CZ_MAX_CHOICES ? wrong(err, "NEXT", "a choice that cannot be") : 0;
}

static int check_progress(const void *body, size_t size, struct err *err)
{
    const struct wire_progress *m = body;

    if (check_plain("PROGRESS", size, sizeof *m, err) < 0)
        return -1;
    if (m->n_done > m->n_total || m->n_cached > m->n_done)
        return wrong(err, "PROGRESS", "more done than there is");
    return 0;
}

static int check_line(const char *type, const void *body, size_t size, struct err *err)
{
    const struct wire_text *m = body;

    if (size < sizeof *m)
        return wrong(err, type, "cut short");
    return check_text(type, body, size, sizeof *m, m->size, err);
}

static int check_adjust(const void *body, size_t size, struct err *err)
{
    const struct wire_adjust *m = body;

    if (check_plain("ADJUST", size, sizeof *m, err) < 0)
        return -1;
    if (m->log_level < 3 || m->log_level > 7)
        return wrong(err, "ADJUST", "unknown log level");
    return 0;
}

static int check_count(const void *body, size_t size, struct err *err)
{
    const struct wire_count *m = body;

    if (check_plain("COUNT", size, sizeof *m, err) < 0)
        return -1;
    if (m->kind > COUNT_TOKENS || m->route >= WIRE_MAX_ROUTES || m->method >= N_METHODS ||
        m->status > 999 || m->reject >= N_REJECTS || m->end >= N_ENDS || m->phase >= N_PHASES ||
        m->own > 1 || m->style > REPLY_XML)
        return wrong(err, "COUNT", "a number that has no meaning");
    return 0;
}

static int check_drain(const void *body, size_t size, struct err *err)
{
    const struct wire_drain *m = body;

    if (check_plain("DRAIN", size, sizeof *m, err) < 0)
        return -1;
    return m->mode > DRAIN_REPLACE ? wrong(err, "DRAIN", "unknown mode") : 0;
}

static int check_pulse(const void *body, size_t size, struct err *err)
{
    const struct wire_pulse *m = body;

    if (check_plain("PULSE", size, sizeof *m, err) < 0)
        return -1;
    return m->state > ENGINE_FAILED ? wrong(err, "PULSE", "unknown state") : 0;
}

int wire_check_head(const struct wire_head *head, struct err *err)
{
    if (head->type == 0 || head->type >= WIRE_N_TYPES)
        return err_set(err, ERR_FORMAT, "message of unknown type %u", head->type);
    if (head->size < sizeof *head || head->size > WIRE_MAX_FRAME)
        return err_set(err, ERR_FORMAT, "message of %u bytes", head->size);
    /* A descriptor comes with PEER and with nothing else. */
    if (head->flags != (head->type == WIRE_PEER ? WIRE_FLAG_FD : 0))
        return err_set(err, ERR_FORMAT, "message of type %u with flags %#x", head->type,
                       head->flags);
    return 0;
}

int wire_check(const struct wire_head *head, const void *body, size_t size, struct err *err)
{
    if (wire_check_head(head, err) < 0)
        return -1;
    if (check_size("a", size, head->size - sizeof *head, err) < 0)
        return -1;

    switch ((enum wire_type)head->type) {
    case WIRE_HELLO:
        return check_hello(body, size, err);
    case WIRE_SUBMIT:
        return check_submit(body, size, err);
    case WIRE_CANCEL:
        return check_plain("CANCEL", size, 0, err);
    case WIRE_ACCEPTED:
        return check_plain("ACCEPTED", size, sizeof(struct wire_accepted), err);
    case WIRE_REFUSED:
        return check_refused(body, size, err);
    case WIRE_PROGRESS:
        return check_progress(body, size, err);
    case WIRE_TOKENS:
        return check_tokens(body, size, err);
    case WIRE_FINISHED:
        return check_finished(body, size, err);
    case WIRE_FAILED:
        return check_failed(body, size, err);
    case WIRE_READY:
        return check_plain("READY", size, sizeof(struct wire_ready), err);
    case WIRE_STATUS:
        return check_line("STATUS", body, size, err);
    case WIRE_PULSE:
        return check_pulse(body, size, err);
    case WIRE_PEER:
        return check_plain("PEER", size, sizeof(struct wire_peer), err);
    case WIRE_LOST:
        return check_plain("LOST", size, sizeof(struct wire_peer), err);
    case WIRE_DRAIN:
        return check_drain(body, size, err);
    case WIRE_ADJUST:
        return check_adjust(body, size, err);
    case WIRE_ASK:
        return check_line("ASK", body, size, err);
    case WIRE_ANSWER:
        return check_answer(body, size, err);
    case WIRE_COUNT:
        return check_count(body, size, err);
    case WIRE_METRICS:
        return check_plain("METRICS", size, 0, err);
    case WIRE_METRICS_TEXT:
        return check_line("METRICS_TEXT", body, size, err);
    case WIRE_NEXT:
        return check_next(body, size, err);
    case WIRE_REMEMBER:
        return wire_check_remember(body, size, err);
    case WIRE_RECALL:
        return wire_check_recall(body, size, err);
    case WIRE_RECALLED:
        return wire_check_recalled(body, size, err);
    case WIRE_N_TYPES:
        break;
    }
    return err_set(err, ERR_FORMAT, "message of unknown type %u", head->type);
}
