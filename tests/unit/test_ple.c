/* The n-gram embedding's block against the formula in double; how rows are cut changes no bit. */
#include "blocks/ple.h"

#include "block_fixture.h"

#include <math.h>

enum { HIDDEN = 12, STREAMS = 3, WIDTH = HIDDEN * STREAMS, EMBEDDED = 10, TAPS = 4, DILATION = 3,
       LONG = 17 };

static const struct ple_shape shape = { HIDDEN, STREAMS, EMBEDDED, TAPS, DILATION, 1e-6f };

static struct ple_weights make_weights(struct block_fixture *f)
{
    return (struct ple_weights){ .key = block_matrix(f, WIDTH, EMBEDDED, 0.5f),
                                 .value = block_matrix(f, HIDDEN, EMBEDDED, 0.5f),
                                 .norm_key = block_floats(f, WIDTH, 1.5f),
                                 .norm_query = block_floats(f, WIDTH, 1.5f),
                                 .norm_conv = block_floats(f, WIDTH, 1.5f),
                                 .taps = block_floats(f, WIDTH * TAPS, 0.5f) };
}

static void free_weights(struct ple_weights *w)
{
    const float *const vectors[] = { w->norm_key, w->norm_query, w->norm_conv, w->taps };

    block_free(&w->key);
    block_free(&w->value);
    for (size_t i = 0; i < 4; i++)
        free((void *)(uintptr_t)vectors[i]);
}

static void norm(double *out, const double *x, const float *weight)
{
    for (int c = 0; c < STREAMS; c++) {
        double sum = 0;
        for (int d = 0; d < HIDDEN; d++)
            sum += x[c * HIDDEN + d] * x[c * HIDDEN + d];
        for (int d = 0; d < HIDDEN; d++)
            out[c * HIDDEN + d] = x[c * HIDDEN + d] / sqrt(sum / HIDDEN + 1e-6) *
                                  (double)weight[c * HIDDEN + d];
    }
}

static void formula(double *out, const float *streams, const float *embedded,
                    const struct ple_weights *w)
{
    static double nu[LONG][WIDTH];
    double h[WIDTH], e[EMBEDDED], key[WIDTH], query[WIDTH], value[HIDDEN], gated[WIDTH];

    for (int t = 0; t < LONG; t++) {
        for (int i = 0; i < WIDTH; i++)
            h[i] = (double)streams[t * WIDTH + i];
        for (int i = 0; i < EMBEDDED; i++)
            e[i] = (double)embedded[t * EMBEDDED + i];
        block_product(key, &w->key, e);
        block_product(value, &w->value, e);
        norm(key, key, w->norm_key);
        norm(query, h, w->norm_query);
        for (int c = 0; c < STREAMS; c++) {
            double dot = 0;
            for (int d = 0; d < HIDDEN; d++)
                dot += key[c * HIDDEN + d] * query[c * HIDDEN + d];
            dot /= sqrt(HIDDEN);
            double root = sqrt(fmax(fabs(dot), 1e-6)) * (dot > 0 ? 1 : dot < 0 ? -1 : 0);
            for (int d = 0; d < HIDDEN; d++)
                gated[c * HIDDEN + d] = value[d] / (1 + exp(-root));
        }
        norm(nu[t], gated, w->norm_conv);
        for (int i = 0; i < WIDTH; i++) {
            double sum = 0;
            for (int j = 0; j < TAPS; j++) {
                int from = t - (TAPS - 1 - j) * DILATION;
                sum += from < 0 ? 0 : (double)w->taps[i * TAPS + j] * nu[from][i];
            }
            out[t * WIDTH + i] = h[i] + gated[i] + sum / (1 + exp(-sum));
        }
    }
}

static void it_is_the_formula_however_it_is_cut(void **state)
{
    static const uint32_t cuts[][5] = { { LONG }, { 1, 1, 1, 1, 13 }, { 8, 9 }, { 11, 2, 4 } };
    struct block_fixture f;
    double want[LONG * WIDTH];
    float first[LONG * WIDTH], streams[LONG * WIDTH];
    struct err err;

    (void)state;
    block_open(&f, 2, 31);
    struct ple_weights w = make_weights(&f);
    float *h = block_floats(&f, LONG * WIDTH, 3), *e = block_floats(&f, LONG * EMBEDDED, 2);
    formula(want, h, e, &w);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        float *past[2] = { calloc(ple_past(&shape), sizeof(float)),
                           calloc(ple_past(&shape), sizeof(float)) };
        memcpy(streams, h, sizeof streams);
        for (uint32_t k = 0, pos = 0; pos < LONG; pos += cuts[i][k++]) {
            struct conv_past p = { past[k % 2], past[(k + 1) % 2] };
            block_clear(&f);
            block_rows(&f, 0, pos, cuts[i][k]);
            assert_int_equal(ple_forward(streams + pos * WIDTH, e + pos * EMBEDDED, &shape, &w, &p,
                                         &f.step, &err), 0);
        }
        block_near(streams, want, LONG * WIDTH, 1e-5);
        if (i == 0)
            memcpy(first, streams, sizeof first);
        assert_memory_equal(streams, first, sizeof first);
        free(past[0]);
        free(past[1]);
    }
    assert_true(f.scratch.peak <= ple_scratch_size(&shape, LONG));
    assert_int_equal(f.scratch.used, 0);
    free(h);
    free(e);
    free_weights(&w);
    block_close(&f);
}

/* Bad weights are found where logits are looked at, so nothing may hide them on the way. */
static void what_is_no_number_is_not_taken_for_one(void **state)
{
    struct conv_past past = { calloc(ple_past(&shape), sizeof(float)),
                              calloc(ple_past(&shape), sizeof(float)) };
    struct block_fixture f;
    struct err err;

    (void)state;
    block_open(&f, 1, 33);
    struct ple_weights w = make_weights(&f);
    float *streams = block_floats(&f, WIDTH, 3), *e = block_floats(&f, EMBEDDED, 2);
    ((float *)(uintptr_t)w.key.data)[0] = NAN; /* of the first stream's keys */
    block_rows(&f, 0, 0, 1);
    assert_int_equal(ple_forward(streams, e, &shape, &w, &past, &f.step, &err), 0);
    for (int i = 0; i < WIDTH; i++)
        assert_true(isnan(streams[i]) == (i < HIDDEN));
    free((void *)(uintptr_t)past.from);
    free(past.to);
    free(streams);
    free(e);
    free_weights(&w);
    block_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_formula_however_it_is_cut),
        cmocka_unit_test(what_is_no_number_is_not_taken_for_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
