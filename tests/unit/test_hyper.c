/* Hyper-connections against the formula in double, alone and among other rows. */
#include "blocks/hyper.h"

#include "block_fixture.h"

#include <math.h>

enum { HIDDEN = 24, STREAMS = 3, LOW = 5, WIDTH = HIDDEN * STREAMS };

static const struct hyper_shape shape = { HIDDEN, STREAMS, LOW, 1e-6f };

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static void formula(double *out, double *inject, const float *h, const struct hyper_weights *w)
{
    double u[WIDTH], low[LOW], gate[WIDTH], in[STREAMS];

    for (int c = 0; c < STREAMS; c++) {
        double sum = 0;
        for (int d = 0; d < HIDDEN; d++)
            sum += (double)h[c * HIDDEN + d] * (double)h[c * HIDDEN + d];
        for (int d = 0; d < HIDDEN; d++)
            u[c * HIDDEN + d] = (double)h[c * HIDDEN + d] / sqrt(sum / HIDDEN + 1e-6) *
                                (double)w->norm[c * HIDDEN + d];
    }
    block_product(low, &w->down, u);
    for (int i = 0; i < LOW; i++)
        low[i] = low[i] / STREAMS * sigmoid(low[i] / STREAMS);
    block_product(gate, &w->up, low);
    for (int d = 0; d < HIDDEN; d++) {
        out[d] = 0;
        for (int c = 0; c < STREAMS; c++)
            out[d] += sigmoid(gate[c * HIDDEN + d]) * u[c * HIDDEN + d] / STREAMS;
    }
    block_product(in, &w->inject, u);
    for (int c = 0; c < STREAMS; c++)
        inject[c] = 2 * sigmoid(in[c] / STREAMS);
}

static struct hyper_weights make_weights(struct block_fixture *f)
{
    return (struct hyper_weights){ .norm = block_floats(f, WIDTH, 1.5f),
                                   .down = block_matrix(f, LOW, WIDTH, 0.5f),
                                   .up = block_matrix(f, WIDTH, LOW, 0.8f),
                                   .inject = block_matrix(f, STREAMS, WIDTH, 0.3f) };
}

static void free_weights(struct hyper_weights *w)
{
    free((void *)(uintptr_t)w->norm);
    block_free(&w->down);
    block_free(&w->up);
    block_free(&w->inject);
}

static void reads_and_writes_are_the_formula(void **state)
{
    enum { ROWS = 7 };
    struct block_fixture f;
    float out[ROWS * HIDDEN], inject[ROWS * STREAMS];
    double want[HIDDEN], factor[STREAMS], after[WIDTH];
    struct err err;

    (void)state;
    block_open(&f, 2, 11);
    struct hyper_weights w = make_weights(&f);
    float *h = block_floats(&f, ROWS * WIDTH, 3), *y = block_floats(&f, ROWS * HIDDEN, 2);
    float *written = malloc(ROWS * WIDTH * sizeof *written);
    memcpy(written, h, ROWS * WIDTH * sizeof *h);
    block_rows(&f, 0, 0, ROWS);
    assert_int_equal(hyper_read(out, inject, h, &shape, &w, &f.step, &err), 0);
    hyper_write(written, y, inject, &shape, &f.step);
    for (int r = 0; r < ROWS; r++) {
        formula(want, factor, h + r * WIDTH, &w);
        block_near(out + r * HIDDEN, want, HIDDEN, 1e-5);
        block_near(inject + r * STREAMS, factor, STREAMS, 1e-5);
        for (int i = 0; i < WIDTH; i++)
            after[i] = (double)h[r * WIDTH + i] +
                       factor[i / HIDDEN] * (double)y[r * HIDDEN + i % HIDDEN];
        block_near(written + r * WIDTH, after, WIDTH, 1e-5);
    }
    assert_int_equal(f.scratch.used, 0);
    assert_true(f.scratch.peak <= hyper_scratch_size(&shape, ROWS));
    free(written);
    free(h);
    free(y);
    free_weights(&w);
    block_close(&f);
}

static void a_row_is_the_same_alone_and_without_injection(void **state)
{
    enum { ROWS = 5 };
    struct block_fixture f;
    float all[ROWS * HIDDEN], inject[ROWS * STREAMS], one[HIDDEN];
    struct err err;

    (void)state;
    block_open(&f, 3, 12);
    struct hyper_weights w = make_weights(&f), reader = w;
    reader.inject = (struct matrix){ 0 };
    float *h = block_floats(&f, ROWS * WIDTH, 3);
    block_rows(&f, 0, 0, ROWS);
    assert_int_equal(hyper_read(all, inject, h, &shape, &w, &f.step, &err), 0);
    block_clear(&f);
    block_rows(&f, 0, 3, 1);
    assert_int_equal(hyper_read(one, NULL, h + 3 * WIDTH, &shape, &reader, &f.step, &err), 0);
    assert_memory_equal(one, all + 3 * HIDDEN, sizeof one);
    free(h);
    free_weights(&w);
    block_close(&f);
}

static void streams_begin_equal(void **state)
{
    struct block_fixture f;
    float streams[2 * WIDTH];

    (void)state;
    block_open(&f, 1, 13);
    float *rows = block_floats(&f, 2 * HIDDEN, 1);
    block_rows(&f, 0, 0, 2);
    hyper_begin(streams, rows, &shape, &f.step);
    for (int r = 0; r < 2; r++)
        for (int c = 0; c < STREAMS; c++)
            assert_memory_equal(streams + r * WIDTH + c * HIDDEN, rows + r * HIDDEN,
                                HIDDEN * sizeof *rows);
    free(rows);
    block_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_and_writes_are_the_formula),
        cmocka_unit_test(a_row_is_the_same_alone_and_without_injection),
        cmocka_unit_test(streams_begin_equal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
