#include "text/vocab.h"

#include "text/byte_level.h"
#include "text/bytes.h"
#include "text/json_pull.h"
#include "text/tokenizer_file.h"
#include "util/err.h"
#include "util/size.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* A guard against absurd ids, which the tables are sized by; released vocabularies have some
 * 260,000 at most. */
#define MAX_IDS (UINT32_C(1) << 22)

/* Walks through model.vocab: one token after the other. */
struct token_walk {
    struct json_pull p;
    size_t n_seen;
    struct bytes text; /* owned: the token's bytes, or its spelling when it is raw */
    bool raw;          /* spelled with characters that stand for no byte */
    uint32_t id;
};

static int token_next(struct token_walk *w, struct err *err)
{
    int more = 0;

    if (w->n_seen == 0 && json_pull_enter(&w->p, '{', err) < 0)
        return err_within(err, "model.vocab");
    more = json_pull_more(&w->p, '{', &w->n_seen, err);
    if (more == 0)
        return 0;
    if (more < 0 || json_pull_string(&w->p, &w->text, err) < 0 ||
        json_pull_colon(&w->p, err) < 0 || json_pull_u32(&w->p, &w->id, err) < 0)
        return err_within(err, "model.vocab: token %zu", w->n_seen);
    if (w->id >= MAX_IDS)
        return err_set(err, ERR_FORMAT, "model.vocab: token %zu: id %u (below %u expected)",
                       w->n_seen, w->id, MAX_IDS);
    w->raw = !byte_level_decode(w->text.at, &w->text.size);
    return 1;
}

/* Walks through model.merges: ["a", "b"] or "a b", in spelled form. */
struct merge_walk {
    struct json_pull p;
    size_t n_seen;
    struct bytes left, right; /* owned */
};

static int merge_next(struct merge_walk *w, struct err *err)
{
    int more;

    if (w->n_seen == 0 && json_pull_enter(&w->p, '[', err) < 0)
        return err_within(err, "model.merges");
    more = json_pull_more(&w->p, '[', &w->n_seen, err);
    if (more == 0)
        return 0;
    if (more > 0 && json_pull_peek(&w->p) == '"') {
        if (json_pull_string(&w->p, &w->left, err) < 0)
            return err_within(err, "model.merges[%zu]", w->n_seen - 1);
        char *space = w->left.size ? memchr(w->left.at, ' ', w->left.size) : NULL;
        size_t first = space ? (size_t)(space - w->left.at) : 0;
        if (!space || memchr(space + 1, ' ', w->left.size - first - 1))
            return err_set(err, ERR_FORMAT, "model.merges[%zu]: two parts and one space expected",
                           w->n_seen - 1);
        w->right.size = 0;
        if (bytes_put(&w->right, space + 1, w->left.size - first - 1, err) < 0)
            return -1;
        w->left.size = first;
        return 1;
    }

    size_t n_parts = 0;
    if (more < 0 || json_pull_enter(&w->p, '[', err) < 0 ||
        (more = json_pull_more(&w->p, '[', &n_parts, err)) < 0 ||
        (more == 1 && json_pull_string(&w->p, &w->left, err) < 0) ||
        (more == 1 && (more = json_pull_more(&w->p, '[', &n_parts, err)) < 0) ||
        (more == 1 && json_pull_string(&w->p, &w->right, err) < 0) ||
        (more == 1 && (more = json_pull_more(&w->p, '[', &n_parts, err)) < 0))
        return err_within(err, "model.merges[%zu]", w->n_seen - 1);
    if (more == 1 || n_parts != 2)
        return err_set(err, ERR_FORMAT, "model.merges[%zu]: two texts expected", w->n_seen - 1);
    return 1;
}

/* ---- measuring ---- */

static void count_token(struct vocab_counts *c, uint32_t id, size_t size)
{
    if (id >= c->n_ids)
        c->n_ids = id + 1;
    if (size > c->longest)
        c->longest = (uint32_t)size;
    c->n_bytes += size;
}

int vocab_measure(struct vocab_counts *out, const struct tokenizer_file *f, struct err *err)
{
    struct vocab_counts c = { .n_added = f->n_added };
    struct token_walk w = { .p = json_pull_over(f->vocab, f->vocab_size) };
    struct json_pull merges = json_pull_over(f->merges, f->merges_size);
    size_t n_merges = 0;
    int more;

    while ((more = token_next(&w, err)) > 0)
        count_token(&c, w.id, w.text.size);
    bytes_done(&w.text);
    if (more < 0)
        return -1;
    if (w.n_seen == 0)
        return err_set(err, ERR_FORMAT, "model.vocab is empty");
    /* Each token takes five bytes of a file of 256 MiB at least, so this fits. */
    c.n_tokens = (uint32_t)w.n_seen;

    if (json_pull_enter(&merges, '[', err) < 0)
        return err_within(err, "model.merges");
    while ((more = json_pull_more(&merges, '[', &n_merges, err)) > 0) {
        const char *begin;
        if (json_pull_skip(&merges, &begin, err) < 0)
            more = -1;
        if (more < 0)
            break;
    }
    if (more < 0)
        return err_within(err, "model.merges");
    /* Vocabularies that were made from ranks list every split of a token: about two each. */
    if (n_merges > (uint64_t)c.n_tokens * 8)
        return err_set(err, ERR_FORMAT, "model.merges: %zu for %u tokens (at most 8 each)",
                       n_merges, c.n_tokens);
    c.n_merges = (uint32_t)n_merges;

    for (uint32_t i = 0; i < f->n_added; i++) {
        struct added_token token;
        if (tokenizer_file_added(&token, f, i, err) < 0)
            return -1;
        if (token.id >= MAX_IDS)
            return err_set(err, ERR_FORMAT, "added_tokens[%u].id: %u (below %u expected)", i,
                           token.id, MAX_IDS);
        count_token(&c, token.id, token.size);
    }
    *out = c;
    return 0;
}

/* The parts in the order in which they lie in the region; each is aligned for its type. */
static uint64_t part_offsets(const struct vocab_counts *c, uint64_t offset[5])
{
    uint64_t at = 0;

    offset[0] = at;
    at += (uint64_t)c->n_added * sizeof(struct added_token);
    offset[1] = at;
    at += (uint64_t)bpe_places(c->n_merges) * sizeof(struct bpe_merge);
    offset[2] = at;
    at += (uint64_t)c->n_merges * sizeof(uint32_t);
    offset[3] = at;
    at += (uint64_t)c->n_ids * sizeof(struct piece);
    offset[4] = at;
    return at + c->n_bytes;
}

uint64_t vocab_size(const struct vocab_counts *counts)
{
    uint64_t offset[5];

    return region_size(part_offsets(counts, offset), REGION_SMALL);
}

/* ---- filling ---- */

/* Finds ids by text while the tables are filled. Two tokens may have the same bytes when one
 * of them is raw, so that is part of the key. */
struct index {
    struct region places; /* owned: uint32_t [mask + 1], id + 1 or 0; then a byte per id */
    uint32_t *place;
    uint8_t *raw;
    uint32_t mask;
    const struct vocab *v;
};

static int index_open(struct index *x, const struct vocab *v, struct err *err)
{
    uint32_t places = 16;

    while (places < v->counts.n_tokens * UINT64_C(2))
        places *= 2;
    if (region_open(&x->places, places * sizeof(uint32_t) + v->counts.n_ids, REGION_SMALL, err) <
        0)
        return -1;
    x->place = (uint32_t *)(void *)x->places.base;
    x->raw = (uint8_t *)(x->place + places);
    x->mask = places - 1;
    x->v = v;
    return 0;
}

/* The place of this text: its id + 1, or 0 where it may be put. */
static uint32_t *index_place(const struct index *x, const char *text, size_t size, bool raw)
{
    uint64_t hash = raw ? 14695981039346656037u : 1099511628211u;

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;

    uint32_t at = (uint32_t)(hash ^ hash >> 32) & x->mask;
    for (; x->place[at]; at = (at + 1) & x->mask) {
        uint32_t id = x->place[at] - 1;
        const struct piece *piece = &x->v->pieces[id];
        if (piece->size == size && x->raw[id] == raw &&
            memcmp(x->v->bytes + piece->at, text, size) == 0)
            break;
    }
    return &x->place[at];
}

static void keep_piece(struct vocab *v, uint64_t *used, uint32_t id, const char *text,
                       size_t size)
{
    v->pieces[id] = (struct piece){ .at = (uint32_t)*used, .size = (uint32_t)size & INT32_MAX };
    memcpy(v->bytes + *used, text, size);
    *used += size;
}

static int fill_tokens(struct vocab *v, struct index *x, const struct tokenizer_file *f,
                       uint64_t *used, struct err *err)
{
    struct token_walk w = { .p = json_pull_over(f->vocab, f->vocab_size) };
    int more;

    while ((more = token_next(&w, err)) > 0) {
        if (w.text.size == 0)
            continue; /* no text merges into it */
        uint32_t *place = index_place(x, w.text.at, w.text.size, w.raw);
        if (*place || v->pieces[w.id].size) {
            more = *place ? err_set(err, ERR_FORMAT, "model.vocab: ids %u and %u are the same text",
                                    *place - 1, w.id)
                          : err_set(err, ERR_FORMAT, "model.vocab: two texts have the id %u",
                                    w.id);
            break;
        }
        keep_piece(v, used, w.id, w.text.at, w.text.size);
        x->raw[w.id] = w.raw;
        *place = w.id + 1;
        if (w.text.size == 1 && !w.raw)
            v->bpe.byte_id[(unsigned char)w.text.at[0]] = w.id;
    }
    bytes_done(&w.text);
    if (more < 0)
        return -1;

    /* What valid UTF-8 may contain. A text whose bytes have no token would silently lose them. */
    for (int byte = 0; byte < 0xf5; byte++)
        if (v->bpe.byte_id[byte] == BPE_NONE && byte != 0xc0 && byte != 0xc1)
            return err_set(err, ERR_FORMAT, "model.vocab has no token for byte 0x%02x", byte);
    return 0;
}

/* Decodes the spelling in place and finds its id; BPE_NONE when it has none. */
static uint32_t spelled_id(const struct index *x, struct bytes *spelling)
{
    bool raw = !byte_level_decode(spelling->at, &spelling->size);
    uint32_t id = spelling->size ? *index_place(x, spelling->at, spelling->size, raw) : 0;

    return id ? id - 1 : BPE_NONE;
}

static int fill_merges(struct vocab *v, const struct index *x, const struct tokenizer_file *f,
                       struct err *err)
{
    struct merge_walk w = { .p = json_pull_over(f->merges, f->merges_size) };
    struct bytes both = { 0 };
    int more;

    while ((more = merge_next(&w, err)) > 0) {
        uint32_t rank = (uint32_t)w.n_seen - 1;
        both.size = 0;
        if (bytes_put(&both, w.left.at, w.left.size, err) < 0 ||
            bytes_put(&both, w.right.at, w.right.size, err) < 0) {
            more = -1;
            break;
        }
        uint32_t left = spelled_id(x, &w.left), right = spelled_id(x, &w.right);
        uint32_t merged = spelled_id(x, &both);
        const char *missing = left == BPE_NONE    ? "its first part"
                              : right == BPE_NONE ? "its second part"
                              : merged == BPE_NONE ? "what it makes"
                                                   : NULL;
        if (missing) {
            more = err_set(err, ERR_FORMAT, "model.merges[%u]: %s is not in model.vocab", rank,
                           missing);
            break;
        }
        bpe_add(&v->bpe, left, right, rank, merged);
    }
    bytes_done(&w.left);
    bytes_done(&w.right);
    bytes_done(&both);
    return more;
}

/* An added token may stand in the vocabulary too, then under the same id. */
static int fill_added(struct vocab *v, const struct index *x, struct added_token *tokens,
                      const struct tokenizer_file *f, uint64_t *used, struct err *err)
{
    struct bytes spelling = { 0 };
    const struct added_token *twice = NULL;

    for (uint32_t i = 0; i < f->n_added; i++) {
        struct added_token *token = &tokens[i];
        if (tokenizer_file_added(token, f, i, err) < 0)
            return -1;
        spelling.size = 0;
        if (bytes_put(&spelling, token->text, token->size, err) < 0)
            return -1;
        uint32_t known = spelled_id(x, &spelling);
        bytes_done(&spelling);
        if (known != BPE_NONE ? known != token->id : v->pieces[token->id].size > 0)
            return err_set(err, ERR_FORMAT, "added_tokens[%u]: id %u is another token too, or has "
                                            "another id in model.vocab",
                           i, token->id);
        keep_piece(v, used, token->id, token->text, token->size);
        v->pieces[token->id].special = token->special;
        token->text = v->bytes + v->pieces[token->id].at;
    }
    if (!added_init(&v->added, tokens, f->n_added, &twice))
        return err_set(err, ERR_FORMAT, "added_tokens: '%.*s' is there twice",
                       twice->size > 60 ? 60 : (int)twice->size, twice->text);
    return 0;
}

int vocab_open(struct vocab *out, const struct tokenizer_file *f,
               const struct vocab_counts *counts, struct err *err)
{
    struct vocab v = { .counts = *counts };
    struct index index = { 0 };
    uint64_t offset[5], used = 0, size = part_offsets(counts, offset);
    int rc = -1;

    if (region_open(&v.tables, size, REGION_SMALL, err) < 0)
        return -1;

    char *base = v.tables.base;
    struct added_token *added = (struct added_token *)(void *)(base + offset[0]);
    bpe_init(&v.bpe, (struct bpe_merge *)(void *)(base + offset[1]),
             (uint32_t *)(void *)(base + offset[2]), counts->n_merges);
    v.pieces = (struct piece *)(void *)(base + offset[3]);
    v.bytes = base + offset[4];
    if (index_open(&index, &v, err) == 0 && fill_tokens(&v, &index, f, &used, err) == 0 &&
        fill_merges(&v, &index, f, err) == 0 && fill_added(&v, &index, added, f, &used, err) == 0)
        rc = 0;
    region_close(&index.places);
    if (rc < 0)
        vocab_close(&v);
    else
        *out = v;
    return rc;
}

void vocab_close(struct vocab *v)
{
    region_close(&v->tables);
    *v = (struct vocab){ 0 };
}
