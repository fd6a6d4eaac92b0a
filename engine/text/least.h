/* least: how few tokens a text can have, from a look at its bytes.
 *
 * A token that covers a byte b has at most longest(b) bytes, that of the longest token with b in
 * it. So each byte is at least 1/longest(b) of a token, and the sum over a text is never above
 * the number of its tokens: "1" is a token by itself in most vocabularies, thirty letters hardly
 * ever are one. Immutable once filled: any thread. */
#ifndef TEXT_LEAST_H
#define TEXT_LEAST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text_run;
struct vocab;

#define LEAST_ONE (UINT64_C(1) << 24)

struct least {
    uint32_t share[256]; /* of a token, in units of 1 / LEAST_ONE; rounded down */
    uint32_t trusted[256]; /* the same where added tokens may stand */
    uint32_t any;    /* of whatever bytes, added tokens and all */
    uint32_t beyond; /* of bytes beyond ASCII */
};

void least_init(struct least *l, const struct vocab *v);
/* Of text as it is merged, normalised and without added tokens: in units of 1 / LEAST_ONE. */
uint64_t least_share(const struct least *l, const char *text, size_t size);
/* Whole tokens of runs as they come: any bytes. nfc: they will be normalised. */
size_t least_tokens(const struct least *l, const struct text_run *runs, size_t n_runs, bool nfc);

#endif
