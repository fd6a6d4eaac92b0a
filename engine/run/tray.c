#include "run/tray.h"

#include "run/seq.h"
#include "util/err.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

uint64_t tray_size(uint64_t scratch, uint32_t cap_rows, uint32_t cap_seqs)
{
    return region_size(scratch, REGION_HUGE) + cap_rows * sizeof(struct row) +
           cap_seqs * (sizeof(struct seq *) + sizeof(struct seq_state *) + sizeof(uint32_t) +
                       sizeof(bool));
}

int tray_open(struct tray *t, uint64_t scratch, uint32_t cap_rows, uint32_t cap_seqs,
              struct err *err)
{
    *t = (struct tray){ .cap_rows = cap_rows, .cap_seqs = cap_seqs };
    t->rows = calloc(cap_rows, sizeof *t->rows);
    t->seqs = calloc(cap_seqs, sizeof *t->seqs);
    t->states = calloc(cap_seqs, sizeof *t->states);
    t->n_rows_of = calloc(cap_seqs, sizeof *t->n_rows_of);
    t->gone = calloc(cap_seqs, sizeof *t->gone);
    if (!t->rows || !t->seqs || !t->states || !t->n_rows_of || !t->gone) {
        err_set(err, ERR_NOMEM, "a step of %u rows", cap_rows);
        goto fail;
    }
    if (region_open(&t->region, scratch, REGION_HUGE, err) < 0)
        goto fail;
    arena_init(&t->arena, t->region.base, t->region.size);
    return 0;

fail:
    tray_close(t);
    return -1;
}

void tray_close(struct tray *t)
{
    region_close(&t->region);
    free(t->gone);
    free(t->n_rows_of);
    free(t->states);
    free(t->seqs);
    free(t->rows);
    *t = (struct tray){ 0 };
}

void tray_begin(struct tray *t)
{
    assert(!t->active);
    arena_back(&t->arena, 0);
    t->active = true;
    t->n_prefill = t->n_decode = 0;
    t->spent_ns = 0;
    t->step.rows = t->rows;
    t->step.states = t->states;
    t->step.gone = t->gone;
    t->step.n_rows = t->step.n_states = 0;
    t->step.next_layer = 0;
    t->step.hidden = NULL;
    t->step.scratch = &t->arena;
    memset(t->step.phase_ns, 0, sizeof t->step.phase_ns);
}

void tray_add(struct tray *t, struct seq *s, uint32_t n)
{
    uint32_t index = t->step.n_states++;

    assert(index < t->cap_seqs && n <= tray_room(t) && n <= seq_unseen(s) && !s->tray);
    if (seq_unseen(s) > 1)
        t->n_prefill++;
    else
        t->n_decode++;
    t->seqs[index] = s;
    t->states[index] = s->state;
    t->n_rows_of[index] = n;
    t->gone[index] = false;
    s->tray = t;
    s->tray_index = index;
    s->picked = false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t pos = s->n_seen + i;
        t->rows[t->step.n_rows++] = (struct row){
            .token = s->tokens[pos],
            .pos = pos,
            .seq = (uint16_t)index,
            .want_logits = pos + 1 == s->n_tokens || (s->take_logits && pos >= s->logits_from),
        };
    }
}

void tray_drop(struct tray *t, struct seq *s)
{
    t->gone[s->tray_index] = true;
}

void tray_leave(struct tray *t, struct seq *s)
{
    tray_drop(t, s);
    s->cancelled = true;
}

void tray_end(struct tray *t)
{
    for (uint32_t i = 0; i < t->step.n_states; i++)
        t->seqs[i]->tray = NULL;
    t->step.n_states = t->step.n_rows = 0;
    t->active = false;
}
