/* checkpoint_fixture: small checkpoint directories made for one test.
 *
 * Shards have true headers and sparse data (zeros), so a layout of many gigabytes costs
 * nothing on disk. */
#ifndef TESTS_CHECKPOINT_FIXTURE_H
#define TESTS_CHECKPOINT_FIXTURE_H

#include "util/err.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

struct checkpoint_dir {
    char path[64];
};

/* A header that grows tensor by tensor. */
struct shard_text {
    char *text; /* owned */
    size_t used, cap;
    uint64_t data;
};

static inline void dir_init(struct checkpoint_dir *d)
{
    *d = (struct checkpoint_dir){ .path = "/tmp/colizig-test-XXXXXX" };
    assert_non_null(mkdtemp(d->path));
}

static inline const char *dir_file(const struct checkpoint_dir *d, const char *name)
{
    static char path[2][512];
    static unsigned turn;
    char *out = path[turn++ % 2];

    snprintf(out, sizeof path[0], "%s/%s", d->path, name);
    return out;
}

static inline void dir_remove(const char *path)
{
    const struct dirent *e;
    char inner[4096];
    DIR *dir = opendir(path);

    assert_non_null(dir);
    while ((e = readdir(dir)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        int n = snprintf(inner, sizeof inner, "%s/%s", path, e->d_name);
        assert_true(n > 0 && (size_t)n < sizeof inner);
        if (unlink(inner) < 0)
            dir_remove(inner);
    }
    closedir(dir);
    rmdir(path);
}

static inline void dir_text(const struct checkpoint_dir *d, const char *name, const char *text)
{
    FILE *f = fopen(dir_file(d, name), "w");

    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static inline void text_add(struct shard_text *s, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static inline void text_add(struct shard_text *s, const char *fmt, ...)
{
    va_list args;

    if (s->cap - s->used < 1024) {
        s->cap = s->cap * 2 + 4096;
        s->text = realloc(s->text, s->cap);
        assert_non_null(s->text);
    }
    va_start(args, fmt);
    int n = vsnprintf(s->text + s->used, s->cap - s->used, fmt, args);
    va_end(args);
    assert_true(n >= 0 && (size_t)n < s->cap - s->used);
    s->used += (size_t)n;
}

/* bytes: of one element. */
static inline void shard_add(struct shard_text *s, const char *name, const char *dtype,
                             uint32_t bytes, uint32_t n_dims, uint64_t d0, uint64_t d1)
{
    uint64_t size = bytes * d0 * (n_dims == 2 ? d1 : 1);

    text_add(s, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%" PRIu64, s->used ? "," : "{", name,
             dtype, d0);
    if (n_dims == 2)
        text_add(s, ",%" PRIu64, d1);
    text_add(s, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", s->data, s->data + size);
    s->data += size;
}

/* Writes the file; cut bytes are missing at its end. The text is given back. */
static inline void shard_write(struct shard_text *s, const struct checkpoint_dir *d,
                               const char *name, uint64_t cut)
{
    text_add(s, "%s", s->used ? "}" : "{}");
    FILE *f = fopen(dir_file(d, name), "w");
    uint64_t n = s->used;

    assert_non_null(f);
    for (int i = 0; i < 8; i++)
        fputc((int)(n >> 8 * i & 255), f);
    assert_int_equal(fwrite(s->text, 1, s->used, f), s->used);
    assert_int_equal(fflush(f), 0);
    assert_int_equal(ftruncate(fileno(f), (off_t)(8 + n + s->data - cut)), 0);
    assert_int_equal(fclose(f), 0);
    free(s->text);
    *s = (struct shard_text){ 0 };
}

/* One file with a single BF16 [4] tensor of that name. */
static inline void shard_one(const struct checkpoint_dir *d, const char *file, const char *tensor)
{
    struct shard_text s = { 0 };

    shard_add(&s, tensor, "BF16", 2, 1, 4, 0);
    shard_write(&s, d, file, 0);
}

static inline void says(const struct err *err, const char *part)
{
    if (!strstr(err->text, part))
        fail_msg("'%s' should say '%s'", err->text, part);
}

#endif
