/* block_fixture: a step over rows of a few sequences, for one block by itself, and made-up
 * weights that depend on a seed alone. */
#ifndef TESTS_BLOCK_FIXTURE_H
#define TESTS_BLOCK_FIXTURE_H

#include "blocks/step.h"
#include "kernels/kernels.h"
#include "util/err.h"
#include "util/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCK_ROWS = 64, BLOCK_SEQS = 4, BLOCK_SCRATCH = 32 << 20 };

struct block_fixture {
    struct step step;
    struct row rows[BLOCK_ROWS];
    struct seq_state *states[BLOCK_SEQS];
    bool gone[BLOCK_SEQS];
    struct arena scratch;
    struct step_counters counters;
    uint64_t seed;
};

static inline void block_open(struct block_fixture *f, uint32_t threads, uint64_t seed)
{
    struct err err;

    *f = (struct block_fixture){ .seed = seed };
    arena_init(&f->scratch, aligned_alloc(64, BLOCK_SCRATCH), BLOCK_SCRATCH);
    assert_non_null(f->scratch.base);
    f->step.rows = f->rows;
    f->step.states = f->states;
    f->step.gone = f->gone;
    f->step.scratch = &f->scratch;
    f->step.counters = &f->counters;
    assert_int_equal(pool_open(&f->step.pool, threads, &err), 0);
    assert_int_equal(kernels_choose(&f->step.kernels, KERNELS_SCALAR, &err), 0);
}

static inline void block_close(struct block_fixture *f)
{
    pool_close(f->step.pool);
    free(f->scratch.base);
}

/* n more rows of a sequence, from position pos on. */
static inline void block_rows(struct block_fixture *f, uint16_t seq, uint32_t pos, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        f->rows[f->step.n_rows++] = (struct row){ .pos = pos + i, .seq = seq };
    if (f->step.n_states <= seq)
        f->step.n_states = seq + 1u;
}

static inline void block_clear(struct block_fixture *f)
{
    f->step.n_rows = f->step.n_states = 0;
}

/* In (-scale, scale). */
static inline float block_draw(struct block_fixture *f, float scale)
{
    f->seed = f->seed * 6364136223846793005u + 1442695040888963407u;
    return ((float)(f->seed >> 40) / (float)(1 << 23) - 1.0f) * scale;
}

static inline float *block_floats(struct block_fixture *f, size_t n, float scale)
{
    float *x = malloc(n * sizeof *x);

    assert_non_null(x);
    for (size_t i = 0; i < n; i++)
        x[i] = block_draw(f, scale);
    return x;
}

static inline struct matrix block_matrix(struct block_fixture *f, uint32_t rows, uint32_t cols,
                                         float scale)
{
    return (struct matrix){ .dtype = DTYPE_F32, .rows = rows, .cols = cols,
                            .data = block_floats(f, (size_t)rows * cols, scale) };
}

static inline void block_free(const struct matrix *m)
{
    free((void *)(uintptr_t)m->data);
}

/* out = w x, in double. */
static inline void block_product(double *out, const struct matrix *w, const double *x)
{
    for (uint32_t o = 0; o < w->rows; o++) {
        out[o] = 0;
        for (uint32_t c = 0; c < w->cols; c++)
            out[o] += (double)((const float *)w->data)[(size_t)o * w->cols + c] * x[c];
    }
}

static inline void block_near(const float *got, const double *want, size_t n, double tolerance)
{
    for (size_t i = 0; i < n; i++) {
        double off = (double)got[i] - want[i];
        double most = tolerance * (1.0 + (want[i] < 0 ? -want[i] : want[i]));
        if (!(off <= most && -off <= most))
            fail_msg("value %zu is %g, not %g", i, (double)got[i], want[i]);
    }
}

#endif
