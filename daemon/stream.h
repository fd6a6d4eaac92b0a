/* stream: one request that the engine works on, streamed or answered at once.
 *
 * The status line waits for the engine's ACCEPTED, so a full queue is an honest 503. A
 * streamed answer then starts at once with the role chunk, and a chunk without content keeps
 * it alive while nothing else flows. Text leaves as whole characters; a stop string is found
 * here and ends the engine's work with a cancel. Several prompts run one after the other. */
#ifndef DAEMON_STREAM_H
#define DAEMON_STREAM_H

#include "daemon/link.h"

#include <microhttpd.h>

struct exchange;
struct stream;

/* Serve the body in x->body. */
enum MHD_Result stream_chat(struct exchange *x);
enum MHD_Result stream_completion(struct exchange *x);

/* After a suspension: the answer is known. */
enum MHD_Result stream_resumed(struct stream *s);
void stream_client_gone(struct stream *s); /* stops the engine's work */
void stream_close(struct stream *s);       /* also cancels; NULL is fine */
/* Time is up at a drain: ends with an error. */
void stream_give_up(struct stream *s);

/* The link's owner pointers are streams. */
extern const struct link_events stream_events;

#endif
