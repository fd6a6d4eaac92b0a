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
/* Appends the NFC of valid UTF-8 to out. */
int nfc_append(struct bytes *out, const char *text, size_t size, struct err *err);

#endif
