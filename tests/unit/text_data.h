/* What the tests of text share: lines of JSON, files, ids and the Qwen3 tokenizer. */
#ifndef TESTS_TEXT_DATA_H
#define TESTS_TEXT_DATA_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "text/tokenizer.h"
#include "util/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define QWEN3 "build/tokenizers/qwen3/tokenizer.json"
#define QWEN38 "build/tokenizers/qwen3.8/tokenizer.json"
#define VECTORS "tests/data/text/"

/* Sanitizers take time and memory of their own; what is measured is then only printed. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

struct lines {
    FILE *file;
    char *line;
    size_t cap;
    int number;
    json_t *record;
};

static inline struct lines lines_open(const char *path)
{
    struct lines l = { .file = fopen(path, "re") };

    if (!l.file)
        fail_msg("%s is missing", path);
    return l;
}

/* The next record, or NULL at the end, when everything is closed. */
static inline json_t *lines_next(struct lines *l)
{
    json_error_t where;
    ssize_t size = getline(&l->line, &l->cap, l->file);

    json_decref(l->record);
    l->record = NULL;
    if (size <= 0) {
        free(l->line);
        fclose(l->file);
        return NULL;
    }
    l->number++;
    l->record = json_loadb(l->line, (size_t)size, JSON_ALLOW_NUL, &where);
    if (!l->record)
        fail_msg("line %d: %s", l->number, where.text);
    return l->record;
}

static inline char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "re");
    char *text = NULL;

    if (!file)
        fail_msg("%s is missing", path);
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    text = malloc(*size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *size, file), *size);
    text[*size] = 0;
    fclose(file);
    return text;
}

static inline struct tokenizer *open_tokenizer(const char *path)
{
    struct tokenizer *t = NULL;
    struct err err = { 0 };

    if (tokenizer_open(&t, path, &err) < 0)
        fail_msg("%s", err.text);
    return t;
}

static inline struct ids encode(const struct tokenizer *t, const char *text, size_t size,
                                bool trusted)
{
    struct text_run run = { .bytes = text, .size = size, .trusted = trusted };
    struct ids out = { 0 };
    struct err err = { 0 };

    if (tokenizer_encode(t, &run, 1, 0, &out, &err) < 0)
        fail_msg("%s", err.text);
    return out;
}

static inline void assert_same_ids(const struct ids *got, const struct ids *want,
                                   const char *where)
{
    size_t n = got->n < want->n ? got->n : want->n;

    for (size_t i = 0; i < n; i++)
        if (got->id[i] != want->id[i])
            fail_msg("%s: id %zu is %u and should be %u", where, i, got->id[i], want->id[i]);
    if (got->n != want->n)
        fail_msg("%s: %zu ids instead of %zu", where, got->n, want->n);
}

/* The bytes of all ids, one after the other. */
static inline char *decode(const struct tokenizer *t, const struct ids *ids, bool skip_special,
                           size_t *size)
{
    char *text = NULL;
    size_t cap = 1;

    for (size_t i = 0; i < ids->n; i++) {
        size_t piece;
        tokenizer_piece(t, ids->id[i], &piece);
        cap += piece;
    }
    text = malloc(cap);
    assert_non_null(text);
    *size = 0;
    for (size_t i = 0; i < ids->n; i++) {
        size_t piece_size;
        const char *piece = tokenizer_piece(t, ids->id[i], &piece_size);
        if (skip_special && tokenizer_is_special(t, ids->id[i]))
            continue;
        memcpy(text + *size, piece, piece_size);
        *size += piece_size;
    }
    return text;
}

static inline double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- tokenizer files ---- */

static inline void expect_ids(const struct tokenizer *t, json_t *record, const char *key,
                              bool trusted, int line)
{
    json_t *text = json_object_get(record, "text"), *list = json_object_get(record, key), *id;
    struct ids want = { 0 };
    struct err err = { 0 };
    char where[64];
    size_t i;

    snprintf(where, sizeof where, "line %d, %s", line, key);
    json_array_foreach(list, i, id)
        assert_int_equal(ids_put(&want, (uint32_t)json_integer_value(id), &err), 0);

    struct ids got = encode(t, json_string_value(text), json_string_length(text), trusted);
    assert_same_ids(&got, &want, where);
    ids_done(&got);
    ids_done(&want);
}

/* The file with the first `from` behind `after` replaced by `to`. */
static inline char *edited(const char *path, const char *after, const char *from, const char *to,
                           size_t *size)
{
    char *text = read_file(path, size), *at = strstr(text, after), *out;

    at = at ? strstr(at, from) : NULL;
    if (!at)
        fail_msg("%s has no %s", path, from);
    *size += strlen(to) - strlen(from);
    out = malloc(*size + 1);
    assert_non_null(out);
    memcpy(out, text, (size_t)(at - text));
    memcpy(out + (at - text), to, strlen(to));
    strcpy(out + (at - text) + strlen(to), at + strlen(from));
    free(text);
    return out;
}

static inline struct tokenizer *open_edited(const char *path, const char *after, const char *from,
                                            const char *to)
{
    struct tokenizer *t = NULL;
    struct err err = { 0 };
    size_t size;
    char *text = edited(path, after, from, to, &size);

    if (tokenizer_open_buffer(&t, "edited", text, size, &err) < 0)
        fail_msg("%s", err.text);
    free(text);
    return t;
}

#endif
