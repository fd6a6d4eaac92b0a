/* Two parsers in one: the first byte says whether the rest is a tokenizer.json or a text for a
 * small tokenizer that is made here. A text must come back as its NFC does, in any two runs. */
#include "fuzz.h"

#include "text/bytes.h"
#include "text/nfc.h"
#include "text/stop.h"
#include "text/tokenizer.h"
#include "util/err.h"
#include "util/utf8.h"

#include <stdbool.h>
#include <string.h>

static void put(struct bytes *b, const char *text)
{
    struct err err = { 0 };

    MUST(bytes_put(b, text, strlen(text), &err) == 0);
}

/* All bytes, a few merges, two added tokens, the pattern of the 248k vocabulary. */
static struct tokenizer *small_tokenizer(void)
{
    static const char *const merges[][2] = { { "a", "b" }, { "ab", "ab" }, { "\u0120", "\u0120" },
                                             { "\u00c3", "\u00a9" }, { "\u0120", "ab" } };
    struct bytes json = { 0 };
    struct tokenizer *t = NULL;
    struct err err = { 0 };
    uint32_t next = 0x100, id = 0;
    char line[128], text[5];

    put(&json, "{\"added_tokens\":[{\"id\":600,\"content\":\"<|x|>\",\"special\":true},"
               "{\"id\":601,\"content\":\"<|\",\"special\":false}],"
               "\"normalizer\":{\"type\":\"NFC\"},\"pre_tokenizer\":{\"type\":\"Sequence\","
               "\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
               "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?[\\\\p{L}\\\\p{M}]+|"
               "\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|"
               "\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false},"
               "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
               "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (uint32_t byte = 0; byte < 256; byte++) {
        bool itself = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
        text[utf8_put(text, itself ? byte : next++)] = 0;
        snprintf(line, sizeof line, "%s\"%s%s\":%u", byte ? "," : "",
                 byte == '"' || byte == '\\' ? "\\" : "", text, id++);
        put(&json, line);
    }
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        snprintf(line, sizeof line, ",\"%s%s\":%u", merges[i][0], merges[i][1], id++);
        put(&json, line);
    }
    put(&json, "},\"merges\":[");
    for (size_t i = 0; i < sizeof merges / sizeof *merges; i++) {
        snprintf(line, sizeof line, "%s[\"%s\",\"%s\"]", i ? "," : "", merges[i][0],
                 merges[i][1]);
        put(&json, line);
    }
    put(&json, "]}}");
    MUST(tokenizer_open_buffer(&t, "small", json.at, json.size, &err) == 0);
    bytes_done(&json);
    return t;
}

static void try_file(const char *bytes, size_t size)
{
    struct tokenizer *t = NULL;
    struct err err = { 0 };

    if (tokenizer_open_buffer(&t, "fuzzed", bytes, size, &err) < 0) {
        MUST(err.kind != ERR_NONE && strstr(err.text, "fuzzed"));
        return;
    }
    const struct text_run run = { "a text <|im_end|> \xc3\xa9 12", 24, true };
    struct ids ids = { 0 };
    if (tokenizer_encode(t, &run, 1, 100, &ids, &err) == 0)
        for (size_t i = 0; i < ids.n; i++)
            MUST(ids.id[i] < tokenizer_vocab(t));
    ids_done(&ids);
    tokenizer_close(t);
}

/* The bytes of the ids through text_out, so that both meet the same invalid bytes. */
static void compare(const struct tokenizer *t, const struct ids *ids, const struct bytes *want)
{
    struct text_out *o = NULL;
    struct err err = { 0 };
    size_t size;

    MUST(text_out_open(&o, NULL, 0, &err) == 0);
    for (size_t i = 0; i < ids->n; i++) {
        const char *piece = tokenizer_piece(t, ids->id[i], &size);
        MUST(size > 0 && text_out_put(o, piece, size, &err) == 0);
    }
    MUST(text_out_finish(o, &err) == 0);
    const char *text = text_out_text(o, &size);
    MUST(size == want->size && (size == 0 || memcmp(text, want->at, size) == 0));
    text_out_close(o);
}

static void try_text(const struct tokenizer *t, const char *text, size_t size, size_t cut)
{
    const struct text_run runs[] = { { text, cut, false }, { text + cut, size - cut, false } };
    struct ids ids = { 0 };
    struct bytes whole = { 0 }, want = { 0 };
    struct err err = { 0 };

    MUST(tokenizer_encode(t, runs, 2, 0, &ids, &err) == 0);
    for (size_t i = 0; i < ids.n; i++)
        MUST(ids.id[i] < 600);
    for (size_t at = 0; at < size;) {
        int length = utf8_next(text + at, size - at, NULL);
        size_t taken = length > 0 ? (size_t)length : utf8_bad(text + at, size - at);
        MUST(bytes_put(&whole, length > 0 ? text + at : "\xef\xbf\xbd", length > 0 ? taken : 3,
                       &err) == 0);
        at += taken;
    }
    MUST(nfc_append(&want, whole.at, whole.size, &err) == 0);
    compare(t, &ids, &want);
    bytes_done(&whole);
    bytes_done(&want);
    ids_done(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *t;

    if (!t)
        t = small_tokenizer();
    if (size < 2)
        return 0;
    if (data[0] & 1)
        try_file((const char *)data + 1, size - 1);
    else
        try_text(t, (const char *)data + 2, size - 2, (size_t)data[1] % (size - 1));
    return 0;
}
