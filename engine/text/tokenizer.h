/* tokenizer: bytes to token ids and back, straight from tokenizer.json.
 *
 * Byte-level BPE with the file's own split pattern and NFC, as the Hugging Face
 * tokenizers library computes it; a normaliser, pre-tokenizer, model or decoder of
 * another type is ERR_UNSUPPORTED by name. Immutable once open: any thread may encode,
 * each call allocating what it needs. Cost is linear in the text whatever it holds. */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct region;
struct tokenizer;

/* Memory that the JSON took while reading is given back before this returns. */
int tokenizer_open(struct tokenizer **out, const char *path, struct err *err);
/* The file's bytes alone, for a process that gives up its files before it looks at them. */
int tokenizer_read(struct region *out, uint64_t *size, const char *path, struct err *err);
/* The same from memory, which is borrowed during the call only. */
int tokenizer_open_buffer(struct tokenizer **out, const char *name, const void *bytes,
                          size_t size, struct err *err);
void tokenizer_close(struct tokenizer *t); /* NULL is fine */

/* A growing list of ids. Zero it, or reuse one; ids_done frees. */
struct ids {
    uint32_t *id; /* owned */
    size_t n, cap;
};
int ids_put(struct ids *list, uint32_t id, struct err *err);
void ids_done(struct ids *list);

/* A stretch of text. Added tokens ("<|im_end|>") are recognised only where all their bytes
 * are trusted; the rest is split and merged as one text across stretches, so ordinary
 * input gives the ids of the reference tokenizer. */
struct text_run {
    const char *bytes; /* any bytes; invalid UTF-8 becomes U+FFFD first */
    size_t size;
    bool trusted;
};

/* A stretch of a prompt: text that is to become ids, or ids that stand for text already. */
struct text_part {
    const struct text_run *runs;
    size_t n_runs;
    const uint32_t *ids;
    size_t n_ids;
};

/* Appends to out; on failure out is as before. max_ids bounds out->n (0: no bound):
 * ERR_TOO_LONG beyond it, found early, so that a text that cannot fit costs little. */
int tokenizer_encode(const struct tokenizer *t, const struct text_run *runs, size_t n_runs,
                     size_t max_ids, struct ids *out, struct err *err);
/* The bytes of one token; special tokens give their text, unknown ids nothing. Borrowed.
 * A token may be a part of a UTF-8 sequence. */
const char *tokenizer_piece(const struct tokenizer *t, uint32_t id, size_t *size);
bool tokenizer_is_special(const struct tokenizer *t, uint32_t id); /* added and "special" */
bool tokenizer_find(const struct tokenizer *t, const char *text, uint32_t *id); /* added token */
uint32_t tokenizer_vocab(const struct tokenizer *t); /* highest id + 1 */
uint64_t tokenizer_memory(const struct tokenizer *t); /* bytes it holds */
/* Of the file's bytes, never 0: two tokenizers of one fingerprint mean the same by an id. */
uint64_t tokenizer_fingerprint(const struct tokenizer *t);

/* What tokenizer_memory will be, from the file alone and without opening it: an upper bound
 * that the plan can rely on. And its fingerprint. */
int tokenizer_plan_size(uint64_t *out, uint64_t *fingerprint, const char *path, struct err *err);

#endif
