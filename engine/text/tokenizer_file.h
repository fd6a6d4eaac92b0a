/* tokenizer_file: tokenizer.json in memory, taken apart and checked.
 *
 * The vocabulary and the merges stay text to walk through (json_pull.h); everything else is
 * small, is read as a tree, and whatever it asks for that is not built is refused by name. The
 * text lies in a region of its own, so that closing gives every byte back. One thread. */
#ifndef TEXT_TOKENIZER_FILE_H
#define TEXT_TOKENIZER_FILE_H

#include "util/region.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct added_token;
struct err;
struct json_t;

struct tokenizer_file {
    struct region text;  /* owned */
    struct json_t *rest; /* owned: the tree without vocabulary and merges */
    const char *vocab, *merges; /* into text */
    size_t vocab_size, merges_size;
    bool nfc;
    const char *pattern; /* the split pattern, into rest */
    size_t pattern_size;
    uint32_t n_added;
    uint64_t fingerprint; /* of all bytes */
};

/* The bytes of a file that may be one, into a region of their own. */
int tokenizer_file_read(struct region *out, uint64_t *size, const char *path, struct err *err);
int tokenizer_file_open(struct tokenizer_file *out, const char *path, struct err *err);
int tokenizer_file_open_buffer(struct tokenizer_file *out, const void *bytes, size_t size,
                               struct err *err);
void tokenizer_file_close(struct tokenizer_file *f); /* also on a zeroed struct */
/* The i-th added token; its text is borrowed from the file. */
int tokenizer_file_added(struct added_token *out, const struct tokenizer_file *f, uint32_t i,
                         struct err *err);

#endif
