/* /tokenize, /detokenize, /apply-template and input_tokens: llama-server's, vLLM's and OpenAI's
 * forms. */
#include "daemon/worker/pages.h"

#include "daemon/conf/conf.h"
#include "daemon/openai/json_body.h"
#include "daemon/openai/openai_in.h"
#include "daemon/wire/link.h"
#include "daemon/worker/exchange.h"
#include "daemon/worker/prompt.h"
#include "daemon/worker/recalling.h"
#include "daemon/worker/slices.h"
#include "daemon/worker/worker_state.h"
#include "util/utf8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Before the engine said hello the vocabulary is the tokenizer's. */
static struct wire_hello known_hello(const struct worker *w)
{
    struct wire_hello hello = link_status(w->link)->hello;

    if (!hello.vocab)
        hello.vocab = tokenizer_vocab(w->tokenizer);
    return hello;
}

static void put_ids(struct buf *to, const struct ids *ids)
{
    buf_text(to, "[");
    for (size_t i = 0; i < ids->n; i++)
        buf_printf(to, "%s%" PRIu32, i ? "," : "", ids->id[i]);
    buf_text(to, "]");
}

static void put_piece(struct buf *to, const struct tokenizer *t, uint32_t id)
{
    size_t size;
    const char *piece = tokenizer_piece(t, id, &size);

    if (utf8_valid(piece, size)) {
        buf_json(to, piece, size);
        return;
    }
    buf_text(to, "[");
    for (size_t i = 0; i < size; i++)
        buf_printf(to, "%s%u", i ? "," : "", (unsigned)(unsigned char)piece[i]);
    buf_text(to, "]");
}

static void put_pieces(struct buf *to, const struct tokenizer *t, const struct ids *ids)
{
    buf_text(to, "[");
    for (size_t i = 0; i < ids->n; i++) {
        buf_printf(to, "%s{\"id\":%" PRIu32 ",\"piece\":", i ? "," : "", ids->id[i]);
        put_piece(to, t, ids->id[i]);
        buf_text(to, "}");
    }
    buf_text(to, "]");
}

static void put_count(struct exchange *x, const struct ids *ids, bool strings)
{
    buf_printf(&x->out, "{\"count\":%zu,\"max_model_len\":%" PRIu32 ",\"tokens\":", ids->n,
               link_status(x->worker->link)->hello.context);
    put_ids(&x->out, ids);
    buf_text(&x->out, ",\"token_strs\":");
    buf_text(&x->out, strings ? "[" : "null");
    for (size_t i = 0; strings && i < ids->n; i++) {
        size_t size;
        const char *piece = tokenizer_piece(x->worker->tokenizer, ids->id[i], &size);
        buf_text(&x->out, i ? "," : "");
        buf_json(&x->out, piece, size);
    }
    buf_text(&x->out, strings ? "]}" : "}");
}

/* ---- text and chats to ids, in slices ---- */

enum answer {
    ANSWER_TOKENS,
    ANSWER_PIECES,
    ANSWER_COUNT,
    ANSWER_INPUT_TOKENS,
    ANSWER_TEMPLATE, /* of it, the text is in x->out already */
};

struct counting {
    struct exchange_job job;
    struct exchange *x; /* borrowed; owns us */
    struct openai_request chat; /* owned; zero when it is a text */
    json_t *root;               /* owned: of a text */
    uint64_t cost;
    struct prompt prompt;
    struct recalling recalling; /* of a chat */
    bool is_chat;
    struct slices reading;
    enum answer answer;
    bool strings; /* with ANSWER_COUNT */
    char mended[OPENAI_MENDED_TEXT];
    bool failed;
    struct api_error error;
};

static struct counting *counting_of(struct exchange_job *j)
{
    return (struct counting *)(void *)j;
}

static void stop(struct exchange_job *j)
{
    struct counting *c = counting_of(j);

    slices_stop(&c->reading);
    recalling_stop(&c->recalling);
    prompt_done(&c->prompt);
}

static void close_counting(struct exchange_job *j)
{
    struct counting *c = counting_of(j);

    stop(j);
    recalling_done(&c->recalling);
    json_body_drop(c->root, c->cost, &c->x->worker->quota);
    openai_in_done(&c->chat);
    free(c);
}

static void give_up(struct exchange_job *j)
{
    struct counting *c = counting_of(j);

    if (!c->x->suspended)
        return;
    stop(j);
    api_error_draining(&c->error);
    c->error.close = true;
    c->failed = true;
    exchange_resume(c->x);
}

/* How long the engine will read so many tokens before it answers, by what it measured. */
static void put_input_tokens(struct exchange *x, size_t n)
{
    uint64_t ns = link_status(x->worker->link)->hello.prefill_ns_per_token;

    buf_printf(&x->out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu,"
                        "\"cached_tokens\":0,\"estimated_prefill_seconds\":", n);
    if (ns)
        buf_printf(&x->out, "%.3f}", (double)n * (double)ns / 1e9);
    else
        buf_text(&x->out, "null}");
}

/* What the engine would read: text, and tokens of earlier replies. */
static void put_rendered(struct exchange *x, const struct prompt *p)
{
    struct buf text;

    buf_text(&x->out, "{\"prompt\":\"");
    for (size_t i = 0; i < p->n_parts; i++) {
        const struct text_part *part = &p->parts[i];
        buf_init(&text, &x->worker->quota); /* a character may lie across tokens */
        for (size_t k = 0; k < part->n_ids; k++) {
            size_t size;
            const char *piece = tokenizer_piece(x->worker->tokenizer, part->ids[k], &size);
            buf_put(&text, piece, size);
        }
        x->out.failed |= text.failed;
        buf_json_inner(&x->out, text.data, text.size);
        buf_done(&text);
        for (size_t k = 0; k < part->n_runs; k++)
            buf_json_inner(&x->out, part->runs[k].bytes, part->runs[k].size);
    }
    buf_text(&x->out, "\"");
}

static enum MHD_Result answer(struct counting *c)
{
    struct exchange *x = c->x;
    const struct ids *ids = &c->prompt.ids;

    if (c->answer == ANSWER_INPUT_TOKENS) {
        put_input_tokens(x, ids->n);
    } else if (c->answer == ANSWER_TEMPLATE) {
        buf_printf(&x->out, ",\"n_tokens\":%zu}", ids->n);
    } else if (c->answer == ANSWER_COUNT) {
        put_count(x, ids, c->strings);
    } else {
        buf_text(&x->out, "{\"tokens\":");
        if (c->answer == ANSWER_PIECES)
            put_pieces(&x->out, x->worker->tokenizer, ids);
        else
            put_ids(&x->out, ids);
        buf_text(&x->out, "}");
    }
    prompt_done(&c->prompt);
    if (!x->out.failed)
        return exchange_answer(x, 200);
    buf_done(&x->out);
    api_error_full(&c->error);
    return exchange_refuse(x, &c->error);
}

static enum MHD_Result resumed(struct exchange_job *j)
{
    struct counting *c = counting_of(j);

    if (!c->failed)
        return answer(c);
    buf_done(&c->x->out);
    return exchange_refuse(c->x, &c->error);
}

static int go_on(void *ctx)
{
    struct counting *c = ctx;
    int more = prompt_step(&c->prompt, &c->error);

    if (more == 1)
        return 1;
    c->failed = more < 0;
    slices_stop(&c->reading);
    exchange_resume(c->x);
    return 0;
}

static const struct exchange_job_ops counting_ops = {
    .resumed = resumed,
    .client_gone = stop,
    .give_up = give_up,
    .close = close_counting,
};

static struct prompt_rules rules_of(const struct counting *c)
{
    struct worker *w = c->x->worker;

    return (struct prompt_rules){ .tokenizer = w->tokenizer, .format = w->format,
                                  .quota = &w->quota,
                                  .beside = c->cost + c->chat.cost + c->recalling.cost };
}

/* llama-server's form when there is content, vLLM's otherwise. */
static int open_text(struct counting *c, struct api_error *e)
{
    const char *key = json_body_get(c->root, "content") ? "content" : "prompt";
    const json_t *v = json_body_get(c->root, key);
    bool special = true, pieces = false, strings = false;

    if (json_body_bool(&special, c->root, "parse_special", e) < 0 ||
        json_body_bool(&pieces, c->root, "with_pieces", e) < 0 ||
        json_body_bool(&strings, c->root, "return_token_strs", e) < 0)
        return -1;
    if (!json_is_string(v))
        return json_body_wants(e, key, "a string", v);
    if (key[0] == 'p') {
        c->answer = ANSWER_COUNT;
        c->strings = strings;
        special = true;
    } else {
        c->answer = pieces ? ANSWER_PIECES : ANSWER_TOKENS;
    }
    struct prompt_rules rules = rules_of(c);
    struct text_run run = { json_string_value(v), json_string_length(v), special };
    return prompt_open_text(&c->prompt, &run, key, 1u << 22, &rules, e);
}

/* Takes root and cost. */
static int open_chat(struct counting *c, json_t *root, uint64_t cost, struct api_error *e)
{
    struct worker *w = c->x->worker;
    struct wire_hello hello = known_hello(w);
    struct openai_rules in_rules = { w->conf, &hello, &w->quota };

    if (openai_in_take(&c->chat, OPENAI_CHAT, root, cost, &in_rules, e) < 0)
        return -1;
    c->is_chat = true;
    return 0;
}

static int open_prompt(struct counting *c, struct api_error *e)
{
    struct prompt_rules rules = rules_of(c);

    rules.context = known_hello(c->x->worker).context;
    if (prompt_open(&c->prompt, &c->chat, 0, &rules, e) < 0)
        return -1;
    recalling_apply(&c->recalling, c->x->worker, &c->chat, &c->prompt, NULL);
    c->x->mended = openai_mended_text(c->mended, c->chat.mended | c->prompt.chat.mended);
    if (c->answer == ANSWER_TEMPLATE)
        put_rendered(c->x, &c->prompt);
    return 0;
}

static int open_tokenize(struct counting *c, struct api_error *e)
{
    struct exchange *x = c->x;

    if (json_body_parse(&c->root, &c->cost, &x->body, &x->worker->quota, e) < 0)
        return -1;
    if (json_body_get(c->root, "content") || json_body_get(c->root, "prompt"))
        return open_text(c, e);
    if (!json_body_get(c->root, "messages"))
        return api_error_field(e, "missing_required_parameter", "content",
                               "'content', 'prompt' or 'messages' is missing.");
    c->answer = ANSWER_COUNT;
    if (json_body_bool(&c->strings, c->root, "return_token_strs", e) < 0)
        return -1;
    json_t *root = c->root;
    uint64_t cost = c->cost;
    c->root = NULL;
    c->cost = 0;
    return open_chat(c, root, cost, e);
}

static int open_body(struct counting *c, struct api_error *e)
{
    struct exchange *x = c->x;
    json_t *root;
    uint64_t cost;

    if (json_body_parse(&root, &cost, &x->body, &x->worker->quota, e) < 0)
        return -1;
    return open_chat(c, root, cost, e);
}

static int open_input_tokens(struct counting *c, struct api_error *e)
{
    c->answer = ANSWER_INPUT_TOKENS;
    return open_body(c, e);
}

static int open_template(struct counting *c, struct api_error *e)
{
    c->answer = ANSWER_TEMPLATE;
    return open_body(c, e);
}

/* 1 while slices go on; 0 when all ids are there; -1. */
static int read_prompt(struct counting *c, struct api_error *e)
{
    struct err err;
    int more;

    if (c->is_chat && open_prompt(c, e) < 0)
        return -1;
    more = prompt_step(&c->prompt, e);
    if (more == 1 && slices_start(&c->reading, c->x->worker->loop, go_on, c, &err) < 0)
        return api_error_set(e, 500, "internal_error", NULL, "%s", err.text);
    return more;
}

static void recalled(void *ctx)
{
    struct counting *c = ctx;
    int more = read_prompt(c, &c->error);

    if (more == 1)
        return;
    c->failed = more < 0;
    exchange_resume(c->x);
}

static enum MHD_Result begin(struct exchange *x,
                             int (*open)(struct counting *c, struct api_error *e))
{
    struct counting *c = calloc(1, sizeof *c);
    struct api_error e;

    if (!c) {
        api_error_no_memory(&e);
        return exchange_refuse(x, &e);
    }
    c->job.ops = &counting_ops;
    c->x = x;
    x->job = &c->job;
    if (open(c, &e) < 0)
        return exchange_refuse(x, &e);
    bool waits = c->is_chat && recalling_start(&c->recalling, x->worker, &c->chat,
                                               RECALLING_PATIENCE_PAGE_MS, recalled, c);
    int more = waits ? 1 : read_prompt(c, &e);
    if (more < 0) {
        buf_done(&x->out);
        return exchange_refuse(x, &e);
    }
    if (more == 0)
        return answer(c);
    exchange_suspend(x);
    return MHD_YES;
}

enum MHD_Result page_tokenize(struct exchange *x)
{
    return begin(x, open_tokenize);
}

enum MHD_Result page_input_tokens(struct exchange *x)
{
    return begin(x, open_input_tokens);
}

enum MHD_Result page_apply_template(struct exchange *x)
{
    return begin(x, open_template);
}

/* ---- ids to text ---- */

static int detokenize(struct exchange *x, const json_t *root, struct buf *text,
                      struct api_error *e)
{
    const json_t *list = json_body_get(root, "tokens"), *v;
    uint32_t vocab = known_hello(x->worker).vocab;
    int64_t id;
    size_t i;

    if (!list)
        return json_body_missing(e, "tokens");
    if (!json_is_array(list))
        return json_body_wants(e, "tokens", "an array", list);
    json_array_foreach (list, i, v) {
        if (!json_body_integer(&id, v) || id < 0 || id >= vocab)
            return api_error_field(e, "invalid_value", "tokens",
                                   "'tokens[%zu]' is not a token id below %" PRIu32 ".", i,
                                   vocab);
        size_t size;
        const char *piece = tokenizer_piece(x->worker->tokenizer, (uint32_t)id, &size);
        buf_put(text, piece, size);
    }
    buf_text(&x->out, "{\"content\":");
    buf_json(&x->out, text->data, text->size);
    buf_text(&x->out, ",\"prompt\":");
    buf_json(&x->out, text->data, text->size);
    buf_text(&x->out, "}");
    return 0;
}

enum MHD_Result page_detokenize(struct exchange *x)
{
    struct buf text;
    struct api_error e;
    uint64_t cost;
    json_t *root;

    if (json_body_parse(&root, &cost, &x->body, &x->worker->quota, &e) < 0)
        return exchange_refuse(x, &e);
    buf_init(&text, &x->worker->quota);
    int rc = detokenize(x, root, &text, &e);
    if (rc == 0 && (text.failed || x->out.failed))
        rc = api_error_full(&e);
    buf_done(&text);
    json_body_drop(root, cost, &x->worker->quota);
    return rc < 0 ? exchange_refuse(x, &e) : exchange_answer(x, 200);
}
