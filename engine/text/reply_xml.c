/* A call as <function=NAME> with parameters, which only looks like XML: nothing is unescaped, and a
 * value may hold any tag. Text in a value is the value's until what follows it says otherwise, so
 * what may end one is held back (struct reply_xml, pending). */
#include "text/reply_state.h"

#include "util/ascii.h"
#include "util/err.h"

#include <string.h>

#define LONGEST_KEY 256 /* of a key whose <parameter= ends the value before it by itself */

enum tag { TAG_NONE, TAG_PARTIAL, TAG_PARAMETER, TAG_PARAMETER_END, TAG_FUNCTION_END };

static const char parameter_tag[] = "<parameter=";

static enum tag tag_match(const char *text, size_t size)
{
    static const struct {
        const char *text;
        enum tag tag;
    } tags[] = { { parameter_tag, TAG_PARAMETER },
                 { "</parameter>", TAG_PARAMETER_END },
                 { "</function>", TAG_FUNCTION_END } };

    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (size <= strlen(tags[i].text) && memcmp(text, tags[i].text, size) == 0)
            return size == strlen(tags[i].text) ? tags[i].tag : TAG_PARTIAL;
    return TAG_NONE;
}

static enum tag pending_tag(const struct reply_xml *x)
{
    return tag_match(x->pending.at + x->tag_begin, x->pending.size - x->tag_begin);
}

static void forget_pending(struct reply_xml *x)
{
    reply_forget(&x->pending);
    x->hold = PENDING_NOTHING;
    x->tag_begin = 0;
    x->n_closers = 0;
}

int reply_xml_begin(struct reply *r, const char *name, size_t size, struct err *err)
{
    struct reply_xml *x = &r->xml;

    x->tool = reply_tool_named(r, name, size);
    if (reply_call_begin(r, name, size, err) < 0)
        return -1;
    if (r->phase == PHASE_OVER)
        return 0;
    r->phase = PHASE_XML;
    x->at = XML_BODY;
    forget_pending(x);
    reply_keys_done(&x->keys);
    reply_forget(&r->raw);
    return reply_add(r, REPLY_ARGUMENTS, "{", 1, err);
}

/* ---- values ---- */

static unsigned types_of(const struct reply_xml *x, const char *key, size_t size)
{
    for (size_t i = 0; x->tool && i < x->tool->n_parameters; i++) {
        const struct reply_parameter *p = &x->tool->parameters[i];
        if (p->size == size && memcmp(p->name, key, size) == 0)
            return p->types ? p->types : REPLY_MAY_STRING;
    }
    return REPLY_MAY_STRING;
}

static int begin_value(struct reply *r, const char *key, size_t size, struct err *err)
{
    struct reply_xml *x = &r->xml;
    size_t before = r->text.size;

    x->at = XML_VALUE_BEGIN;
    x->line_begin = false;
    int is_new = reply_keys_add(&x->keys, key, size, err);
    if (is_new < 0)
        return -1;
    if (!is_new) {
        reply_count(r, REPLY_KEY_DROPPED);
        x->value_kind = VALUE_DROPPED;
        return 0;
    }
    x->types = types_of(x, key, size);
    x->value_kind = !(x->types & REPLY_MAY_STRING) ? VALUE_OTHER
                    : x->types & REPLY_MAY_NULL    ? VALUE_UNDECIDED
                                                   : VALUE_STRING;
    if (x->keys.n > 1 && bytes_put(&r->text, ", ", 2, err) < 0)
        return -1;
    if (json_text_quote(&r->text, key, size, err) < 0 ||
        bytes_put(&r->text, x->value_kind == VALUE_STRING ? ": \"" : ": ",
                  x->value_kind == VALUE_STRING ? 3 : 2, err) < 0)
        return -1;
    return reply_added(r, REPLY_ARGUMENTS, before, err);
}

static bool begins_null(const struct bytes *b)
{
    return b->size <= 4 && (memcmp(b->at, "null", b->size) == 0 ||
                            memcmp(b->at, "None", b->size) == 0);
}

/* Surely part of the value. */
static int put_literal(struct reply *r, const char *text, size_t size, struct err *err)
{
    struct reply_xml *x = &r->xml;
    size_t before = r->text.size;

    if (size == 0)
        return 0;
    x->line_begin = false;
    if (x->value_kind == VALUE_DROPPED)
        return 0;
    if (x->value_kind == VALUE_STRING) {
        if (json_text_escape(&r->text, text, size, err) < 0)
            return -1;
        return reply_added(r, REPLY_ARGUMENTS, before, err);
    }
    if (bytes_put(&x->value, text, size, err) < 0)
        return -1;
    if (x->value_kind == VALUE_OTHER || begins_null(&x->value))
        return 0;

    x->value_kind = VALUE_STRING;
    if (bytes_put(&r->text, "\"", 1, err) < 0 ||
        json_text_escape(&r->text, x->value.at, x->value.size, err) < 0)
        return -1;
    reply_forget(&x->value);
    return reply_added(r, REPLY_ARGUMENTS, before, err);
}

static int end_value(struct reply *r, struct err *err)
{
    struct reply_xml *x = &r->xml;
    size_t before = r->text.size;
    int rc = 0;

    x->at = XML_BODY;
    if (x->value_kind == VALUE_STRING)
        rc = bytes_put(&r->text, "\"", 1, err);
    else if (x->value_kind == VALUE_UNDECIDED && x->value.size < 4)
        rc = json_text_quote(&r->text, x->value.at, x->value.size, err);
    else if (x->value_kind == VALUE_UNDECIDED)
        rc = bytes_put(&r->text, "null", 4, err);
    else if (x->value_kind == VALUE_OTHER)
        rc = reply_put_value(r, &r->text, x->value.at, x->value.size, x->types, err);
    reply_forget(&x->value);
    return rc < 0 ? -1 : reply_added(r, REPLY_ARGUMENTS, before, err);
}

/* The value stays open, and what is known of it is given out as it is. */
static int leave_value(struct reply *r, struct err *err)
{
    struct reply_xml *x = &r->xml;
    size_t before = r->text.size;
    int rc = 0;

    if (x->value_kind == VALUE_UNDECIDED)
        rc = bytes_put(&r->text, "\"", 1, err);
    if (rc == 0)
        rc = bytes_put(&r->text, x->value.at, x->value.size, err);
    reply_forget(&x->value);
    return rc < 0 ? -1 : reply_added(r, REPLY_ARGUMENTS, before, err);
}

static int leave_key(struct reply *r, struct err *err)
{
    struct reply_xml *x = &r->xml;
    const char *begin = x->keys.n ? ", \"" : "\"";
    size_t before = r->text.size;

    if (x->pending.size == 0)
        return 0;
    if (bytes_put(&r->text, begin, strlen(begin), err) < 0 ||
        json_text_escape(&r->text, x->pending.at, x->pending.size, err) < 0)
        return -1;
    return reply_added(r, REPLY_ARGUMENTS, before, err);
}

/* ---- what may end a value ---- */

static int give_pending(struct reply *r, struct err *err)
{
    int rc = put_literal(r, r->xml.pending.at, r->xml.pending.size, err);

    forget_pending(&r->xml);
    return rc;
}

static int end_function(struct reply *r, struct err *err)
{
    forget_pending(&r->xml);
    reply_keys_done(&r->xml.keys);
    if (reply_add(r, REPLY_ARGUMENTS, "}", 1, err) < 0)
        return -1;
    return reply_call_end(r, err);
}

/* </parameter> was one indeed, and the same again behind it means nothing. */
static int closed(struct reply *r, struct err *err)
{
    for (uint32_t i = 1; i < r->xml.n_closers; i++)
        reply_count(r, REPLY_TAG_EXTRA);
    return end_value(r, err);
}

/* A tag grew by a character. 1: the character belongs to it, or ended the value; 0: it does not,
 * and meets the value anew. */
static int tag_grew(struct reply *r, size_t n, struct err *err)
{
    struct reply_xml *x = &r->xml;
    bool at_line_begin = x->tag_begin == 1 || x->line_begin;

    switch (pending_tag(x)) {
    case TAG_PARTIAL:
        return 1;
    case TAG_PARAMETER:
        if (!at_line_begin)
            break;
        x->hold = PENDING_KEY;
        return 1;
    case TAG_PARAMETER_END:
        x->hold = PENDING_CLOSED;
        x->n_closers = 1;
        return 1;
    case TAG_FUNCTION_END:
        x->hold = PENDING_ENDED;
        return 1;
    case TAG_NONE:
        break;
    }
    x->pending.size -= n;
    return give_pending(r, err);
}

static int tag_behind_closer_grew(struct reply *r, size_t n, struct err *err)
{
    struct reply_xml *x = &r->xml;

    switch (pending_tag(x)) {
    case TAG_PARTIAL:
        return 1;
    case TAG_PARAMETER:
        if (closed(r, err) < 0)
            return -1;
        forget_pending(x);
        x->at = XML_KEY;
        return 1;
    case TAG_PARAMETER_END:
        x->hold = PENDING_CLOSED;
        x->n_closers++;
        return 1;
    case TAG_FUNCTION_END:
        return closed(r, err) < 0 || end_function(r, err) < 0 ? -1 : 1;
    case TAG_NONE:
        break;
    }
    x->pending.size -= n;
    return give_pending(r, err);
}

/* "<parameter=" at the beginning of a line: with a whole key it ends the value before it. */
static int put_pending_key(struct reply *r, const char *c, size_t n, struct err *err)
{
    struct reply_xml *x = &r->xml;
    size_t begin = x->tag_begin + sizeof parameter_tag - 1;

    if (*c == '>') {
        const char *key = x->pending.at + begin;
        size_t size = x->pending.size - begin;
        reply_trim(&key, &size);
        if (size) {
            reply_count(r, REPLY_CLOSER_MISSING);
            if (end_value(r, err) < 0 || begin_value(r, key, size, err) < 0)
                return -1;
            forget_pending(x);
            return 1;
        }
    } else if (*c != '\n' && *c != '<' && x->pending.size - begin < LONGEST_KEY) {
        return bytes_put(&x->pending, c, n, err) < 0 ? -1 : 1;
    }
    return give_pending(r, err);
}

/* Behind </function>, which is the value's unless the call ends here. */
static int put_behind_end(struct reply *r, const char *c, size_t n, struct err *err)
{
    struct reply_xml *x = &r->xml;

    if (ascii_json_space(*c))
        return bytes_put(&x->pending, c, n, err) < 0 ? -1 : 1;
    bool newline = *c == '<' && x->pending.at[x->pending.size - 1] == '\n';
    x->pending.size -= newline;
    if (give_pending(r, err) < 0)
        return -1;
    if (newline) {
        x->hold = PENDING_NEWLINE;
        return bytes_put(&x->pending, "\n", 1, err);
    }
    return 0;
}

/* As tag_grew. */
static int put_value(struct reply *r, const char *c, size_t n, struct err *err)
{
    struct reply_xml *x = &r->xml;

    switch (x->hold) {
    case PENDING_NOTHING:
        if (*c != '\n' && *c != '<')
            return put_literal(r, c, n, err) < 0 ? -1 : 1;
        x->hold = *c == '\n' ? PENDING_NEWLINE : PENDING_TAG;
        return bytes_put(&x->pending, c, n, err) < 0 ? -1 : 1;
    case PENDING_NEWLINE:
        if (*c != '<')
            return give_pending(r, err);
        x->hold = PENDING_TAG;
        x->tag_begin = 1;
        return bytes_put(&x->pending, c, n, err) < 0 ? -1 : 1;
    case PENDING_TAG:
        return bytes_put(&x->pending, c, n, err) < 0 ? -1 : tag_grew(r, n, err);
    case PENDING_KEY:
        return put_pending_key(r, c, n, err);
    case PENDING_CLOSED:
        if (*c == '<') {
            x->hold = PENDING_CLOSED_TAG;
            x->tag_begin = x->pending.size;
        } else if (!ascii_json_space(*c)) {
            return give_pending(r, err);
        }
        return bytes_put(&x->pending, c, n, err) < 0 ? -1 : 1;
    case PENDING_CLOSED_TAG:
        return bytes_put(&x->pending, c, n, err) < 0 ? -1 : tag_behind_closer_grew(r, n, err);
    case PENDING_ENDED:
        return put_behind_end(r, c, n, err);
    }
    return 1;
}

/* ---- between parameters ---- */

static int put_body(struct reply *r, const char *c, size_t n, struct err *err)
{
    struct reply_xml *x = &r->xml;

    if (*c == '<') {
        x->at = XML_BODY_TAG;
        x->tag_begin = 0;
        return bytes_put(&x->pending, c, n, err);
    }
    return ascii_json_space(*c) && !r->stray.size ? 0 : bytes_put(&r->stray, c, n, err);
}

static int put_body_tag(struct reply *r, const char *c, size_t n, struct err *err)
{
    struct reply_xml *x = &r->xml;
    char last[4];

    if (bytes_put(&x->pending, c, n, err) < 0)
        return -1;
    switch (pending_tag(x)) {
    case TAG_PARTIAL:
        return 0;
    case TAG_PARAMETER:
        forget_pending(x);
        x->at = XML_KEY;
        return 0;
    case TAG_PARAMETER_END:
        reply_count(r, REPLY_TAG_EXTRA);
        forget_pending(x);
        x->at = XML_BODY;
        return 0;
    case TAG_FUNCTION_END:
        return end_function(r, err);
    case TAG_NONE:
        break;
    }
    memcpy(last, c, n);
    int rc = bytes_put(&r->stray, x->pending.at, x->pending.size - n, err);
    forget_pending(x);
    x->at = XML_BODY;
    return rc < 0 ? -1 : put_body(r, last, n, err);
}

/* A parameter without a key is none. */
static int key_is_stray(struct reply *r, struct err *err)
{
    struct reply_xml *x = &r->xml;
    int rc = bytes_put(&r->stray, parameter_tag, sizeof parameter_tag - 1, err);

    if (rc == 0)
        rc = bytes_put(&r->stray, x->pending.at, x->pending.size, err);
    forget_pending(x);
    x->at = XML_BODY;
    return rc;
}

static int put_key(struct reply *r, const char *c, size_t n, struct err *err)
{
    struct reply_xml *x = &r->xml;
    const char *key = x->pending.at;
    size_t size = x->pending.size;

    if (*c == '>') {
        reply_trim(&key, &size);
        if (size) {
            int rc = begin_value(r, key, size, err);
            forget_pending(x);
            return rc;
        }
    }
    if (bytes_put(&x->pending, c, n, err) < 0)
        return -1;
    return *c == '>' || *c == '\n' ? key_is_stray(r, err) : 0;
}

int reply_xml_put(struct reply *r, const char *c, size_t n, struct err *err)
{
    struct reply_xml *x = &r->xml;
    int taken = 0;

    switch (x->at) {
    case XML_BODY:
        return put_body(r, c, n, err);
    case XML_BODY_TAG:
        return put_body_tag(r, c, n, err);
    case XML_KEY:
        return put_key(r, c, n, err);
    case XML_VALUE_BEGIN:
        x->at = XML_VALUE;
        x->line_begin = *c == '\n';
        if (*c == '\n')
            return 0;
        break;
    case XML_VALUE:
        break;
    }
    while (taken == 0)
        taken = put_value(r, c, n, err);
    return taken < 0 ? -1 : 0;
}

/* ---- the end ---- */

bool reply_xml_may_end(const struct reply *r)
{
    return r->xml.at == XML_BODY;
}

/* What was held back of a value, now that its end is here. True: it is closed. */
static int settle_value(bool *is_closed, struct reply *r, bool by_mark, bool cut,
                        struct err *err)
{
    struct reply_xml *x = &r->xml;
    size_t tag = x->tag_begin;

    *is_closed = false;
    switch (x->hold) {
    case PENDING_NEWLINE:
        if (!by_mark)
            return give_pending(r, err);
        break;
    case PENDING_CLOSED:
    case PENDING_CLOSED_TAG:
        *is_closed = true;
        if (closed(r, err) < 0)
            return -1;
        if (x->hold == PENDING_CLOSED_TAG && !cut &&
            bytes_put(&r->stray, x->pending.at + tag, x->pending.size - tag, err) < 0)
            return -1;
        break;
    case PENDING_ENDED:
        *is_closed = true;
        if (end_value(r, err) < 0)
            return -1;
        break;
    default:
        return give_pending(r, err);
    }
    forget_pending(x);
    return 0;
}

int reply_xml_end(struct reply *r, bool by_mark, bool cut, struct err *err)
{
    struct reply_xml *x = &r->xml;
    bool in_value = x->at == XML_VALUE_BEGIN || x->at == XML_VALUE;
    bool is_closed = true, ended = x->at == XML_VALUE && x->hold == PENDING_ENDED;

    if (in_value && settle_value(&is_closed, r, by_mark, cut, err) < 0)
        return -1;
    if (cut && !ended) {
        if ((!is_closed && leave_value(r, err) < 0) ||
            (x->at == XML_KEY && leave_key(r, err) < 0))
            return -1;
        return reply_call_leave(r, err);
    }
    if (x->at == XML_KEY && key_is_stray(r, err) < 0)
        return -1;
    if (x->at == XML_BODY_TAG && bytes_put(&r->stray, x->pending.at, x->pending.size, err) < 0)
        return -1;
    reply_count(r, REPLY_CLOSER_MISSING);
    if (!is_closed && end_value(r, err) < 0)
        return -1;
    return end_function(r, err);
}
