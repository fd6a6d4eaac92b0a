#include "text/tokenizer.h"

#include "text/added.h"
#include "text/bytes.h"
#include "text/nfc.h"
#include "text/pretokenize.h"
#include "text/tokenizer_file.h"
#include "text/unicode_tables.h"
#include "text/vocab.h"
#include "util/err.h"
#include "util/size.h"
#include "util/utf8.h"

#include <stdlib.h>
#include <string.h>

struct tokenizer {
    struct vocab vocab;
    struct pretokenizer *pre; /* owned */
    bool nfc;
};

int ids_put(struct ids *list, uint32_t id, struct err *err)
{
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 64;
        uint32_t *more = realloc(list->id, cap * sizeof *more);
        if (!more)
            return err_set(err, ERR_NOMEM, "%zu token ids", cap);
        list->id = more;
        list->cap = cap;
    }
    list->id[list->n++] = id;
    return 0;
}

void ids_done(struct ids *list)
{
    free(list->id);
    *list = (struct ids){ 0 };
}

/* ---- opening ---- */

static int build(struct tokenizer **out, const struct tokenizer_file *f, struct err *err)
{
    struct vocab_counts counts;
    struct tokenizer *t = calloc(1, sizeof *t);

    if (!t)
        return err_set(err, ERR_NOMEM, "a tokenizer");
    t->nfc = f->nfc;
    if (pretokenizer_open(&t->pre, f->pattern, f->pattern_size, err) < 0) {
        err_within(err, "pre_tokenizer");
        goto fail;
    }
    if (vocab_measure(&counts, f, err) < 0 || vocab_open(&t->vocab, f, &counts, err) < 0)
        goto fail;
    *out = t;
    return 0;

fail:
    tokenizer_close(t);
    return -1;
}

int tokenizer_open(struct tokenizer **out, const char *path, struct err *err)
{
    struct tokenizer_file f = { 0 };
    int rc = tokenizer_file_open(&f, path, err);

    if (rc == 0)
        rc = build(out, &f, err);
    tokenizer_file_close(&f);
    return rc < 0 ? err_within(err, "%s", path) : 0;
}

int tokenizer_open_buffer(struct tokenizer **out, const char *name, const void *bytes,
                          size_t size, struct err *err)
{
    struct tokenizer_file f = { 0 };
    int rc = tokenizer_file_open_buffer(&f, bytes, size, err);

    if (rc == 0)
        rc = build(out, &f, err);
    tokenizer_file_close(&f);
    return rc < 0 ? err_within(err, "%s", name) : 0;
}

void tokenizer_close(struct tokenizer *t)
{
    if (!t)
        return;
    vocab_close(&t->vocab);
    pretokenizer_close(t->pre);
    free(t);
}

uint64_t tokenizer_memory(const struct tokenizer *t)
{
    return sizeof *t + t->vocab.tables.size + pretokenizer_memory(t->pre);
}

int tokenizer_plan_size(uint64_t *out, const char *path, struct err *err)
{
    struct tokenizer_file f = { 0 };
    struct vocab_counts counts;
    struct pretokenizer *pre = NULL;
    int rc = -1;

    if (tokenizer_file_open(&f, path, err) == 0 && vocab_measure(&counts, &f, err) == 0 &&
        pretokenizer_open(&pre, f.pattern, f.pattern_size, err) == 0) {
        /* The compiled pattern is larger where PCRE2 may make machine code of it, and whether
         * it may can differ between the two processes. */
        *out = sizeof(struct tokenizer) + vocab_size(&counts) + pretokenizer_memory(pre) +
               128 * KIB;
        rc = 0;
    }
    pretokenizer_close(pre);
    tokenizer_file_close(&f);
    return rc < 0 ? err_within(err, "%s", path) : 0;
}

/* ---- the runs as one text ---- */

struct span {
    size_t begin, end;
};

struct joined {
    struct bytes text; /* owned; valid UTF-8 */
    struct span *trusted; /* owned: [n_trusted], rising, with gaps between them */
    size_t n_trusted;
};

static void joined_done(struct joined *j)
{
    bytes_done(&j->text);
    free(j->trusted);
}

static void trust(struct span *spans, size_t *n, size_t begin, size_t end)
{
    if (begin == end)
        return;
    if (*n > 0 && spans[*n - 1].end == begin)
        spans[*n - 1].end = end;
    else
        spans[(*n)++] = (struct span){ begin, end };
}

/* Writes U+FFFD for what is no UTF-8. A character over the border of a trusted stretch is not
 * trusted, so there are never more stretches afterwards. */
static int repair(struct joined *out, const struct joined *broken, struct err *err)
{
    size_t k = 0, at = 0;

    while (at < broken->text.size) {
        const char *from = broken->text.at + at;
        size_t left = broken->text.size - at, begin = out->text.size;
        int length = utf8_next(from, left, NULL);
        size_t taken = length > 0 ? (size_t)length : utf8_bad(from, left);

        if (bytes_put(&out->text, length > 0 ? from : "\xef\xbf\xbd", length > 0 ? taken : 3,
                      err) < 0)
            return -1;
        while (k < broken->n_trusted && broken->trusted[k].end <= at)
            k++;
        if (k < broken->n_trusted && broken->trusted[k].begin <= at &&
            at + taken <= broken->trusted[k].end)
            trust(out->trusted, &out->n_trusted, begin, out->text.size);
        at += taken;
    }
    return 0;
}

static int join(struct joined *out, const struct text_run *runs, size_t n_runs, struct err *err)
{
    struct joined fixed = { 0 };

    out->trusted = malloc((n_runs + 1) * sizeof *out->trusted);
    if (!out->trusted)
        return err_set(err, ERR_NOMEM, "%zu stretches of text", n_runs);
    for (size_t i = 0; i < n_runs; i++) {
        size_t begin = out->text.size;
        if (bytes_put(&out->text, runs[i].bytes, runs[i].size, err) < 0)
            return -1;
        if (runs[i].trusted)
            trust(out->trusted, &out->n_trusted, begin, out->text.size);
    }
    if (utf8_valid(out->text.at, out->text.size))
        return 0;

    fixed.trusted = malloc((n_runs + 1) * sizeof *fixed.trusted);
    if (!fixed.trusted)
        return err_set(err, ERR_NOMEM, "%zu stretches of text", n_runs);
    int rc = repair(&fixed, out, err);
    joined_done(out);
    *out = fixed;
    return rc;
}

/* ---- encoding ---- */

struct encoding {
    const struct tokenizer *t;
    struct ids *out;
    size_t max_ids;
    struct bytes nfc; /* owned */
    struct bpe_scratch scratch;
};

static int too_long(const struct encoding *e, struct err *err)
{
    return err_set(err, ERR_TOO_LONG, "the text has more than %zu tokens", e->max_ids);
}

/* What lies between two added tokens. */
static int encode_stretch(struct encoding *e, const char *text, size_t size, struct err *err)
{
    struct pieces *walk = NULL;
    const char *piece;
    size_t piece_size;
    int more;

    /* No token has more than `longest` bytes, and NFC makes a text at most 3.5 times shorter
     * (U+1FBE U+0308 U+0301, 7 bytes, is U+0390, 2 bytes). */
    if (e->max_ids && size / 4 / e->t->vocab.counts.longest > e->max_ids)
        return too_long(e, err);
    if (e->t->nfc && nfc_may_change(text, size)) {
        e->nfc.size = 0;
        if (nfc_append(&e->nfc, text, size, err) < 0)
            return -1;
        text = e->nfc.at;
        size = e->nfc.size;
    }
    if (size == 0)
        return 0;
    if (pieces_open(&walk, e->t->pre, text, size, err) < 0)
        return -1;
    while ((more = pieces_next(walk, &piece, &piece_size, err)) > 0) {
        more = bpe_encode(&e->t->vocab.bpe, piece, piece_size, &e->scratch, e->out, err);
        if (more == 0 && e->max_ids && e->out->n > e->max_ids)
            more = too_long(e, err);
        if (more < 0)
            break;
    }
    pieces_close(walk);
    return more;
}

/* Bytes of the white space at the end of text, or at its beginning. */
static size_t space_behind(const char *text, size_t size)
{
    size_t end = size;

    while (end > 0) {
        size_t at = end - 1;
        uint32_t cp = 0;
        while (at > 0 && ((unsigned char)text[at] & 0xc0) == 0x80)
            at--;
        if (utf8_next(text + at, end - at, &cp) <= 0 || unicode_class(cp) != UNICODE_SPACE)
            break;
        end = at;
    }
    return size - end;
}

static size_t space_before(const char *text, size_t size)
{
    size_t at = 0;
    uint32_t cp = 0;
    int length;

    while (at < size && (length = utf8_next(text + at, size - at, &cp)) > 0 &&
           unicode_class(cp) == UNICODE_SPACE)
        at += (size_t)length;
    return at;
}

static int encode_joined(struct encoding *e, const struct joined *j, struct err *err)
{
    const char *text = j->text.at ? j->text.at : "";
    size_t size = j->text.size, done = 0;

    for (size_t k = 0; k < j->n_trusted; k++) {
        size_t at = j->trusted[k].begin > done ? j->trusted[k].begin : done;
        while (at < j->trusted[k].end) {
            const struct added_token *token =
                added_at(&e->t->vocab.added, text + at, j->trusted[k].end - at);
            if (!token) {
                at++;
                continue;
            }
            size_t begin = at, end = at + token->size;
            if (token->lstrip)
                begin -= space_behind(text + done, begin - done);
            if (token->rstrip)
                end += space_before(text + end, size - end);
            if (encode_stretch(e, text + done, begin - done, err) < 0 ||
                ids_put(e->out, token->id, err) < 0)
                return -1;
            if (e->max_ids && e->out->n > e->max_ids)
                return too_long(e, err);
            done = at = end;
        }
    }
    return encode_stretch(e, text + done, size - done, err);
}

int tokenizer_encode(const struct tokenizer *t, const struct text_run *runs, size_t n_runs,
                     size_t max_ids, struct ids *out, struct err *err)
{
    struct encoding e = { .t = t, .out = out, .max_ids = max_ids };
    struct joined joined = { 0 };
    size_t before = out->n;
    int rc = join(&joined, runs, n_runs, err);

    if (rc == 0)
        rc = encode_joined(&e, &joined, err);
    if (rc < 0)
        out->n = before;
    joined_done(&joined);
    bytes_done(&e.nfc);
    bpe_scratch_done(&e.scratch);
    return rc;
}

/* ---- looking up ---- */

const char *tokenizer_piece(const struct tokenizer *t, uint32_t id, size_t *size)
{
    *size = id < t->vocab.counts.n_ids ? t->vocab.pieces[id].size : 0;
    return *size ? t->vocab.bytes + t->vocab.pieces[id].at : "";
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id)
{
    return id < t->vocab.counts.n_ids && t->vocab.pieces[id].special;
}

bool tokenizer_find(const struct tokenizer *t, const char *text, uint32_t *id)
{
    const struct added_token *token = added_find(&t->vocab.added, text, strlen(text));

    if (token)
        *id = token->id;
    return token;
}

uint32_t tokenizer_vocab(const struct tokenizer *t)
{
    return t->vocab.counts.n_ids;
}
