/* json_mend: one JSON value, character by character, unchanged where it is JSON and made JSON where
 * it nearly is.
 *
 * Mended are what models write by mistake or in Python's spelling: trailing commas, raw newlines
 * and invalid escapes in strings, single quotes, True, False and None, and at the end what is not
 * closed. Anything else breaks the value: from there on it is handed through as it stands, and its
 * end is found by counting brackets outside strings. Held back are a comma and the white space
 * behind it, an escape, and a word. Linear; zero it to begin, json_mend_done frees. */
#ifndef TEXT_JSON_MEND_H
#define TEXT_JSON_MEND_H

#include "text/bytes.h"

#include <stdbool.h>
#include <stdint.h>

struct err;

struct json_mend {
    enum {
        MEND_VALUE, /* a value must come; the state of a new one */
        MEND_FIRST_KEY,
        MEND_KEY,
        MEND_COLON,
        MEND_FIRST_ITEM,
        MEND_ITEM,
        MEND_AFTER, /* a comma or a closing bracket */
        MEND_STRING,
        MEND_NUMBER,
        MEND_WORD,
        MEND_BROKEN,
        MEND_DONE,
    } at;
    struct bytes stack; /* owned: the brackets that are open */
    struct bytes gap;   /* owned: a comma and white space */
    char quote;         /* of the string it is in; when broken, 0 outside of one */
    bool is_key;
    char word[16]; /* a word or an escape so far */
    uint8_t n_word;
    uint8_t number; /* where in a number's grammar */
    bool begun;     /* something but white space was seen */
    bool broken;
    uint32_t n_mended;
};

enum json_mend_end {
    MEND_GOES_ON,
    MEND_ENDS_WITH,   /* the value ended with this character */
    MEND_ENDS_BEFORE, /* it ended before this character, which was not taken */
};

/* One whole character. out may be NULL. */
int json_mend_put(enum json_mend_end *end, struct json_mend *m, const char *c, size_t n,
                  struct bytes *out, struct err *err);
/* No more comes: whatever is open is closed, where nothing came a null is put. Broken values are
 * left as they are. */
int json_mend_close(struct json_mend *m, struct bytes *out, struct err *err);
/* No more comes, and what is open stays open: what was held back is put as it is. */
int json_mend_leave(struct json_mend *m, struct bytes *out, struct err *err);
void json_mend_done(struct json_mend *m);

#endif
