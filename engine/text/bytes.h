/* bytes: a growing run of bytes. Zero it; bytes_done frees. One thread at a time. */
#ifndef TEXT_BYTES_H
#define TEXT_BYTES_H

#include <stddef.h>

struct err;

struct bytes {
    char *at; /* owned; may hold NUL, is not ended by one */
    size_t size, cap;
};

int bytes_reserve(struct bytes *b, size_t more, struct err *err); /* room for more at the end */
int bytes_put(struct bytes *b, const char *from, size_t size, struct err *err);
void bytes_done(struct bytes *b);

#endif
