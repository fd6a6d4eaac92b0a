/* proc_text: small files of /proc and /sys, and the numbers in them. Any thread. */
#ifndef UTIL_PROC_TEXT_H
#define UTIL_PROC_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* These files are a few KiB. */
enum { PROC_TEXT_SIZE = 16384 };

/* The whole file as it is now, terminated, as far as cap goes; the offset of fd does not matter.
 * False with errno when it cannot be read. */
bool proc_text_read(int fd, char *text, size_t cap);

/* A number at the start of text, whatever follows it; "max" is none. */
bool proc_text_number(uint64_t *out, const char *text);
/* The number after key at the start of a line, whatever blanks or colon stand between. */
bool proc_text_field(uint64_t *out, const char *text, const char *key);

#endif
