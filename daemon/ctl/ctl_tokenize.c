/* tokenize: text to ids and back, as a line on a terminal or as a stream of JSON lines. */
#include "daemon/ctl/ctl.h"

#include "text/tokenizer.h"
#include "util/err.h"
#include "util/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A growing text. */
struct text {
    char *bytes; /* owned */
    size_t size, cap;
};

static int text_put(struct text *t, const char *bytes, size_t size, struct err *err)
{
    if (t->cap - t->size < size) {
        size_t cap = t->cap ? t->cap : 4096;
        while (cap - t->size < size)
            cap *= 2;
        char *more = realloc(t->bytes, cap);
        if (!more)
            return err_set(err, ERR_NOMEM, "a text of %zu bytes", cap);
        t->bytes = more;
        t->cap = cap;
    }
    if (size) /* an empty text may have no memory at all */
        memcpy(t->bytes + t->size, bytes, size);
    t->size += size;
    return 0;
}

static int text_read(struct text *t, FILE *from, struct err *err)
{
    char chunk[65536];
    size_t got;

    while ((got = fread(chunk, 1, sizeof chunk, from)) > 0)
        if (text_put(t, chunk, got, err) < 0)
            return -1;
    return ferror(from) ? err_set(err, ERR_IO, "reading standard input failed") : 0;
}

/* Operands joined by blanks, or all of standard input. Ends with a NUL that is not counted. */
static int gather(struct text *t, const struct ctl_args *args, struct err *err)
{
    for (size_t i = 1; i < args->n_operands; i++)
        if ((i > 1 && text_put(t, " ", 1, err) < 0) ||
            text_put(t, args->operands[i], strlen(args->operands[i]), err) < 0)
            return -1;
    if (args->n_operands == 1 && text_read(t, stdin, err) < 0)
        return -1;
    if (text_put(t, "", 1, err) < 0)
        return -1;
    t->size--;
    return 0;
}

static int encode(struct ids *out, const struct tokenizer *tokenizer, const char *bytes,
                  size_t size, bool special, struct err *err)
{
    struct text_run run = { .bytes = bytes, .size = size, .trusted = special };

    return tokenizer_encode(tokenizer, &run, 1, 0, out, err);
}

static int decode(struct text *out, const struct tokenizer *tokenizer, const uint32_t *ids,
                  size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        size_t size;
        if (ids[i] >= tokenizer_vocab(tokenizer))
            return err_set(err, ERR_INPUT, "token id %u is not below the vocabulary's %u", ids[i],
                           tokenizer_vocab(tokenizer));
        const char *piece = tokenizer_piece(tokenizer, ids[i], &size);
        if (piece && text_put(out, piece, size, err) < 0)
            return -1;
    }
    return 0;
}

static json_t *json_of_ids(const uint32_t *ids, size_t n)
{
    json_t *array = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(array, json_integer(ids[i]));
    return array;
}

/* What is no UTF-8 (a token may be half a character) becomes U+FFFD. */
static json_t *json_of_text(const char *bytes, size_t size)
{
    char *clean = malloc(size * 3 + 1);
    size_t n = 0;

    if (!clean)
        return NULL;
    while (size) {
        int length = utf8_next(bytes, size, NULL);
        if (length > 0) {
            memcpy(clean + n, bytes, (size_t)length);
            n += (size_t)length;
        } else {
            n += utf8_put(clean + n, 0xfffd);
            length = 1;
        }
        bytes += length;
        size -= (size_t)length;
    }
    json_t *string = json_stringn(clean, n);
    free(clean);
    return string;
}

/* ---- JSON lines ---- */

static int line_text(const json_t *line, const char **bytes, size_t *size, bool *special,
                     struct err *err)
{
    const json_t *text = json_object_get(line, "text"), *flag = json_object_get(line, "special");

    if (!json_is_string(text))
        return err_set(err, ERR_INPUT, "'text' must be a string");
    if (flag && !json_is_boolean(flag))
        return err_set(err, ERR_INPUT, "'special' must be true or false");
    *bytes = json_string_value(text);
    *size = json_string_length(text);
    if (flag)
        *special = json_is_true(flag);
    return 0;
}

static json_t *answer_encode(const struct tokenizer *tokenizer, const json_t *line, bool special,
                             struct err *err)
{
    struct ids ids = { 0 };
    json_t *answer = NULL;
    const char *bytes = NULL;
    size_t size = 0;

    if (line_text(line, &bytes, &size, &special, err) == 0 &&
        encode(&ids, tokenizer, bytes, size, special, err) == 0)
        answer = json_pack("{s:o}", "ids", json_of_ids(ids.id, ids.n));
    ids_done(&ids);
    return answer;
}

static json_t *answer_decode(const struct tokenizer *tokenizer, const json_t *line,
                             struct err *err)
{
    const json_t *list = json_object_get(line, "ids");
    struct text text = { 0 };
    json_t *answer = NULL;

    if (!json_is_array(list)) {
        err_set(err, ERR_INPUT, "'ids' must be an array");
        return NULL;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        json_int_t value = json_integer_value(item);
        uint32_t id = (uint32_t)value;
        if (!json_is_integer(item) || value < 0 || value > UINT32_MAX) {
            err_set(err, ERR_INPUT, "'ids' holds something that is no token id");
            goto done;
        }
        if (decode(&text, tokenizer, &id, 1, err) < 0)
            goto done;
    }
    answer = json_pack("{s:o}", "text", json_of_text(text.bytes, text.size));
done:
    free(text.bytes);
    return answer;
}

static json_t *answer_line(const struct ctl_args *args, const struct tokenizer *tokenizer,
                           const char *bytes, size_t size, struct err *err)
{
    json_error_t where;
    json_t *line = json_loadb(bytes, size, JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &where);
    json_t *answer = NULL;

    if (!line)
        err_set(err, ERR_INPUT, "no JSON object: %.120s", where.text);
    else if (!json_is_object(line))
        err_set(err, ERR_INPUT, "no JSON object");
    else if (ctl_has(args, "--decode"))
        answer = answer_decode(tokenizer, line, err);
    else
        answer = answer_encode(tokenizer, line, ctl_has(args, "--special"), err);
    json_decref(line);
    return answer;
}

/* One answer for each line, at once, so that a program can talk to us. */
static int run_lines(const struct ctl_args *args, const struct tokenizer *tokenizer)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t size;
    int status = EXIT_FINE;

    while ((size = getline(&line, &cap, stdin)) > 0) {
        struct err err = { 0 };
        json_t *answer = answer_line(args, tokenizer, line, (size_t)size, &err);
        if (!answer) {
            char plain[sizeof err.text];
            status = EXIT_FAILED;
            answer = json_pack("{s:s}", "error",
                               ctl_plain(plain, sizeof plain,
                                         err.text[0] ? err.text : "out of memory"));
        }
        ctl_print_json(answer);
        if (ferror(stdout))
            break;
    }
    free(line);
    return status;
}

/* ---- one text ---- */

static void print_pieces(const struct tokenizer *tokenizer, const struct ids *ids)
{
    for (size_t i = 0; i < ids->n; i++) {
        size_t size;
        const char *piece = tokenizer_piece(tokenizer, ids->id[i], &size);
        json_t *text = json_of_text(piece ? piece : "", piece ? size : 0);
        char *quoted = text ? json_dumps(text, JSON_ENCODE_ANY) : NULL;

        printf("%8u  %s%s\n", ids->id[i], quoted ? quoted : "?",
               tokenizer_is_special(tokenizer, ids->id[i]) ? "  special" : "");
        free(quoted);
        json_decref(text);
    }
}

static int run_encode(const struct ctl_args *args, const struct tokenizer *tokenizer,
                      const struct text *text, struct err *err)
{
    struct ids ids = { 0 };

    if (encode(&ids, tokenizer, text->bytes, text->size, ctl_has(args, "--special"), err) < 0) {
        ids_done(&ids);
        return -1;
    }
    if (ctl_has(args, "--json")) {
        ctl_print_json(json_pack("{s:o}", "ids", json_of_ids(ids.id, ids.n)));
    } else if (ctl_has(args, "--pieces")) {
        print_pieces(tokenizer, &ids);
    } else {
        for (size_t i = 0; i < ids.n; i++)
            printf("%s%" PRIu32, i ? "," : "", ids.id[i]);
        putchar('\n');
    }
    ids_done(&ids);
    return 0;
}

static int run_decode(const struct ctl_args *args, const struct tokenizer *tokenizer,
                      const struct text *given, struct err *err)
{
    struct text text = { 0 };
    uint32_t *ids;
    size_t n;

    if (ctl_ids(given->bytes, &ids, &n, err) < 0)
        return -1;
    int rc = decode(&text, tokenizer, ids, n, err);
    if (rc == 0 && ctl_has(args, "--json"))
        ctl_print_json(json_pack("{s:o}", "text", json_of_text(text.bytes, text.size)));
    else if (rc == 0 && text.size)
        fwrite(text.bytes, 1, text.size, stdout); /* as it is, without a line's end of ours */
    free(text.bytes);
    free(ids);
    return rc;
}

static int run(const struct ctl_args *args)
{
    struct tokenizer *tokenizer = NULL;
    struct text text = { 0 };
    char path[4096];
    struct err err;
    int status = EXIT_FINE;

    if (ctl_has(args, "--jsonl") && args->n_operands > 1) {
        err_set(&err, ERR_INPUT, "--jsonl reads lines from standard input; give no text");
        return ctl_fail(args, &err);
    }
    if (snprintf(path, sizeof path, "%s/tokenizer.json", args->operands[0]) >= (int)sizeof path) {
        err_set(&err, ERR_INPUT, "the path is too long");
        return ctl_fail(args, &err);
    }
    if (tokenizer_open(&tokenizer, path, &err) < 0)
        return ctl_fail(args, &err);
    if (ctl_has(args, "--jsonl")) {
        status = run_lines(args, tokenizer);
    } else if (gather(&text, args, &err) < 0 ||
               (ctl_has(args, "--decode") ? run_decode(args, tokenizer, &text, &err)
                                          : run_encode(args, tokenizer, &text, &err)) < 0) {
        status = ctl_fail(args, &err);
    }
    free(text.bytes);
    tokenizer_close(tokenizer);
    return status;
}

static const struct ctl_flag flags[] = {
    { "--decode", NULL, "ids to text instead", NULL },
    { "--special", NULL, "control tokens in the text become tokens", NULL },
    { "--pieces", NULL, "each token with its text", NULL },
    { "--jsonl", NULL, "a JSON object a line, in and out", NULL },
    { 0 },
};

const struct ctl_command ctl_tokenize = {
    .name = "tokenize",
    .operands = "DIR [TEXT|IDS...]",
    .summary = "text to token ids and back",
    .example = "  colizigctl tokenize DIR 'Hello there'          9707,1052\n"
               "  colizigctl tokenize DIR --decode 9707,1052     Hello there\n"
               "  echo '{\"text\":\"hi\",\"special\":false}' | colizigctl tokenize DIR --jsonl",
    .flags = flags,
    .min_operands = 1,
    .max_operands = CTL_MAX_OPERANDS,
    .run = run,
};
