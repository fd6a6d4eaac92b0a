/* pretokenize: cuts text into the pieces that BPE merges within.
 *
 * The checkpoint's own pattern, run by PCRE2 on the text's shadow (pattern.h). What the
 * pattern does not match between two matches is a piece of its own; nothing is lost. Works the
 * same when the system refuses JIT its executable memory. A pretokenizer is immutable once
 * open: any thread may cut with it, each with its own walk. */
#ifndef TEXT_PRETOKENIZE_H
#define TEXT_PRETOKENIZE_H

#include <stddef.h>
#include <stdint.h>

struct err;
struct pretokenizer;

/* pattern is in oniguruma's syntax, as the regex of a "Split" in tokenizer.json. */
int pretokenizer_open(struct pretokenizer **out, const char *pattern, size_t size,
                      struct err *err);
void pretokenizer_close(struct pretokenizer *p); /* NULL is fine */
uint64_t pretokenizer_memory(const struct pretokenizer *p);

/* One pass over one text. */
struct pieces;
/* text is valid UTF-8, borrowed until pieces_close. */
int pieces_open(struct pieces **out, const struct pretokenizer *p, const char *text, size_t size,
                struct err *err);
/* 1 and the next piece, never empty, pointing into the text; 0 at the end; -1. */
int pieces_next(struct pieces *w, const char **piece, size_t *size, struct err *err);
void pieces_close(struct pieces *w); /* NULL is fine */

#endif
