/* vocab: the tables of a tokenizer: the bytes of every token, the merges, the added tokens.
 *
 * All in one region of exactly the size that vocab_measure gives beforehand. Ids may have gaps
 * and come in any order. Filled by one thread, then immutable. */
#ifndef TEXT_VOCAB_H
#define TEXT_VOCAB_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/piece.h"
#include "util/region.h"

#include <stddef.h>
#include <stdint.h>

struct err;
struct tokenizer_file;

/* How much there is of everything. */
struct vocab_counts {
    uint32_t n_ids; /* highest id + 1 */
    uint32_t n_tokens, n_merges, n_added;
    uint32_t longest; /* bytes of the longest token */
    uint64_t n_bytes; /* of all tokens */
};

struct vocab {
    struct region tables; /* owned; everything below lies in it */
    struct vocab_counts counts;
    struct piece *pieces; /* [n_ids] */
    char *bytes;
    struct bpe bpe;
    struct added added;
};

int vocab_measure(struct vocab_counts *out, const struct tokenizer_file *f, struct err *err);
uint64_t vocab_size(const struct vocab_counts *counts); /* what tables.size will be */
int vocab_open(struct vocab *out, const struct tokenizer_file *f,
               const struct vocab_counts *counts, struct err *err);
void vocab_close(struct vocab *v); /* also on a zeroed struct */

#endif
