/* What a parameter says between its tags, as the JSON that its schema asks for. */
#include "text/reply_state.h"

#include "util/ascii.h"
#include "util/err.h"
#include "util/utf8.h"

#include <string.h>

static bool is(const char *text, size_t size, const char *word)
{
    return size == strlen(word) && memcmp(text, word, size) == 0;
}

static const char *word_value(const char *text, size_t size, unsigned types)
{
    if (types & REPLY_MAY_BOOLEAN) {
        if (is(text, size, "true") || is(text, size, "True"))
            return "true";
        if (is(text, size, "false") || is(text, size, "False"))
            return "false";
    }
    if ((types & REPLY_MAY_NULL) && (is(text, size, "null") || is(text, size, "None")))
        return "null";
    return NULL;
}

/* Appends text as the one JSON value that it is, or nearly is. 1, 0 when it is none, -1. */
static int put_json(struct bytes *out, uint32_t *n_mended, const char *text, size_t size,
                    struct err *err)
{
    struct json_mend mend = { 0 };
    enum json_mend_end end = MEND_GOES_ON;
    size_t before = out->size;
    int rc = 0;

    for (size_t at = 0; at < size && rc == 0;) {
        int length = utf8_next(text + at, size - at, NULL);
        size_t n = length > 0 ? (size_t)length : 1;
        rc = json_mend_put(&end, &mend, text + at, n, out, err);
        if (end == MEND_ENDS_BEFORE)
            break;
        at += n;
    }
    bool all = end != MEND_ENDS_BEFORE;
    if (rc == 0 && all) /* which ends a number or a word */
        rc = json_mend_put(&end, &mend, " ", 1, out, err);
    bool good = all && mend.at == MEND_DONE && !mend.broken;
    *n_mended = mend.n_mended;
    json_mend_done(&mend);
    if (!good)
        out->size = before;
    return rc < 0 ? -1 : good;
}

/* Numbers are kept as written, objects and arrays too where they are JSON; Python's spelling of
 * them becomes JSON. Whatever the types do not allow is a string. */
int reply_put_value(struct reply *r, struct bytes *out, const char *text, size_t size,
                    unsigned types, struct err *err)
{
    const char *begin = text;
    size_t n = size, before = out->size;
    uint32_t n_mended;

    while (n && ascii_json_space(*begin)) {
        begin++;
        n--;
    }
    while (n && ascii_json_space(begin[n - 1]))
        n--;
    const char *word = word_value(begin, n, types);
    if (word)
        return bytes_put(out, word, strlen(word), err);

    bool number = n && (*begin == '-' || (*begin >= '0' && *begin <= '9'));
    bool container = types & (REPLY_MAY_OBJECT | REPLY_MAY_ARRAY);
    if (n && (container || (number && (types & (REPLY_MAY_INTEGER | REPLY_MAY_NUMBER))))) {
        int json = put_json(out, &n_mended, begin, n, err);
        if (json < 0)
            return -1;
        if (json && (container || !n_mended)) {
            if (n_mended)
                reply_count(r, REPLY_JSON_MENDED);
            return 0;
        }
        out->size = before;
    }
    reply_count(r, REPLY_VALUE_AS_STRING);
    return json_text_quote(out, text, size, err);
}
