#include "text/tokenizer_file.h"

#include "text/added.h"
#include "text/bytes.h"
#include "text/json_pull.h"
#include "util/err.h"
#include "util/fnv.h"
#include "util/size.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Released files have 7 to 20 MB; what is left without the two long parts, some 10 KB. */
#define MAX_FILE (256 * MIB)
#define MAX_REST (8 * MIB)

/* GPT-2's own pattern, which a "ByteLevel" with use_regex stands for. */
static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* ---- reading ---- */

static int read_all(int fd, char *to, uint64_t size, struct err *err)
{
    for (uint64_t at = 0; at < size;) {
        ssize_t got = read(fd, to + at, size - at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_errno(err, "read");
        if (got == 0)
            return err_set(err, ERR_IO, "shrank while it was read");
        at += (uint64_t)got;
    }
    return 0;
}

int tokenizer_file_read(struct region *out, uint64_t *size, const char *path, struct err *err)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    int rc = -1;

    if (fd < 0 && errno == ENOENT)
        return err_set(err, ERR_FORMAT, "not found (a checkpoint needs its tokenizer.json)");
    if (fd < 0 && errno == ELOOP)
        return err_set(err, ERR_FORMAT, "a symbolic link that leads to itself");
    if (fd < 0)
        return err_errno(err, "open");
    if (fstat(fd, &info) < 0)
        err_errno(err, "stat");
    else if (!S_ISREG(info.st_mode))
        err_set(err, ERR_FORMAT, "not a regular file");
    else if (info.st_size == 0)
        err_set(err, ERR_FORMAT, "the file is empty");
    else if ((uint64_t)info.st_size > MAX_FILE)
        err_set(err, ERR_FORMAT, "%" PRId64 " bytes (at most %" PRIu64 ")",
                (int64_t)info.st_size, (uint64_t)MAX_FILE);
    else if (region_open(out, (uint64_t)info.st_size, REGION_SMALL, err) == 0)
        rc = read_all(fd, out->base, (uint64_t)info.st_size, err);
    close(fd);
    *size = rc == 0 ? (uint64_t)info.st_size : 0;
    return rc;
}

/* ---- taking apart ---- */

/* Copies everything of the object into rest, but vocab and merges of a "model" as empty. */
static int take_apart(struct tokenizer_file *f, struct json_pull *p, bool in_model,
                      struct bytes *key, struct bytes *rest, struct err *err)
{
    size_t n = 0;
    int more;
    const char *copied;

    json_pull_peek(p);
    copied = p->at;
    if (json_pull_enter(p, '{', err) < 0)
        return -1;
    while ((more = json_pull_more(p, '{', &n, err)) > 0) {
        const char *begin = NULL;
        if (json_pull_string(p, key, err) < 0 || json_pull_colon(p, err) < 0)
            return -1;

        bool is_vocab = in_model && key->size == 5 && memcmp(key->at, "vocab", 5) == 0;
        bool is_merges = in_model && key->size == 6 && memcmp(key->at, "merges", 6) == 0;
        bool is_model = !in_model && key->size == 5 && memcmp(key->at, "model", 5) == 0;
        if (is_model && json_pull_peek(p) == '{') {
            if (bytes_put(rest, copied, (size_t)(p->at - copied), err) < 0)
                return -1;
            if (take_apart(f, p, true, key, rest, err) < 0)
                return err_within(err, "model");
            copied = p->at;
            continue;
        }
        json_pull_peek(p);
        if (is_vocab || is_merges)
            if (bytes_put(rest, copied, (size_t)(p->at - copied), err) < 0 ||
                bytes_put(rest, is_vocab ? "{}" : "[]", 2, err) < 0)
                return -1;
        if (json_pull_skip(p, &begin, err) < 0)
            return err_within(err, "%s", is_vocab ? "vocab" : is_merges ? "merges" : "a value");
        if (is_vocab) {
            f->vocab = begin;
            f->vocab_size = (size_t)(p->at - begin);
            copied = p->at;
        } else if (is_merges) {
            f->merges = begin;
            f->merges_size = (size_t)(p->at - begin);
            copied = p->at;
        }
        if (rest->size + (size_t)(p->at - copied) > MAX_REST)
            return err_set(err, ERR_FORMAT, "more than %" PRIu64 " bytes beside vocab and merges",
                           (uint64_t)MAX_REST);
    }
    return more < 0 ? -1 : bytes_put(rest, copied, (size_t)(p->at - copied), err);
}

static int parse(struct tokenizer_file *f, const char *text, size_t size, struct err *err)
{
    static const char lfs[] = "version https://git-lfs";
    struct json_pull p = json_pull_over(text, size);
    struct bytes key = { 0 }, rest = { 0 };
    json_error_t where;
    int rc = -1;

    if (size >= sizeof lfs - 1 && memcmp(text, lfs, sizeof lfs - 1) == 0)
        return err_set(err, ERR_FORMAT, "looks like a Git LFS pointer; fetch the file itself "
                                        "(git lfs pull)");
    if (take_apart(f, &p, false, &key, &rest, err) < 0)
        goto done;
    if (json_pull_peek(&p) || p.at < p.end) {
        err_set(err, ERR_FORMAT, "byte %zu: text after the end", (size_t)(p.at - text));
        goto done;
    }
    f->rest = json_loadb(rest.at, rest.size, JSON_REJECT_DUPLICATES, &where);
    if (!f->rest)
        err_set(err, ERR_FORMAT, "line %d: %s", where.line, where.text);
    else if (!f->vocab || !f->merges)
        err_set(err, ERR_FORMAT, "no model.%s", f->vocab ? "merges" : "vocab");
    else
        rc = 0;

done:
    bytes_done(&key);
    bytes_done(&rest);
    return rc;
}

/* ---- what it asks for ---- */

static int refuse(const char *where, const json_t *value, struct err *err)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_ENSURE_ASCII);

    err_set(err, ERR_UNSUPPORTED, "%s: %.80s is not supported", where, text ? text : "this");
    free(text);
    return -1;
}

static bool type_is(const json_t *value, const char *type)
{
    const char *name = json_string_value(json_object_get(value, "type"));

    return name && strcmp(name, type) == 0;
}

/* Absent, null, false, zero or an empty string: not asked for. */
static bool is_off(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

/* A "Sequence" with its members under key, or one value alone; absent and null are none. */
static size_t members(const json_t *value, const char *key, const json_t *list[4])
{
    const json_t *all = json_object_get(value, key);

    if (!value || json_is_null(value))
        return 0;
    if (!type_is(value, "Sequence") || !json_is_array(all)) {
        list[0] = value;
        return 1;
    }
    for (size_t i = 0; i < json_array_size(all) && i < 4; i++)
        list[i] = json_array_get(all, i);
    return json_array_size(all);
}

static int check_normalizer(struct tokenizer_file *f, struct err *err)
{
    const json_t *value = json_object_get(f->rest, "normalizer"), *list[4] = { 0 };
    size_t n = members(value, "normalizers", list);

    if (n > 4)
        return refuse("normalizer", value, err);
    for (size_t i = 0; i < n; i++) {
        if (!type_is(list[i], "NFC"))
            return refuse("normalizer", list[i], err);
        f->nfc = true;
    }
    return 0;
}

static int check_split(struct tokenizer_file *f, const json_t *split, struct err *err)
{
    const json_t *regex = json_object_get(json_object_get(split, "pattern"), "Regex");
    const char *behavior = json_string_value(json_object_get(split, "behavior"));

    if (!json_is_string(regex) || !behavior || strcmp(behavior, "Isolated") != 0 ||
        !is_off(json_object_get(split, "invert")))
        return refuse("pre_tokenizer", split, err);
    f->pattern = json_string_value(regex);
    f->pattern_size = json_string_length(regex);
    return 0;
}

/* An optional "Split" by a regex, then "ByteLevel", whose own regex may do the splitting. */
static int check_pre_tokenizer(struct tokenizer_file *f, struct err *err)
{
    const json_t *value = json_object_get(f->rest, "pre_tokenizer"), *list[4] = { 0 };
    size_t n = members(value, "pretokenizers", list), at = 0;

    if (n < 1 || n > 2)
        return refuse("pre_tokenizer", value ? value : json_null(), err);
    if (n == 2) {
        if (!type_is(list[0], "Split"))
            return refuse("pre_tokenizer", list[0], err);
        if (check_split(f, list[0], err) < 0)
            return -1;
        at = 1;
    }

    const json_t *byte_level = list[at], *use_regex = json_object_get(byte_level, "use_regex");
    const json_t *space = json_object_get(byte_level, "add_prefix_space");
    /* Both are on when they are not written. */
    if (!type_is(byte_level, "ByteLevel") || !space || !is_off(space))
        return refuse("pre_tokenizer", byte_level, err);
    if (!use_regex || !is_off(use_regex)) {
        if (f->pattern)
            return refuse("pre_tokenizer", value, err);
        f->pattern = gpt2_pattern;
        f->pattern_size = sizeof gpt2_pattern - 1;
    } else if (!f->pattern) {
        return refuse("pre_tokenizer", value, err);
    }
    return 0;
}

static int check_byte_level(const struct tokenizer_file *f, const char *key, const char *many,
                            size_t at_least, struct err *err)
{
    const json_t *value = json_object_get(f->rest, key), *list[4] = { 0 };
    size_t n = members(value, many, list);

    if (n < at_least || n > 4)
        return refuse(key, value ? value : json_null(), err);
    for (size_t i = 0; i < n; i++)
        if (!type_is(list[i], "ByteLevel"))
            return refuse(key, list[i], err);
    return 0;
}

static int check_model(const struct tokenizer_file *f, struct err *err)
{
    const json_t *model = json_object_get(f->rest, "model");
    const json_t *type = json_object_get(model, "type");
    const char *key;
    json_t *value;

    if (type && !type_is(model, "BPE"))
        return refuse("model.type", type, err);
    json_object_foreach((json_t *)(uintptr_t)model, key, value)
    {
        /* The unknown token is for characters without a token, and every byte has one. */
        static const char *const known[] = { "type", "vocab", "merges", "unk_token", "fuse_unk" };
        bool fine = is_off(value);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            fine = fine || strcmp(key, known[i]) == 0;
        if (!fine) {
            char where[64];
            snprintf(where, sizeof where, "model.%.40s", key);
            return refuse(where, value, err);
        }
    }
    return 0;
}

/* Truncation and padding are left out on purpose: the reference sets both anew on each call. */
static int check(struct tokenizer_file *f, struct err *err)
{
    static const char *const known[] = { "version", "truncation", "padding", "added_tokens",
                                         "normalizer", "pre_tokenizer", "post_processor",
                                         "decoder", "model" };
    const json_t *added = json_object_get(f->rest, "added_tokens");
    const char *key;
    json_t *value;

    json_object_foreach(f->rest, key, value)
    {
        bool fine = is_off(value);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            fine = fine || strcmp(key, known[i]) == 0;
        if (!fine)
            return err_set(err, ERR_UNSUPPORTED, "key '%.40s' is not supported", key);
    }
    const json_t *version = json_object_get(f->rest, "version");
    if (version && (!json_is_string(version) || strcmp(json_string_value(version), "1.0") != 0))
        return refuse("version", version, err);
    if (added && !json_is_null(added) && !json_is_array(added))
        return err_set(err, ERR_FORMAT, "added_tokens: an array expected");
    if (json_array_size(added) > 65536)
        return err_set(err, ERR_FORMAT, "added_tokens: more than 65536");
    f->n_added = (uint32_t)json_array_size(added);

    if (check_model(f, err) < 0 || check_normalizer(f, err) < 0 ||
        check_pre_tokenizer(f, err) < 0 ||
        check_byte_level(f, "post_processor", "processors", 0, err) < 0 ||
        check_byte_level(f, "decoder", "decoders", 1, err) < 0)
        return -1;
    return 0;
}

/* ---- */

/* Never 0, which stands for no file. */
static uint64_t fingerprint(const unsigned char *bytes, size_t size)
{
    uint64_t hash = fnv(FNV_BEGIN, bytes, size);

    return hash ? hash : 1;
}

int tokenizer_file_open_buffer(struct tokenizer_file *out, const void *bytes, size_t size,
                               struct err *err)
{
    struct tokenizer_file f = { 0 };

    if (parse(&f, bytes, size, err) < 0 || check(&f, err) < 0) {
        tokenizer_file_close(&f);
        return -1;
    }
    f.fingerprint = fingerprint(bytes, size);
    *out = f;
    return 0;
}

int tokenizer_file_open(struct tokenizer_file *out, const char *path, struct err *err)
{
    struct region text = { 0 };
    uint64_t size = 0;

    if (tokenizer_file_read(&text, &size, path, err) < 0 ||
        tokenizer_file_open_buffer(out, text.base, (size_t)size, err) < 0) {
        region_close(&text);
        return -1;
    }
    out->text = text;
    return 0;
}

void tokenizer_file_close(struct tokenizer_file *f)
{
    json_decref(f->rest);
    region_close(&f->text);
    *f = (struct tokenizer_file){ 0 };
}

int tokenizer_file_added(struct added_token *out, const struct tokenizer_file *f, uint32_t i,
                         struct err *err)
{
    static const char *const flags[] = { "special", "lstrip", "rstrip", "single_word",
                                         "normalized" };
    const json_t *token = json_array_get(json_object_get(f->rest, "added_tokens"), i);
    const json_t *id = json_object_get(token, "id"), *text = json_object_get(token, "content");
    bool on[5];

    if (!json_is_string(text) || json_string_length(text) == 0)
        return err_set(err, ERR_FORMAT, "added_tokens[%u].content: a text expected", i);
    if (!json_is_integer(id) || json_integer_value(id) < 0 ||
        json_integer_value(id) > UINT32_MAX)
        return err_set(err, ERR_FORMAT, "added_tokens[%u].id: a whole number expected", i);
    for (size_t k = 0; k < 5; k++) {
        const json_t *flag = json_object_get(token, flags[k]);
        if (flag && !json_is_boolean(flag))
            return err_set(err, ERR_FORMAT, "added_tokens[%u].%s: true or false expected", i,
                           flags[k]);
        on[k] = json_is_true(flag);
        if (on[k] && k >= 3)
            return err_set(err, ERR_UNSUPPORTED, "added_tokens[%u] ('%.60s'): \"%s\": true is "
                                                 "not supported",
                           i, json_string_value(text), flags[k]);
    }
    *out = (struct added_token){ .text = json_string_value(text),
                                 .size = (uint32_t)json_string_length(text),
                                 .id = (uint32_t)json_integer_value(id), .special = on[0],
                                 .lstrip = on[1], .rstrip = on[2] };
    return 0;
}
