#include "daemon/openai/openai_out_parts.h"

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

void openai_out_call_id(char out[OPENAI_CALL_ID])
{
    memcpy(out, "call_", 5);
    openai_out_random(out + 5, OPENAI_CALL_ID - 6);
}

void openai_put_head(struct buf *to, const struct openai_reply *r, bool chunk)
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

void openai_put_logprobs(struct buf *to, const struct openai_reply *r,
                         const struct openai_logprobs *l)
{
    buf_text(to, ",\"logprobs\":");
    if (r->logprobs && l)
        openai_logprobs_put(to, l);
    else
        buf_text(to, "null");
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

void openai_put_usage(struct buf *to, const struct openai_usage *usage)
{
    const struct cz_usage *u = &usage->engine;

    buf_printf(to, ",\"usage\":{\"prompt_tokens\":%" PRIu32 ",\"completion_tokens\":%" PRIu32
               ",\"total_tokens\":%" PRIu64, u->n_prompt, u->n_generated,
               (uint64_t)u->n_prompt + u->n_generated);
    buf_printf(to, ",\"prompt_tokens_details\":{\"cached_tokens\":%" PRIu32
               ",\"audio_tokens\":0}", u->n_cached);
    buf_printf(to, ",\"completion_tokens_details\":{\"reasoning_tokens\":%" PRIu64
               ",\"audio_tokens\":0,\"accepted_prediction_tokens\":0,"
               "\"rejected_prediction_tokens\":0}}", usage->n_reasoning);
}

/* llama-server's names; prompt_n + cache_n = prompt_tokens. */
void openai_put_timings(struct buf *to, const struct openai_usage *usage)
{
    const struct cz_usage *u = &usage->engine;
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

/* ---- one choice, while it comes ---- */

void openai_choice_open(struct openai_choice *c, enum openai_kind kind, struct quota *quota)
{
    *c = (struct openai_choice){ 0 };
    buf_init(&c->text, quota);
    buf_init(&c->reasoning, quota);
    buf_init(&c->calls, quota);
    openai_logprobs_open(&c->logprobs, kind == OPENAI_COMPLETION, quota);
}

void openai_choice_done(struct openai_choice *c)
{
    buf_done(&c->text);
    buf_done(&c->reasoning);
    buf_done(&c->calls);
    openai_logprobs_done(&c->logprobs);
}

bool openai_choice_failed(const struct openai_choice *c)
{
    return c->text.failed || c->reasoning.failed || c->calls.failed ||
           openai_logprobs_failed(&c->logprobs);
}

void openai_choice_call(struct openai_choice *c, const struct openai_reply *r, const char *id,
                        const char *name, size_t size)
{
    struct buf *to = &c->calls;

    if (c->n_calls++)
        buf_text(to, ",");
    if (!r->legacy_call)
        buf_printf(to, "{\"id\":\"%s\",\"type\":\"function\",\"function\":", id);
    buf_text(to, "{\"name\":");
    buf_json(to, name, size);
    buf_text(to, ",\"arguments\":\"");
}

void openai_choice_arguments(struct openai_choice *c, const char *text, size_t size)
{
    buf_json_inner(&c->calls, text, size);
}

void openai_choice_call_end(struct openai_choice *c, const struct openai_reply *r)
{
    buf_text(&c->calls, r->legacy_call ? "\"}" : "\"}}");
}

/* ---- all at once ---- */

/* Without content there is a text all the same, unless there are calls. */
static void put_message(struct buf *to, const struct openai_reply *r, const struct openai_choice *c)
{
    buf_text(to, ",\"message\":{\"role\":\"assistant\",\"content\":");
    if (c->n_calls && c->text.size == 0)
        buf_text(to, "null");
    else
        buf_json(to, c->text.data, c->text.size);
    buf_text(to, ",\"refusal\":null,\"annotations\":[]");
    if (c->reasoning.size) {
        buf_text(to, ",\"reasoning_content\":");
        buf_json(to, c->reasoning.data, c->reasoning.size);
    }
    if (c->n_calls) {
        buf_text(to, r->legacy_call ? ",\"function_call\":" : ",\"tool_calls\":[");
        buf_put(to, c->calls.data, c->calls.size);
        buf_text(to, r->legacy_call ? "" : "]");
    }
    buf_text(to, "}");
}

static void put_whole_choice(struct buf *to, const struct openai_reply *r, uint32_t index,
                             const struct openai_choice *c)
{
    buf_printf(to, "{\"index\":%" PRIu32, index);
    if (r->kind == OPENAI_COMPLETION) {
        buf_text(to, ",\"text\":");
        buf_json(to, c->text.data, c->text.size);
    } else {
        put_message(to, r, c);
    }
    openai_put_logprobs(to, r, &c->logprobs);
    buf_text(to, ",\"finish_reason\":");
    buf_json_text(to, c->finish);
    buf_text(to, "}");
}

void openai_out_reply(struct buf *to, const struct openai_reply *r,
                      const struct openai_choice *choices, uint32_t n,
                      const struct openai_usage *usage)
{
    openai_put_head(to, r, false);
    buf_text(to, ",\"choices\":[");
    for (uint32_t i = 0; i < n; i++) {
        if (i > 0)
            buf_text(to, ",");
        put_whole_choice(to, r, i, &choices[i]);
    }
    buf_text(to, "]");
    openai_put_usage(to, usage);
    openai_put_timings(to, usage);
    buf_text(to, "}");
}
