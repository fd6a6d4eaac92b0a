/* Answers of a model. The first four bytes are options, stop strings, the seed of how the rest is
 * cut into tokens, and the number of bytes after which the limit of tokens comes (0: never); the
 * rest is the answer, in which the bytes 0xf8 to 0xfb are the four marks and 0xfc is a token
 * without text.
 *
 * However it is cut into tokens the same must come out, whole UTF-8, in calls that do not overlap;
 * no character may be lost or made up but by a repair that is counted; the arguments of a call that
 * is not broken are JSON; memory stays within the input's size. */
#include "tests/fuzz/fuzz.h"

#include "text/bytes.h"
#include "text/reply.h"
#include "text/stop.h"
#include "util/err.h"
#include "util/utf8.h"

#include <jansson.h>
#include <stdbool.h>
#include <string.h>

enum { THINK = 5, THINK_END, CALL, CALL_END, SILENT, TEXT };
enum { FIRST_MARK = 0xf8, SILENT_BYTE = 0xfc };

static const char *const mark_texts[] = { "<think>", "</think>", "<tool_call>", "</tool_call>" };

static const struct reply_parameter parameters[] = {
    { "s", 1, REPLY_MAY_STRING, true },
    { "m", 1, REPLY_MAY_STRING | REPLY_MAY_NULL, false },
    { "n", 1, REPLY_MAY_INTEGER | REPLY_MAY_NULL, false },
    { "b", 1, REPLY_MAY_BOOLEAN | REPLY_MAY_NUMBER, false },
    { "o", 1, REPLY_MAY_OBJECT | REPLY_MAY_ARRAY, false },
    { "any", 3, 0, false },
};
static const struct reply_tool tools[] = { { "f", 1, parameters, 6 }, { "now", 3, NULL, 0 } };

static const struct text_stop stops[] = { { "zZ", 2 }, { "\n\n", 2 }, { "<function=f>", 12 } };

struct outcome {
    struct bytes reasoning, content, calls; /* calls: names and arguments, each ended by NUL */
    struct bytes all;                       /* every text, in order */
    struct reply_result result;
    bool in_call, over;
};

static void put(struct bytes *to, const char *text, size_t size)
{
    struct err err;

    MUST(bytes_put(to, text, size, &err) == 0);
}

static void outcome_done(struct outcome *o)
{
    bytes_done(&o->reasoning);
    bytes_done(&o->content);
    bytes_done(&o->calls);
    bytes_done(&o->all);
}

static void take(struct outcome *out, struct reply *r)
{
    struct reply_part part;

    while (reply_next(r, &part)) {
        MUST(utf8_valid(part.text, part.size));
        put(&out->all, part.text, part.size);
        switch (part.kind) {
        case REPLY_TEXT_REASONING:
            put(&out->reasoning, part.text, part.size);
            break;
        case REPLY_TEXT_CONTENT:
            put(&out->content, part.text, part.size);
            break;
        case REPLY_CALL:
            MUST(!out->in_call && part.size > 0);
            out->in_call = true;
            for (size_t i = 0; i < part.size; i++)
                put(&out->calls, part.text[i] ? part.text + i : "?", 1);
            put(&out->calls, "", 1);
            break;
        case REPLY_ARGUMENTS:
            MUST(out->in_call && part.size > 0);
            put(&out->calls, part.text, part.size);
            break;
        case REPLY_CALL_END:
            MUST(out->in_call && part.size == 0);
            out->in_call = false;
            put(&out->calls, "", 1);
            break;
        }
    }
}

/* most: bytes of a token, at random when that is 0. */
static void run(struct outcome *out, const struct reply_options *o, const uint8_t *data,
                size_t size, bool cut, size_t most, uint32_t seed)
{
    struct reply *r = NULL;
    struct err err;
    uint64_t memory = 0;
    int over = 0;

    *out = (struct outcome){ 0 };
    MUST(reply_open(&r, o, &err) == 0);
    for (size_t at = 0; at < size && !over;) {
        size_t n = 0, limit = most;
        if (most == 0) {
            seed = seed * 1103515245 + 12345;
            limit = 1 + (seed >> 16) % 7;
        }
        while (at + n < size && n < limit && !(data[at + n] >= FIRST_MARK &&
                                               data[at + n] <= SILENT_BYTE))
            n++;
        if (n) {
            over = reply_put(r, TEXT, (const char *)data + at, n, &err);
        } else {
            uint32_t mark = (uint32_t)data[at] - FIRST_MARK;
            const char *text = mark < 4 ? mark_texts[mark] : "";
            over = reply_put(r, THINK + mark, text, strlen(text), &err);
            n = 1;
        }
        MUST(over >= 0);
        MUST(reply_token_kind(r) <= REPLY_CALL);
        at += n;
        take(out, r);
        memory = reply_memory(r);
        MUST(memory <= 16384 + 24 * at);
    }
    out->over = over;
    MUST(reply_finish(r, cut, &err) == 0);
    take(out, r);
    MUST(reply_finish(r, cut, &err) == 0);
    MUST(!over || reply_put(r, TEXT, "x", 1, &err) == 1);
    struct reply_part part;
    MUST(!reply_next(r, &part));
    reply_result(r, &out->result);
    MUST(out->result.unfinished_call == out->in_call && (cut || !out->in_call));
    reply_close(r);
}

static bool same(const struct bytes *a, const struct bytes *b)
{
    return a->size == b->size && (a->size == 0 || memcmp(a->at, b->at, a->size) == 0);
}

static void compare(const struct outcome *a, const struct outcome *b)
{
    MUST(same(&a->reasoning, &b->reasoning));
    MUST(same(&a->content, &b->content));
    MUST(same(&a->calls, &b->calls));
    MUST(a->over == b->over);
    MUST(a->result.n_calls == b->result.n_calls);
    MUST(a->result.by_stop_string == b->result.by_stop_string);
    MUST(memcmp(a->result.repairs, b->result.repairs, sizeof a->result.repairs) == 0);
}

/* What was said, with the marks spelled out and U+FFFD for what is no UTF-8. */
static struct bytes said(const uint8_t *data, size_t size)
{
    struct bytes raw = { 0 }, out = { 0 };

    for (size_t i = 0; i < size; i++) {
        uint32_t mark = (uint32_t)data[i] - FIRST_MARK;
        if (mark < 4)
            put(&raw, mark_texts[mark], strlen(mark_texts[mark]));
        else if (data[i] != SILENT_BYTE)
            put(&raw, (const char *)data + i, 1);
    }
    for (size_t at = 0; at < raw.size;) {
        int length = utf8_next(raw.at + at, raw.size - at, NULL);
        size_t n = length > 0 ? (size_t)length : utf8_bad(raw.at + at, raw.size - at);
        put(&out, length > 0 ? raw.at + at : "\xef\xbf\xbd", length > 0 ? n : 3);
        at += n;
    }
    bytes_done(&raw);
    return out;
}

static size_t count(const struct bytes *b, char c)
{
    size_t n = 0;

    for (size_t i = 0; i < b->size; i++)
        n += b->at[i] == c;
    return n;
}

/* Characters that no markup, no escape and no repair has: each comes out as often as it came in,
 * unless something was dropped, which is counted. */
static void nothing_is_lost(const struct outcome *out, const uint8_t *data, size_t size)
{
    struct bytes in = said(data, size);

    if (!out->over && !out->result.by_stop_string &&
        !out->result.repairs[REPLY_KEY_DROPPED] && !out->result.repairs[REPLY_TEXT_DROPPED] &&
        in.size && !memmem(in.at, in.size, "\\u", 2))
        for (const char *c = "zZ@%GHJK~\xc3\xe2"; *c; c++)
            MUST(count(&in, *c) == count(&out->all, *c));
    bytes_done(&in);
}

/* Without tools and with tags there is nothing but content. */
static void all_is_content(const struct outcome *out, const uint8_t *data, size_t size)
{
    struct bytes in = said(data, size);

    MUST(same(&in, &out->content) && out->reasoning.size == 0 && out->calls.size == 0);
    bytes_done(&in);
}

static void arguments_are_json(const struct outcome *out)
{
    const char *at = out->calls.at;
    uint32_t n = out->result.n_calls - out->result.unfinished_call;

    if (out->result.repairs[REPLY_JSON_BROKEN])
        return;
    for (uint32_t i = 0; i < n; i++) {
        json_error_t where;
        at += strlen(at) + 1;
        json_t *json = json_loads(at, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL | JSON_ALLOW_NUL,
                                  &where);
        if (!json) { /* what jansson does not take is: */
            enum json_error_code why = json_error_code(&where);
            MUST(why == json_error_numeric_overflow || why == json_error_stack_overflow ||
                 why == json_error_null_byte_in_key || strstr(at, "\\u"));
        }
        json_decref(json);
        at += strlen(at) + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 4)
        return 0;

    struct reply_options o = {
        .start = (enum reply_start)(data[0] % 3),
        .style = (enum reply_style)((data[0] >> 2) % 3),
        .marks = { THINK, THINK_END, CALL, CALL_END },
        .tools = tools,
        .n_tools = 2,
        .one_call = data[0] & 32,
        .keep_tags = data[0] & 64,
        .stops = stops,
        .n_stops = data[1] % 4,
    };
    struct outcome whole, other;
    bool cut = data[3];
    size_t n = size - 4;

    if (cut && data[3] < n)
        n = data[3];
    run(&whole, &o, data + 4, n, cut, SIZE_MAX, 0);
    for (size_t most = 0; most <= 3; most++) {
        run(&other, &o, data + 4, n, cut, most, data[2]);
        compare(&whole, &other);
        outcome_done(&other);
    }
    nothing_is_lost(&whole, data + 4, n);
    if (o.style == REPLY_NO_TOOLS && o.keep_tags && o.n_stops == 0)
        all_is_content(&whole, data + 4, n);
    arguments_are_json(&whole);
    outcome_done(&whole);
    return 0;
}
