/* Whatever a client writes, its bytes give no control token: every recorded conversation, through
 * every released template, with every control token of the real tokenizer in each text. */
#include "chat_fixture.h"

#include "daemon/conf/conf.h"
#include "daemon/openai/openai_in.h"
#include "daemon/wire/wire.h"
#include "daemon/worker/prompt.h"

#include <unistd.h>

static struct tokenizer *qwen3, *qwen38;

static int open_tokenizers(void **state)
{
    (void)state;
    alarm(300);
    qwen3 = open_tokenizer(QWEN3);
    qwen38 = open_tokenizer("tests/data/tokenizers/qwen3.8/tokenizer-mini.json");
    return 0;
}

static int close_tokenizers(void **state)
{
    (void)state;
    tokenizer_close(qwen3);
    tokenizer_close(qwen38);
    return 0;
}

static bool is_control(const struct tokenizer *t, uint32_t id)
{
    char text[256];
    size_t size;
    const char *piece = tokenizer_piece(t, id, &size);
    uint32_t found;

    if (size == 0 || size >= sizeof text)
        return false;
    memcpy(text, piece, size);
    text[size] = '\0';
    return tokenizer_find(t, text, &found) && found == id;
}

/* All of them in a row, none at either end. */
static char *all_controls(const struct tokenizer *t, size_t *n)
{
    size_t cap = 1 << 16, size = 0, piece_size;
    char *text = malloc(cap);

    assert_non_null(text);
    *n = 0;
    text[size++] = 'a';
    for (uint32_t id = 0; id < tokenizer_vocab(t); id++) {
        if (!is_control(t, id))
            continue;
        const char *piece = tokenizer_piece(t, id, &piece_size);
        assert_true(size + piece_size + 2 < cap);
        memcpy(text + size, piece, piece_size);
        size += piece_size;
        ++*n;
    }
    text[size++] = 'z';
    text[size] = '\0';
    return text;
}

/* ---- a record with something in its texts ---- */

static json_t *added(const json_t *text, const char *more)
{
    size_t size = json_string_length(text), n = strlen(more);
    char *joined = malloc(size + n);

    assert_non_null(joined);
    memcpy(joined, json_string_value(text), size);
    memcpy(joined + size, more, n);
    json_t *out = json_stringn(joined, size + n);
    free(joined);
    assert_non_null(out);
    return out;
}

/* Every string in v, and the keys of arguments. */
static json_t *injected(const json_t *v, const char *more, bool keys)
{
    const char *key;
    json_t *member, *out;
    size_t i;

    if (json_is_string(v))
        return added(v, more);
    if (json_is_array(v)) {
        out = json_array();
        json_array_foreach (v, i, member)
            json_array_append_new(out, injected(member, more, keys));
        return out;
    }
    if (!json_is_object(v))
        return json_deep_copy(v);
    out = json_object();
    json_object_foreach ((json_t *)(uintptr_t)v, key, member) {
        char name[1024];
        snprintf(name, sizeof name, "%s%s", key, keys ? more : "");
        json_object_set_new(out, name, injected(member, more, keys));
    }
    return out;
}

static void inject_content(json_t *message, const char *more)
{
    json_t *content = json_object_get(message, "content"), *part;
    size_t i;

    if (json_is_string(content))
        json_object_set_new(message, "content", added(content, more));
    json_array_foreach (content, i, part)
        if (json_is_string(json_object_get(part, "text")))
            json_object_set_new(part, "text", added(json_object_get(part, "text"), more));
}

static void inject_calls(json_t *message, const char *more)
{
    json_t *call;
    size_t i;

    json_array_foreach (json_object_get(message, "tool_calls"), i, call) {
        json_t *f = json_object_get(call, "function");
        f = f ? f : call;
        json_t *arguments = json_object_get(f, "arguments");
        if (json_is_object(arguments))
            json_object_set_new(f, "arguments", injected(arguments, more, true));
        json_object_set_new(f, "name", added(json_object_get(f, "name"), more));
    }
}

/* Recorded calls have no ids, which the API wants. */
static void name_call(json_t *message, size_t i)
{
    char id[32];

    snprintf(id, sizeof id, "call_%zu", i);
    if (strcmp(json_string_value(json_object_get(message, "role")), "tool") == 0)
        json_object_set_new(message, "tool_call_id", json_string(id));
}

/* The record as a request whose texts end in more. */
static json_t *request_of(const json_t *record, const char *more)
{
    json_t *messages = json_deep_copy(json_object_get(record, "messages"));
    json_t *kwargs = json_deep_copy(json_object_get(record, "kwargs"));
    json_t *message, *root = json_object(), *generate;
    size_t i;

    json_array_foreach (messages, i, message) {
        const char *role = json_string_value(json_object_get(message, "role"));
        name_call(message, i);
        inject_calls(message, more);
        /* An assistant's text may hold marks that the template itself looks for. */
        if (strcmp(role, "assistant") != 0)
            inject_content(message, more);
    }
    generate = json_incref(json_object_get(kwargs, "add_generation_prompt"));
    json_object_del(kwargs, "add_generation_prompt");
    json_object_set_new(root, "messages", messages);
    json_object_set_new(root, "chat_template_kwargs", kwargs);
    json_object_set_new(root, "add_generation_prompt", generate ? generate : json_false());
    return root;
}

/* ---- its control tokens ---- */

/* Descriptions and names in the offer are a client's too; set by hand, as what reads requests takes
 * only names that functions may have. */
static void offer_tools(struct openai_request *r, const json_t *record, const char *more)
{
    const json_t *tools = json_object_get(record, "tools");

    if (json_array_size(tools))
        r->tools = injected(tools, more, false);
}

/* The control tokens of the prompt, in order; false when the record is refused. */
static bool controls_of(struct ids *out, const json_t *record, const char *more,
                        const struct chat_format *f, const struct tokenizer *t)
{
    static char house[] = "house";
    const struct conf conf = { .model_name = house };
    const struct wire_hello hello = { .vocab = 1 << 20,
                                      .defaults = { .repetition_penalty = 1 } };
    struct quota quota = { .cap = 64 << 20 };
    const struct openai_rules rules = { .conf = &conf, .hello = &hello, .quota = &quota };
    const struct prompt_rules how = { .tokenizer = t, .quota = &quota, .format = f };
    struct openai_request r;
    struct prompt p = { 0 };
    struct api_error e;
    struct err err;
    int more_work;

    if (openai_in_take(&r, OPENAI_CHAT, request_of(record, more), 0, &rules, &e) < 0)
        return false;
    offer_tools(&r, record, more);
    bool fine = prompt_open(&p, &r, 0, &how, &e) == 0;
    while (fine && (more_work = prompt_step(&p, &e)) != 0)
        fine = more_work > 0;
    for (size_t i = 0; fine && i < p.ids.n; i++)
        if (is_control(t, p.ids.id[i]))
            assert_int_equal(ids_put(out, p.ids.id[i], &err), 0);
    prompt_done(&p);
    openai_in_done(&r);
    assert_int_equal(quota.used, 0);
    return fine;
}

static int check_template(const char *name, const struct tokenizer *t, const char *evil)
{
    char path[128];
    json_t *record;
    int n = 0;

    snprintf(path, sizeof path, "tests/data/chat/%s.jsonl", name);
    struct lines l = lines_open(path);
    struct chat_format *f = open_template(name, t);
    while ((record = lines_next(&l))) {
        struct ids clean = { 0 }, dirty = { 0 };
        const char *which = json_string_value(json_object_get(record, "name"));
        if (controls_of(&clean, record, "axz", f, t)) {
            assert_true(controls_of(&dirty, record, evil, f, t));
            assert_same_ids(&dirty, &clean, which);
            n++;
        }
        ids_done(&clean);
        ids_done(&dirty);
    }
    chat_format_close(f);
    return n;
}

static void no_text_of_a_client_becomes_a_control_token(void **state)
{
    static const char *const names[] = { "qwen3-hybrid", "qwen3-hybrid-2025-04",
                                         "qwen3-instruct-2507", "qwen3-thinking-2507",
                                         "qwen3-coder", "qwen3-coder-30b-a3b-2025-07", "qwen3.8" };
    size_t n_controls;
    char *evil = all_controls(qwen3, &n_controls);

    (void)state;
    assert_int_equal(n_controls, 26);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int n = check_template(names[i], qwen3, evil);
        print_message("%s: %d conversations\n", names[i], n);
        assert_true(n >= 50); /* of 67; the others are refused, clean as they are */
    }
    free(evil);
}

static void nor_one_of_the_larger_tokenizer(void **state)
{
    size_t n_controls;
    char *evil = all_controls(qwen38, &n_controls);

    (void)state;
    assert_true(n_controls >= 26);
    assert_true(check_template("qwen3.8", qwen38, evil) >= 50);
    free(evil);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_text_of_a_client_becomes_a_control_token),
        cmocka_unit_test(nor_one_of_the_larger_tokenizer),
    };

    return cmocka_run_group_tests(tests, open_tokenizers, close_tokenizers);
}
