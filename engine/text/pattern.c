#include "text/pattern.h"

#include "text/bytes.h"
#include "text/unicode_tables.h"
#include "util/ascii.h"
#include "util/err.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Groups in groups; released patterns have one level. */
#define MAX_DEPTH 32

struct set {
    bool has[SHADOW_END];
};

struct translation {
    const char *pattern, *at, *end;
    struct bytes *out;
    bool ignore_case[MAX_DEPTH]; /* by open group */
    int depth;
};

unsigned char pattern_shadow(uint32_t cp)
{
    static const unsigned char by_class[] = {
        [UNICODE_OTHER] = SHADOW_OTHER, [UNICODE_L] = SHADOW_L, [UNICODE_N] = SHADOW_N,
        [UNICODE_M] = SHADOW_M, [UNICODE_SPACE] = SHADOW_SPACE,
    };

    if (cp < 0x80)
        return (unsigned char)cp;
    if (cp == 0x17f)
        return SHADOW_LONG_S;
    if (cp == 0x212a)
        return SHADOW_KELVIN;
    return by_class[unicode_class(cp)];
}

static int refuse(const struct translation *t, const char *at, const char *what, struct err *err)
{
    size_t rest = (size_t)(t->end - at);
    int show = rest > 12 ? 12 : (int)rest;

    return err_set(err, ERR_UNSUPPORTED, "%s at byte %zu of the split pattern ('%.*s')", what,
                   (size_t)(at - t->pattern), show, at);
}

static bool is_letter(int c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static enum unicode_class shadow_class(int shadow)
{
    switch (shadow) {
    case SHADOW_L:
    case SHADOW_LONG_S:
    case SHADOW_KELVIN:
        return UNICODE_L;
    case SHADOW_N:
        return UNICODE_N;
    case SHADOW_M:
        return UNICODE_M;
    case SHADOW_SPACE:
        return UNICODE_SPACE;
    case SHADOW_OTHER:
        return UNICODE_OTHER;
    default:
        return unicode_class((uint32_t)shadow);
    }
}

static void add_class(struct set *set, enum unicode_class class, bool negated)
{
    for (int c = 0; c < SHADOW_END; c++)
        if ((shadow_class(c) == class) != negated)
            set->has[c] = true;
}

/* What (?i:...) adds: the other case, and the two characters beyond ASCII that fold into it. */
static void fold_case(struct set *set)
{
    for (int c = 'a'; c <= 'z'; c++) {
        int upper = c - 'a' + 'A';
        if (set->has[c] || set->has[upper])
            set->has[c] = set->has[upper] = true;
    }
    if (set->has['s'])
        set->has[SHADOW_LONG_S] = true;
    if (set->has['k'])
        set->has[SHADOW_KELVIN] = true;
}

static int put_text(struct translation *t, const char *text, struct err *err)
{
    return bytes_put(t->out, text, strlen(text), err);
}

static int put_set(struct translation *t, const struct set *set, struct err *err)
{
    char range[16];
    bool any = false;

    for (int c = 0; c < SHADOW_END; c++) {
        int last = c;
        if (!set->has[c])
            continue;
        while (last + 1 < SHADOW_END && set->has[last + 1])
            last++;
        if (last > c)
            snprintf(range, sizeof range, "\\x%02x-\\x%02x", c, last);
        else
            snprintf(range, sizeof range, "\\x%02x", c);
        if ((!any && put_text(t, "[", err) < 0) || put_text(t, range, err) < 0)
            return -1;
        any = true;
        c = last;
    }
    return put_text(t, any ? "]" : "(?!)", err);
}

/* \p{L}, \P{N}, \p{^M}; t->at is behind the p. */
static int read_property(struct translation *t, struct set *set, bool negated, struct err *err)
{
    const char *at = t->at;

    if (t->end - at < 3 || *at != '{')
        return refuse(t, t->at - 2, "a property", err);
    at++;
    if (*at == '^') {
        negated = !negated;
        at++;
    }
    if (t->end - at < 2 || at[1] != '}' || !strchr("LNM", *at) || *at == 0)
        return refuse(t, t->at - 2, "a property other than L, N and M", err);
    if (t->ignore_case[t->depth])
        return refuse(t, t->at - 2, "a property where case is ignored", err);
    add_class(set, *at == 'L' ? UNICODE_L : *at == 'N' ? UNICODE_N : UNICODE_M, negated);
    t->at = at + 2;
    return 0;
}

/* An escape, outside or inside brackets; t->at is on the backslash. *single gets the character
 * when it is one, which may begin a range, and -1 otherwise. */
static int read_escape(struct translation *t, struct set *set, int *single, struct err *err)
{
    static const char names[] = "rntfv", values[] = "\r\n\t\f\v";
    const char *at = t->at++;

    *single = -1;
    if (t->at == t->end)
        return refuse(t, at, "a lone backslash", err);

    unsigned char c = (unsigned char)*t->at++;
    const char *name = c ? strchr(names, c) : NULL;
    if (c == 'p' || c == 'P')
        return read_property(t, set, c == 'P', err);
    if (c == 's' || c == 'S') {
        add_class(set, UNICODE_SPACE, c == 'S');
        return 0;
    }
    if (name) {
        *single = (unsigned char)values[name - names];
    } else if (c == 'x' && t->end - t->at >= 2 && ascii_hex_digit(t->at[0]) >= 0 &&
               ascii_hex_digit(t->at[0]) < 8 && ascii_hex_digit(t->at[1]) >= 0) {
        *single = ascii_hex_digit(t->at[0]) * 16 + ascii_hex_digit(t->at[1]);
        t->at += 2;
    } else if (c > ' ' && c < 0x7f && !is_letter(c) && !(c >= '0' && c <= '9')) {
        *single = c;
    } else {
        return refuse(t, at, "an escape", err);
    }
    set->has[*single] = true;
    return 0;
}

/* One member of a bracket: a character or an escape. */
static int read_member(struct translation *t, struct set *set, int *single, struct err *err)
{
    unsigned char c = (unsigned char)*t->at;

    if (c == '\\')
        return read_escape(t, set, single, err);
    if (c >= 0x80)
        return refuse(t, t->at, "a character beyond ASCII", err);
    if (c == '[')
        return refuse(t, t->at, "a class inside a class", err);
    if (c == '&' && t->end - t->at > 1 && t->at[1] == '&')
        return refuse(t, t->at, "an intersection of classes", err);
    t->at++;
    *single = c;
    set->has[c] = true;
    return 0;
}

/* [...]; t->at is on the bracket. */
static int read_bracket(struct translation *t, struct err *err)
{
    const char *begin = t->at++;
    struct set set = { 0 };
    bool negated = t->at < t->end && *t->at == '^';
    bool first = true;

    t->at += negated;
    while (t->at < t->end && *t->at != ']') {
        int from = -1, to = -1;
        if (read_member(t, &set, &from, err) < 0)
            return -1;
        if (t->end - t->at >= 2 && t->at[0] == '-' && t->at[1] != ']') {
            const char *dash = t->at++;
            if (from < 0 || read_member(t, &set, &to, err) < 0 || to < from)
                return refuse(t, dash, "a range", err);
            for (int c = from; c <= to; c++)
                set.has[c] = true;
        }
        first = false;
    }
    if (t->at == t->end || first)
        return refuse(t, begin, "an empty or open class", err);
    t->at++;
    if (t->ignore_case[t->depth])
        fold_case(&set);
    if (negated)
        for (int c = 0; c < SHADOW_END; c++)
            set.has[c] = !set.has[c];
    return put_set(t, &set, err);
}

static int open_group(struct translation *t, struct err *err)
{
    static const struct group {
        const char *from, *to;
        bool ignore_case;
    } groups[] = {
        { "(?i:", "(?:", true }, { "(?:", "(?:", false }, { "(?=", "(?=", false },
        { "(?!", "(?!", false }, { "(?>", "(?>", false }, { "(?<=", "(?<=", false },
        { "(?<!", "(?<!", false },
    };

    if (t->depth + 1 == MAX_DEPTH)
        return refuse(t, t->at, "groups too deep", err);

    bool outer = t->ignore_case[t->depth];
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        size_t size = strlen(groups[i].from);
        if ((size_t)(t->end - t->at) < size || memcmp(t->at, groups[i].from, size) != 0)
            continue;
        t->at += size;
        t->ignore_case[++t->depth] = outer || groups[i].ignore_case;
        return put_text(t, groups[i].to, err);
    }
    if (t->end - t->at > 1 && (t->at[1] == '?' || t->at[1] == '*'))
        return refuse(t, t->at, "a group of this kind", err);
    t->at++;
    t->ignore_case[++t->depth] = outer;
    return put_text(t, "(?:", err);
}

/* {2}, {1,3}, {2,}, {,3} and the lazy forms of the last three. */
static int read_interval(struct translation *t, struct err *err)
{
    const char *begin = t->at++, *low = t->at;
    char text[32];
    size_t low_size = 0, high_size = 0;
    bool comma = false;

    while (t->at < t->end && *t->at >= '0' && *t->at <= '9')
        t->at++;
    low_size = (size_t)(t->at - low);
    comma = t->at < t->end && *t->at == ',';
    t->at += comma;
    const char *high = t->at;
    while (t->at < t->end && *t->at >= '0' && *t->at <= '9')
        t->at++;
    high_size = (size_t)(t->at - high);
    if (t->at == t->end || *t->at != '}' || low_size + high_size == 0 || low_size > 5 ||
        high_size > 5)
        return refuse(t, begin, "a repetition", err);
    t->at++;
    /* Oniguruma reads "{2}?" and "{1,2}+" in its own way. */
    if (t->at < t->end && (*t->at == '+' || *t->at == '*' || (*t->at == '?' && !comma)))
        return refuse(t, begin, "a repetition of a repetition", err);
    snprintf(text, sizeof text, "{%.*s%s%.*s}", low_size ? (int)low_size : 1,
             low_size ? low : "0", comma ? "," : "", (int)high_size, high);
    return put_text(t, text, err);
}

/* Oniguruma lets (?i:ss) take a sharp s and so on: one character for two. */
static bool folds_with_next(const struct translation *t, int c)
{
    static const char pairs[][3] = { "ss", "ff", "fi", "fl", "st" };

    if (!t->ignore_case[t->depth] || !is_letter(c) || t->at == t->end || !is_letter(*t->at))
        return false;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if ((c | 0x20) == pairs[i][0] && (*t->at | 0x20) == pairs[i][1])
            return true;
    return false;
}

static int read_atom(struct translation *t, struct err *err)
{
    const char *at = t->at;
    unsigned char c = (unsigned char)*at;
    struct set set = { 0 };
    int single = -1;

    if (c == '\\') {
        if (read_escape(t, &set, &single, err) < 0)
            return -1;
    } else if (c == '.') {
        for (int i = 0; i < SHADOW_END; i++)
            set.has[i] = i != '\n';
        t->at++;
    } else if (c >= 0x80) {
        return refuse(t, at, "a character beyond ASCII", err);
    } else if (strchr("^$]}", c) && c) {
        return refuse(t, at, "an anchor or a stray bracket", err);
    } else {
        set.has[c] = true;
        t->at++;
        if (folds_with_next(t, c))
            return refuse(t, at, "a pair of letters that folds into one character", err);
    }
    if (t->ignore_case[t->depth])
        fold_case(&set);
    return put_set(t, &set, err);
}

int pattern_translate(struct bytes *out, const char *pattern, size_t size, struct err *err)
{
    struct translation t = { .pattern = pattern, .at = pattern, .end = pattern + size,
                             .out = out };
    int rc = 0;

    while (rc == 0 && t.at < t.end) {
        switch (*t.at) {
        case '(':
            rc = open_group(&t, err);
            break;
        case ')':
            if (t.depth == 0)
                return refuse(&t, t.at, "a ')' without '('", err);
            t.depth--;
            t.at++;
            rc = put_text(&t, ")", err);
            break;
        case '[':
            rc = read_bracket(&t, err);
            break;
        case '{':
            rc = read_interval(&t, err);
            break;
        case '|':
        case '*':
        case '+':
        case '?':
            rc = bytes_put(out, t.at++, 1, err);
            break;
        default:
            rc = read_atom(&t, err);
        }
    }
    if (rc == 0 && t.depth > 0)
        return refuse(&t, t.end, "an open '('", err);
    return rc;
}
