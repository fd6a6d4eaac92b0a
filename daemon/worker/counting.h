/* counting: what a worker tells the engine's door for /metrics.
 *
 * A worker holds nothing that outlives a connection, so what is to be summed up leaves it as a
 * message the moment it is known. Nothing of a request's text goes along. Worker's thread. */
#ifndef DAEMON_COUNTING_H
#define DAEMON_COUNTING_H

#include "daemon/wire/wire.h"

struct api_error;
struct exchange;
struct stream;

/* A request is over, however it ended. */
void counting_request(const struct exchange *x);
/* How a refusal is summed up; REJECT_NONE for what failed after it began. */
enum wire_reject counting_reject(const struct api_error *e);

/* What a generation has brought so far; not more often than once a second. */
void counting_tokens(struct stream *s);
/* A generation that the engine was asked for is over. usage NULL: there are no figures. own:
 * they are the worker's. Does nothing when it was counted before, or never asked for. */
void counting_end(struct stream *s, enum wire_end end, const struct cz_usage *usage, bool own);

#endif
