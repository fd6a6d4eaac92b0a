#include "daemon/wire/wire_reply.h"

#include "util/err.h"
#include "util/utf8.h"

#include <inttypes.h>
#include <stdbool.h>

_Static_assert(sizeof(struct wire_remember) % 8 == 0 && sizeof(struct wire_wanted) % 8 == 0 &&
                   sizeof(struct wire_recalled) % 8 == 0 &&
                   sizeof(struct wire_recalled_reply) % 8 == 0,
               "what follows would not be aligned");

static int wrong(struct err *err, const char *type, const char *what)
{
    return err_set(err, ERR_FORMAT, "%s message: %s", type, what);
}

static int wrong_size(struct err *err, const char *type, size_t have, uint64_t need)
{
    return err_set(err, ERR_FORMAT, "%s message: %zu bytes where %" PRIu64 " belong", type, have,
                   need);
}

void wire_reply_view(struct wire_reply_view *out, const struct wire_remember *m)
{
    out->head = m;
    out->keys = (const struct sip_sum *)(m + 1);
    out->calls = (const struct wire_reply_call *)(out->keys + m->n_keys);
    out->ids = (const uint32_t *)(out->calls + m->n_calls);
    out->tail = (const char *)(out->ids + m->n_ids);
    out->reasoning = out->tail + m->tail_size;
    out->call_text = out->reasoning + m->reasoning_size;
}

/* The parts of the text fill it exactly, and each is text. */
static int check_text(const char *type, const struct wire_remember *m, struct err *err)
{
    uint64_t parts = (uint64_t)m->tail_size + m->reasoning_size;
    struct wire_reply_view v;

    wire_reply_view(&v, m);
    for (uint32_t i = 0; i < m->n_calls; i++)
        parts += (uint64_t)v.calls[i].name_size + v.calls[i].arguments_size;
    if (parts != m->text_size)
        return wrong(err, type, "parts of its text are not the whole");
    bool fine = utf8_valid(v.tail, m->tail_size) && utf8_valid(v.reasoning, m->reasoning_size);
    const char *at = v.call_text;
    for (uint32_t i = 0; fine && i < m->n_calls; i++) {
        const struct wire_reply_call *c = &v.calls[i];
        fine = utf8_valid(at, c->name_size) &&
               utf8_valid(at + c->name_size, c->arguments_size);
        at += (size_t)c->name_size + c->arguments_size;
    }
    return fine ? 0 : wrong(err, type, "a text that is not UTF-8");
}

static int check_reply(const char *type, const void *body, size_t size, struct err *err)
{
    const struct wire_remember *m = body;

    if (size < sizeof *m)
        return wrong(err, type, "cut short");
    if (m->n_keys == 0 || m->n_keys > WIRE_MAX_REPLY_KEYS || m->n_calls > WIRE_MAX_REPLY_CALLS)
        return wrong(err, type, "too many keys or calls, or no key");
    /* 32-bit counts, few of them, times at most 16 cannot wrap 64 bits. */
    uint64_t need = sizeof *m + (uint64_t)m->n_keys * sizeof(struct sip_sum) +
                    (uint64_t)m->n_calls * sizeof(struct wire_reply_call) +
                    (uint64_t)m->n_ids * sizeof(uint32_t) + m->text_size;
    if (size != need)
        return wrong_size(err, type, size, need);
    return check_text(type, m, err);
}

int wire_check_remember(const void *body, size_t size, struct err *err)
{
    return check_reply("REMEMBER", body, size, err);
}

int wire_check_recall(const void *body, size_t size, struct err *err)
{
    const struct wire_recall *m = body;

    if (size < sizeof *m)
        return wrong(err, "RECALL", "cut short");
    if (m->n == 0 || m->n > WIRE_MAX_WANTED)
        return wrong(err, "RECALL", "too many keys, or none");
    uint64_t need = sizeof *m + (uint64_t)m->n * sizeof(struct wire_wanted);
    return size == need ? 0 : wrong_size(err, "RECALL", size, need);
}

int wire_check_recalled(const void *body, size_t size, struct err *err)
{
    const struct wire_recalled *m = body;
    size_t at = sizeof *m;

    if (size < sizeof *m)
        return wrong(err, "RECALLED", "cut short");
    if (m->n_looked > WIRE_MAX_WANTED || m->n > m->n_looked)
        return wrong(err, "RECALLED", "more replies than there were keys");
    for (uint32_t i = 0; i < m->n; i++) {
        const struct wire_recalled_reply *r =
            (const struct wire_recalled_reply *)(const void *)((const char *)body + at);
        if (size - at < sizeof *r || size - at - sizeof *r < wire_reply_padded(r->size))
            return wrong(err, "RECALLED", "cut short");
        if (check_reply("RECALLED", r + 1, r->size, err) < 0)
            return -1;
        at += sizeof *r + wire_reply_padded(r->size);
    }
    return size == at ? 0 : wrong_size(err, "RECALLED", size, at);
}

const struct wire_recalled_reply *wire_recalled_next(const struct wire_recalled *m,
                                                     const struct wire_recalled_reply *at)
{
    const char *next = at ? (const char *)(at + 1) + wire_reply_padded(at->size)
                          : (const char *)(m + 1);

    return (const struct wire_recalled_reply *)(const void *)next;
}
