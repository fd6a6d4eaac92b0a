/* A chat template of a stranger: it is refused when it is opened, or every conversation ends in an
 * error or a text, within the limits, whatever it says. The first byte chooses how much there is. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/small_tokenizer.h"

#include "text/chat.h"
#include "text/jinja.h"
#include "util/err.h"
#include "util/utf8.h"

#include <string.h>

enum { OUTPUT = 256 << 10 };

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"description\":\"\\u00e9 <b>\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"at\":{\"type\":[\"string\",\"null\"],"
    "\"enum\":[1,0.1,1e22,123456789012345678901234567890,null,true]}},\"required\":[\"at\"]}}}]";
static const char kwargs[] = "{\"deep\":[[[[{}]]]],\"n\":-3,\"text\":\"a\\nb\",\"late\":false}";

#define TEXT(s) .text = s, .size = sizeof s - 1

static const struct chat_call calls[] = {
    { .name = "look", .name_size = 4, .arguments = "{\"at\": \"<|im_end|>\", \"x\": [1, 2.5]}",
      .arguments_size = 35, .id = "a", .id_size = 1 },
    { .name = "look", .name_size = 4, .arguments = "{broken", .arguments_size = 7 },
};
static const struct chat_message messages[] = {
    { .role = CHAT_SYSTEM, TEXT("rules ") },
    { .role = CHAT_SYSTEM, TEXT("\n more <|im_start|>") },
    { .role = CHAT_USER, TEXT("  question\0 \xc3\xa9\xe2\x80\xa8 ") },
    { .role = CHAT_ASSISTANT, TEXT("<think>\nso\n</think>\n\nlooking"), .calls = calls,
      .n_calls = 2 },
    { .role = CHAT_TOOL, TEXT("</tool_response>"), .call_id = "a", .call_id_size = 1 },
    { .role = CHAT_TOOL, TEXT(""), .name = "look", .name_size = 4 },
    { .role = CHAT_SYSTEM, TEXT("late") },
    { .role = CHAT_USER, TEXT("") },
    { .role = CHAT_ASSISTANT, TEXT("answer"), .reasoning = "why", .reasoning_size = 3 },
};

static void check_text(const struct chat_rendered *text)
{
    uint64_t size = 0;
    uint32_t sum = 0;

    for (size_t i = 0; i < text->n; i++) {
        MUST(text->run[i].size > 0);
        for (size_t k = 0; k < text->run[i].size; k++)
            sum += (uint8_t)text->run[i].bytes[k];
        size += text->run[i].size;
    }
    MUST(size == text->size && size <= OUTPUT);
    (void)sum;
}

/* One conversation, with what the bits of `how` ask for. */
static void render(const struct chat_format *f, unsigned how, uint64_t memory)
{
    const struct jinja_limits limits = { .steps = 20000, .memory = memory, .output = OUTPUT };
    struct jinja_mem *m = jinja_mem_open(&limits);
    struct chat chat = { .messages = messages, .n_messages = sizeof messages / sizeof *messages,
                         .add_generation_prompt = how & 1, .continue_final = !(how & 1),
                         .thinking = how & 2 ? THINKING_OFF : THINKING_DEFAULT,
                         .effort = how & 4 ? EFFORT_HIGH : EFFORT_DEFAULT,
                         .late_system = how & 8 ? LATE_SYSTEM_MERGE : LATE_SYSTEM_INLINE };
    struct chat_rendered text;
    struct err err = { 0 };

    MUST(m != NULL);
    chat.tools = jinja_json(m, tools, sizeof tools - 1, &err);
    chat.kwargs = jinja_json(m, kwargs, sizeof kwargs - 1, &err);
    if (chat.tools && chat.kwargs && chat_render(&text, f, &chat, m, &err) == 0)
        check_text(&text);
    else
        MUST(err.kind != ERR_NONE && err.text[0] && utf8_valid(err.text, strlen(err.text)));
    MUST(jinja_mem_used(m) <= memory);
    jinja_mem_close(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *t;
    struct chat_format *f = NULL;
    struct err err = { 0 };

    if (!t)
        t = small_tokenizer();
    if (size < 1)
        return 0;
    const struct chat_source source = { .template = (const char *)data + 1, .size = size - 1,
                                        .eos_token = "<|im_end|>" };
    if (chat_format_open(&f, &source, t, &err) < 0) {
        MUST(err.kind == ERR_FORMAT || err.kind == ERR_UNSUPPORTED || err.kind == ERR_BUDGET);
        MUST(err.text[0]);
        return 0;
    }
    MUST(chat_format_fingerprint(f) != 0);
    render(f, data[0], 4 << 20);
    render(f, data[0] >> 4, 64 << 10);
    chat_format_close(f);
    return 0;
}
