#include "text/token_scan.h"

#include "text/added.h"
#include "text/tokenizer.h"
#include "text/unicode_tables.h"
#include "util/utf8.h"

#include <stdint.h>

void token_scan_init(struct token_scan *s, const struct text_run *runs, size_t n_runs,
                     const struct added *added)
{
    *s = (struct token_scan){ .runs = runs, .n_runs = n_runs, .added = added };
    s->at = s->solid = place_at(runs, n_runs, 0, 0);
}

static struct place further(const struct token_scan *s, struct place from, size_t n)
{
    return place_at(s->runs, s->n_runs, from.run, from.at + n);
}

/* ---- white space ---- */

static unsigned char byte_at(const struct token_scan *s, struct place p)
{
    return (unsigned char)s->runs[p.run].bytes[p.at];
}

/* How long the white space character at p is; 0 when there is none. */
static size_t space_at(const struct token_scan *s, struct place p)
{
    char text[4];
    size_t n = 0;
    uint32_t cp = 0;

    for (; n < sizeof text && p.run < s->n_runs; p = further(s, p, 1))
        text[n++] = (char)byte_at(s, p);
    int length = utf8_next(text, n, &cp);
    return length > 0 && unicode_class(cp) == UNICODE_SPACE ? (size_t)length : 0;
}

static void note_space(struct token_scan *s, struct place from)
{
    while (place_before(from, s->at)) {
        size_t space = space_at(s, from);
        from = further(s, from, space ? space : 1);
        if (!space)
            s->solid = from;
    }
}

/* A character is looked at whole. */
static void finish_character(struct token_scan *s)
{
    for (int i = 0; i < 3 && s->at.run < s->n_runs && (byte_at(s, s->at) & 0xc0) == 0x80; i++)
        s->at = further(s, s->at, 1);
}

/* ---- tokens ---- */

/* The token at p, whose bytes may lie in several trusted runs. */
static int across(struct token_scan *s, struct place p, const struct added_token **token,
                  struct err *err)
{
    size_t left = s->added->longest;

    s->peek.size = 0;
    while (left && p.run < s->n_runs && s->runs[p.run].trusted) {
        const struct text_run *run = &s->runs[p.run];
        size_t n = run->size - p.at < left ? run->size - p.at : left;
        if (bytes_put(&s->peek, run->bytes + p.at, n, err) < 0)
            return -1;
        left -= n;
        p = further(s, p, n);
    }
    *token = added_at(s->added, s->peek.at, s->peek.size);
    return 0;
}

/* Up to n bytes of the trusted run where we are; *seen is how far it came. */
static int look(struct token_scan *s, size_t n, size_t *seen, struct err *err)
{
    const struct text_run *run = &s->runs[s->at.run];
    const char *text = run->bytes + s->at.at;
    size_t left = run->size - s->at.at, i = 0;

    for (; i < n; i++) {
        if (!s->added->begins[(unsigned char)text[i]])
            continue;
        if (left - i >= s->added->longest)
            s->token = added_at(s->added, text + i, left - i);
        else if (across(s, further(s, s->at, i), &s->token, err) < 0)
            return -1;
        if (s->token)
            break;
    }
    *seen = i;
    return 0;
}

int token_scan_more(struct token_scan *s, size_t most, struct err *err)
{
    struct place from = s->at;

    while (most && !s->token && s->at.run < s->n_runs) {
        const struct text_run *run = &s->runs[s->at.run];
        size_t n = run->size - s->at.at < most ? run->size - s->at.at : most;
        if (run->trusted && look(s, n, &n, err) < 0)
            return -1;
        s->at = further(s, s->at, n);
        most -= n;
    }
    if (!s->added->strips) {
        s->solid = s->at;
        return 0;
    }
    if (!s->token)
        finish_character(s);
    note_space(s, from);
    return 0;
}

bool token_scan_ends(const struct token_scan *s)
{
    return s->token || s->at.run == s->n_runs;
}

struct place token_scan_limit(const struct token_scan *s)
{
    bool strips = s->token ? s->token->lstrip : s->at.run < s->n_runs;

    return strips ? s->solid : s->at;
}

void token_scan_pass(struct token_scan *s)
{
    size_t space;

    s->at = further(s, s->at, s->token->size);
    while (s->token->rstrip && (space = space_at(s, s->at)) > 0)
        s->at = further(s, s->at, space);
    s->token = NULL;
    s->solid = s->at;
}

void token_scan_done(struct token_scan *s)
{
    bytes_done(&s->peek);
}
