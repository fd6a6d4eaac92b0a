/* stop: token bytes in, whole characters out, ending before a stop string.
 *
 * Bytes are put as tokens bring them; what is given out is valid UTF-8 and surely no part of
 * a stop string: the beginning of one is held back until more text decides. The text does not
 * depend on how the bytes were cut into tokens. Of several stop strings that occur, the one
 * that begins first ends the text. Linear in the bytes put. One thread at a time. */
#ifndef TEXT_STOP_H
#define TEXT_STOP_H

#include <stddef.h>
#include <stdint.h>

struct err;
struct text_out;

#define TEXT_MAX_STOPS 16

struct text_stop {
    const char *bytes; /* valid UTF-8, at least one character; copied */
    size_t size;
};

/* ERR_INPUT for too many stops, or one that is empty or no UTF-8. */
int text_out_open(struct text_out **out, const struct text_stop *stops, size_t n,
                  struct err *err);
void text_out_close(struct text_out *o); /* NULL is fine */

/* 1 when a stop string was found: the text ends before it and later bytes are ignored. 0, -1.
 * Invalid bytes become U+FFFD; the beginning of a character waits for its rest. */
int text_out_put(struct text_out *o, const char *bytes, size_t size, struct err *err);
/* No more bytes come: what was held back belongs to the text, and a character without its end
 * becomes one U+FFFD. 1 when the text ends at a stop string, 0, -1. */
int text_out_finish(struct text_out *o, struct err *err);
/* What was held back belongs to the text, as at the end, and text that is put later has no part of
 * a stop string behind it. 1 when the text ends at a stop string, 0, -1. */
int text_out_release(struct text_out *o, struct err *err);
/* The text since the last call; *size may be 0. Valid until the next call on o. */
const char *text_out_text(struct text_out *o, size_t *size);
uint64_t text_out_memory(const struct text_out *o); /* bytes it holds now */

#endif
