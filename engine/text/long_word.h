/* long_word: merges a piece of any length in windows, with memory for one window.
 *
 * A text may be one word of megabytes, and merging that at once would take 24 bytes for each of
 * its bytes. The windows give the same tokens: see long_word.c. One thread; zero it,
 * long_word_done frees. */
#ifndef TEXT_LONG_WORD_H
#define TEXT_LONG_WORD_H

#include "text/bytes.h"
#include "text/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bpe_scratch;
struct err;
struct vocab;

/* Of 384 to 4096 the quickest (10 MB/s): its scratch fits a first-level cache. The longest tokens in
 * use have 128 bytes. */
enum { LONG_WORD_WINDOW = 512 };

struct long_word {
    struct bytes text; /* owned: from the last border of tokens that is sure */
    struct ids found;  /* owned: the tokens of a window */
    struct bytes pair; /* owned */
    uint32_t expected; /* the token that began at the border when it was seen before */
    size_t first;      /* out->n where the word began */
    size_t wants;      /* bytes that a window is to have */
    uint32_t n_retreats;
};

void long_word_begin(struct long_word *w, const struct ids *out);
/* How many bytes more are to be put before the next step; one or two fewer do no harm. */
size_t long_word_wants(const struct long_word *w);
int long_word_put(struct long_word *w, const char *bytes, size_t size, struct err *err);
/* Appends to out what is sure. last: the whole word was put. 1: put more, or call again when it
 * was the last; 0: the word is done. ERR_UNSUPPORTED for a word whose tokens hang together over
 * more than 64 KiB. */
int long_word_step(struct long_word *w, const struct vocab *v, struct bpe_scratch *scratch,
                   bool last, struct ids *out, struct err *err);
uint64_t long_word_memory(const struct long_word *w);
void long_word_done(struct long_word *w);

#endif
