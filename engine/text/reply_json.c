/* A call as a JSON object: {"name": ..., "arguments": ...}.
 *
 * The arguments are handed on as they come, in the model's own bytes, once the name is known; the
 * block is kept until then, and arguments that came before the name are read a second time. */
#include "text/reply_state.h"

#include "text/json_text.h"
#include "util/ascii.h"
#include "util/err.h"
#include "util/utf8.h"

#include <string.h>

static void begin_mend(struct json_mend *m)
{
    bytes_done(&m->stack);
    bytes_done(&m->gap);
    *m = (struct json_mend){ 0 };
}

void reply_json_begin(struct reply *r)
{
    struct reply_json *j = &r->json;

    r->phase = PHASE_JSON;
    j->at = JSON_OPEN;
    j->have_arguments = false;
    j->arguments_begin = j->arguments_end = 0;
}

/* ---- arguments ---- */

static void begin_arguments(struct reply_json *j)
{
    begin_mend(&j->inner);
    reply_forget(&j->scratch);
    j->begun = false;
    j->coded = (struct json_text){ 0 };
}

/* Characters of JSON text that was a string itself. */
static int put_decoded(struct reply_json *j, const char *text, size_t size, struct bytes *out,
                       struct err *err)
{
    for (size_t at = 0; at < size;) {
        int length = utf8_next(text + at, size - at, NULL);
        size_t n = length > 0 ? (size_t)length : 1;
        enum json_mend_end end;

        if (json_mend_put(&end, &j->inner, text + at, n, out, err) < 0)
            return -1;
        if (end == MEND_ENDS_BEFORE && !ascii_json_space(text[at])) {
            j->inner.broken = true;
            if (out && bytes_put(out, text + at, n, err) < 0)
                return -1;
        }
        at += n;
    }
    return 0;
}

static int put_coded(enum json_mend_end *end, struct reply_json *j, const char *c, size_t n,
                     struct bytes *out, struct err *err)
{
    bool ended;

    *end = MEND_GOES_ON;
    j->scratch.size = 0;
    if (json_text_put(&ended, &j->coded, j->coded_quote, c, n, &j->scratch, err) < 0)
        return -1;
    if (ended)
        *end = MEND_ENDS_WITH;
    return put_decoded(j, j->scratch.at, j->scratch.size, out, err);
}

/* A character of the value; out is NULL while the name is not known. What is neither an object nor
 * text is kept until it is complete, as null stands for no arguments. */
static int put_arguments(enum json_mend_end *end, struct reply_json *j, const char *c, size_t n,
                         struct bytes *out, struct err *err)
{
    *end = MEND_GOES_ON;
    if (!j->begun) {
        if (ascii_json_space(*c))
            return 0;
        if (*c == '}' || *c == ',') {
            j->n_mended++;
            *end = MEND_ENDS_BEFORE;
            return 0;
        }
        j->begun = true;
        j->shape = *c == '{'                ? ARGUMENTS_OBJECT
                   : *c == '"' || *c == '\'' ? ARGUMENTS_CODED
                                            : ARGUMENTS_OTHER;
        j->coded_quote = *c;
        if (j->shape == ARGUMENTS_CODED)
            return 0;
    }
    if (j->shape == ARGUMENTS_CODED)
        return put_coded(end, j, c, n, out, err);
    return json_mend_put(end, &j->inner, c, n, j->shape == ARGUMENTS_OBJECT ? out : &j->scratch,
                         err);
}

/* The value is complete, or no more of it comes. */
static int end_arguments(struct reply *r, struct err *err)
{
    struct reply_json *j = &r->json;
    size_t before = r->text.size;

    j->have_arguments = true;
    if (j->shape == ARGUMENTS_CODED && j->begun) {
        j->scratch.size = 0;
        if (json_text_end(&j->coded, &j->scratch, err) < 0 ||
            put_decoded(j, j->scratch.at, j->scratch.size, &r->text, err) < 0)
            return -1;
    }
    bool other = j->shape == ARGUMENTS_OTHER && j->begun;
    if (json_mend_close(&j->inner, other ? &j->scratch : &r->text, err) < 0)
        return -1;
    bool none = other && j->scratch.size == 4 && memcmp(j->scratch.at, "null", 4) == 0;
    if (!j->begun || none || !j->inner.begun) {
        if (bytes_put(&r->text, "{}", 2, err) < 0)
            return -1;
    } else if (other && bytes_put(&r->text, j->scratch.at, j->scratch.size, err) < 0) {
        return -1;
    }
    reply_forget(&j->scratch);
    if (j->inner.broken)
        reply_count(r, REPLY_JSON_BROKEN);
    else if (j->inner.n_mended)
        reply_count(r, REPLY_JSON_MENDED);
    return reply_added(r, REPLY_ARGUMENTS, before, err);
}

/* They are cut, and stay as they are. */
static int leave_arguments(struct reply *r, struct err *err)
{
    struct reply_json *j = &r->json;
    size_t before = r->text.size;
    bool other = j->shape == ARGUMENTS_OTHER && j->begun;

    if (j->shape == ARGUMENTS_CODED && j->begun) {
        j->scratch.size = 0;
        if (json_text_end(&j->coded, &j->scratch, err) < 0 ||
            put_decoded(j, j->scratch.at, j->scratch.size, &r->text, err) < 0)
            return -1;
    }
    if (json_mend_leave(&j->inner, other ? &j->scratch : &r->text, err) < 0)
        return -1;
    if (other && bytes_put(&r->text, j->scratch.at, j->scratch.size, err) < 0)
        return -1;
    return reply_added(r, REPLY_ARGUMENTS, before, err);
}

/* Arguments that came before the name. */
static int replay_arguments(struct reply *r, struct err *err)
{
    struct reply_json *j = &r->json;
    size_t before = r->text.size;

    begin_arguments(j);
    for (size_t at = j->arguments_begin; at < j->arguments_end;) {
        const char *c = r->raw.at + at;
        int length = utf8_next(c, j->arguments_end - at, NULL);
        size_t n = length > 0 ? (size_t)length : 1;
        enum json_mend_end end;
        if (put_arguments(&end, j, c, n, &r->text, err) < 0)
            return -1;
        at += n;
    }
    return reply_added(r, REPLY_ARGUMENTS, before, err) < 0 ? -1 : end_arguments(r, err);
}

/* ---- members ---- */

/* It is no such object. Behind a name, the call keeps the arguments it has. */
static int lose(struct reply *r, const char *c, size_t n, struct err *err)
{
    if (!r->in_call)
        return reply_block_is_text(r, err);
    reply_count(r, REPLY_JSON_BROKEN);
    r->json.at = JSON_LOST;
    return bytes_put(&r->stray, c, n, err);
}

static bool says(const struct bytes *b, const char *text)
{
    return b->size == strlen(text) && memcmp(b->at, text, b->size) == 0;
}

/* The key or name in scratch, without its quotes and escapes, goes to out. */
static int decode(struct bytes *out, const struct bytes *scratch, struct err *err)
{
    struct json_text text = { 0 };
    bool ended = false;

    for (size_t at = 1; at < scratch->size && !ended; at++)
        if (json_text_put(&ended, &text, '"', scratch->at + at, 1, out, err) < 0)
            return -1;
    return json_text_end(&text, out, err);
}

static int end_key(struct reply *r, struct err *err)
{
    struct reply_json *j = &r->json;
    struct bytes key = { 0 };
    int rc = decode(&key, &j->scratch, err);

    if (says(&key, "name") && !r->in_call) {
        j->member = MEMBER_NAME;
    } else if ((says(&key, "arguments") || says(&key, "parameters")) && !j->have_arguments &&
               !j->arguments_end) {
        j->member = MEMBER_ARGUMENTS;
    } else {
        j->member = MEMBER_OTHER;
        j->n_dropped++;
    }
    j->n_mended += j->mend.n_mended != 0;
    j->at = JSON_COLON;
    bytes_done(&key);
    return rc;
}

/* 1 the call begins, 0 it is no name, -1. */
static int end_name(struct reply *r, struct err *err)
{
    struct reply_json *j = &r->json;
    struct bytes name = { 0 };

    if (j->mend.broken || !j->scratch.size || *j->scratch.at != '"')
        return 0;
    int rc = decode(&name, &j->scratch, err);
    j->n_mended += j->mend.n_mended != 0;
    if (rc == 0 && name.size)
        rc = reply_call_begin(r, name.at, name.size, err) < 0 ? -1 : 1;
    bytes_done(&name);
    if (rc == 1 && r->phase == PHASE_JSON && j->arguments_end &&
        replay_arguments(r, err) < 0)
        return -1;
    if (rc == 1)
        reply_forget(&r->raw);
    return rc;
}

/* n_behind: bytes of a character that showed that it ended before. */
static int end_value(struct reply *r, size_t n_behind, struct err *err)
{
    struct reply_json *j = &r->json;

    j->at = JSON_AFTER;
    if (j->member == MEMBER_NAME) {
        int begins = end_name(r, err);
        return begins == 0 ? lose(r, NULL, 0, err) : begins < 0 ? -1 : 0;
    }
    if (j->member == MEMBER_OTHER)
        return 0;
    if (r->in_call)
        return end_arguments(r, err);
    j->arguments_end = r->raw.size - n_behind;
    return 0;
}

static int put_value(bool *taken, struct reply *r, const char *c, size_t n, struct err *err)
{
    struct reply_json *j = &r->json;
    enum json_mend_end end;
    size_t before = r->text.size;
    int rc;

    if (j->member == MEMBER_ARGUMENTS) {
        if (!j->begun && !ascii_json_space(*c) && !r->in_call)
            j->arguments_begin = r->raw.size - n;
        rc = put_arguments(&end, j, c, n, r->in_call ? &r->text : NULL, err);
        if (rc == 0 && reply_added(r, REPLY_ARGUMENTS, before, err) < 0)
            return -1;
    } else {
        rc = json_mend_put(&end, &j->mend, c, n,
                           j->member == MEMBER_NAME ? &j->scratch : NULL, err);
    }
    if (rc < 0)
        return -1;
    *taken = end != MEND_ENDS_BEFORE;
    return end == MEND_GOES_ON ? 0 : end_value(r, *taken ? 0 : n, err);
}

static void count_repairs(struct reply *r)
{
    struct reply_json *j = &r->json;

    for (; j->n_dropped; j->n_dropped--)
        reply_count(r, REPLY_KEY_DROPPED);
    if (j->n_mended)
        reply_count(r, REPLY_JSON_MENDED);
}

static int end_object(struct reply *r, struct err *err)
{
    struct reply_json *j = &r->json;

    if (!r->in_call)
        return reply_block_is_text(r, err);
    if (!j->have_arguments) {
        begin_arguments(j);
        if (end_arguments(r, err) < 0)
            return -1;
    }
    count_repairs(r);
    return reply_call_end(r, err);
}

/* Where the object's own punctuation is due. */
static int put_structure(struct reply *r, const char *c, size_t n, struct err *err)
{
    struct reply_json *j = &r->json;
    bool quote = *c == '"' || *c == '\'';
    enum json_mend_end end;

    if (ascii_json_space(*c))
        return 0;
    if (j->at == JSON_AFTER && *c == ',') {
        j->at = JSON_KEY;
        return 0;
    }
    if (*c == '}' && j->at != JSON_COLON) {
        j->n_mended += j->at == JSON_KEY;
        return end_object(r, err);
    }
    if (quote && j->at != JSON_COLON) {
        j->n_mended += j->at == JSON_AFTER;
        j->at = JSON_KEY_TEXT;
        begin_mend(&j->mend);
        reply_forget(&j->scratch);
        return json_mend_put(&end, &j->mend, c, n, &j->scratch, err);
    }
    if (j->at == JSON_COLON && *c == ':') {
        j->at = JSON_VALUE;
        begin_mend(&j->mend);
        begin_arguments(j);
        return 0;
    }
    return lose(r, c, n, err);
}

int reply_json_put(struct reply *r, const char *c, size_t n, struct err *err)
{
    struct reply_json *j = &r->json;
    enum json_mend_end end;

    if (!r->in_call && bytes_put(&r->raw, c, n, err) < 0)
        return -1;
    switch (j->at) {
    case JSON_OPEN: /* the caller saw the bracket */
        j->at = JSON_KEY_OR_END;
        j->n_dropped = j->n_mended = 0;
        return 0;
    case JSON_KEY_TEXT:
        if (json_mend_put(&end, &j->mend, c, n, &j->scratch, err) < 0)
            return -1;
        return end == MEND_GOES_ON ? 0 : end_key(r, err);
    case JSON_VALUE: {
        bool taken;
        if (put_value(&taken, r, c, n, err) < 0)
            return -1;
        return taken || r->phase != PHASE_JSON || j->at != JSON_AFTER ? 0
                                                                      : put_structure(r, c, n, err);
    }
    case JSON_LOST:
        return bytes_put(&r->stray, c, n, err);
    default:
        return put_structure(r, c, n, err);
    }
}

/* A key that is not complete and may not become one that means something. */
static bool key_is_lost(const struct reply_json *j)
{
    static const char *const keys[] = { "\"arguments", "\"parameters" };

    for (size_t i = 0; i < 2; i++)
        if (j->scratch.size <= strlen(keys[i]) &&
            memcmp(j->scratch.at, keys[i], j->scratch.size) == 0)
            return false;
    return true;
}

int reply_json_end(struct reply *r, bool cut, struct err *err)
{
    struct reply_json *j = &r->json;
    bool in_arguments = j->at == JSON_VALUE && j->member == MEMBER_ARGUMENTS;

    if (!r->in_call)
        return reply_block_is_text(r, err);
    if (j->at == JSON_KEY_TEXT && key_is_lost(j))
        j->n_dropped++;
    if (cut && !j->have_arguments) {
        if (in_arguments && leave_arguments(r, err) < 0)
            return -1;
        count_repairs(r);
        return reply_call_leave(r, err);
    }
    if (in_arguments && end_arguments(r, err) < 0)
        return -1;
    if (j->at != JSON_LOST && !cut)
        reply_count(r, REPLY_CLOSER_MISSING);
    return end_object(r, err);
}
