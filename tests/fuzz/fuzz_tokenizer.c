/* Two parsers in one: the first byte says whether the rest is a tokenizer.json or a text for a
 * small tokenizer. A text must come back as its NFC does, in any two runs and in any portions. */
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/small_tokenizer.h"

#include "text/bytes.h"
#include "text/encoding.h"
#include "text/nfc.h"
#include "text/stop.h"
#include "text/tokenizer.h"
#include "util/err.h"
#include "util/utf8.h"

#include <stdbool.h>
#include <string.h>

/* What a tokenizer of a strange file makes of ordinary text. */
static void use(const struct tokenizer *t)
{
    const struct text_run runs[] = { { "a text <|im_end|> \xc3\xa9 12", 24, true },
                                     { "\n\n  it's <|im_end|>\xe2\x84\xab\xcc\x81", 25, false } };
    struct ids ids = { 0 };
    struct err err = { 0 };
    size_t size;
    uint32_t id;

    if (tokenizer_encode(t, runs, 2, 100, &ids, &err) == 0)
        for (size_t i = 0; i < ids.n; i++) {
            MUST(ids.id[i] < tokenizer_vocab(t));
            tokenizer_piece(t, ids.id[i], &size);
            tokenizer_is_special(t, ids.id[i]);
        }
    else
        MUST(err.kind != ERR_NONE && err.text[0] && ids.n == 0);
    if (tokenizer_find(t, "<|im_end|>", &id))
        MUST(id < tokenizer_vocab(t));
    MUST(tokenizer_piece(t, UINT32_MAX, &size) == NULL || size == 0);
    ids_done(&ids);
}

/* The first "@" stands for the 256 tokens that every vocabulary has, which would be most of each
 * seed. */
static void expand(struct bytes *json, const char *bytes, size_t size)
{
    const char *at = size ? memchr(bytes, '@', size) : NULL;
    size_t before = at ? (size_t)(at - bytes) : size;
    struct err err = { 0 };

    MUST(bytes_put(json, bytes, before, &err) == 0);
    if (at) {
        small_vocab(json);
        MUST(bytes_put(json, at + 1, size - before - 1, &err) == 0);
    }
}

/* Read as a file and from memory it is the same, and the plan knew what it would take. */
static void try_file(const char *bytes, size_t size)
{
    struct tokenizer *t = NULL, *same = NULL;
    struct err err = { 0 }, file_err = { 0 };
    uint64_t planned = 0, print = 0;
    char path[64];
    int fd = fuzz_file(path, (const uint8_t *)bytes, size);
    int rc = tokenizer_open_buffer(&t, "fuzzed", bytes, size, &err);

    MUST(rc == tokenizer_open(&same, path, &file_err));
    if (rc < 0) {
        MUST(err.kind != ERR_NONE && strstr(err.text, "fuzzed"));
        MUST(file_err.kind != ERR_NONE && strstr(file_err.text, path));
        tokenizer_plan_size(&planned, &print, path, &err);
    } else {
        MUST(tokenizer_plan_size(&planned, &print, path, &err) == 0);
        MUST(print == tokenizer_fingerprint(t) && print == tokenizer_fingerprint(same));
        MUST(tokenizer_memory(t) <= planned && tokenizer_memory(same) == tokenizer_memory(t));
        MUST(tokenizer_vocab(t) == tokenizer_vocab(same));
        use(t);
    }
    tokenizer_close(t);
    tokenizer_close(same);
    close(fd);
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
        MUST(ids.id[i] < SMALL_ADDED);
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

/* In portions it gives the same ids, or stops at the bound that was set and never later. */
static void try_portions(const struct tokenizer *t, const char *text, size_t size, size_t cut,
                         uint8_t choice)
{
    const struct text_run runs[] = { { text, cut, choice & 2 }, { text + cut, size - cut, false } };
    size_t most = choice & 16 ? size / 3 : 0;
    uint64_t room = choice & 32 ? 4096 + 8 * size : 0;
    struct ids whole = { 0 }, ids = { 0 };
    struct encoding *e = NULL;
    struct err err = { 0 }, step_err = { 0 };
    int rc = tokenizer_encode(t, runs, 2, most, &whole, &err);
    int more = encoding_open(&e, t, runs, 2, most, 0, &step_err);

    MUST(rc == 0 || (err.kind == ERR_TOO_LONG && most));
    if (more == 0)
        do {
            more = encoding_step(e, 1 + (choice & 4 ? 64 : 4096), room, &ids, &step_err);
            MUST(!room || more < 0 || encoding_memory(e, &ids) <= room);
        } while (more > 0);
    if (more < 0) {
        MUST((step_err.kind == ERR_BUDGET && room) || (step_err.kind == ERR_TOO_LONG && rc < 0));
    } else {
        MUST(rc == 0 && ids.n == whole.n);
        MUST(ids.n == 0 || memcmp(ids.id, whole.id, ids.n * sizeof *ids.id) == 0);
    }
    encoding_close(e);
    ids_done(&ids);
    ids_done(&whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct tokenizer *t;

    if (!t)
        t = small_tokenizer();
    if (size < 2)
        return 0;
    const char *text = (const char *)data + 2;
    size_t cut = (size_t)data[1] % (size - 1);
    if (data[0] & 1) {
        struct bytes json = { 0 };
        expand(&json, (const char *)data + 1, size - 1);
        try_file(json.at, json.size);
        bytes_done(&json);
    } else if (data[0] & 8) {
        try_portions(t, text, size - 2, cut, data[0]);
    } else {
        try_text(t, text, size - 2, cut);
    }
    return 0;
}
