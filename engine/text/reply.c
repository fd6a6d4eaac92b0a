/* Tokens become whole characters and marks, and these walk through the phases: thinking, content,
 * then calls. A call that cannot be made of what came turns the walk back to content. */
#include "text/reply_state.h"

#include "text/tokenizer.h"
#include "util/err.h"
#include "util/utf8.h"

#include <stdlib.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd"

void reply_marks_find(struct reply_marks *out, const struct tokenizer *t)
{
    const char *const texts[] = { "<think>", "</think>", "<tool_call>", "</tool_call>" };
    uint32_t *const ids[] = { &out->think, &out->think_end, &out->call, &out->call_end };

    for (size_t i = 0; i < 4; i++)
        if (!tokenizer_find(t, texts[i], ids[i]))
            *ids[i] = REPLY_NO_MARK;
}

const char *reply_repair_name(enum reply_repair repair)
{
    static const char *const names[N_REPLY_REPAIRS] = {
        [REPLY_OPENER_MISSING] = "opener_missing",
        [REPLY_THINKING_OPEN] = "thinking_open",
        [REPLY_CLOSER_MISSING] = "closer_missing",
        [REPLY_TAG_EXTRA] = "tag_extra",
        [REPLY_JSON_MENDED] = "json_mended",
        [REPLY_JSON_BROKEN] = "json_broken",
        [REPLY_BLOCK_AS_TEXT] = "block_as_text",
        [REPLY_OTHER_STYLE] = "other_style",
        [REPLY_NAME_UNDECLARED] = "name_undeclared",
        [REPLY_KEY_DROPPED] = "key_dropped",
        [REPLY_VALUE_AS_STRING] = "value_as_string",
        [REPLY_TEXT_MOVED] = "text_moved",
        [REPLY_TEXT_DROPPED] = "text_dropped",
    };

    return repair < N_REPLY_REPAIRS ? names[repair] : "unknown";
}

int reply_open(struct reply **out, const struct reply_options *o, struct err *err)
{
    struct reply *r = calloc(1, sizeof *r);

    if (!r)
        return err_set(err, ERR_NOMEM, "an answer's parser");
    r->options = *o;
    r->options.stops = NULL;
    r->options.n_stops = 0;
    r->phase = o->start == REPLY_SNIFF       ? PHASE_SNIFF
               : o->start == REPLY_REASONING ? PHASE_REASONING
                                             : PHASE_CONTENT;
    r->leading = r->phase == PHASE_REASONING && !o->keep_tags;
    r->line_begin = true;
    r->opener = SIZE_MAX;
    r->token_kind = REPLY_TEXT_CONTENT;
    for (size_t i = 0; i < o->n_tools; i++)
        if (o->tools[i].size > r->longest_name)
            r->longest_name = o->tools[i].size;
    if (text_out_open(&r->content, o->stops, o->n_stops, err) < 0) {
        reply_close(r);
        return -1;
    }
    *out = r;
    return 0;
}

void reply_close(struct reply *r)
{
    if (!r)
        return;
    text_out_close(r->content);
    free(r->spans);
    bytes_done(&r->text);
    bytes_done(&r->held);
    bytes_done(&r->raw);
    bytes_done(&r->stray);
    bytes_done(&r->json.scratch);
    json_mend_done(&r->json.mend);
    json_mend_done(&r->json.inner);
    bytes_done(&r->xml.pending);
    reply_keys_done(&r->xml.keys);
    bytes_done(&r->xml.value);
    free(r);
}

/* ---- thinking ---- */

static int give_newlines(struct reply *r, struct err *err)
{
    for (; r->newlines; r->newlines--)
        if (reply_add(r, REPLY_TEXT_REASONING, "\n", 1, err) < 0)
            return -1;
    return 0;
}

/* Thinking that is given out as content keeps its tags and newlines. */
static int put_reasoning(struct reply *r, const char *c, size_t n, struct err *err)
{
    if (r->options.keep_tags)
        return reply_content_put(r, c, n, err);
    if (r->leading) {
        r->leading = false;
        if (*c == '\n')
            return 0;
    }
    if (*c == '\n') {
        r->newlines++;
        return 0;
    }
    if (give_newlines(r, err) < 0)
        return -1;
    return reply_add(r, REPLY_TEXT_REASONING, c, n, err);
}

static void begin_content(struct reply *r)
{
    r->phase = PHASE_CONTENT;
    r->newlines = 0;
    r->leading = !r->options.keep_tags;
    r->line_begin = true;
}

/* ---- characters ---- */

/* One whole character. */
static int put_character(struct reply *r, const char *c, size_t n, struct err *err)
{
    switch (r->phase) {
    case PHASE_SNIFF:
        r->phase = PHASE_CONTENT;
        return reply_content_put(r, c, n, err);
    case PHASE_REASONING:
        return put_reasoning(r, c, n, err);
    case PHASE_CONTENT:
        return reply_content_put(r, c, n, err);
    case PHASE_BLOCK:
        return reply_block_put(r, c, n, err);
    case PHASE_JSON:
        return reply_json_put(r, c, n, err);
    case PHASE_XML:
        return reply_xml_put(r, c, n, err);
    case PHASE_BETWEEN:
        return reply_between_put(r, c, n, err);
    case PHASE_OVER:
        break;
    }
    return 0;
}

/* Hands on what is whole of the cut character and keeps the rest; at the end nothing is kept. */
static int settle_cut(struct reply *r, bool at_end, struct err *err)
{
    while (r->n_cut) {
        char c[4];
        int length = utf8_next(r->cut, r->n_cut, NULL);
        if (length == 0 && !at_end)
            return 0;

        size_t n = length > 0 ? (size_t)length : utf8_bad(r->cut, r->n_cut);
        memcpy(c, r->cut, n);
        r->n_cut -= n;
        memmove(r->cut, r->cut + n, r->n_cut);
        int rc = length > 0 ? put_character(r, c, n, err)
                            : put_character(r, REPLACEMENT, 3, err);
        if (rc < 0)
            return -1;
    }
    return 0;
}

static int put_text(struct reply *r, const char *bytes, size_t size, struct err *err)
{
    for (size_t i = 0; i < size; i++) {
        r->cut[r->n_cut++] = bytes[i];
        if (settle_cut(r, false, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- marks ---- */

/* 1 when the token is a mark here, and what it does was done; 0 when its text is text; -1. */
static int put_mark(struct reply *r, uint32_t id, const char *bytes, size_t size, struct err *err)
{
    const struct reply_marks *marks = &r->options.marks;

    if (id == REPLY_NO_MARK)
        return 0;
    if (id == marks->think && r->phase == PHASE_SNIFF) {
        r->phase = PHASE_REASONING;
        r->leading = !r->options.keep_tags;
        return r->options.keep_tags && put_text(r, bytes, size, err) < 0 ? -1 : 1;
    }
    if (id == marks->think_end && r->phase == PHASE_REASONING) {
        if (settle_cut(r, true, err) < 0 ||
            (r->options.keep_tags && put_text(r, bytes, size, err) < 0))
            return -1;
        begin_content(r);
        return 1;
    }
    if (r->options.style == REPLY_NO_TOOLS || (id != marks->call && id != marks->call_end))
        return 0;
    if (settle_cut(r, true, err) < 0)
        return -1;
    return id == marks->call ? reply_mark_call(r, bytes, size, err)
                             : reply_mark_call_end(r, bytes, size, err);
}

static enum reply_kind kind_of_phase(const struct reply *r)
{
    switch (r->phase) {
    case PHASE_REASONING:
        return r->options.keep_tags ? REPLY_TEXT_CONTENT : REPLY_TEXT_REASONING;
    case PHASE_SNIFF:
    case PHASE_CONTENT:
        return REPLY_TEXT_CONTENT;
    case PHASE_BLOCK:
    case PHASE_JSON:
    case PHASE_XML:
    case PHASE_BETWEEN:
        return REPLY_CALL;
    case PHASE_OVER:
        break;
    }
    return r->result.by_stop_string ? REPLY_TEXT_CONTENT : REPLY_CALL;
}

static void count_token(struct reply *r, enum reply_kind kind)
{
    r->token_kind = kind;
    if (kind == REPLY_TEXT_REASONING)
        r->result.n_reasoning_tokens++;
    else if (kind == REPLY_TEXT_CONTENT)
        r->result.n_content_tokens++;
    else
        r->result.n_call_tokens++;
}

static void forget_parts(struct reply *r)
{
    reply_forget(&r->text);
    r->n_spans = 0;
    r->span = 0;
}

int reply_put(struct reply *r, uint32_t id, const char *bytes, size_t size, struct err *err)
{
    enum reply_kind before = kind_of_phase(r);

    forget_parts(r);
    if (r->phase == PHASE_OVER || r->finished)
        return 1;

    int mark = put_mark(r, id, bytes, size, err);
    if (mark < 0)
        return -1;
    if (mark == 0) {
        if (r->phase == PHASE_SNIFF)
            r->phase = PHASE_CONTENT;
        if (put_text(r, bytes, size, err) < 0)
            return -1;
    }
    /* </think> ends what it belongs to; any other mark begins it. */
    count_token(r, mark && id == r->options.marks.think_end ? before : kind_of_phase(r));
    return r->phase == PHASE_OVER;
}

int reply_finish(struct reply *r, bool cut, struct err *err)
{
    forget_parts(r);
    if (r->finished)
        return 0;
    if (r->phase != PHASE_OVER && settle_cut(r, true, err) < 0)
        return -1;
    if (r->phase != PHASE_OVER && reply_end(r, cut, err) < 0)
        return -1;
    if (give_newlines(r, err) < 0 || reply_content_release(r, err) < 0)
        return -1;
    r->phase = PHASE_OVER;
    r->finished = true;
    return 0;
}

enum reply_kind reply_token_kind(const struct reply *r)
{
    return r->token_kind;
}

void reply_result(const struct reply *r, struct reply_result *out)
{
    *out = r->result;
}

