/* Restricted Damerau-Levenshtein distance, three rows of the usual table. */
#include "daemon/base/nearest.h"

#include <string.h>

enum { LONGEST = 40 }; /* no command or flag is longer */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t distance(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t rows[3][LONGEST + 1];
    size_t *before = rows[0], *above = rows[1], *row = rows[2];

    for (size_t j = 0; j <= n_b; j++)
        above[j] = j;
    for (size_t i = 1; i <= n_a; i++) {
        row[0] = i;
        for (size_t j = 1; j <= n_b; j++) {
            row[j] = least(above[j - 1] + (a[i - 1] != b[j - 1]),
                           least(above[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        size_t *spare = before;
        before = above;
        above = row;
        row = spare;
    }
    return above[n_b];
}

const char *nearest(const char *typed, const char *const *words, size_t n)
{
    size_t length = strlen(typed), best = 0;
    const char *found = NULL;

    if (length == 0 || length > LONGEST)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t n_word = strlen(words[i]);
        if (n_word > LONGEST)
            continue;
        size_t apart = distance(typed, length, words[i], n_word);
        /* A beginning is nearer than any slip of two letters. */
        if (length >= 3 && length < n_word && strncmp(words[i], typed, length) == 0)
            apart = 1;
        if (apart * 3 > n_word + 1 || (found && apart >= best))
            continue;
        found = words[i];
        best = apart;
    }
    return found;
}
