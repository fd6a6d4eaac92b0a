/* What a reply gives out: parts in order, and content behind its stop strings. */
#include "text/reply_state.h"

#include "util/err.h"

#include <stdlib.h>

#define KEPT_BYTES 1024 /* a buffer that was larger is given back once it is empty */

void reply_forget(struct bytes *b)
{
    b->size = 0;
    if (b->cap > KEPT_BYTES)
        bytes_done(b);
}

void reply_count(struct reply *r, enum reply_repair repair)
{
    r->result.repairs[repair]++;
}

static int add_span(struct reply *r, enum reply_kind kind, size_t size, struct err *err)
{
    uint32_t call = r->result.n_calls ? r->result.n_calls - 1 : 0;

    if (r->n_spans && r->spans[r->n_spans - 1].kind == kind && kind != REPLY_CALL) {
        r->spans[r->n_spans - 1].end += size;
        return 0;
    }
    if (r->n_spans == r->spans_cap) {
        uint32_t cap = r->spans_cap * 2 + 8;
        struct reply_span *more = reallocarray(r->spans, cap, sizeof *more);
        if (!more)
            return err_set(err, ERR_NOMEM, "%u parts of an answer", cap);
        r->spans = more;
        r->spans_cap = cap;
    }
    r->spans[r->n_spans++] = (struct reply_span){ .kind = kind,
                                                  .call = call,
                                                  .begin = r->text.size - size,
                                                  .end = r->text.size };
    return 0;
}

int reply_added(struct reply *r, enum reply_kind kind, size_t before, struct err *err)
{
    return r->text.size == before ? 0 : add_span(r, kind, r->text.size - before, err);
}

int reply_add(struct reply *r, enum reply_kind kind, const char *text, size_t size,
              struct err *err)
{
    bool may_be_empty = kind == REPLY_CALL || kind == REPLY_CALL_END;

    if (size == 0 && !may_be_empty)
        return 0;
    if (bytes_put(&r->text, text, size, err) < 0)
        return -1;
    return add_span(r, kind, size, err);
}

/* What is decided by now. */
static int take_content(struct reply *r, int stopped, struct err *err)
{
    size_t size;

    if (stopped < 0)
        return -1;
    const char *text = text_out_text(r->content, &size);
    if (reply_add(r, REPLY_TEXT_CONTENT, text, size, err) < 0)
        return -1;
    if (stopped) {
        r->phase = PHASE_OVER;
        r->result.by_stop_string = true;
    }
    return 0;
}

int reply_content(struct reply *r, const char *text, size_t size, struct err *err)
{
    if (r->phase == PHASE_OVER || size == 0)
        return 0;
    return take_content(r, text_out_put(r->content, text, size, err), err);
}

int reply_content_release(struct reply *r, struct err *err)
{
    if (r->phase == PHASE_OVER)
        return 0;
    return take_content(r, text_out_release(r->content, err), err);
}

bool reply_next(struct reply *r, struct reply_part *part)
{
    if (r->span == r->n_spans)
        return false;

    const struct reply_span *span = &r->spans[r->span++];
    *part = (struct reply_part){ .kind = span->kind,
                                 .call = span->call,
                                 .text = r->text.at ? r->text.at + span->begin : "",
                                 .size = span->end - span->begin };
    return true;
}

uint64_t reply_memory(const struct reply *r)
{
    const struct bytes *held[] = { &r->text,         &r->held,      &r->raw,
                                   &r->stray,        &r->json.scratch, &r->xml.pending,
                                   &r->xml.value,    &r->json.mend.stack, &r->json.mend.gap,
                                   &r->json.inner.stack, &r->json.inner.gap };
    uint64_t sum = sizeof *r + r->spans_cap * sizeof *r->spans + text_out_memory(r->content) +
                   reply_keys_memory(&r->xml.keys);

    for (size_t i = 0; i < sizeof held / sizeof *held; i++)
        sum += held[i]->cap;
    return sum;
}
