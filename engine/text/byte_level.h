/* byte_level: the alphabet in which byte-level vocabularies spell bytes.
 *
 * Radford and others 2019 (GPT-2): printable Latin-1 stands for itself, the other 68 byte
 * values are U+0100 and on, in order. Any thread. */
#ifndef TEXT_BYTE_LEVEL_H
#define TEXT_BYTE_LEVEL_H

#include <stdbool.h>
#include <stddef.h>

/* Turns the spelling of a token (valid UTF-8) into its bytes, in place, and returns true.
 * When some character is none of the alphabet the text is left as it is: false. */
bool byte_level_decode(char *text, size_t *size);

#endif
