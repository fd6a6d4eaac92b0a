/* json_text: what a JSON string says, character by character. Zero it to begin; one thread. */
#ifndef TEXT_JSON_TEXT_H
#define TEXT_JSON_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct bytes;
struct err;

struct json_text {
    char escape[12]; /* one that is not complete, or the first half of a character */
    uint8_t n;
};

/* One whole character behind the opening quote; *ended when it is the closing one. An escape that
 * is none stands for itself, half a surrogate pair for U+FFFD. */
int json_text_put(bool *ended, struct json_text *t, char quote, const char *c, size_t n,
                  struct bytes *out, struct err *err);
/* No more comes: an escape that is not complete stands for itself. */
int json_text_end(struct json_text *t, struct bytes *out, struct err *err);
/* text written as a JSON string, its quotes included or not, non-ASCII as it stands. */
int json_text_quote(struct bytes *out, const char *text, size_t size, struct err *err);
int json_text_escape(struct bytes *out, const char *text, size_t size, struct err *err);

#endif
