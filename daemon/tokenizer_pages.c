/* /tokenize, /detokenize and input_tokens: llama-server's, vLLM's and OpenAI's forms. */
#include "daemon/pages.h"

#include "daemon/conf.h"
#include "daemon/exchange.h"
#include "daemon/json_body.h"
#include "daemon/link.h"
#include "daemon/openai_in.h"
#include "daemon/prompt.h"
#include "daemon/worker_state.h"
#include "util/utf8.h"

#include <inttypes.h>
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

/* Text under key to ids, appended. */
static int encode_field(struct exchange *x, const json_t *v, const char *key, bool trusted,
                        struct ids *ids, struct api_error *e)
{
    struct err err;

    if (!json_is_string(v))
        return api_error_field(e, "invalid_type", key, "'%s' must be a string, not %s.", key,
                               json_body_type(v));
    struct text_run run = { json_string_value(v), json_string_length(v), trusted };
    if (tokenizer_encode(x->worker->tokenizer, &run, 1, 1u << 22, ids, &err) < 0)
        return api_error_field(e, "invalid_value", key, "'%s' cannot be tokenized: %s", key,
                               err.text);
    return 0;
}

static int tokenize_text(struct exchange *x, const json_t *root, struct ids *ids,
                         struct api_error *e)
{
    const json_t *content = json_body_get(root, "content");
    bool special = true, pieces = false, strings = false;

    if (json_body_bool(&special, root, "parse_special", e) < 0 ||
        json_body_bool(&pieces, root, "with_pieces", e) < 0 ||
        json_body_bool(&strings, root, "return_token_strs", e) < 0)
        return -1;
    if (!content) {
        if (encode_field(x, json_body_get(root, "prompt"), "prompt", true, ids, e) < 0)
            return -1;
        put_count(x, ids, strings);
        return 0;
    }
    if (encode_field(x, content, "content", special, ids, e) < 0)
        return -1;
    buf_text(&x->out, "{\"tokens\":");
    if (pieces)
        put_pieces(&x->out, x->worker->tokenizer, ids);
    else
        put_ids(&x->out, ids);
    buf_text(&x->out, "}");
    return 0;
}

/* A chat body to ids. */
static int render(struct exchange *x, struct ids *ids, struct api_error *e)
{
    struct wire_hello hello = known_hello(x->worker);
    struct openai_rules rules = { x->worker->conf, &hello, &x->worker->quota };
    struct openai_request r;

    if (openai_in_read(&r, OPENAI_CHAT, x->body.data, x->body.size, &rules, e) < 0)
        return -1;
    int rc = prompt_tokens(ids, &r, 0, x->worker->tokenizer, hello.context, false, e);
    openai_in_done(&r);
    return rc;
}

static int tokenize(struct exchange *x, struct ids *ids, struct api_error *e)
{
    uint64_t cost;
    bool strings = false;
    json_t *root;

    if (json_body_parse(&root, &cost, x->body.data, x->body.size, &x->worker->quota, e) < 0)
        return -1;
    bool chat = json_body_get(root, "messages") != NULL;
    bool text = json_body_get(root, "content") || json_body_get(root, "prompt");
    int rc = 0;
    if (text)
        rc = tokenize_text(x, root, ids, e);
    else if (chat)
        rc = json_body_bool(&strings, root, "return_token_strs", e);
    else
        rc = api_error_field(e, "missing_required_parameter", "content",
                             "'content', 'prompt' or 'messages' is missing.");
    json_decref(root);
    quota_give(&x->worker->quota, cost);
    if (rc < 0 || text)
        return rc;
    if (render(x, ids, e) < 0)
        return -1;
    put_count(x, ids, strings);
    return 0;
}

enum MHD_Result page_tokenize(struct exchange *x)
{
    struct ids ids = { 0 };
    struct api_error e;
    int rc = tokenize(x, &ids, &e);

    ids_done(&ids);
    return rc < 0 ? exchange_refuse(x, &e) : exchange_answer(x, 200);
}

enum MHD_Result page_input_tokens(struct exchange *x)
{
    struct ids ids = { 0 };
    struct api_error e;
    int rc = render(x, &ids, &e);

    if (rc == 0)
        buf_printf(&x->out, "{\"object\":\"response.input_tokens\",\"input_tokens\":%zu}", ids.n);
    ids_done(&ids);
    return rc < 0 ? exchange_refuse(x, &e) : exchange_answer(x, 200);
}

static int detokenize(struct exchange *x, const json_t *root, struct buf *text,
                      struct api_error *e)
{
    const json_t *list = json_body_get(root, "tokens"), *v;
    uint32_t vocab = known_hello(x->worker).vocab;
    int64_t id;
    size_t i;

    if (!list)
        return api_error_field(e, "missing_required_parameter", "tokens", "'tokens' is missing.");
    if (!json_is_array(list))
        return api_error_field(e, "invalid_type", "tokens", "'tokens' must be an array, not %s.",
                               json_body_type(list));
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

    if (json_body_parse(&root, &cost, x->body.data, x->body.size, &x->worker->quota, &e) < 0)
        return exchange_refuse(x, &e);
    buf_init(&text, &x->worker->quota);
    int rc = detokenize(x, root, &text, &e);
    buf_done(&text);
    json_decref(root);
    quota_give(&x->worker->quota, cost);
    return rc < 0 ? exchange_refuse(x, &e) : exchange_answer(x, 200);
}
