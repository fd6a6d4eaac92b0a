/* tray: one step being built, run and perhaps put down, with memory of its own.
 *
 * The scheduler has two, so that whole decode steps can run between the layers of a prefill
 * that was put down. Engine thread. */
#ifndef RUN_TRAY_H
#define RUN_TRAY_H

#include "blocks/step.h"
#include "util/region.h"

#include <stdbool.h>
#include <stdint.h>

struct err;
struct seq;

struct tray {
    struct step step;
    struct region region; /* owned; the arena's memory */
    struct arena arena;
    struct row *rows;          /* owned; [cap_rows] */
    struct seq **seqs;         /* owned; [cap_seqs]; whose rows they are */
    struct seq_state **states; /* owned; [cap_seqs] */
    uint32_t *n_rows_of;       /* owned; [cap_seqs] */
    bool *gone;                /* owned; [cap_seqs] */
    uint32_t cap_rows, cap_seqs;
    uint32_t n_prefill, n_decode; /* sequences of each kind */
    bool active;
    uint64_t spent_ns; /* inside forward, pauses left out */
};

int tray_open(struct tray *t, uint64_t scratch, uint32_t cap_rows, uint32_t cap_seqs,
              struct err *err);
void tray_close(struct tray *t); /* also on a zeroed struct */
uint64_t tray_size(uint64_t scratch, uint32_t cap_rows, uint32_t cap_seqs);

void tray_begin(struct tray *t);
/* The next n unseen tokens of s; room was checked. Logits are wanted of the last unseen token
 * and of what the request wants to look at. */
void tray_add(struct tray *t, struct seq *s, uint32_t n);
static inline uint32_t tray_room(const struct tray *t)
{
    return t->cap_rows - t->step.n_rows;
}
/* Its rows leave at the next layer; it stays. */
void tray_drop(struct tray *t, struct seq *s);
/* The same, and nobody waits for s any more. */
void tray_leave(struct tray *t, struct seq *s);
/* All its sequences are free again. */
void tray_end(struct tray *t);

#endif
