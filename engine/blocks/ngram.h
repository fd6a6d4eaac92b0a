/* ngram: which rows of a hashed n-gram table belong to a token.
 *
 * A token and the ones before it are mixed by odd multipliers and xor, and each head takes the
 * mixture modulo a prime of its own: order m of 2..size uses the last m tokens, heads_per_order
 * heads each. A missing token, and all that lie behind an end of text, count as the end of text.
 * Reference: Qwen4ExpNgramEmbedding of Hugging Face transformers. Immutable once open. */
#ifndef BLOCKS_NGRAM_H
#define BLOCKS_NGRAM_H

#include <stdint.h>

struct err;

enum { NGRAM_MAX_SIZE = 8, NGRAM_MAX_HEADS = 256 };

struct ngram_shape {
    uint32_t vocab;           /* "vocab_size" */
    uint32_t size;            /* "ngram_size": 2..NGRAM_MAX_SIZE */
    uint32_t heads_per_order; /* "heads_per_ngram" */
    uint64_t base, divisor;   /* "ngram_vocab_size_base", "make_ngram_vocab_size_divisible_by" */
    uint64_t seed;
    uint32_t index;           /* of the layer among those that have a table; from 0 */
    uint32_t end;             /* "eos_token_id", its first */
};

struct ngram {
    struct ngram_shape shape;
    uint32_t n_heads;
    uint64_t multipliers[NGRAM_MAX_SIZE]; /* [size] odd */
    uint64_t sizes[NGRAM_MAX_HEADS];      /* [n_heads] primes, rising */
    uint64_t offsets[NGRAM_MAX_HEADS];    /* [n_heads] of a head's first row */
    uint64_t n_rows;                      /* of the table, padding included */
};

/* ERR_INPUT for what cannot be: no head, too many, a base past 2^40. */
int ngram_open(struct ngram *out, const struct ngram_shape *shape, struct err *err);

/* The table's rows of tokens[at], in head order; rows [n_heads]. tokens is the sequence from its
 * beginning. */
void ngram_rows(uint64_t *rows, const struct ngram *n, const uint32_t *tokens, uint32_t at);

#endif
