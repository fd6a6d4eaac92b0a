/* What belongs to which tag, and which white space goes: as Jinja2 does with trim_blocks and
 * lstrip_blocks on. */
#include "text/jinja_ast.h"

#include "util/err.h"
#include "util/utf8.h"

#include <string.h>

struct lexer {
    struct jinja_mem *m;
    struct jinja_tokens *out;
    const char *s;
    size_t at, size;
    uint32_t line;
    bool line_starting; /* what came last ended a line, or nothing came */
    struct err *err;
};

static int wrong(struct lexer *x, const char *what)
{
    return err_set(x->err, ERR_FORMAT, "chat template, line %u: %s", x->line, what);
}

static int put(struct lexer *x, enum jinja_token_type type, const char *text, size_t size)
{
    struct jinja_tokens *t = x->out;

    if (t->n == t->cap) {
        size_t cap = t->cap ? 2 * t->cap : 256;
        struct jinja_token *grown = jinja_take(x->m, cap * sizeof *grown);
        if (!grown)
            return err_set(x->err, ERR_BUDGET, "chat template: too long");
        if (t->n)
            memcpy(grown, t->token, t->n * sizeof *grown);
        t->token = grown;
        t->cap = cap;
    }
    t->token[t->n++] = (struct jinja_token){ type, text, size, x->line };
    return 0;
}

/* Moves on, counting lines. */
static void pass(struct lexer *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x->line += x->s[x->at + i] == '\n';
    x->at += n;
    if (n)
        x->line_starting = x->s[x->at - 1] == '\n';
}

static bool is(const struct lexer *x, size_t at, const char *text)
{
    size_t n = strlen(text);

    return at + n <= x->size && memcmp(x->s + at, text, n) == 0;
}

static size_t spaces(const struct lexer *x, size_t at)
{
    size_t from = at;
    uint32_t cp;
    int n;

    while (at < x->size && (n = utf8_next(x->s + at, x->size - at, &cp)) > 0 && jinja_is_space(cp))
        at += (size_t)n;
    return at - from;
}

/* The data before a tag, less what the tag strips. sign: what stands behind "{%": '-', '+' or
 * another; blocks strip blanks from a line's start. */
static size_t stripped(const struct lexer *x, size_t from, size_t to, char sign, bool block)
{
    size_t end = to, begin_of_line = to;

    if (sign != '-' && (sign == '+' || !block))
        return to;
    while (end > from) {
        size_t begin = end - 1;
        uint32_t cp;
        while (begin > from && ((unsigned char)x->s[begin] & 0xc0) == 0x80)
            begin--;
        if (utf8_next(x->s + begin, end - begin, &cp) <= 0 || !jinja_is_space(cp))
            break;
        if (sign != '-' && cp == '\n')
            break;
        end = begin;
    }
    if (sign == '-')
        return end;
    while (begin_of_line > from && x->s[begin_of_line - 1] != '\n')
        begin_of_line--;
    if (begin_of_line == from && !x->line_starting)
        return to;
    return end <= begin_of_line ? begin_of_line : to;
}

/* Whether a tag ends at x->at: how long its end is, with what it takes away behind it; 0: no. */
static size_t tag_end(const struct lexer *x, const char *end, bool trims)
{
    size_t n = strlen(end);
    char minus[4] = "-", plus[4] = "+";

    memcpy(minus + 1, end, n + 1);
    memcpy(plus + 1, end, n + 1);
    if (is(x, x->at, minus))
        return n + 1 + spaces(x, x->at + n + 1);
    if (trims && is(x, x->at, plus))
        return n + 1;
    if (is(x, x->at, end))
        return n + (trims && is(x, x->at + n, "\n"));
    return 0;
}

/* ---- inside tags ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_word(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (unsigned char)c >= 0x80;
}

/* Digits with single underscores between them. */
static size_t digit_run(const struct lexer *x, size_t at)
{
    size_t from = at;

    while (at < x->size && (is_digit(x->s[at]) || (x->s[at] == '_' && at > from &&
                                                   at + 1 < x->size && is_digit(x->s[at + 1]))))
        at++;
    return at - from;
}

static bool in_base(char c, int base)
{
    if (c >= 'a' && c <= 'f')
        c = (char)(c - 'a' + 10);
    else if (c >= 'A' && c <= 'F')
        c = (char)(c - 'A' + 10);
    else if (is_digit(c))
        c = (char)(c - '0');
    else
        return false;
    return c < base;
}

static int put_number(struct lexer *x)
{
    size_t from = x->at, n = digit_run(x, from), at = from + n;
    char mark = x->s[from] == '0' && from + 1 < x->size ? x->s[from + 1] : 0;
    int base = mark == 'x' || mark == 'X' ? 16 : mark == 'o' || mark == 'O' ? 8
                                             : mark == 'b' || mark == 'B' ? 2 : 0;
    bool real = false;

    if (base && from + 2 < x->size && in_base(x->s[from + 2], base)) {
        for (at = from + 2; at < x->size && in_base(x->s[at], base);)
            at++;
    } else {
        if (at + 1 < x->size && x->s[at] == '.' && is_digit(x->s[at + 1])) {
            real = true;
            at += 1 + digit_run(x, at + 1);
        }
        if (at < x->size && (x->s[at] == 'e' || x->s[at] == 'E')) {
            size_t sign = at + 1 < x->size && (x->s[at + 1] == '+' || x->s[at + 1] == '-');
            size_t k = digit_run(x, at + 1 + sign);
            if (k) {
                real = true;
                at += 1 + sign + k;
            }
        }
        /* "012" is 0 and then 12. */
        for (size_t i = from; !real && x->s[from] == '0' && i < at; i++)
            if (x->s[i] != '0' && x->s[i] != '_')
                at = i;
    }
    if (put(x, real ? TOKEN_FLOAT : TOKEN_INTEGER, x->s + from, at - from) < 0)
        return -1;
    pass(x, at - from);
    return 0;
}

static int put_string(struct lexer *x)
{
    char quote = x->s[x->at];
    size_t at = x->at + 1;

    while (at < x->size && x->s[at] != quote)
        at += x->s[at] == '\\' ? 2 : 1;
    if (at >= x->size)
        return wrong(x, "a string without an end");
    if (put(x, TOKEN_STRING, x->s + x->at + 1, at - x->at - 1) < 0)
        return -1;
    pass(x, at + 1 - x->at);
    return 0;
}

static int put_operator(struct lexer *x, char *open, size_t *n_open, size_t max_open)
{
    static const char *const two[] = { "//", "**", "==", "!=", ">=", "<=" };
    static const char pairs[] = "(){}[]";
    char c = x->s[x->at];
    size_t n = 1;

    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (is(x, x->at, two[i]))
            n = 2;
    if (n == 1 && (!c || !strchr("+-/*%~[](){}><=.:|,;", c)))
        return wrong(x, "a character that does not belong here");
    const char *pair = n == 1 ? strchr(pairs, c) : NULL;
    if (pair && (pair - pairs) % 2 == 0) {
        if (*n_open == max_open)
            return wrong(x, "brackets too deep");
        open[(*n_open)++] = pair[1];
    } else if (pair) {
        if (*n_open == 0 || open[*n_open - 1] != c)
            return wrong(x, "a closing bracket without its opening one");
        (*n_open)--;
    }
    if (put(x, TOKEN_OPERATOR, x->s + x->at, n) < 0)
        return -1;
    pass(x, n);
    return 0;
}

/* From behind "{{" or "{%" to behind its end. */
static int lex_tag(struct lexer *x, bool block)
{
    char open[128];
    size_t n_open = 0;

    for (;;) {
        size_t n;
        pass(x, spaces(x, x->at));
        if (x->at >= x->size)
            return wrong(x, "a tag without an end");
        if (n_open == 0 && (n = tag_end(x, block ? "%}" : "}}", block)) > 0) {
            if (put(x, block ? TOKEN_BLOCK_END : TOKEN_PRINT_END, x->s + x->at, 2) < 0)
                return -1;
            pass(x, n);
            return 0;
        }
        char c = x->s[x->at];
        int rc;
        if (is_digit(c)) {
            rc = put_number(x);
        } else if (is_word(c)) {
            for (n = 1; x->at + n < x->size && is_word(x->s[x->at + n]);)
                n++;
            rc = put(x, TOKEN_NAME, x->s + x->at, n);
            pass(x, n);
        } else if (c == '\'' || c == '"') {
            rc = put_string(x);
        } else {
            rc = put_operator(x, open, &n_open, sizeof open);
        }
        if (rc < 0)
            return -1;
    }
}

/* ---- around tags ---- */

/* "{%- raw -%}": how long, and its sign; 0 when it is another tag. */
static size_t word_tag(const struct lexer *x, size_t at, const char *word, char *sign)
{
    size_t from = at;

    if (!is(x, at, "{%"))
        return 0;
    at += 2;
    *sign = is(x, at, "-") ? '-' : is(x, at, "+") ? '+' : ' ';
    at += *sign != ' ';
    at += spaces(x, at);
    if (!is(x, at, word))
        return 0;
    at += strlen(word);
    return at + spaces(x, at) - from;
}

static int lex_raw(struct lexer *x, size_t head)
{
    char sign;
    size_t n;

    pass(x, head);
    if ((n = tag_end(x, "%}", false)) == 0)
        return wrong(x, "'raw' takes nothing");
    pass(x, n);
    for (size_t at = x->at; at < x->size; at++) {
        if (x->s[at] != '{' || (n = word_tag(x, at, "endraw", &sign)) == 0)
            continue;
        size_t end = stripped(x, x->at, at, sign, true);
        if (end > x->at && put(x, TOKEN_DATA, x->s + x->at, end - x->at) < 0)
            return -1;
        pass(x, at + n - x->at);
        if ((n = tag_end(x, "%}", true)) == 0)
            return wrong(x, "'endraw' takes nothing");
        pass(x, n);
        return 0;
    }
    return wrong(x, "'raw' without 'endraw'");
}

static int lex_comment(struct lexer *x)
{
    size_t n;

    pass(x, 2);
    while (x->at < x->size) {
        if ((n = tag_end(x, "#}", true)) > 0) {
            pass(x, n);
            return 0;
        }
        pass(x, 1);
    }
    return wrong(x, "a comment without an end");
}

/* The next "{{", "{%" or "{#". */
static size_t next_tag(const struct lexer *x)
{
    size_t at = x->at;

    while (at + 1 < x->size &&
           !(x->s[at] == '{' && (x->s[at + 1] == '{' || x->s[at + 1] == '%' || x->s[at + 1] == '#')))
        at++;
    return at + 1 < x->size ? at : x->size;
}

static int lex_one(struct lexer *x)
{
    size_t tag = next_tag(x), raw;
    char kind = tag < x->size ? x->s[tag + 1] : 0, sign;

    if (!kind) {
        int rc = x->size > x->at ? put(x, TOKEN_DATA, x->s + x->at, x->size - x->at) : 0;
        pass(x, x->size - x->at);
        return rc;
    }
    sign = tag + 2 < x->size ? x->s[tag + 2] : ' ';
    size_t end = stripped(x, x->at, tag, sign, kind != '{');
    if (end > x->at && put(x, TOKEN_DATA, x->s + x->at, end - x->at) < 0)
        return -1;
    pass(x, tag - x->at);
    if (kind == '#')
        return lex_comment(x);
    if (kind == '%' && (raw = word_tag(x, tag, "raw", &sign)) > 0 &&
        (is(x, tag + raw, "%}") || is(x, tag + raw, "-%}")))
        return lex_raw(x, raw);
    pass(x, 2);
    if (put(x, kind == '%' ? TOKEN_BLOCK_BEGIN : TOKEN_PRINT_BEGIN, x->s + tag, 2) < 0)
        return -1;
    if (sign == '-' || sign == '+')
        pass(x, 1);
    return lex_tag(x, kind == '%');
}

static int check_utf8(struct lexer *x)
{
    for (size_t at = 0; at < x->size;) {
        int n = utf8_next(x->s + at, x->size - at, NULL);
        if (n <= 0)
            return wrong(x, "no valid UTF-8");
        x->line += x->s[at] == '\n';
        at += (size_t)n;
    }
    x->line = 1;
    return 0;
}

int jinja_lex(struct jinja_tokens *out, struct jinja_mem *m, const char *source, size_t size,
              struct err *err)
{
    struct lexer x = { .m = m, .out = out, .s = source, .size = size, .line = 1,
                       .line_starting = true, .err = err };

    if (check_utf8(&x) < 0)
        return -1;
    while (x.at < x.size)
        if (lex_one(&x) < 0)
            return -1;
    return put(&x, TOKEN_END, source + size, 0);
}
