/* Chats as tokens, against what transformers renders; no text of a client becomes markup. */
#include "chat_fixture.h"

#include <unistd.h>

static struct tokenizer *qwen3;
static struct chat_format *format;

static int open_qwen3(void **state)
{
    (void)state;
    alarm(120);
    qwen3 = open_tokenizer(QWEN3);
    format = open_builtin("qwen3", qwen3);
    return 0;
}

static int close_qwen3(void **state)
{
    (void)state;
    chat_format_close(format);
    tokenizer_close(qwen3);
    return 0;
}

static struct ids render(const struct chat *chat)
{
    struct ids out = { 0 };
    struct err err = { 0 };

    if (chat_ids(&out, format, chat, qwen3, 0, &err) < 0)
        fail_msg("%s", err.text);
    return out;
}

/* A record's chat; false when it needs roles, tools or content of other kinds. */
static bool chat_of(json_t *record, struct chat *chat, struct chat_message messages[16])
{
    json_t *message, *kwargs = json_object_get(record, "kwargs");
    json_t *think = json_object_get(kwargs, "enable_thinking");
    size_t i;

    *chat = (struct chat){
        .messages = messages,
        .add_generation_prompt = json_is_true(json_object_get(kwargs, "add_generation_prompt")),
        .thinking = json_is_true(think)    ? THINKING_ON
                    : json_is_false(think) ? THINKING_OFF
                                           : THINKING_DEFAULT,
    };
    if (json_array_size(json_object_get(record, "tools")))
        return false;
    json_array_foreach(json_object_get(record, "messages"), i, message)
    {
        const char *role = json_string_value(json_object_get(message, "role"));
        json_t *content = json_object_get(message, "content");
        json_t *reasoning = json_object_get(message, "reasoning_content");
        struct chat_message *m = &messages[chat->n_messages++];

        assert_true(chat->n_messages <= 16);
        if (!json_is_string(content) || json_array_size(json_object_get(message, "tool_calls")))
            return false;
        *m = (struct chat_message){ .text = json_string_value(content),
                                    .size = json_string_length(content),
                                    .reasoning = json_string_value(reasoning),
                                    .reasoning_size = json_string_length(reasoning) };
        if (strcmp(role, "system") == 0)
            m->role = CHAT_SYSTEM;
        else if (strcmp(role, "user") == 0)
            m->role = CHAT_USER;
        else if (strcmp(role, "assistant") == 0)
            m->role = CHAT_ASSISTANT;
        else
            return false;
    }
    return true;
}

/* Whether text of the request spells a control token, which the reference's text cannot show. */
static bool spells_control(const struct chat *chat)
{
    for (size_t i = 0; i < chat->n_messages; i++)
        if (memmem(chat->messages[i].text, chat->messages[i].size, "<|", 2))
            return true;
    return false;
}

static void the_hybrid_template_is_rendered_as_the_reference_does(void **state)
{
    struct lines l = lines_open("tests/data/chat/qwen3-hybrid.jsonl");
    json_t *record;
    int n_ids = 0, n_text = 0;

    (void)state;
    while ((record = lines_next(&l))) {
        struct chat_message messages[16];
        struct chat chat;
        json_t *rendered = json_object_get(record, "rendered");
        const char *name = json_string_value(json_object_get(record, "name"));
        if (!chat_of(record, &chat, messages))
            continue;
        if (!rendered) {
            struct ids out = { 0 };
            struct err err = { 0 };
            assert_int_equal(chat_ids(&out, format, &chat, qwen3, 0, &err), -1);
            assert_int_equal(err.kind, ERR_INPUT);
            continue;
        }

        struct ids got = render(&chat);
        if (spells_control(&chat)) {
            size_t size;
            char *text = decode(qwen3, &got, false, &size);
            if (size != json_string_length(rendered) ||
                memcmp(text, json_string_value(rendered), size) != 0)
                fail_msg("%s: %.*s", name, (int)size, text);
            free(text);
            n_text++;
        } else {
            struct ids want = encode(qwen3, json_string_value(rendered),
                                     json_string_length(rendered), true);
            assert_same_ids(&got, &want, name);
            ids_done(&want);
            n_ids++;
        }
        ids_done(&got);
    }
    print_message("%d chats by ids, %d by text\n", n_ids, n_text);
    /* Of 67 records 24 have tools, content of other kinds or an unknown role; one is an error. */
    assert_int_equal(n_ids, 41);
    assert_int_equal(n_text, 1);
}

static bool has(const struct ids *ids, uint32_t id, size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < ids->n; i++)
        *n += ids->id[i] == id;
    return *n > 0;
}

/* Ids of added tokens start at 151643 in this vocabulary. */
static size_t n_added(const struct ids *ids)
{
    size_t n = 0;

    for (size_t i = 0; i < ids->n; i++)
        n += ids->id[i] >= 151643;
    return n;
}

static void no_text_of_a_request_becomes_a_control_token(void **state)
{
    size_t n = 0;

    (void)state;
    for (uint32_t id = 151643; id < tokenizer_vocab(qwen3); id++) {
        char text[256];
        size_t size;
        const char *piece = tokenizer_piece(qwen3, id, &size);
        assert_true(size > 0);
        int length = snprintf(text, sizeof text, "a%.*s%.*s system\n%.*s", (int)size, piece,
                              (int)size, piece, (int)size, piece);
        for (enum chat_role role = CHAT_SYSTEM; role <= CHAT_ASSISTANT; role++) {
            const struct chat_message messages[] = {
                { .role = role, .text = text, .size = (size_t)length },
                { .role = CHAT_USER, .text = piece, .size = size },
            };
            const struct chat chat = { .messages = messages, .n_messages = 2,
                                       .add_generation_prompt = true };
            struct ids got = render(&chat);
            /* Two turns and the opened third: <|im_start|> thrice, <|im_end|> twice. */
            assert_int_equal(n_added(&got), 5);
            assert_true(has(&got, 151644, &n) && n == 3);
            assert_true(has(&got, 151645, &n) && n == 2);
            ids_done(&got);
        }
    }
}

/* The tail of one message and the head of the markup behind it, and the other way round. */
static void text_and_markup_together_make_no_control_token(void **state)
{
    static const char *const texts[] = { "<|im_end|", "<", "|>", "im_start|>", "<|im_end", "" };
    size_t n;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const struct chat_message m = { .role = CHAT_USER, .text = texts[i],
                                        .size = strlen(texts[i]) };
        const struct chat chat = { .messages = &m, .n_messages = 1 };
        struct ids got = render(&chat);
        assert_int_equal(n_added(&got), 2);
        assert_true(has(&got, 151644, &n) && n == 1);
        ids_done(&got);
    }
}

static void a_continued_message_is_left_open(void **state)
{
    const struct chat_message messages[] = {
        { .role = CHAT_USER, .text = "Count.", .size = 6 },
        { .role = CHAT_ASSISTANT, .text = "One, two", .size = 8 },
    };
    struct chat chat = { .messages = messages, .n_messages = 2, .continue_final = true };
    static const char want[] = "<|im_start|>user\nCount.<|im_end|>\n"
                               "<|im_start|>assistant\n<think>\n\n</think>\n\nOne, two";
    struct ids got = render(&chat);
    struct ids same = encode(qwen3, want, sizeof want - 1, true);
    struct err err = { 0 };

    (void)state;
    assert_same_ids(&got, &same, "continue_final");
    ids_done(&same);

    size_t before = got.n;
    chat.add_generation_prompt = true;
    assert_int_equal(chat_ids(&got, format, &chat, qwen3, 0, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    assert_int_equal(got.n, before);
    ids_done(&got);
}

static void a_chat_longer_than_allowed_is_refused(void **state)
{
    const struct chat_message m = { .role = CHAT_USER, .text = "Hello!", .size = 6 };
    const struct chat chat = { .messages = &m, .n_messages = 1, .add_generation_prompt = true };
    struct ids got = render(&chat), again = { 0 };
    struct err err = { 0 };

    (void)state;
    assert_int_equal(chat_ids(&again, format, &chat, qwen3, got.n, &err), 0);
    again.n = 0;
    assert_int_equal(chat_ids(&again, format, &chat, qwen3, got.n - 1, &err), -1);
    assert_int_equal(err.kind, ERR_TOO_LONG);
    assert_int_equal(again.n, 0);
    ids_done(&got);
    ids_done(&again);
}

/* The same small vocabulary with a control token under another name. */
static void a_tokenizer_without_a_control_token_is_refused_by_its_name(void **state)
{
    static const char *const names[] = { "<|im_start|>", "<|im_end|>", "<think>", "</think>" };
    const struct chat_message m = { .role = CHAT_USER, .text = "x", .size = 1 };
    const struct chat chat = { .messages = &m, .n_messages = 1, .add_generation_prompt = true,
                               .thinking = THINKING_OFF };

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t size;
        char *json = read_file("tests/data/tokenizers/qwen3.8/tokenizer-mini.json", &size), *at;
        struct tokenizer *t = NULL;
        struct ids out = { 0 };
        struct err err = { 0 };
        for (at = json; (at = strstr(at, names[i])); at++)
            at[strlen(names[i]) - 2] = '#';
        assert_int_equal(tokenizer_open_buffer(&t, "mini", json, size, &err), 0);
        struct chat_format *lacking = open_builtin("qwen3", t);
        assert_int_equal(chat_ids(&out, lacking, &chat, t, 0, &err), -1);
        chat_format_close(lacking);
        assert_int_equal(err.kind, ERR_UNSUPPORTED);
        assert_non_null(strstr(err.text, names[i]));
        tokenizer_close(t);
        free(json);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_hybrid_template_is_rendered_as_the_reference_does),
        cmocka_unit_test(no_text_of_a_request_becomes_a_control_token),
        cmocka_unit_test(text_and_markup_together_make_no_control_token),
        cmocka_unit_test(a_continued_message_is_left_open),
        cmocka_unit_test(a_chat_longer_than_allowed_is_refused),
        cmocka_unit_test(a_tokenizer_without_a_control_token_is_refused_by_its_name),
    };

    return cmocka_run_group_tests(tests, open_qwen3, close_qwen3);
}
