/* bpe: merges the bytes of one piece into tokens.
 *
 * Byte-pair encoding (Sennrich and others 2016): the pair of the lowest rank is merged, the
 * leftmost first, until no pair is left. A piece of n bytes costs n log n whatever it holds.
 * The tables are immutable once filled: any thread may merge, each with its own scratch. Longer
 * pieces than BPE_MOST go through long_word.h. */
#ifndef TEXT_BPE_H
#define TEXT_BPE_H

#include <stddef.h>
#include <stdint.h>

struct err;
struct ids;

#define BPE_NONE UINT32_MAX

struct bpe_merge {
    uint32_t left, right; /* ids; left is BPE_NONE in an empty place */
    uint32_t rank;
};

struct bpe {
    uint32_t byte_id[256];    /* BPE_NONE for a byte without a token */
    struct bpe_merge *merges; /* [mask + 1], borrowed: an open-addressing hash table */
    uint32_t mask;
    uint32_t *merged; /* [n_merges] by rank, borrowed: the id that the pair becomes */
};

/* How large merges must be for n_merges, a power of two. */
uint32_t bpe_places(uint32_t n_merges);
/* Empties both tables; merges has bpe_places(n_merges) places. */
void bpe_init(struct bpe *b, struct bpe_merge *merges, uint32_t *merged, uint32_t n_merges);
/* Ranks rise by one from 0. A pair given twice keeps its last rank. */
void bpe_add(struct bpe *b, uint32_t left, uint32_t right, uint32_t rank, uint32_t merged);

/* Zero it; grows to the longest piece; bpe_scratch_done frees. */
struct bpe_scratch {
    void *places; /* owned: 24 bytes for each byte of a piece */
    size_t cap;
};
void bpe_scratch_done(struct bpe_scratch *scratch);
uint64_t bpe_scratch_memory(const struct bpe_scratch *scratch);

/* Positions in a piece have 16 bits. */
enum { BPE_MOST = UINT16_MAX };

/* Appends the tokens of a piece of up to BPE_MOST bytes to out. */
int bpe_encode(const struct bpe *b, const char *piece, size_t size, struct bpe_scratch *scratch,
               struct ids *out, struct err *err);

#endif
