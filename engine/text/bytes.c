#include "text/bytes.h"

#include "util/err.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int bytes_reserve(struct bytes *b, size_t more, struct err *err)
{
    size_t need;

    if (__builtin_add_overflow(b->size, more, &need) || need > SIZE_MAX / 2)
        return err_set(err, ERR_NOMEM, "a text of %zu + %zu bytes", b->size, more);
    if (need <= b->cap)
        return 0;

    size_t cap = b->cap * 2 > need ? b->cap * 2 : need + 64;
    char *at = realloc(b->at, cap);
    if (!at)
        return err_set(err, ERR_NOMEM, "a text of %zu bytes", cap);
    b->at = at;
    b->cap = cap;
    return 0;
}

int bytes_put(struct bytes *b, const char *from, size_t size, struct err *err)
{
    if (size == 0)
        return 0;
    if (bytes_reserve(b, size, err) < 0)
        return -1;
    memcpy(b->at + b->size, from, size);
    b->size += size;
    return 0;
}

void bytes_done(struct bytes *b)
{
    free(b->at);
    *b = (struct bytes){ 0 };
}
