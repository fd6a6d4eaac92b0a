/* stream: one request that the engine works on, streamed or answered at once.
 *
 * The status line waits for the engine's ACCEPTED, so a full queue is an honest 503. A
 * streamed answer then starts at once with the role chunk, and a chunk without content keeps
 * it alive while nothing else flows. Text leaves as whole characters, a chat's taken apart into
 * reasoning, content and calls; where it ends before the engine knows, that is told or
 * cancelled. Several prompts run one after the other, and so do the choices of each. A stream is
 * the exchange's job. stream.c is its course, stream_read.c its beginning, stream_ask.c what the
 * engine is asked for, stream_text.c what it says, stream_say.c what the client is told. */
#ifndef DAEMON_STREAM_H
#define DAEMON_STREAM_H

#include "daemon/wire/link.h"

#include <microhttpd.h>

struct exchange;

/* Serve the body in x->body. */
enum MHD_Result stream_chat(struct exchange *x);
enum MHD_Result stream_completion(struct exchange *x);

/* The link's owner pointers are streams. */
extern const struct link_events stream_events;

#endif
