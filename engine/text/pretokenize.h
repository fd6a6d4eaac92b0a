/* pretokenize: cuts text into the pieces that BPE merges within.
 *
 * The checkpoint's own pattern, run by PCRE2 on the text's shadow (pattern.h). What the
 * pattern does not match between two matches is a piece of its own; nothing is lost. Works the
 * same when the system refuses JIT its executable memory. A pretokenizer is immutable once
 * open: any thread may cut with it, each with its own walk.
 *
 * A portion is matched as the beginning of a text (PCRE2's partial matching): as soon as a match
 * looks past its end, nothing is decided until more is there. */
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
/* Without machine code, which not every process may make: the same number in all of them. */
uint64_t pretokenizer_plan_size(const struct pretokenizer *p);

/* One pass over a text that comes in portions. Only its shadow is kept, from the piece under way
 * on, so a piece is told by how many characters it has. */
struct pieces;
int pieces_open(struct pieces **out, const struct pretokenizer *p, struct err *err);
void pieces_close(struct pieces *w); /* NULL is fine */
/* Appends whole characters of valid UTF-8. */
int pieces_put(struct pieces *w, const char *text, size_t size, struct err *err);
void pieces_end(struct pieces *w); /* nothing follows */
/* 1 and the length of the next piece, never 0; 0 when more must be put to know it, or at the end;
 * -1. */
int pieces_next(struct pieces *w, size_t *n_chars, struct err *err);
size_t pieces_held(const struct pieces *w); /* characters put and not given */
void pieces_restart(struct pieces *w);      /* for another text */
uint64_t pieces_memory(const struct pieces *w);

#endif
