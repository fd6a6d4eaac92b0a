/* All bytes, a few merges, the added tokens of a chat, the pattern of the 248k vocabulary. */
#include "tests/fuzz/small_tokenizer.h"

#include "tests/fuzz/fuzz.h"
#include "text/bytes.h"
#include "text/tokenizer.h"
#include "util/err.h"
#include "util/utf8.h"

#include <stdbool.h>
#include <string.h>

static const struct {
    const char *text;
    bool special;
} added[] = { { "<|x|>", true },       { "<|", false },     { "<|im_start|>", true },
              { "<|im_end|>", true },  { "<think>", false }, { "</think>", false },
              { "<tool_call>", false }, { "</tool_call>", false } };

static const char *const merges[][2] = { { "a", "b" }, { "ab", "ab" }, { "\u0120", "\u0120" },
                                         { "\u00c3", "\u00a9" }, { "\u0120", "ab" } };

static void put(struct bytes *b, const char *text)
{
    struct err err = { 0 };

    MUST(bytes_put(b, text, strlen(text), &err) == 0);
}

static void put_added(struct bytes *json)
{
    char line[128];

    put(json, "{\"added_tokens\":[");
    for (uint32_t i = 0; i < sizeof added / sizeof *added; i++) {
        snprintf(line, sizeof line, "%s{\"id\":%u,\"content\":\"%s\",\"special\":%s}",
                 i ? "," : "", SMALL_ADDED + i, added[i].text, added[i].special ? "true" : "false");
        put(json, line);
    }
    put(json, "],\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
              "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
              "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|"
              "\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|"
              "\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},"
              "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
              "\"decoder\":{\"type\":\"ByteLevel\"}");
}

void small_vocab(struct bytes *json)
{
    uint32_t next = 0x100;
    char line[128], text[5];

    for (uint32_t byte = 0; byte < 256; byte++) {
        bool itself = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        text[utf8_put(text, itself ? byte : next++)] = 0;
        snprintf(line, sizeof line, "%s\"%s%s\":%u", byte ? "," : "",
                 byte == '"' || byte == '\\' ? "\\" : "", text, byte);
        put(json, line);
    }
}

static void put_model(struct bytes *json)
{
    uint32_t id = 256;
    char line[128];

    put(json, ",\"model\":{\"type\":\"BPE\",\"vocab\":{");
    small_vocab(json);
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        snprintf(line, sizeof line, ",\"%s%s\":%u", merges[i][0], merges[i][1], id++);
        put(json, line);
    }
    put(json, "},\"merges\":[");
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        snprintf(line, sizeof line, "%s[\"%s\",\"%s\"]", i ? "," : "", merges[i][0], merges[i][1]);
        put(json, line);
    }
    put(json, "]}}");
}

struct tokenizer *small_tokenizer(void)
{
    struct bytes json = { 0 };
    struct tokenizer *t = NULL;
    struct err err = { 0 };

    put_added(&json);
    put_model(&json);
    MUST(tokenizer_open_buffer(&t, "small", json.at, json.size, &err) == 0);
    bytes_done(&json);
    return t;
}
