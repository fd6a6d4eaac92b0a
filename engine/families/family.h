/* family: what an architecture must be able to do.
 *
 * A vtable, because the choice is made once at load by config.json's model_type; inside
 * a family, plain calls into blocks. All functions belong to the engine thread. */
#ifndef FAMILIES_FAMILY_H
#define FAMILIES_FAMILY_H

#include "formats/json.h"
#include "store/catalog.h"
#include "store/shape.h"

#include <stdint.h>

struct err;
struct expert_map;
struct kv_pool;
struct kv_seq;
struct model;
struct resident;
struct row_store;
struct seq_state;
struct step;

/* Keys of config.json that are set but provably change nothing here. */
struct config_warnings {
    char text[8][160];
    uint32_t n;
};

struct model_parts { /* borrowed for the life of the model */
    const struct json *config;
    const struct model_shape *shape;
    const struct resident *resident;
    struct kv_pool *kv;
    struct row_store *const *tables; /* of n-grams, in the shape's order; NULL: it has none */
    uint32_t context;     /* tokens a sequence may hold */
    uint32_t logit_rows;  /* rows of logits at once; scratch_size was told the same */
    uint32_t max_step_sequences; /* sequences in one step at most */
};

struct family {
    const char *model_type; /* config.json "model_type" */
    const char *text_type;  /* of a save by the text class alone; NULL: there is no other */

    /* Config keys are an allow-list: what is unknown and set, or known and not built, is
     * refused by name. */
    int (*read_shape)(struct model_shape *out, struct config_warnings *warnings,
                      const struct json *config, struct err *err);
    want_each *each_tensor;
    /* ROLE_CONSTANT: whether what the checkpoint has is what is computed; ERR_FORMAT by name. NULL
     * where a family has none. */
    int (*check_constant)(const struct json *config, const struct tensor_want *want,
                          const int64_t *values, struct err *err);

    /* Bytes of scratch a step of n_rows needs, of sequences of at most `context` tokens, and the
     * part of it that holds per-choice expert outputs (a plan line of its own). */
    uint64_t (*scratch_size)(const struct model_shape *shape, uint32_t context, uint32_t n_rows,
                             uint32_t logit_rows, uint64_t *choices);

    int (*open)(struct model **out, const struct model_parts *parts, struct err *err);
    void (*close)(struct model *m);

    /* Per-sequence state. Opened once for each of the plan's sequences, then reused: pages
     * are taken by reserve and go back by seq_reset. */
    int (*seq_open)(struct seq_state **out, struct model *m, struct err *err);
    void (*seq_close)(struct seq_state *s);
    /* Makes room for n_tokens in all; 1 done, 0 the pool is empty (what was there stays). */
    int (*seq_reserve)(struct seq_state *s, uint32_t n_tokens);
    void (*seq_reset)(struct seq_state *s); /* no tokens, no pages */
    /* Back to how it was after its first n tokens, of which it has more: how many of them it could
     * keep, fewer where its state does not allow to go back just there. The rest are run again. */
    uint32_t (*seq_rewind)(struct seq_state *s, uint32_t n_tokens);

    /* A saved point: all of a sequence that cannot be cut back to its first tokens, after the last
     * settle. Keys and values are not in it: they stay in the pages, by token, and are good for as
     * long as the tokens before the point are the same. Plain bytes, of one size for a model; they
     * may outlive the sequence. Save and load outside of steps only. */
    uint64_t (*seq_saved_size)(const struct model *m);
    void (*seq_save)(const struct seq_state *s, void *to);
    /* As after the point's tokens, to the bit. The sequence must have that many tokens or more, or
     * pages with their keys and values; ERR_INPUT where it has no such pages, and nothing is
     * changed. */
    int (*seq_load)(struct seq_state *s, const void *from, struct err *err);
    /* Room for a saved point inside a sequence without tokens, until seq_reset. NULL: cutting back
     * is as good; or the function is. */
    void *(*seq_spare)(struct seq_state *s);
    /* Makes such a room of the sequence itself, with its own point in it: no tokens and no pages
     * are left. It may be loaded from there into the very sequence. NULL likewise. */
    void *(*seq_retire)(struct seq_state *s);
    struct kv_seq *(*seq_kv)(struct seq_state *s); /* its pages */

    /* Runs layers until done (0), put down (1), or failed (-1). A pause keeps step.hidden. */
    int (*forward)(struct model *m, struct step *step, struct err *err);
    /* Keep the first n of the rows that this sequence had in the last step: as before it with 0.
     * ERR_UNSUPPORTED where a state cannot be cut and n is neither 0 nor all. After a failed or
     * cancelled step the state is unusable until settle(s, 0). */
    int (*settle)(struct seq_state *s, uint32_t n_kept, struct err *err);
};

const struct family *family_find(const char *model_type); /* NULL: not built */
/* "qwen3_moe, qwen4_exp", for messages. */
const char *family_names(void);

#endif
