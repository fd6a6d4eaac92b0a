/* encoding: a text on its way to token ids, a portion at a time.
 *
 * Memory does not grow with the text, but for a byte per character of a single word (what the
 * split pattern takes as one piece), and for a long row of combining marks. Work is cut into
 * portions so that a thread with other duties can turn to them. One thread. */
#ifndef TEXT_ENCODING_H
#define TEXT_ENCODING_H

#include "text/tokenizer.h"

struct encoding;

/* runs and their bytes are borrowed until encoding_close. max_ids as in tokenizer_encode; a text
 * that can be seen to have more tokens is ERR_TOO_LONG here. n_before: ids that count too. */
int encoding_open(struct encoding **out, const struct tokenizer *t, const struct text_run *runs,
                  size_t n_runs, size_t max_ids, size_t n_before, struct err *err);
/* Goes on for about `work` bytes of text. 1: there is more; 0: all is in out; -1, with out left
 * half filled. ERR_BUDGET when encoding_memory would pass `room` (0: no bound). Always the same
 * out. */
int encoding_step(struct encoding *e, size_t work, uint64_t room, struct ids *out,
                  struct err *err);
/* Bytes that it holds at most, out included as far as it is filled. */
uint64_t encoding_memory(const struct encoding *e, const struct ids *out);
void encoding_close(struct encoding *e); /* NULL is fine */

#endif
