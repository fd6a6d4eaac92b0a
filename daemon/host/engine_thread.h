/* engine_thread: the one thread that calls the engine, and the two rings that lead to it.
 *
 * The door puts orders in and takes words out; neither side waits for the other's work. Every
 * SUBMIT is answered by ACCEPTED or REFUSED, and after ACCEPTED by one last word: FINISHED without
 * more, FAILED, or GONE for a request that was cancelled. GONE comes once for every CANCEL, also
 * when the request ended before. Each choice has one FINISHED, whether NEXT ended it or not. An ADJUST is obeyed between layers, or when the engine is open;
 * there is one at a time. With nothing to do the thread sleeps on its ring. */
#ifndef DAEMON_ENGINE_THREAD_H
#define DAEMON_ENGINE_THREAD_H

#include "colizig.h"

#include <stdbool.h>
#include <stdint.h>

struct engine_thread;
struct wire_submit;

enum engine_order_kind { ORDER_SUBMIT, ORDER_CANCEL, ORDER_NEXT, ORDER_ADJUST, ORDER_LOOK,
                         ORDER_PLACES, ORDER_STOP };

enum { ENGINE_LOOKS = 8 }; /* under way at once: the ring of orders has room for so many */

struct engine_places { /* of requests in the queue */
    uint32_t n;
    struct {
        uint64_t id;
        uint32_t place; /* filled in by the engine thread; 0: it runs, or is gone */
    } of[];
};

struct engine_order {
    enum engine_order_kind kind;
    uint32_t top;   /* LOOK: how many of the hottest experts */
    uint32_t choice; /* NEXT */
    uint64_t id;    /* SUBMIT, CANCEL, NEXT, ADJUST; LOOK: comes back with LOOKED */
    struct cz_limits limits; /* ADJUST */
    struct engine_places *places; /* PLACES: malloc'd, comes back with PLACED */
    struct wire_submit *submit; /* SUBMIT: checked, with its arrays; malloc'd, taken over */
};

enum engine_word_kind {
    WORD_LOADING, /* percent */
    WORD_READY,   /* engine_thread_facts may be called */
    WORD_ACCEPTED,
    WORD_REFUSED,
    WORD_PROGRESS,
    WORD_TOKEN,
    WORD_FINISHED,
    WORD_FAILED,
    WORD_GONE,
    WORD_LOOKED,  /* to LOOK, between two layers: look */
    WORD_PLACED,  /* to PLACES, likewise: places */
    WORD_ADJUSTED, /* error: ERR_NONE when engine_thread_facts shows the new plan, else text */
    WORD_CHANGED, /* the model's files: no request will succeed any more; error, text */
    WORD_BROKEN,  /* the engine cannot go on, or could not open: error, text */
    WORD_STOPPED,
};

/* What only the engine thread can see; one block of memory. */
struct engine_look {
    uint32_t n_layers, n_hottest;
    struct cz_expert_layer *layers; /* [n_layers], rising */
    struct cz_expert_heat *hottest; /* [n_hottest], hottest first */
};

struct engine_word {
    enum engine_word_kind kind;
    enum err_kind error; /* REFUSED, FAILED, ADJUSTED, CHANGED, BROKEN */
    uint64_t id;
    uint32_t percent;         /* LOADING */
    uint32_t place;           /* ACCEPTED */
    uint32_t retry_after_s;   /* REFUSED */
    uint32_t token;           /* TOKEN */
    uint32_t choice;          /* TOKEN, FINISHED */
    bool more;                /* FINISHED: another choice follows, this is not the last word */
    uint32_t n_done, n_total; /* PROGRESS */
    enum cz_finish finish;    /* FINISHED */
    struct cz_usage usage;    /* FINISHED, FAILED */
    struct cz_logprobs *logprobs; /* TOKEN, when told: malloc'd, the taker frees */
    struct engine_look *look; /* LOOKED: malloc'd, the taker frees; NULL: no memory for it */
    struct engine_places *places; /* PLACED: malloc'd, the taker frees */
    char *text;               /* where there is an error: malloc'd, the taker frees; may be NULL */
    struct cz_plan *plan;     /* of ADJUSTED; the door never sees it */
};

/* What is fixed once the engine is open, but for the plan, which ADJUSTED brings anew. */
struct engine_facts {
    struct cz_facts facts;
    struct cz_model_info info;
    struct cz_plan plan;
    int64_t created; /* Unix seconds */
};

/* Starts the thread, which opens the engine at once. opt is copied; its model_dir is borrowed
 * until engine_thread_close. max_live: requests the door lets in at once. */
int engine_thread_open(struct engine_thread **out, const struct cz_options *opt,
                       uint32_t max_live, struct err *err);
/* After WORD_STOPPED or WORD_BROKEN: joins the thread. NULL is fine. */
void engine_thread_close(struct engine_thread *t);

/* The rest is for the door's thread. */
/* False when the ring is full. */
bool engine_thread_order(struct engine_thread *t, const struct engine_order *order);
bool engine_thread_word(struct engine_thread *t, struct engine_word *out);
int engine_thread_fd(const struct engine_thread *t); /* readable when words wait */
void engine_thread_drain_fd(struct engine_thread *t);
/* As of the last layer. */
void engine_thread_stats(const struct engine_thread *t, struct cz_stats *out);
/* Reads from drives that have ended, as of now: also while it loads and within a layer. */
uint64_t engine_thread_reads(const struct engine_thread *t);
const struct engine_facts *engine_thread_facts(const struct engine_thread *t); /* after READY */

#endif
