#include "text/pretokenize.h"

#include "text/bytes.h"
#include "text/pattern.h"
#include "util/err.h"
#include "util/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A guard against absurd files; the longest pattern in use has some 500 bytes. */
#define MAX_PATTERN 8192

/* Of a compiled pattern, in bytes; those in use take half of it. */
#define MOST_FOR_MACHINE_CODE 2048

/* What backtracking may take, in KiB. The patterns in use take nothing. */
#define MATCH_HEAP 1024

struct pretokenizer {
    pcre2_code *code; /* owned */
    uint32_t behind;  /* how many characters it looks back */
};

struct pieces {
    const struct pretokenizer *pre; /* borrowed */
    struct bytes shadow;            /* owned; one byte per character */
    size_t touched;                 /* bytes of it that were ever used */
    bool ended;
    /* Places in the shadow. */
    size_t given;                 /* what lies before was given */
    size_t begin, end;            /* the match found last; begin == given when it is due */
    size_t search;                /* where the next search starts */
    int64_t last_end;             /* end of the last match, -1 before the first */
    pcre2_match_data *match;      /* owned */
    pcre2_match_context *context; /* owned */
};

int pretokenizer_open(struct pretokenizer **out, const char *pattern, size_t size,
                      struct err *err)
{
    struct bytes shadow_pattern = { 0 };
    struct pretokenizer *p = NULL;
    pcre2_compile_context *context = NULL;
    PCRE2_UCHAR message[120];
    PCRE2_SIZE where = 0, compiled = 0;
    int code = 0, rc = -1;

    if (size > MAX_PATTERN)
        return err_set(err, ERR_UNSUPPORTED, "a split pattern of %zu bytes (at most %d)", size,
                       MAX_PATTERN);
    if (pattern_translate(&shadow_pattern, pattern, size, err) < 0)
        goto done;
    p = calloc(1, sizeof *p);
    context = pcre2_compile_context_create(NULL);
    if (!p || !context) {
        err_set(err, ERR_NOMEM, "a split pattern");
        goto done;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    p->code = pcre2_compile((PCRE2_SPTR)(shadow_pattern.at ? shadow_pattern.at : ""),
                            shadow_pattern.size, 0, &code, &where, context);
    if (!p->code) {
        pcre2_get_error_message(code, message, sizeof message);
        err_set(err, ERR_FORMAT, "the split pattern: %s", (const char *)message);
        goto done;
    }
    /* A wish: under MemoryDenyWriteExecute it fails, and the interpreter does the same. Machine
     * code may be 50 times as large as the pattern's, and the plan has no room for that of a
     * strange one. */
    pcre2_pattern_info(p->code, PCRE2_INFO_SIZE, &compiled);
    if (compiled <= MOST_FOR_MACHINE_CODE)
        (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    pcre2_pattern_info(p->code, PCRE2_INFO_MAXLOOKBEHIND, &p->behind);
    *out = p;
    p = NULL;
    rc = 0;

done:
    pcre2_compile_context_free(context);
    bytes_done(&shadow_pattern);
    pretokenizer_close(p);
    return rc;
}

void pretokenizer_close(struct pretokenizer *p)
{
    if (!p)
        return;
    pcre2_code_free(p->code);
    free(p);
}

uint64_t pretokenizer_plan_size(const struct pretokenizer *p)
{
    size_t code = 0;

    pcre2_pattern_info(p->code, PCRE2_INFO_SIZE, &code);
    return sizeof *p + code;
}

uint64_t pretokenizer_memory(const struct pretokenizer *p)
{
    size_t jit = 0;

    pcre2_pattern_info(p->code, PCRE2_INFO_JITSIZE, &jit);
    return pretokenizer_plan_size(p) + jit;
}

int pieces_open(struct pieces **out, const struct pretokenizer *p, struct err *err)
{
    struct pieces *w = calloc(1, sizeof *w);

    if (!w)
        return err_set(err, ERR_NOMEM, "a text to cut");
    w->pre = p;
    w->match = pcre2_match_data_create(1, NULL);
    w->context = pcre2_match_context_create(NULL);
    if (!w->match || !w->context) {
        pieces_close(w);
        return err_set(err, ERR_NOMEM, "a text to cut");
    }
    pcre2_set_heap_limit(w->context, MATCH_HEAP);
    pieces_restart(w);
    *out = w;
    return 0;
}

void pieces_close(struct pieces *w)
{
    if (!w)
        return;
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->context);
    bytes_done(&w->shadow);
    free(w);
}

void pieces_restart(struct pieces *w)
{
    w->shadow.size = 0;
    w->ended = false;
    w->given = w->begin = w->end = w->search = 0;
    w->last_end = -1;
}

/* Forgets what was given, but for what the pattern may look back at. */
static void forget(struct pieces *w)
{
    size_t gone = w->given > w->pre->behind ? w->given - w->pre->behind : 0;

    if (gone < w->shadow.size / 2)
        return;
    w->shadow.size -= gone;
    if (w->shadow.size)
        memmove(w->shadow.at, w->shadow.at + gone, w->shadow.size);
    w->given -= gone;
    w->begin -= gone;
    w->end -= gone;
    w->search -= gone;
    w->last_end -= w->last_end < 0 ? 0 : (int64_t)gone;
}

int pieces_put(struct pieces *w, const char *text, size_t size, struct err *err)
{
    size_t n = 0;

    forget(w);
    for (size_t i = 0; i < size; i++)
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    if (bytes_reserve(&w->shadow, n, err) < 0)
        return -1;
    for (size_t at = 0; at < size;) {
        unsigned char c = (unsigned char)text[at];
        uint32_t cp = c;
        int length = c < 0x80 ? 1 : utf8_next(text + at, size - at, &cp);
        if (length <= 0)
            return err_set(err, ERR_INPUT, "invalid UTF-8 at byte %zu", at);
        w->shadow.at[w->shadow.size++] = (char)pattern_shadow(cp);
        at += (size_t)length;
    }
    if (w->touched < w->shadow.size)
        w->touched = w->shadow.size;
    /* One match may have to try every character of a long run several times over. PCRE2's own
     * limits do not know how long the text is; these end what is worse than linear. */
    uint64_t tries = 1000000 + (uint64_t)w->shadow.size * 64;
    uint32_t limit = tries > UINT32_MAX ? UINT32_MAX : (uint32_t)tries;
    pcre2_set_match_limit(w->context, limit);
    pcre2_set_depth_limit(w->context, limit);
    return 0;
}

void pieces_end(struct pieces *w)
{
    w->ended = true;
}

size_t pieces_held(const struct pieces *w)
{
    return w->shadow.size - w->given;
}

uint64_t pieces_memory(const struct pieces *w)
{
    return w->touched;
}

static int search(struct pieces *w, uint32_t options)
{
    PCRE2_SPTR text = (PCRE2_SPTR)(w->shadow.at ? w->shadow.at : "");

    return pcre2_match(w->pre->code, text, w->shadow.size, w->search, options, w->match,
                       w->context);
}

static int fail(int code, struct err *err)
{
    PCRE2_UCHAR message[120];

    pcre2_get_error_message(code, message, sizeof message);
    return err_set(err, code == PCRE2_ERROR_NOMEMORY ? ERR_NOMEM : ERR_INPUT,
                   "the split pattern fails on this text: %s", (const char *)message);
}

/* Finds the next match into begin and end: 1, also when there is none to the text's end, where
 * both are then. 0: what follows decides. Empty matches count as oniguruma's iterator counts
 * them: not directly behind another match. */
static int find(struct pieces *w, struct err *err)
{
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(w->match);
    uint32_t partial = w->ended ? 0 : PCRE2_PARTIAL_HARD;
    size_t n = w->shadow.size;

    while (w->search <= n) {
        int got = search(w, partial);
        if (got == PCRE2_ERROR_JIT_STACKLIMIT)
            got = search(w, partial | PCRE2_NO_JIT);
        if (got == PCRE2_ERROR_PARTIAL) {
            w->search = range[0]; /* nothing before can match */
            return 0;
        }
        if (got == PCRE2_ERROR_NOMATCH)
            break;
        if (got < 0)
            return fail(got, err);
        if (!w->ended && range[0] == n)
            return 0; /* of a place with nothing behind it nothing is sure */
        if (range[0] == range[1] && (int64_t)range[1] == w->last_end) {
            w->search++;
            continue;
        }
        w->begin = range[0];
        w->end = range[1];
        w->search = w->end;
        w->last_end = (int64_t)w->end;
        return 1;
    }
    if (!w->ended) {
        w->search = w->search > n ? w->search : n;
        return 0;
    }
    w->search = n + 1;
    w->begin = w->end = n;
    return 1;
}

int pieces_next(struct pieces *w, size_t *n_chars, struct err *err)
{
    while (w->given < w->shadow.size) {
        int found = w->given == w->end ? find(w, err) : 1;
        if (found <= 0)
            return found;
        /* First what lies before the match, then the match; an empty match only cuts. */
        size_t until = w->given < w->begin ? w->begin : w->end;
        if (until > w->given) {
            *n_chars = until - w->given;
            w->given = until;
            return 1;
        }
    }
    return 0;
}
