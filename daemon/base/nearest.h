/* nearest: the word somebody probably meant.
 *
 * A slip is a letter too many, too few, another, or two swapped; more than a third of the word
 * is no slip but another word. Any thread. */
#ifndef DAEMON_NEAREST_H
#define DAEMON_NEAREST_H

#include <stddef.h>

/* One of words[n], or NULL when none is near. The first wins among equals; a word that begins
 * with what was typed counts as near too. */
const char *nearest(const char *typed, const char *const *words, size_t n);

#endif
