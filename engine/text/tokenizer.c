#include "text/tokenizer.h"

#include "text/added.h"
#include "text/encoding.h"
#include "text/pretokenize.h"
#include "text/tokenizer_file.h"
#include "text/tokenizer_tables.h"
#include "text/vocab.h"
#include "util/err.h"
#include "util/size.h"

#include <stdlib.h>
#include <string.h>

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
    t->fingerprint = f->fingerprint;
    if (pretokenizer_open(&t->pre, f->pattern, f->pattern_size, err) < 0) {
        err_within(err, "pre_tokenizer");
        goto fail;
    }
    if (vocab_measure(&counts, f, err) < 0 || vocab_open(&t->vocab, f, &counts, err) < 0)
        goto fail;
    least_init(&t->least, &t->vocab);
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

int tokenizer_read(struct region *out, uint64_t *size, const char *path, struct err *err)
{
    return tokenizer_file_read(out, size, path, err) < 0 ? err_within(err, "%s", path) : 0;
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

uint64_t tokenizer_fingerprint(const struct tokenizer *t)
{
    return t->fingerprint;
}

int tokenizer_plan_size(uint64_t *out, uint64_t *fingerprint, const char *path, struct err *err)
{
    struct tokenizer_file f = { 0 };
    struct vocab_counts counts;
    struct pretokenizer *pre = NULL;
    int rc = -1;

    if (tokenizer_file_open(&f, path, err) == 0 && vocab_measure(&counts, &f, err) == 0 &&
        pretokenizer_open(&pre, f.pattern, f.pattern_size, err) == 0) {
        /* The rest is for the pattern's machine code, some KiB, where PCRE2 may make it: whether it
         * may differs between processes, and all of them must plan alike. */
        *out = sizeof(struct tokenizer) + vocab_size(&counts) + pretokenizer_plan_size(pre) +
               128 * KIB;
        *fingerprint = f.fingerprint;
        rc = 0;
    }
    pretokenizer_close(pre);
    tokenizer_file_close(&f);
    return rc < 0 ? err_within(err, "%s", path) : 0;
}

/* ---- encoding ---- */

int tokenizer_encode(const struct tokenizer *t, const struct text_run *runs, size_t n_runs,
                     size_t max_ids, struct ids *out, struct err *err)
{
    struct encoding *e = NULL;
    size_t before = out->n;
    int rc = encoding_open(&e, t, runs, n_runs, max_ids, before, err);

    if (rc == 0)
        rc = encoding_step(e, SIZE_MAX, 0, out, err);
    encoding_close(e);
    if (rc < 0)
        out->n = before;
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
