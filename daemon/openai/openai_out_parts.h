/* openai_out_parts: what chunks and whole replies have in common. Private to openai_out. */
#ifndef DAEMON_OPENAI_OUT_PARTS_H
#define DAEMON_OPENAI_OUT_PARTS_H

#include "daemon/openai/openai_out.h"

/* {"id":... up to and including system_fingerprint, without a comma after it. */
void openai_put_head(struct buf *to, const struct openai_reply *r, bool chunk);
/* Each with a comma before it. */
void openai_put_usage(struct buf *to, const struct openai_usage *usage);
void openai_put_timings(struct buf *to, const struct openai_usage *usage);
void openai_put_logprobs(struct buf *to, const struct openai_reply *r,
                         const struct openai_logprobs *l); /* null where l is NULL */

#endif
