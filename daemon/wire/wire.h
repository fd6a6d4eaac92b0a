/* wire: messages between our own processes.
 *
 * Both ends are the same binary, so structs need no versioning; still every type, size and
 * count is checked before a field is used, and a malformed message ends the channel: one
 * side may be a worker that a client broke into. A frame is a head, a fixed struct of its
 * type, then that struct's trailing arrays. Any thread. */
#ifndef DAEMON_WIRE_H
#define DAEMON_WIRE_H

#include "colizig.h"
#include "daemon/wire/wire_reply.h"
#include "text/reply.h"

#include <stddef.h>
#include <stdint.h>

enum wire_type {
    WIRE_HELLO = 1, /* engine -> worker */
    WIRE_SUBMIT,    /* worker -> engine */
    WIRE_CANCEL,
    WIRE_ACCEPTED, /* engine -> worker */
    WIRE_REFUSED,
    WIRE_PROGRESS,
    WIRE_TOKENS,
    WIRE_FINISHED,
    WIRE_FAILED,
    WIRE_READY, /* child -> supervisor */
    WIRE_STATUS,
    WIRE_PULSE,
    WIRE_PEER, /* supervisor -> child */
    WIRE_DRAIN,
    WIRE_ADJUST,
    WIRE_ASK, /* supervisor -> engine */
    WIRE_ANSWER,
    WIRE_LOST, /* engine -> supervisor: that worker no longer reads, or talks nonsense */
    WIRE_COUNT,        /* worker -> engine: what outlives a connection is counted there */
    WIRE_METRICS,      /* worker -> engine: all of it as text, please */
    WIRE_METRICS_TEXT, /* engine -> worker, by the same id */
    WIRE_NEXT, /* worker -> engine: enough of this choice */
    WIRE_REMEMBER, /* worker -> engine: a reply that has ended; wire_reply.h */
    WIRE_RECALL,   /* worker -> engine: which of these are known? */
    WIRE_RECALLED, /* engine -> worker, by the same id */
    WIRE_N_TYPES,
};

enum { WIRE_MAX_FRAME = 16 << 20 };

enum { WIRE_FLAG_FD = 1 }; /* a descriptor comes with the frame; set by channel_send */

struct wire_head {
    uint32_t size; /* counts the head */
    uint16_t type;
    uint16_t flags;
    uint64_t id; /* the request, unique on its channel; 0 where there is none */
};

struct wire_hello {
    uint32_t vocab, context, max_queue;
    uint32_t n_stop_ids, stop_ids[16];
    struct cz_sampling defaults;
    uint64_t fingerprint, tokenizer; /* as in struct cz_facts */
    uint64_t n_params, weight_bytes; /* for /v1/models */
    int64_t created;                 /* when the model was loaded, Unix seconds */
    uint32_t state;                  /* enum wire_engine_state */
    uint32_t percent;                /* while loading */
    uint32_t running, waiting;       /* requests of all workers, a second ago at most */
    uint64_t prefill_ns_per_token, decode_ns_per_token; /* as in struct cz_stats; 0: unknown */
    struct sip_sum secret; /* keys of replies that are remembered are hashed with it */
    uint32_t reply_most;   /* bytes of one such reply; 0: none are remembered */
    char fault[200];                 /* ENGINE_FAILED: why, zero-terminated */
};

/* HELLO comes again whenever the state or the load changes, or loading moved on. */
enum wire_engine_state { ENGINE_LOADING, ENGINE_READY, ENGINE_DRAINING, ENGINE_FAILED };

/* then uint32_t prompt[], stop_ids[], closing[], forced[], forced_behind[]; struct cz_bias bias[] */
struct wire_submit {
    uint64_t client;  /* who takes turns with whom in the queue; cz_request.client */
    char request[40]; /* "req_...", and "127.0.0.1": for lists and logs; zero-terminated */
    char address[48];
    uint32_t n_prompt, max_tokens, min_tokens, n_stop_ids, n_bias;
    uint32_t n_choices, uncached, logprobs, n_top; /* as in struct cz_request; yes or no: 1 or 0 */
    uint32_t think_open, think_close, think_inside, think_may_open, think_budget;
    uint32_t think_call, think_call_closes;
    uint32_t n_closing, n_forced, n_forced_behind;
    struct cz_sampling sampling;
};

struct wire_accepted {
    uint32_t place; /* in the queue; 0 runs at once */
};

struct wire_refused { /* then char text[] */
    uint32_t kind;    /* enum err_kind */
    uint32_t retry_after_s;
    uint32_t text_size;
};

struct wire_progress {
    uint32_t n_done, n_total;
    uint32_t n_cached; /* of those done */
};

struct wire_tokens { /* then uint32_t tokens[n]; struct cz_logprobs [n], or none of them */
    uint32_t n, choice;
    uint32_t logprobs; /* 1: they are there */
};

struct wire_finished {
    uint32_t reason; /* enum cz_finish */
    uint32_t choice;
    uint32_t more; /* 1: another choice follows */
    struct cz_usage usage;
};

struct wire_next {
    uint32_t choice;
};

struct wire_failed { /* then char text[] */
    uint32_t kind;
    struct cz_usage usage;
    uint32_t text_size;
};

struct wire_ready { /* what narrows the child: struct sandbox */
    uint32_t landlock;
    uint32_t seccomp;
};

struct wire_text { /* STATUS, ASK, METRICS_TEXT: then char text[] */
    uint32_t size;
};

/* To an ASK or an ADJUST, by its id: JSON data, or a message when kind is not ERR_NONE. */
struct wire_answer { /* then char text[] */
    uint32_t kind;   /* enum err_kind */
    uint32_t text_size;
};

struct wire_pulse {
    uint64_t layers, reads;
    uint64_t planned, ram; /* total and budget of the plan; 0 until the model is loaded */
    uint32_t running, waiting;
    uint32_t state; /* the engine's, enum wire_engine_state */
    uint32_t connections; /* a worker's; running counts its requests */
};

struct wire_peer { /* PEER with one descriptor, LOST without; slot and life of a worker */
    uint32_t slot, generation;
};

/* STOP: the service ends, and says so to whoever asks. REPLACE: another one comes; a worker serves
 * what its connections still bring, an engine finishes what it has accepted. */
enum wire_drain_mode { DRAIN_STOP, DRAIN_REPLACE };

struct wire_drain {
    uint32_t deadline_ms;
    uint32_t mode; /* enum wire_drain_mode */
};

/* With id 0 only the log level counts and no ANSWER comes. */
struct wire_adjust {
    uint64_t ram;   /* memory.ram; 0: as it is. Workers do not look at it, nor at the queue */
    uint32_t queue; /* engine.queue */
    int32_t log_level;
    uint32_t workers, connections; /* what workers take, for the engine's plan; 0: as it is */
    uint64_t buffer;
};

/* One HTTP request, the end of one generation, or what it generated meanwhile. */
enum wire_count_kind { COUNT_HTTP, COUNT_END, COUNT_TOKENS };
enum { WIRE_MAX_ROUTES = 64 };
enum wire_method { METHOD_OTHER, METHOD_GET, METHOD_HEAD, METHOD_POST, METHOD_OPTIONS, N_METHODS };
enum wire_reject { /* of a generation that never began */
    REJECT_NONE,
    REJECT_INVALID,
    REJECT_CONTEXT,
    REJECT_FULL, /* queue, buffers or connections */
    REJECT_LOADING,
    REJECT_UNAVAILABLE, /* the engine is down, or the server drains */
    N_REJECTS
};
enum wire_end { END_STOP, END_LENGTH, END_TOOL_CALLS, END_CANCELLED, END_ERROR, N_ENDS };
enum wire_token_kind { TOKENS_CONTENT, TOKENS_REASONING, TOKENS_TOOL, N_TOKEN_KINDS };
enum wire_phase { PHASE_QUEUE, PHASE_PREFILL, PHASE_DECODE, N_PHASES };

struct wire_count {
    uint32_t kind;                  /* enum wire_count_kind */
    uint32_t route, method, status; /* HTTP: an index of routes.h; status 0: none was sent */
    uint32_t reject;
    uint32_t end, phase; /* END; the phase is of one that was cancelled */
    uint32_t own;        /* END: the worker's own figures, which do not know the queue */
    uint64_t duration_us; /* of either */
    uint64_t first_us;    /* END: to the first token; 0: none came */
    uint32_t tokens[N_TOKEN_KINDS]; /* END and TOKENS: since the last time */
    uint32_t style, n_calls;        /* END and TOKENS: of tools; enum reply_style */
    uint32_t repairs[N_REPLY_REPAIRS];
    struct cz_usage usage;
};

/* What can be said of a head before its body is there. */
int wire_check_head(const struct wire_head *head, struct err *err);
/* Checks head and body of a whole frame against its type's struct and counts. */
int wire_check(const struct wire_head *head, const void *body, size_t size, struct err *err);

#endif
