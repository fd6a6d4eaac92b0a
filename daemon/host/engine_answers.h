/* engine_answers: the engine's side of the admin socket.
 *
 * A question is a JSON line, {"cmd":"cancel","request":"req_..."}, that the supervisor has
 * checked and relayed with ASK. What the door knows (counters of the last layer, plan, model,
 * the list of requests) is answered at once; what only the engine thread sees waits for the
 * end of the layer under way. Door's thread. */
#ifndef DAEMON_ENGINE_ANSWERS_H
#define DAEMON_ENGINE_ANSWERS_H

#include "util/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct engine_thread;
struct engine_word;
struct recall_store;
struct requests;

struct engine_answers {
    /* Set by the host. */
    struct engine_thread *engine; /* borrowed, like all here */
    struct requests *requests;
    const struct recall_store *recall;
    bool loaded; /* the engine is open */
    void *ctx;
    void (*answer)(void *ctx, uint64_t id, enum err_kind kind, const char *text, size_t size);
    /* Ends every request of that name as the administrator wishes. How many there were. */
    uint32_t (*cancel)(void *ctx, const char *name);
    /* Its own. */
    uint32_t n_looks; /* LOOK orders under way */
};

/* Answers now, or when the engine thread has looked. */
void engine_answers_ask(struct engine_answers *a, uint64_t id, const char *question, size_t size);
void engine_answers_looked(struct engine_answers *a, const struct engine_word *word);

#endif
