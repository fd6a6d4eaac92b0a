/* unicode_tables: the classes of characters that tokenizer files are written for.
 *
 * A tokenizer's ids depend on which characters count as letters, so these are frozen tables
 * and not what this machine's libraries believe today. Any thread. */
#ifndef TEXT_UNICODE_TABLES_H
#define TEXT_UNICODE_TABLES_H

#include <stdbool.h>
#include <stdint.h>

/* \p{L}, \p{N}, \p{M} and \s as oniguruma has them (Unicode 16.0); no character is in two. */
enum unicode_class { UNICODE_OTHER, UNICODE_L, UNICODE_N, UNICODE_M, UNICODE_SPACE };
enum unicode_class unicode_class(uint32_t cp);

/* Characters younger than Unicode 9.0 that a newer NFC would reorder or compose. To the
 * reference normaliser they are unassigned: they stay as they are and nothing moves past. */
bool unicode_unknown_to_nfc(uint32_t cp);

#endif
