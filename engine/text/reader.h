/* reader: runs of text as one text, in portions, valid UTF-8 and normalised.
 *
 * A portion ends where what follows cannot change it, so the text is the same whatever size the
 * portions have. Holds what has to wait for its end: the beginning of a character, or a
 * character that a mark may join. One thread; reader_init, and reader_done frees. */
#ifndef TEXT_READER_H
#define TEXT_READER_H

#include "text/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct text_run;

/* A place between two bytes of the runs: before byte `at` of run `run`. At the end, run is the
 * number of runs; a place is never at the end of a run. */
struct place {
    size_t run, at;
};

struct reader {
    const struct text_run *runs; /* [n_runs], borrowed */
    size_t n_runs;
    struct place at;
    bool nfc;
    char cut[4]; /* a character's beginning */
    size_t n_cut;
    struct bytes held; /* owned: valid, not normalised yet */
    size_t searched;   /* in held: no border for NFC up to here */
};

/* At byte `at` from the beginning of run `run`, which may lie in a later one. */
struct place place_at(const struct text_run *runs, size_t n_runs, size_t run, size_t at);
bool place_before(struct place a, struct place b);

void reader_init(struct reader *r, const struct text_run *runs, size_t n_runs, bool nfc);
/* Appends to out what is sure of up to `most` bytes more, up to limit. ends: the text ends
 * there, so that nothing has to wait. True in *more while limit is not reached. */
int reader_next(struct reader *r, struct place limit, bool ends, size_t most, struct bytes *out,
                bool *more, struct err *err);
/* Goes on from another place, where another text begins. */
void reader_move(struct reader *r, struct place to);
uint64_t reader_memory(const struct reader *r);
void reader_done(struct reader *r);

#endif
