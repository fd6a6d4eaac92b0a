/* ctl_chat_draw: how a chat looks.
 *
 * Answers go to one stream, everything else (thoughts, notes, one line of status) to another;
 * on a terminal both are the same. Thoughts stand in a grey box as wide as the terminal. What
 * comes from the model or the server is made harmless on its way (chat_harmless). Status is a
 * line that the next thing overwrites; it is shown on terminals alone. One thread. */
#ifndef DAEMON_CTL_CHAT_DRAW_H
#define DAEMON_CTL_CHAT_DRAW_H

#include "daemon/base/buf.h"
#include "daemon/ctl/ctl_chat_text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct chat_draw {
    FILE *answers;
    FILE *notes; /* NULL: nothing but answers */
    bool exact;  /* answers are passed on byte for byte: they go to a file or a pipe */
    bool terminal, colour; /* of notes */
    unsigned columns;      /* of notes; 0: lines are not broken */

    bool status_shown, in_box;
    uint64_t opened_ns; /* the box */
    int write_error; /* errno of an answer that could not be written; 0: none */
    char last;     /* byte of the answer; 0: none yet */
    unsigned used; /* columns of the box's line */
    struct buf word; /* owned: of the box, not yet written */
    struct buf safe; /* owned: scratch */
};

void chat_draw_init(struct chat_draw *d, FILE *answers, FILE *notes);
void chat_draw_done(struct chat_draw *d); /* leaves the terminal as it should be */
void chat_draw_measure(struct chat_draw *d); /* the terminal's width may have changed */

void chat_draw_part(struct chat_draw *d, enum chat_part part, const char *text, size_t size);
/* Closes the box, ends the answer's line. */
void chat_draw_end(struct chat_draw *d);

void chat_draw_status(struct chat_draw *d, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void chat_draw_no_status(struct chat_draw *d);
void chat_draw_note(struct chat_draw *d, const char *fmt, ...) /* grey, a line */
    __attribute__((format(printf, 2, 3)));
void chat_draw_fault(struct chat_draw *d, const char *fmt, ...) /* red, a line; never silent */
    __attribute__((format(printf, 2, 3)));
/* False once nobody takes what is written. */
bool chat_draw_flush(struct chat_draw *d);
/* Whether all answers were written; says so where not, unless their reader just left. */
bool chat_draw_all_written(struct chat_draw *d);

#endif
