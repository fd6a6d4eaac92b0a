/* A pushdown automaton whose every step either hands its character on or says why not. A step that
 * ends a number or a word did not take its character, which then meets the state behind it. */
#include "text/json_mend.h"

#include "util/ascii.h"
#include "util/err.h"

#include <stdio.h>
#include <string.h>

/* Where in the grammar of numbers: RFC 8259, section 6. */
enum { NUMBER_BEGIN, NUMBER_MINUS, NUMBER_ZERO, NUMBER_DIGITS, NUMBER_POINT, NUMBER_FRACTION,
       NUMBER_E, NUMBER_E_SIGN, NUMBER_EXPONENT, NUMBER_END, NUMBER_NONE };

static const struct {
    char said[9], json[6];
} words[] = { { "true", "true" },   { "false", "false" }, { "null", "null" },
              { "True", "true" },   { "False", "false" }, { "None", "null" } };
enum { N_WORDS = sizeof words / sizeof *words };

static int emit(struct bytes *out, const char *text, size_t size, struct err *err)
{
    return out ? bytes_put(out, text, size, err) : 0;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static char top(const struct json_mend *m)
{
    return m->stack.size ? m->stack.at[m->stack.size - 1] : 0;
}

static enum json_mend_end value_ended(struct json_mend *m)
{
    m->at = m->stack.size ? MEND_AFTER : MEND_DONE;
    return m->stack.size ? MEND_GOES_ON : MEND_ENDS_WITH;
}

static int give_gap(struct json_mend *m, struct bytes *out, struct err *err)
{
    int rc = emit(out, m->gap.at, m->gap.size, err);

    m->gap.size = 0;
    return rc;
}

/* The comma goes, the white space stays. */
static int give_gap_without_comma(struct json_mend *m, struct bytes *out, struct err *err)
{
    int rc = emit(out, m->gap.at + 1, m->gap.size - 1, err);

    m->gap.size = 0;
    m->n_mended++;
    return rc;
}

static int break_it(struct json_mend *m, struct bytes *out, struct err *err)
{
    m->at = MEND_BROKEN;
    m->broken = true;
    m->quote = 0;
    if (give_gap(m, out, err) < 0 || emit(out, m->word, m->n_word, err) < 0)
        return -1;
    m->n_word = 0;
    return 0;
}

/* A brace closes the brackets inside it too; a bracket that fits nothing is text. */
static void close_broken(struct json_mend *m, char c)
{
    if (c == ']') {
        m->stack.size -= top(m) == '[';
        return;
    }
    while (m->stack.size && m->stack.at[--m->stack.size] != '{')
        ;
}

/* n_word: a backslash came before. Outside of brackets a comma or a closing one ends it. */
static int put_broken(enum json_mend_end *end, struct json_mend *m, const char *c, size_t n,
                      struct bytes *out, struct err *err)
{
    if (m->quote) {
        bool escaped = m->n_word;
        m->n_word = !escaped && *c == '\\';
        if (!escaped && *c == m->quote)
            m->quote = 0;
        return emit(out, c, n, err);
    }
    bool closes = *c == '}' || *c == ']';
    if (m->stack.size == 0 && (closes || *c == ',')) {
        m->at = MEND_DONE;
        *end = MEND_ENDS_BEFORE;
        return 0;
    }
    if (*c == '"')
        m->quote = '"';
    if ((*c == '{' || *c == '[') && bytes_put(&m->stack, c, 1, err) < 0)
        return -1;
    if (closes)
        close_broken(m, *c);
    if (closes && m->stack.size == 0)
        *end = value_ended(m);
    return emit(out, c, n, err);
}

/* ---- numbers and words ---- */

static uint8_t number_next(uint8_t at, char c)
{
    bool digit = c >= '0' && c <= '9', exponent = c == 'e' || c == 'E';

    switch (at) {
    case NUMBER_BEGIN:
        return c == '-' ? NUMBER_MINUS : c == '0' ? NUMBER_ZERO : NUMBER_DIGITS;
    case NUMBER_MINUS:
        return c == '0' ? NUMBER_ZERO : digit ? NUMBER_DIGITS : NUMBER_NONE;
    case NUMBER_ZERO:
        return c == '.' ? NUMBER_POINT : exponent ? NUMBER_E : digit ? NUMBER_NONE : NUMBER_END;
    case NUMBER_DIGITS:
        return digit ? NUMBER_DIGITS : c == '.' ? NUMBER_POINT : exponent ? NUMBER_E : NUMBER_END;
    case NUMBER_POINT:
        return digit ? NUMBER_FRACTION : NUMBER_NONE;
    case NUMBER_FRACTION:
        return digit ? NUMBER_FRACTION : exponent ? NUMBER_E : NUMBER_END;
    case NUMBER_E:
        return digit ? NUMBER_EXPONENT : c == '+' || c == '-' ? NUMBER_E_SIGN : NUMBER_NONE;
    case NUMBER_E_SIGN:
        return digit ? NUMBER_EXPONENT : NUMBER_NONE;
    default:
        return digit ? NUMBER_EXPONENT : NUMBER_END;
    }
}

/* The word that is said, or with `begins` one that begins so; NULL. */
static const char *word_json(const struct json_mend *m, bool begins, bool *same)
{
    for (size_t i = 0; i < N_WORDS; i++) {
        size_t size = strlen(words[i].said);
        if (m->n_word > size || (m->n_word < size && !begins) ||
            memcmp(m->word, words[i].said, m->n_word) != 0)
            continue;
        *same = m->n_word == size && strcmp(words[i].said, words[i].json) == 0;
        return words[i].json;
    }
    return NULL;
}

/* A number or word ended before a character. */
static int end_scalar(enum json_mend_end *end, struct json_mend *m)
{
    *end = value_ended(m) == MEND_ENDS_WITH ? MEND_ENDS_BEFORE : MEND_GOES_ON;
    return 0;
}

static int end_word(enum json_mend_end *end, struct json_mend *m, struct bytes *out,
                    struct err *err)
{
    bool same;
    const char *json = word_json(m, false, &same);

    if (!json)
        return break_it(m, out, err);
    m->n_mended += !same;
    m->n_word = 0;
    if (emit(out, json, strlen(json), err) < 0)
        return -1;
    return end_scalar(end, m);
}

/* ---- strings ---- */

static int put_control(struct json_mend *m, char c, struct bytes *out, struct err *err)
{
    char text[8];

    m->n_mended++;
    if (c == '\n')
        return emit(out, "\\n", 2, err);
    if (c == '\t')
        return emit(out, "\\t", 2, err);
    if (c == '\r')
        return emit(out, "\\r", 2, err);
    snprintf(text, sizeof text, "\\u%04x", (unsigned char)c);
    return emit(out, text, 6, err);
}

/* What began as an escape is none: its backslash is meant. */
static int unescape(struct json_mend *m, struct bytes *out, struct err *err)
{
    m->n_mended++;
    if (emit(out, "\\", 1, err) < 0 || emit(out, m->word, m->n_word, err) < 0)
        return -1;
    m->n_word = 0;
    return 0;
}

/* Behind a backslash. 1: the character was taken, 0: it comes behind what was no escape, -1. */
static int put_escape(struct json_mend *m, const char *c, struct bytes *out, struct err *err)
{
    if (m->n_word == 1 && *c == '\'') { /* Python's and JavaScript's */
        m->n_mended += m->quote == '"';
        m->n_word = 0;
        return emit(out, "'", 1, err) < 0 ? -1 : 1;
    }
    bool simple = m->n_word == 1 && *c && strchr("\"\\/bfnrt", *c);
    bool unicode = m->n_word == 1 ? *c == 'u' : is_hex(*c);
    if (!simple && !unicode)
        return unescape(m, out, err);
    m->word[m->n_word++] = *c;
    if (!simple && m->n_word < 6)
        return 1;
    int rc = emit(out, m->word, m->n_word, err);
    m->n_word = 0;
    return rc < 0 ? -1 : 1;
}

static int put_string(enum json_mend_end *end, struct json_mend *m, const char *c, size_t n,
                      struct bytes *out, struct err *err)
{
    if (m->n_word) {
        int taken = put_escape(m, c, out, err);
        if (taken != 0)
            return taken < 0 ? -1 : 0;
    }
    if (*c == m->quote) {
        if (m->is_key)
            m->at = MEND_COLON;
        else
            *end = value_ended(m);
        return emit(out, "\"", 1, err);
    }
    if (*c == '\\') {
        m->word[m->n_word++] = '\\';
        return 0;
    }
    if (*c == '"')
        return emit(out, "\\\"", 2, err);
    if (n == 1 && (unsigned char)*c < 0x20)
        return put_control(m, *c, out, err);
    return emit(out, c, n, err);
}

static int begin_string(struct json_mend *m, char quote, bool is_key, struct bytes *out,
                        struct err *err)
{
    m->at = MEND_STRING;
    m->quote = quote;
    m->is_key = is_key;
    m->n_mended += quote == '\'';
    return emit(out, "\"", 1, err);
}

/* ---- containers ---- */

static int begin_value(enum json_mend_end *end, struct json_mend *m, const char *c, size_t n,
                       struct bytes *out, struct err *err)
{
    m->begun = true;
    if (*c == '{' || *c == '[') {
        m->at = *c == '{' ? MEND_FIRST_KEY : MEND_FIRST_ITEM;
        return bytes_put(&m->stack, c, 1, err) < 0 ? -1 : emit(out, c, 1, err);
    }
    if (*c == '"' || *c == '\'')
        return begin_string(m, *c, false, out, err);
    if (*c == '-' || (*c >= '0' && *c <= '9')) {
        m->at = MEND_NUMBER;
        m->number = number_next(NUMBER_BEGIN, *c);
        return emit(out, c, 1, err);
    }
    if (is_word(*c)) {
        m->at = MEND_WORD;
        m->word[0] = *c;
        m->n_word = 1;
        return 0;
    }
    return break_it(m, out, err) < 0 ? -1 : put_broken(end, m, c, n, out, err);
}

static bool closes_top(const struct json_mend *m, char c)
{
    return (c == '}' && top(m) == '{') || (c == ']' && top(m) == '[');
}

static int close_top(enum json_mend_end *end, struct json_mend *m, struct bytes *out,
                     struct err *err)
{
    const char *closing = top(m) == '{' ? "}" : "]";

    m->stack.size--;
    *end = value_ended(m);
    return emit(out, closing, 1, err);
}

/* Where a value, a key, a colon or a comma is due. */
static int put_structure(enum json_mend_end *end, struct json_mend *m, const char *c, size_t n,
                         struct bytes *out, struct err *err)
{
    bool behind_comma = m->at == MEND_KEY || m->at == MEND_ITEM;
    bool quote = *c == '"' || *c == '\'';

    if (ascii_json_space(*c)) {
        if (behind_comma)
            return bytes_put(&m->gap, c, 1, err);
        return m->begun ? emit(out, c, 1, err) : 0;
    }
    if (behind_comma && closes_top(m, *c))
        return give_gap_without_comma(m, out, err) < 0 ? -1 : close_top(end, m, out, err);
    if ((m->at == MEND_FIRST_KEY || m->at == MEND_FIRST_ITEM || m->at == MEND_AFTER) &&
        closes_top(m, *c))
        return close_top(end, m, out, err);
    if ((m->at == MEND_KEY || m->at == MEND_FIRST_KEY) && quote)
        return give_gap(m, out, err) < 0 ? -1 : begin_string(m, *c, true, out, err);
    if (m->at == MEND_COLON && *c == ':') {
        m->at = MEND_VALUE;
        return emit(out, c, 1, err);
    }
    if (m->at == MEND_AFTER && *c == ',') {
        m->at = top(m) == '{' ? MEND_KEY : MEND_ITEM;
        return bytes_put(&m->gap, c, 1, err);
    }
    if (m->at == MEND_VALUE || m->at == MEND_FIRST_ITEM || m->at == MEND_ITEM)
        return give_gap(m, out, err) < 0 ? -1 : begin_value(end, m, c, n, out, err);
    return break_it(m, out, err) < 0 ? -1 : put_broken(end, m, c, n, out, err);
}

int json_mend_put(enum json_mend_end *end, struct json_mend *m, const char *c, size_t n,
                  struct bytes *out, struct err *err)
{
    *end = MEND_GOES_ON;
    if (m->at == MEND_NUMBER) {
        uint8_t next = number_next(m->number, *c);
        if (next == NUMBER_NONE) {
            if (break_it(m, out, err) < 0)
                return -1;
        } else if (next == NUMBER_END) {
            end_scalar(end, m);
        } else {
            m->number = next;
            return emit(out, c, 1, err);
        }
    } else if (m->at == MEND_WORD) {
        if (is_word(*c) && m->n_word < sizeof m->word) {
            m->word[m->n_word++] = *c;
            return 0;
        }
        if (end_word(end, m, out, err) < 0)
            return -1;
    }
    if (*end == MEND_ENDS_BEFORE)
        return 0;

    switch (m->at) {
    case MEND_DONE:
        *end = MEND_ENDS_BEFORE;
        return 0;
    case MEND_BROKEN:
        return put_broken(end, m, c, n, out, err);
    case MEND_STRING:
        return put_string(end, m, c, n, out, err);
    default:
        return put_structure(end, m, c, n, out, err);
    }
}

/* ---- the end ---- */

/* What is open at the place where it stands, so that only brackets are left. */
static int close_here(struct json_mend *m, struct bytes *out, struct err *err)
{
    bool same = true;

    switch (m->at) {
    case MEND_STRING:
        if ((m->n_word && unescape(m, out, err) < 0) || emit(out, "\"", 1, err) < 0)
            return -1;
        m->n_mended++;
        return m->is_key ? emit(out, ": null", 6, err) : 0;
    case MEND_COLON:
        m->n_mended++;
        return emit(out, ": null", 6, err);
    case MEND_VALUE:
        m->n_mended += m->begun;
        return m->begun ? emit(out, "null", 4, err) : 0;
    case MEND_KEY:
    case MEND_ITEM:
        return give_gap_without_comma(m, out, err);
    case MEND_NUMBER:
        if (number_next(m->number, ' ') == NUMBER_END)
            return 0;
        m->n_mended++;
        return emit(out, "0", 1, err);
    case MEND_WORD: {
        const char *json = word_json(m, true, &same);
        if (!json)
            return break_it(m, out, err);
        m->n_mended += !same;
        m->n_word = 0;
        return emit(out, json, strlen(json), err);
    }
    default:
        return 0;
    }
}

int json_mend_close(struct json_mend *m, struct bytes *out, struct err *err)
{
    if (m->at == MEND_BROKEN || m->at == MEND_DONE)
        return 0;
    if (close_here(m, out, err) < 0)
        return -1;
    if (m->broken)
        return 0;
    m->n_mended += m->stack.size != 0;
    while (m->stack.size) {
        enum json_mend_end end;
        if (close_top(&end, m, out, err) < 0)
            return -1;
    }
    m->at = MEND_DONE;
    return 0;
}

int json_mend_leave(struct json_mend *m, struct bytes *out, struct err *err)
{
    bool held = m->at == MEND_WORD || (m->at == MEND_STRING && m->n_word);

    if (give_gap(m, out, err) < 0)
        return -1;
    if (held && emit(out, m->word, m->n_word, err) < 0)
        return -1;
    m->n_word = 0;
    return 0;
}

void json_mend_done(struct json_mend *m)
{
    bytes_done(&m->stack);
    bytes_done(&m->gap);
}
