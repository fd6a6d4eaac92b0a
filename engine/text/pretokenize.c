#include "text/pretokenize.h"

#include "text/bytes.h"
#include "text/pattern.h"
#include "util/err.h"
#include "util/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

/* A guard against absurd files; the longest pattern in use has some 500 bytes. */
#define MAX_PATTERN 8192

struct pretokenizer {
    pcre2_code *code; /* owned */
};

struct pieces {
    const struct pretokenizer *pre; /* borrowed */
    const char *at;                 /* first byte not yet given, borrowed */
    unsigned char *shadow;          /* owned; one byte per character */
    size_t n;                       /* characters */
    size_t given;                   /* characters given so far */
    size_t begin, end;              /* the match found last; begin == given when it is due */
    size_t search;                  /* where the next search starts */
    int64_t last_end;               /* end of the last match, -1 before the first */
    pcre2_match_data *match;        /* owned */
    pcre2_match_context *context;   /* owned */
};

int pretokenizer_open(struct pretokenizer **out, const char *pattern, size_t size,
                      struct err *err)
{
    struct bytes shadow_pattern = { 0 };
    struct pretokenizer *p = NULL;
    pcre2_compile_context *context = NULL;
    PCRE2_UCHAR message[120];
    PCRE2_SIZE where = 0;
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
    /* A wish: under MemoryDenyWriteExecute it fails, and the interpreter does the same. */
    (void)pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE);
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

uint64_t pretokenizer_memory(const struct pretokenizer *p)
{
    size_t code = 0, jit = 0;

    pcre2_pattern_info(p->code, PCRE2_INFO_SIZE, &code);
    pcre2_pattern_info(p->code, PCRE2_INFO_JITSIZE, &jit);
    return sizeof *p + code + jit;
}

static int make_shadow(struct pieces *w, const char *text, size_t size, struct err *err)
{
    size_t n = 0;

    for (size_t i = 0; i < size; i++)
        n += ((unsigned char)text[i] & 0xc0) != 0x80;
    w->shadow = malloc(n + 1);
    if (!w->shadow)
        return err_set(err, ERR_NOMEM, "%zu characters to cut", n);
    for (size_t at = 0; at < size;) {
        unsigned char c = (unsigned char)text[at];
        uint32_t cp = c;
        int length = c < 0x80 ? 1 : utf8_next(text + at, size - at, &cp);
        if (length <= 0)
            return err_set(err, ERR_INPUT, "invalid UTF-8 at byte %zu", at);
        w->shadow[w->n++] = pattern_shadow(cp);
        at += (size_t)length;
    }
    return 0;
}

int pieces_open(struct pieces **out, const struct pretokenizer *p, const char *text, size_t size,
                struct err *err)
{
    struct pieces *w = calloc(1, sizeof *w);

    if (!w)
        return err_set(err, ERR_NOMEM, "a text to cut");
    *w = (struct pieces){ .pre = p, .at = text, .last_end = -1 };
    if (make_shadow(w, text, size, err) < 0)
        goto fail;
    w->match = pcre2_match_data_create(1, NULL);
    w->context = pcre2_match_context_create(NULL);
    if (!w->match || !w->context) {
        err_set(err, ERR_NOMEM, "a text to cut");
        goto fail;
    }
    /* One match may have to try every character of a long run several times over. PCRE2's own
     * limits do not know how long the text is; these end what is worse than linear. */
    uint64_t tries = 1000000 + (uint64_t)w->n * 64;
    uint64_t heap_kib = 65536 + (uint64_t)w->n / 4;
    uint32_t limit = tries > UINT32_MAX ? UINT32_MAX : (uint32_t)tries;
    pcre2_set_match_limit(w->context, limit);
    pcre2_set_depth_limit(w->context, limit);
    pcre2_set_heap_limit(w->context, heap_kib > UINT32_MAX ? UINT32_MAX : (uint32_t)heap_kib);
    *out = w;
    return 0;

fail:
    pieces_close(w);
    return -1;
}

void pieces_close(struct pieces *w)
{
    if (!w)
        return;
    pcre2_match_data_free(w->match);
    pcre2_match_context_free(w->context);
    free(w->shadow);
    free(w);
}

/* Finds the next match into begin and end; without one both are n. Empty matches count as
 * oniguruma's iterator counts them: not directly behind another match. */
static int find(struct pieces *w, struct err *err)
{
    while (w->search <= w->n) {
        int got = pcre2_match(w->pre->code, w->shadow, w->n, w->search, 0, w->match, w->context);
        if (got == PCRE2_ERROR_JIT_STACKLIMIT)
            got = pcre2_match(w->pre->code, w->shadow, w->n, w->search, PCRE2_NO_JIT, w->match,
                              w->context);
        if (got == PCRE2_ERROR_NOMATCH)
            break;
        if (got < 0) {
            PCRE2_UCHAR message[120];
            pcre2_get_error_message(got, message, sizeof message);
            return err_set(err, got == PCRE2_ERROR_NOMEMORY ? ERR_NOMEM : ERR_INPUT,
                           "the split pattern fails on this text: %s", (const char *)message);
        }
        const PCRE2_SIZE *range = pcre2_get_ovector_pointer(w->match);
        if (range[0] == range[1] && (int64_t)range[1] == w->last_end) {
            w->search++;
            continue;
        }
        w->begin = range[0];
        w->end = range[1];
        w->search = w->end;
        w->last_end = (int64_t)w->end;
        return 0;
    }
    w->search = w->n + 1;
    w->begin = w->end = w->n;
    return 0;
}

/* Steps over n characters of the text. */
static void give(struct pieces *w, size_t n, const char **piece, size_t *size)
{
    const char *at = w->at;

    *piece = at;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)*at;
        at += c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
    }
    *size = (size_t)(at - w->at);
    w->at = at;
    w->given += n;
}

int pieces_next(struct pieces *w, const char **piece, size_t *size, struct err *err)
{
    while (w->given < w->n) {
        if (w->given == w->end && find(w, err) < 0)
            return -1;
        /* First what lies before the match, then the match; an empty match only cuts. */
        size_t until = w->given < w->begin ? w->begin : w->end;
        if (until > w->given) {
            give(w, until - w->given, piece, size);
            return 1;
        }
    }
    return 0;
}
