#include "daemon/openai_out.h"

#include <inttypes.h>
#include <string.h>
#include <sys/random.h>

void openai_out_random(char *out, size_t n)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

    for (size_t at = 0; at < n;) {
        unsigned char bytes[64];
        if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
            continue; /* interrupted before the pool was ready */
        for (size_t i = 0; i < sizeof bytes && at < n; i++)
            if (bytes[i] < 62 * 4) /* the rest would favour the first digits */
                out[at++] = digits[bytes[i] % 62];
    }
    out[n] = '\0';
}

/* {"id":... up to and including system_fingerprint, without a comma after it. */
static void put_head(struct buf *to, const struct openai_reply *r, bool chunk)
{
    buf_printf(to, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", r->id,
               r->kind == OPENAI_COMPLETION ? "text_completion"
               : chunk                      ? "chat.completion.chunk"
                                            : "chat.completion",
               r->created);
    buf_json_text(to, r->model);
    buf_printf(to, ",\"system_fingerprint\":\"fp_%010" PRIx64 "\"",
               r->fingerprint & 0xffffffffffu);
    if (r->service_tier)
        buf_text(to, ",\"service_tier\":\"default\"");
}

static double ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

static double per_second(uint32_t n, uint64_t ns)
{
    return ns ? (double)n * 1e9 / (double)ns : 0;
}

static double per_token_ms(uint32_t n, uint64_t ns)
{
    return n ? ms(ns) / n : 0;
}

static void put_usage(struct buf *to, const struct cz_usage *u)
{
    buf_printf(to, ",\"usage\":{\"prompt_tokens\":%" PRIu32 ",\"completion_tokens\":%" PRIu32
               ",\"total_tokens\":%" PRIu64, u->n_prompt, u->n_generated,
               (uint64_t)u->n_prompt + u->n_generated);
    buf_printf(to, ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu32
               ",\"audio_tokens\":0}", u->n_cached);
    buf_text(to, ",\"completion_tokens_details\":{\"reasoning_tokens\":0,\"audio_tokens\":0,"
                 "\"accepted_prediction_tokens\":0,\"rejected_prediction_tokens\":0}}");
}

/* llama-server's names; prompt_n + cache_n = prompt_tokens. */
static void put_timings(struct buf *to, const struct cz_usage *u)
{
    uint32_t n = u->n_prompt - u->n_cached;

    buf_printf(to, ",\"timings\":{\"cache_n\":%" PRIu32 ",\"prompt_n\":%" PRIu32
               ",\"prompt_ms\":%.3f,\"prompt_per_token_ms\":%.3f,\"prompt_per_second\":%.3f",
               u->n_cached, n, ms(u->prefill_ns), per_token_ms(n, u->prefill_ns),
               per_second(n, u->prefill_ns));
    buf_printf(to, ",\"predicted_n\":%" PRIu32 ",\"predicted_ms\":%.3f"
               ",\"predicted_per_token_ms\":%.3f,\"predicted_per_second\":%.3f"
               ",\"queue_ms\":%.3f}",
               u->n_generated, ms(u->decode_ns), per_token_ms(u->n_generated, u->decode_ns),
               per_second(u->n_generated, u->decode_ns), ms(u->queue_ns));
}

/* ---- stream ---- */

static void begin_chunk(struct buf *to, const struct openai_reply *r)
{
    buf_text(to, "data: ");
    put_head(to, r, true);
}

static void end_chunk(struct buf *to, const struct openai_reply *r)
{
    buf_text(to, r->include_usage ? ",\"usage\":null}\n\n" : "}\n\n");
}

/* One choice. role and text may be NULL. */
static void put_choice(struct buf *to, const struct openai_reply *r, uint32_t index,
                       const char *role, const char *text, size_t size, const char *finish)
{
    buf_printf(to, ",\"choices\":[{\"index\":%" PRIu32, index);
    if (r->kind == OPENAI_COMPLETION) {
        buf_text(to, ",\"text\":");
        buf_json(to, text ? text : "", size);
    } else {
        buf_text(to, ",\"delta\":{");
        if (role)
            buf_printf(to, "\"role\":\"%s\",", role);
        if (text) {
            buf_text(to, "\"content\":");
            buf_json(to, text, size);
        }
        buf_text(to, "}");
    }
    buf_text(to, ",\"logprobs\":null,\"finish_reason\":");
    buf_json_text(to, finish);
    buf_text(to, "}]");
}

void openai_out_role(struct buf *to, const struct openai_reply *r)
{
    begin_chunk(to, r);
    put_choice(to, r, 0, "assistant", "", 0, NULL);
    end_chunk(to, r);
}

void openai_out_delta(struct buf *to, const struct openai_reply *r, uint32_t index,
                      const char *text, size_t size)
{
    begin_chunk(to, r);
    put_choice(to, r, index, NULL, text, size, NULL);
    end_chunk(to, r);
}

void openai_out_noop(struct buf *to, const struct openai_reply *r, uint32_t index,
                     const struct openai_progress *p)
{
    begin_chunk(to, r);
    put_choice(to, r, index, NULL, NULL, 0, NULL);
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
                       const char *reason, const struct cz_usage *usage)
{
    begin_chunk(to, r);
    put_choice(to, r, index, NULL, NULL, 0, reason);
    if (usage)
        put_timings(to, usage);
    end_chunk(to, r);
}

void openai_out_usage(struct buf *to, const struct openai_reply *r, const struct cz_usage *usage)
{
    begin_chunk(to, r);
    buf_text(to, ",\"choices\":[]");
    put_usage(to, usage);
    put_timings(to, usage);
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

/* ---- all at once ---- */

static void put_whole_choice(struct buf *to, enum openai_kind kind, uint32_t index,
                             const struct openai_choice *c)
{
    buf_printf(to, "{\"index\":%" PRIu32, index);
    if (kind == OPENAI_COMPLETION) {
        buf_text(to, ",\"text\":");
        buf_json(to, c->text.data, c->text.size);
    } else {
        buf_text(to, ",\"message\":{\"role\":\"assistant\",\"content\":");
        buf_json(to, c->text.data, c->text.size);
        buf_text(to, ",\"refusal\":null,\"annotations\":[]}");
    }
    buf_text(to, ",\"logprobs\":null,\"finish_reason\":");
    buf_json_text(to, c->finish);
    buf_text(to, "}");
}

void openai_out_reply(struct buf *to, const struct openai_reply *r,
                      const struct openai_choice *choices, uint32_t n,
                      const struct cz_usage *usage)
{
    put_head(to, r, false);
    buf_text(to, ",\"choices\":[");
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0)
            buf_text(to, ",");
        put_whole_choice(to, r->kind, i, &choices[i]);
    }
    buf_text(to, "]");
    put_usage(to, usage);
    put_timings(to, usage);
    buf_text(to, "}");
}
