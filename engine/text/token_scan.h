/* token_scan: finds added tokens in runs of text, where all their bytes are trusted.
 *
 * The text between them belongs to whoever reads up to token_scan_limit. White space that a token
 * takes along is not part of it, so where there are such tokens the limit stays before white
 * space until it is known what follows. One thread; token_scan_done frees. */
#ifndef TEXT_TOKEN_SCAN_H
#define TEXT_TOKEN_SCAN_H

#include "text/bytes.h"
#include "text/reader.h"

#include <stdbool.h>
#include <stddef.h>

struct added;
struct added_token;
struct err;

struct token_scan {
    const struct text_run *runs; /* [n_runs], borrowed */
    size_t n_runs;
    const struct added *added;       /* borrowed */
    struct place at;                 /* no token begins before */
    struct place solid;              /* what lies from here to `at` is white space */
    const struct added_token *token; /* begins at `at`; NULL */
    struct bytes peek;               /* owned */
};

void token_scan_init(struct token_scan *s, const struct text_run *runs, size_t n_runs,
                     const struct added *added);
/* Looks at about `most` bytes more, up to the next token. */
int token_scan_more(struct token_scan *s, size_t most, struct err *err);
/* A token was found, or the runs are at their end: no more text before it. */
bool token_scan_ends(const struct token_scan *s);
struct place token_scan_limit(const struct token_scan *s);
/* Steps over the token, and the white space behind it when it takes that along. */
void token_scan_pass(struct token_scan *s);
void token_scan_done(struct token_scan *s);

#endif
