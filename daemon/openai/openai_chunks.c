/* The chunks of a streamed answer, each one SSE event. */
#include "daemon/openai/openai_out_parts.h"

#include <inttypes.h>

static void begin_chunk(struct buf *to, const struct openai_reply *r)
{
    buf_text(to, "data: ");
    openai_put_head(to, r, true);
}

static void end_chunk(struct buf *to, const struct openai_reply *r)
{
    buf_text(to, r->include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
}

/* ,"choices":[{"index":0,"delta":{ or ,"text": */
static void begin_choice(struct buf *to, const struct openai_reply *r, uint32_t index)
{
    begin_chunk(to, r);
    buf_printf(to, ",\"choices\":[{\"index\":%" PRIu32, index);
    buf_text(to, r->kind == OPENAI_COMPLETION ? ",\"text\":" : ",\"delta\":{");
}

/* Takes what logprobs holds. */
static void end_choice(struct buf *to, const struct openai_reply *r, const char *finish,
                       struct openai_logprobs *logprobs)
{
    if (r->kind == OPENAI_CHAT)
        buf_text(to, "}");
    openai_put_logprobs(to, r, logprobs && logprobs->n ? logprobs : NULL);
    if (logprobs)
        openai_logprobs_clear(logprobs);
    buf_text(to, ",\"finish_reason\":");
    buf_json_text(to, finish);
    buf_text(to, "}]");
}

/* A choice in which nothing is said. */
static void put_silence(struct buf *to, const struct openai_reply *r, uint32_t index,
                        const char *finish, struct openai_logprobs *logprobs)
{
    begin_choice(to, r, index);
    if (r->kind == OPENAI_COMPLETION)
        buf_text(to, "\"\"");
    end_choice(to, r, finish, logprobs);
}

/* ---- what is said ---- */

void openai_out_role(struct buf *to, const struct openai_reply *r, uint32_t index)
{
    begin_choice(to, r, index);
    buf_text(to, "\"role\":\"assistant\",\"content\":\"\"");
    end_choice(to, r, NULL, NULL);
    end_chunk(to, r);
}

static void end_delta(struct buf *to, const struct openai_reply *r)
{
    if (r->running)
        openai_put_timings(to, r->running);
    end_chunk(to, r);
}

static void put_delta(struct buf *to, const struct openai_reply *r, uint32_t index,
                      const char *before, const char *text, size_t size,
                      struct openai_logprobs *logprobs)
{
    begin_choice(to, r, index);
    buf_text(to, before);
    buf_json(to, text, size);
    end_choice(to, r, NULL, logprobs);
    end_delta(to, r);
}

void openai_out_delta(struct buf *to, const struct openai_reply *r, uint32_t index,
                      const char *text, size_t size, struct openai_logprobs *logprobs)
{
    put_delta(to, r, index, r->kind == OPENAI_COMPLETION ? "" : "\"content\":", text, size, logprobs);
}

void openai_out_reasoning(struct buf *to, const struct openai_reply *r, uint32_t index,
                          const char *text, size_t size)
{
    put_delta(to, r, index, "\"reasoning_content\":", text, size, NULL);
}

/* id, type and name come once: clients that join what chunks hold would double them. */
void openai_out_call(struct buf *to, const struct openai_reply *r, uint32_t index, uint32_t call,
                     const char *id, const char *name, size_t size)
{
    begin_choice(to, r, index);
    if (r->legacy_call)
        buf_text(to, "\"function_call\":{\"name\":");
    else
        buf_printf(to, "\"tool_calls\":[{\"index\":%" PRIu32 ",\"id\":\"%s\",\"type\":\"function\","
                   "\"function\":{\"name\":", call, id);
    buf_json(to, name, size);
    buf_text(to, r->legacy_call ? ",\"arguments\":\"\"}" : ",\"arguments\":\"\"}}]");
    end_choice(to, r, NULL, NULL);
    end_delta(to, r);
}

void openai_out_arguments(struct buf *to, const struct openai_reply *r, uint32_t index,
                          uint32_t call, const char *text, size_t size)
{
    begin_choice(to, r, index);
    if (r->legacy_call)
        buf_text(to, "\"function_call\":{\"arguments\":");
    else
        buf_printf(to, "\"tool_calls\":[{\"index\":%" PRIu32 ",\"function\":{\"arguments\":", call);
    buf_json(to, text, size);
    buf_text(to, r->legacy_call ? "}" : "}}]");
    end_choice(to, r, NULL, NULL);
    end_delta(to, r);
}

/* ---- what is not ---- */

void openai_out_noop(struct buf *to, const struct openai_reply *r, uint32_t index,
                     const struct openai_progress *p)
{
    put_silence(to, r, index, NULL, NULL);
    if (p) {
        uint32_t done = p->processed > p->cached ? p->processed - p->cached : 0;
        uint32_t left = p->total > p->processed ? p->total - p->processed : 0;
        buf_printf(to, ",\"prompt_progress\":{\"total\":%" PRIu32 ",\"cache\":%" PRIu32
                   ",\"processed\":%" PRIu32 ",\"time_ms\":%" PRIu64 ",\"eta_ms\":%" PRIu64 "}",
                   p->total, p->cached, p->processed, p->time_ms,
                   done ? p->time_ms * left / done : 0);
    }
    end_chunk(to, r);
}

void openai_out_finish(struct buf *to, const struct openai_reply *r, uint32_t index,
                       const char *reason, struct openai_logprobs *logprobs,
                       const struct openai_usage *usage)
{
    put_silence(to, r, index, reason, logprobs);
    if (usage)
        openai_put_timings(to, usage);
    end_chunk(to, r);
}

void openai_out_usage(struct buf *to, const struct openai_reply *r, const struct openai_usage *u)
{
    begin_chunk(to, r);
    buf_text(to, ",\"choices\":[]");
    openai_put_usage(to, u);
    openai_put_timings(to, u);
    buf_text(to, "}\n\n");
}

void openai_out_done(struct buf *to)
{
    buf_text(to, "data: [DONE]\n\n");
}

void openai_out_error(struct buf *to, const struct api_error *e)
{
    buf_text(to, "data: ");
    api_error_write(to, e);
    buf_text(to, "\n\n");
    openai_out_done(to);
}
