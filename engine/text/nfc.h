/* nfc: canonical composition as the reference tokenizer computes it.
 *
 * Unicode 9.0 whatever the installed utf8proc knows: younger characters stay apart and in
 * their place. Linear in the text, also for a million combining marks. Any thread. */
#ifndef TEXT_NFC_H
#define TEXT_NFC_H

#include <stdbool.h>
#include <stddef.h>

struct bytes;
struct err;

/* False when the text surely is in NFC; a quick look. */
bool nfc_may_change(const char *text, size_t size);
/* The last border in text[from, size) where it may be cut: what lies before and what follows
 * normalise by themselves, whatever follows. 0 for none. */
size_t nfc_border(const char *text, size_t from, size_t size);
/* Appends the NFC of valid UTF-8 to out. Takes some kilobytes, or 8 bytes a mark for a longer
 * row of combining marks. */
int nfc_append(struct bytes *out, const char *text, size_t size, struct err *err);

#endif
