/* added: tokens that are found in the text as they are written, before anything else.
 *
 * The leftmost wins, and of several that begin there the longest. Immutable: any thread. */
#ifndef TEXT_ADDED_H
#define TEXT_ADDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct added_token {
    const char *text; /* borrowed */
    uint32_t size, id;
    bool special;
    bool lstrip, rstrip; /* takes the white space before or behind it along */
};

struct added {
    struct added_token *tokens; /* [n], by text; borrowed */
    uint32_t n, longest; /* longest: bytes of the longest of them */
    bool strips; /* some token takes white space along */
    bool begins[256]; /* whether some token begins with this byte */
};

/* Sorts tokens in place. Returns false, and *twice, when two have the same text. */
bool added_init(struct added *a, struct added_token *tokens, uint32_t n,
                const struct added_token **twice);
/* The longest token that text begins with; NULL for none. */
const struct added_token *added_at(const struct added *a, const char *text, size_t size);
const struct added_token *added_find(const struct added *a, const char *text, size_t size);

#endif
