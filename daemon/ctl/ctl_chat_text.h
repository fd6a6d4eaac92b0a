/* ctl_chat_text: text of a model on its way to a person.
 *
 * Splits <think>...</think> off an answer, also where tags are cut over pieces, and makes what
 * a terminal would obey harmless. Both take whole UTF-8 and give whole UTF-8. Any thread. */
#ifndef DAEMON_CTL_CHAT_TEXT_H
#define DAEMON_CTL_CHAT_TEXT_H

#include "daemon/base/buf.h"

#include <stdbool.h>
#include <stddef.h>

enum chat_part {
    CHAT_THOUGHT,
    CHAT_ANSWER,
    CHAT_WAS_THOUGHT, /* no text: all of the answer so far was a thought, see below */
};

typedef void (*chat_part_put)(void *ctx, enum chat_part part, const char *text, size_t size);

/* <think> counts at the beginning of the answer alone: later the model may speak of the tag.
 * </think> without it also ends a thought, for some templates write the opening tag into the
 * prompt; then everything before was one, which can only be said afterwards. Line breaks next
 * to the tags belong to them. */
struct chat_think {
    enum { THINK_START, THINK_INSIDE, THINK_AFTER, THINK_ANSWER } at;
    bool opened, closed;
    bool trim; /* line breaks that come next belong to a tag */
    char held[16]; /* what may become a tag */
    size_t n_held;
};

void chat_think_put(struct chat_think *t, const char *text, size_t size, chat_part_put put,
                    void *ctx);
/* What is held back was no tag. */
void chat_think_end(struct chat_think *t, chat_part_put put, void *ctx);

/* Appends text with its control characters shown instead of sent: ESC becomes U+241B, DEL
 * U+2421, C1 and the overrides of writing direction <U+009B>; CR LF becomes LF, a lone CR
 * U+240D. LF and tab stay. What is no UTF-8 becomes U+FFFD. */
void chat_harmless(struct buf *to, const char *text, size_t size);

#endif
