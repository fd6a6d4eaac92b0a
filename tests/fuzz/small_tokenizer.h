/* small_tokenizer: a tokenizer of 256 bytes and a few merges, for targets that need one. */
#ifndef TESTS_SMALL_TOKENIZER_H
#define TESTS_SMALL_TOKENIZER_H

struct bytes;
struct tokenizer;

/* Ids below SMALL_ADDED are text; the added tokens, from there on, are what a chat needs. */
enum { SMALL_ADDED = 600 };

struct tokenizer *small_tokenizer(void); /* the caller's */

/* Members of a vocabulary: the 256 single bytes as the byte level writes them, ids 0 to 255. */
void small_vocab(struct bytes *json);

#endif
