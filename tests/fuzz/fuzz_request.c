/* A request's body: to fields and messages, to token ids, and back out of memory. Whatever it
 * holds, it is served or refused with a status and a sentence, and what it took of the quota is
 * given back. The first byte chooses the endpoint and how much memory there is. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/small_tokenizer.h"

#include "daemon/conf/conf.h"
#include "daemon/openai/json_body.h"
#include "daemon/openai/openai_in.h"
#include "daemon/wire/wire.h"
#include "daemon/worker/prompt.h"

#include <math.h>
#include <string.h>

static char name[] = "house", alias[] = "home";

static const struct wire_hello hello = {
    .vocab = SMALL_ADDED + 8,
    .context = 256,
    .n_stop_ids = 2,
    .stop_ids = { 603, 9 },
    .defaults = { .temperature = 0.6f, .top_k = 20, .top_p = 0.95f, .repetition_penalty = 1 },
};

/* What a client would be sent is one JSON object with a status that fits it. */
static void check_refusal(const struct api_error *e)
{
    struct buf text;

    MUST(e->status >= 400 && e->status < 600 && e->message[0]);
    buf_init(&text, NULL);
    api_error_write(&text, e);
    json_t *root = json_loadb(text.data, text.size, 0, NULL);
    MUST(json_is_string(json_object_get(json_object_get(root, "error"), "message")));
    json_decref(root);
    buf_done(&text);
}

/* What replies are parsed by outlives the JSON: read after it went. */
static void check_offer(const struct openai_request *r)
{
    const struct openai_tools *o = &r->offer;

    MUST(o->choice == OPENAI_TOOLS_NONE || o->n > 0);
    MUST(o->choice != OPENAI_TOOLS_NAMED || o->named < o->n);
    for (size_t i = 0; i < o->n; i++) {
        const struct reply_tool *t = &o->tools[i];
        MUST(t->size >= 1 && t->size <= OPENAI_MAX_TOOL_NAME && !memchr(t->name, 0, t->size));
        for (size_t k = 0; k < t->n_parameters; k++) {
            const struct reply_parameter *p = &t->parameters[k];
            MUST(p->types != 0 && !memchr(p->name, 0, p->size));
            MUST(k == 0 || p->size != p[-1].size || memcmp(p->name, p[-1].name, p->size) != 0);
        }
    }
}

static void check_request(const struct openai_request *r)
{
    MUST(r->n_stops <= OPENAI_MAX_STOPS && r->n_stop_ids <= CZ_MAX_STOP_IDS);
    MUST(r->n_bias <= CZ_MAX_BIAS && r->n_prompts <= OPENAI_MAX_PROMPTS);
    MUST(isfinite(r->sampling.temperature) && r->sampling.temperature >= 0);
    MUST(r->sampling.top_p > 0 && r->sampling.top_p <= 1);
    for (uint32_t i = 0; i < r->n_bias; i++)
        MUST(isfinite(r->bias[i].value));
    for (uint32_t i = 0; i < r->n_stops; i++)
        MUST(r->stops[i].size > 0 && r->stops[i].size <= OPENAI_MAX_STOP_SIZE);
    MUST(strlen(r->ignored) < sizeof r->ignored);
    MUST(r->n_choices >= 1 && r->n_choices <= OPENAI_MAX_CHOICES && r->n_top <= OPENAI_MAX_TOP);
    MUST(json_array_size(r->tools) == r->offer.n);
    check_offer(r);
    if (r->kind == OPENAI_CHAT)
        MUST(r->chat.n_messages > 0);
    else
        MUST(r->n_prompts > 0);
}

/* A byte of every text that later stages read, so that a sanitizer sees what is not there. */
static uint32_t touch(const struct openai_request *r)
{
    uint32_t sum = 0;

    for (uint32_t i = 0; i < r->n_stops; i++)
        for (size_t k = 0; k < r->stops[i].size; k++)
            sum += (uint8_t)r->stops[i].bytes[k];
    for (uint32_t i = 0; i < r->n_prompts; i++)
        sum += r->prompts[i].text.size ? (uint8_t)r->prompts[i].text.bytes[0] : 0;
    return sum;
}

static void tokenize(const struct openai_request *r, uint32_t index,
                     const struct prompt_rules *rules)
{
    struct prompt p = { 0 };
    struct api_error e = { 0 };
    int more = prompt_open(&p, r, index, rules, &e);

    while (more >= 0 && (more = prompt_step(&p, &e)) > 0)
        ;
    if (more < 0) {
        check_refusal(&e);
    } else {
        MUST(p.n == p.ids.n && (!rules->must_fit || (p.n > 0 && p.n < rules->context)));
        for (size_t i = 0; i < p.ids.n; i++)
            MUST(p.ids.id[i] < hello.vocab);
        prompt_sent(&p);
    }
    prompt_done(&p);
}

static void serve(struct openai_request *r, struct quota *quota, bool must_fit,
                  const struct tokenizer *t, const struct chat_format *format)
{
    const struct prompt_rules rules = { .tokenizer = t, .quota = quota, .context = hello.context,
                                        .must_fit = must_fit, .beside = r->cost,
                                        .format = format };
    struct api_error e = { 0 };

    check_request(r);
    touch(r);
    for (uint32_t i = 0; i < (r->kind == OPENAI_CHAT ? 1 : r->n_prompts); i++)
        tokenize(r, i, &rules);
    MUST(openai_in_settle(r, &e) == 0);
    check_offer(r);
    for (uint32_t i = 0; i < OPENAI_MAX_BANS; i++)
        openai_in_ban(r, i);
    touch(r);
    openai_in_done(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t caps[] = { 64 << 20, 1 << 20, 16 << 10, 2 << 10 };
    static const char *const names[] = { "qwen3", "qwen3-coder", "qwen3.8" };
    static struct tokenizer *t;
    static struct chat_format *formats[3];
    struct conf conf = { .model_name = name, .aliases = { alias }, .n_aliases = 1 };

    if (!t)
        t = small_tokenizer();
    for (size_t i = 0; i < 3 && !formats[i]; i++)
        MUST(chat_format_builtin(&formats[i], names[i], t, NULL) == 0);
    if (size < 1)
        return 0;
    conf.strict_names = data[0] & 16;
    struct quota quota = { .cap = caps[data[0] >> 1 & 3] };
    const struct openai_rules rules = { &conf, &hello, &quota };
    struct openai_request r;
    struct api_error e = { 0 };
    struct buf body;

    buf_init(&body, &quota);
    buf_put(&body, (const char *)data + 1, size - 1);
    if (!body.failed && json_body_first(body.data, body.size) <= '~') {
        if (openai_in_read(&r, data[0] & 1 ? OPENAI_COMPLETION : OPENAI_CHAT, &body, &rules,
                           &e) < 0)
            check_refusal(&e);
        else
            serve(&r, &quota, data[0] & 8, t, formats[(data[0] >> 5) % 3]);
    }
    buf_done(&body);
    MUST(quota.used == 0);
    return 0;
}
