/* store_fixture: a made-up checkpoint on disk whose every byte is known.
 *
 * Tensors are laid out by hand at any offset, so tests reach odd starts, gaps and
 * scattered experts without a header. The byte at an offset of a file follows from
 * both, hence what a slot must hold can be computed anywhere. No byte is a NaN code
 * of E4M3 unless a test writes one. */
#ifndef TESTS_STORE_FIXTURE_H
#define TESTS_STORE_FIXTURE_H

#include "formats/shards.h"
#include "store/catalog.h"
#include "util/err.h"
#include "util/size.h"

#include <errno.h>
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

enum { FIXTURE_MAX_FILES = 4, FIXTURE_MAX_TENSORS = 4096 };

struct fixture {
    char dir[64];
    struct shard_file files[FIXTURE_MAX_FILES];
    struct tensor *tensors;
    char (*names)[128];
    struct shards shards;
    struct model_shape shape;
    struct catalog catalog;
};

static inline uint8_t fixture_byte(uint32_t file, uint64_t offset)
{
    uint64_t x = (offset + 1) * 0x9E3779B97F4A7C15u ^ ((uint64_t)file << 40);

    x ^= x >> 29;
    x *= 0xBF58476D1CE4E5B9u;
    uint8_t byte = (uint8_t)(x >> 56);

    return (byte & 0x7F) == 0x7F ? (uint8_t)(byte ^ 1) : byte;
}

static inline void fixture_init(struct fixture *f, uint32_t n_files)
{
    *f = (struct fixture){ .dir = "/tmp/colizig-test-XXXXXX" };
    assert_non_null(mkdtemp(f->dir));
    f->tensors = calloc(FIXTURE_MAX_TENSORS, sizeof *f->tensors);
    f->names = calloc(FIXTURE_MAX_TENSORS, sizeof *f->names);
    assert_true(f->tensors && f->names && n_files <= FIXTURE_MAX_FILES);
    for (uint32_t i = 0; i < n_files; i++) {
        char path[128], name[32];

        snprintf(name, sizeof name, "shard-%u.safetensors", i);
        snprintf(path, sizeof path, "%s/%s", f->dir, name);
        f->files[i] = (struct shard_file){ .path = strdup(path), .name = strdup(name) };
        assert_true(f->files[i].path && f->files[i].name);
    }
    f->shards = (struct shards){ .files = f->files, .n_files = n_files, .tensors = f->tensors };
    f->catalog = (struct catalog){ .shards = &f->shards, .shape = &f->shape };
}

/* A tensor at any offset of a file that may already hold others; rows 0: a vector. */
static inline struct tensor *fixture_tensor(struct fixture *f, const char *name, uint32_t file,
                                            uint64_t offset, enum dtype dtype, uint64_t rows,
                                            uint64_t cols)
{
    uint32_t i = f->shards.n_tensors++, size = 0;

    assert_true(i < FIXTURE_MAX_TENSORS);
    snprintf(f->names[i], sizeof f->names[i], "%s", name);
    switch (dtype) {
    case DTYPE_F32:
        size = 4;
        break;
    case DTYPE_F16:
    case DTYPE_BF16:
        size = 2;
        break;
    default:
        size = 1;
    }
    f->tensors[i] = (struct tensor){
        .name = f->names[i], .dtype = dtype, .file = file, .offset = offset,
        .n_dims = rows ? 2 : 1, .dims = { rows ? rows : cols, cols },
        .size = (rows ? rows : 1) * cols * size,
    };
    if (f->files[file].size < offset + f->tensors[i].size)
        f->files[file].size = offset + f->tensors[i].size;
    return &f->tensors[i];
}

/* Where the next tensor of a file goes if it follows the last one. */
static inline uint64_t fixture_end(const struct fixture *f, uint32_t file)
{
    return f->files[file].size;
}

/* All files, up to the end of their last tensor. */
static inline void fixture_write(struct fixture *f)
{
    enum { CHUNK = 1 << 16 };
    static uint8_t chunk[CHUNK];

    for (uint32_t i = 0; i < f->shards.n_files; i++) {
        FILE *to = fopen(f->files[i].path, "wb");

        assert_non_null(to);
        for (uint64_t at = 0; at < f->files[i].size; at += CHUNK) {
            size_t n = f->files[i].size - at < CHUNK ? f->files[i].size - at : CHUNK;

            for (size_t b = 0; b < n; b++)
                chunk[b] = fixture_byte(i, at + b);
            assert_int_equal(fwrite(chunk, 1, n, to), n);
        }
        assert_int_equal(fclose(to), 0);
    }
}

static inline void fixture_poke(struct fixture *f, uint32_t file, uint64_t offset,
                                const void *bytes, size_t n)
{
    int fd = open(f->files[file].path, O_WRONLY | O_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n, (off_t)offset), n);
    close(fd);
}

/* Room for expert tables of the shape; the test fills them. */
static inline void fixture_experts(struct fixture *f, uint32_t n_layers, uint32_t n_experts,
                                   uint32_t width, uint32_t hidden)
{
    size_t n = (size_t)n_layers * n_experts * N_PARTS;

    f->shape.n_layers = f->shape.n_moe_layers = n_layers;
    f->shape.n_experts = n_experts;
    f->shape.expert_width = width;
    f->shape.hidden = hidden;
    for (uint32_t i = 0; i < n_layers; i++) {
        f->shape.layer_is_moe[i] = true;
        f->catalog.moe_ordinal[i] = i;
    }
    f->catalog.expert_tensors = calloc(n, sizeof *f->catalog.expert_tensors);
    f->catalog.expert_scales = calloc(n, sizeof *f->catalog.expert_scales);
    assert_true(f->catalog.expert_tensors && f->catalog.expert_scales);
}

static inline size_t fixture_part(const struct fixture *f, uint32_t layer, uint32_t expert,
                                  enum expert_part part)
{
    return ((size_t)layer * f->shape.n_experts + expert) * N_PARTS + part;
}

/* Experts one after another in a file, their parts in the order of their names, as
 * published checkpoints have them: down, its scale, gate, its scale, up, its scale. */
static inline void fixture_plain_experts(struct fixture *f, uint32_t file, enum dtype dtype)
{
    static const struct {
        enum expert_part part;
        const char *name;
    } order[] = { { PART_DOWN, "down" }, { PART_GATE, "gate" }, { PART_UP, "up" } };

    for (uint32_t layer = 0; layer < f->shape.n_layers; layer++) {
        for (uint32_t e = 0; e < f->shape.n_experts; e++) {
            for (int i = 0; i < 3; i++) {
                uint64_t rows = f->shape.expert_width, cols = f->shape.hidden;
                char name[128];

                if (order[i].part == PART_DOWN) {
                    rows = f->shape.hidden;
                    cols = f->shape.expert_width;
                }
                snprintf(name, sizeof name, "model.layers.%u.mlp.experts.%u.%s_proj.weight",
                         layer, e, order[i].name);
                size_t at = fixture_part(f, layer, e, order[i].part);
                f->catalog.expert_tensors[at] =
                    fixture_tensor(f, name, file, fixture_end(f, file), dtype, rows, cols);
                if (dtype != DTYPE_F8_E4M3)
                    continue;
                snprintf(name, sizeof name,
                         "model.layers.%u.mlp.experts.%u.%s_proj.weight_scale_inv", layer, e,
                         order[i].name);
                f->catalog.expert_scales[at] =
                    fixture_tensor(f, name, file, fixture_end(f, file), DTYPE_BF16,
                                   size_div_up(rows, 128), size_div_up(cols, 128));
            }
        }
    }
}

static inline void fixture_done(struct fixture *f)
{
    for (uint32_t i = 0; i < f->shards.n_files; i++) {
        unlink(f->files[i].path);
        free(f->files[i].path);
        free(f->files[i].name);
    }
    rmdir(f->dir);
    free(f->catalog.items);
    free(f->catalog.expert_tensors);
    free(f->catalog.expert_scales);
    free(f->tensors);
    free(f->names);
}

#endif
