/* The delta network against its recurrence in double; how rows are cut changes no bit. */
#include "blocks/gdn.h"

#include "block_fixture.h"

#include <math.h>

enum { HIDDEN = 20, KEYS = 2, VALUES = 6, KD = 8, VD = 5, CONV = 4,
       CHANNELS = 2 * KEYS * KD + VALUES * VD, LONG = 13 };

static const struct gdn_shape shape = { HIDDEN, KEYS, VALUES, KD, VD, CONV, 1e-6f, false };

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static struct gdn_weights make_weights(struct block_fixture *f)
{
    return (struct gdn_weights){
        .qkv = block_matrix(f, CHANNELS, HIDDEN, 0.5f),
        .z = block_matrix(f, VALUES * VD, HIDDEN, 0.5f),
        .b = block_matrix(f, VALUES, HIDDEN, 0.5f),
        .a = block_matrix(f, VALUES, HIDDEN, 0.5f),
        .out = block_matrix(f, HIDDEN, VALUES * VD, 0.5f),
        .taps = block_floats(f, CHANNELS * CONV, 1),
        .dt_bias = block_floats(f, VALUES, 1),
        .a_log = block_floats(f, VALUES, 1),
        .norm = block_floats(f, VD, 1.5f),
    };
}

static void free_weights(struct gdn_weights *w)
{
    block_free(&w->qkv);
    block_free(&w->z);
    block_free(&w->b);
    block_free(&w->a);
    block_free(&w->out);
    free((void *)(uintptr_t)w->taps);
    free((void *)(uintptr_t)w->dt_bias);
    free((void *)(uintptr_t)w->a_log);
    free((void *)(uintptr_t)w->norm);
}

/* A whole sequence from its beginning; out [n, HIDDEN]. */
static void formula(double *out, const float *in, uint32_t n, const struct gdn_weights *w, bool silu)
{
    static double raw[LONG][CHANNELS], s[VALUES][KD][VD];
    double x[HIDDEN], mixed[CHANNELS], z[VALUES * VD], a[VALUES], b[VALUES], heads[VALUES * VD];

    memset(s, 0, sizeof s);
    for (uint32_t t = 0; t < n; t++) {
        for (int i = 0; i < HIDDEN; i++)
            x[i] = (double)in[t * HIDDEN + i];
        block_product(raw[t], &w->qkv, x);
        block_product(z, &w->z, x);
        block_product(a, &w->a, x);
        block_product(b, &w->b, x);
        for (int c = 0; c < CHANNELS; c++) {
            mixed[c] = 0;
            for (int tap = 0; tap < CONV; tap++)
                if ((int)t - (CONV - 1) + tap >= 0)
                    mixed[c] += (double)w->taps[c * CONV + tap] * raw[(int)t - (CONV - 1) + tap][c];
            mixed[c] *= sigmoid(mixed[c]);
        }
        for (int h = 0; h < VALUES; h++) {
            const double *q = mixed + h / (VALUES / KEYS) * KD, *k = q + KEYS * KD;
            const double *v = mixed + 2 * KEYS * KD + h * VD;
            double qq = 1e-6, kk = 1e-6, step = a[h] + (double)w->dt_bias[h], square = 0;
            for (int i = 0; i < KD; i++) {
                qq += q[i] * q[i];
                kk += k[i] * k[i];
            }
            double decay = exp(-exp((double)w->a_log[h]) * log1p(exp(step)));
            for (int j = 0; j < VD; j++) {
                double held = 0, o = 0;
                for (int i = 0; i < KD; i++) {
                    s[h][i][j] *= decay;
                    held += s[h][i][j] * k[i] / sqrt(kk);
                }
                double delta = sigmoid(b[h]) * (v[j] - held);
                for (int i = 0; i < KD; i++) {
                    s[h][i][j] += k[i] / sqrt(kk) * delta;
                    o += s[h][i][j] * q[i] / sqrt(qq) / sqrt(KD);
                }
                heads[h * VD + j] = o;
                square += o * o;
            }
            for (int j = 0; j < VD; j++) {
                double gate = sigmoid(z[h * VD + j]);
                heads[h * VD + j] *= (double)w->norm[j] / sqrt(square / VD + 1e-6) * gate *
                                     (silu ? z[h * VD + j] : 1);
            }
        }
        block_product(out + t * HIDDEN, &w->out, heads);
    }
}

/* Two places that a sequence's state goes to and fro between. */
struct place {
    float *state[2];
    int now;
};

static struct place make_place(void)
{
    return (struct place){ { calloc(1, gdn_state_size(&shape)), calloc(1, gdn_state_size(&shape)) },
                           0 };
}

static struct gdn_state state_of(const struct place *p)
{
    return (struct gdn_state){ p->state[p->now], p->state[!p->now] };
}

/* One step over n rows of sequence 0 that begin at pos. */
static void run(struct block_fixture *f, float *out, const float *in, uint32_t pos, uint32_t n,
                struct place *p, const struct gdn_weights *w)
{
    struct gdn_state state = state_of(p);
    struct err err;

    block_clear(f);
    block_rows(f, 0, pos, n);
    assert_int_equal(gdn_forward(out + pos * HIDDEN, in + pos * HIDDEN, &shape, w, &state, &f->step,
                                 &err), 0);
    p->now = !p->now;
}

static void free_place(struct place *p)
{
    free(p->state[0]);
    free(p->state[1]);
}

static void it_is_the_recurrence(void **state)
{
    struct block_fixture f;
    float out[LONG * HIDDEN];
    double want[LONG * HIDDEN];

    (void)state;
    block_open(&f, 2, 21);
    struct gdn_weights w = make_weights(&f);
    float *in = block_floats(&f, LONG * HIDDEN, 2);
    struct place p = make_place();
    run(&f, out, in, 0, LONG, &p, &w);
    formula(want, in, LONG, &w, false);
    block_near(out, want, LONG * HIDDEN, 1e-4);
    assert_true(f.scratch.peak <= gdn_scratch_size(&shape, LONG, 1));
    assert_int_equal(f.scratch.used, 0);
    free_place(&p);
    free(in);
    free_weights(&w);
    block_close(&f);
}

static void a_silu_gate_is_one(void **state)
{
    struct gdn_shape silu = shape;
    struct block_fixture f;
    float out[LONG * HIDDEN];
    double want[LONG * HIDDEN];
    struct err err;

    (void)state;
    silu.silu_gate = true;
    block_open(&f, 1, 22);
    struct gdn_weights w = make_weights(&f);
    float *in = block_floats(&f, LONG * HIDDEN, 2);
    struct place p = make_place();
    struct gdn_state s = state_of(&p);
    block_rows(&f, 0, 0, LONG);
    assert_int_equal(gdn_forward(out, in, &silu, &w, &s, &f.step, &err), 0);
    formula(want, in, LONG, &w, true);
    block_near(out, want, LONG * HIDDEN, 1e-4);
    free_place(&p);
    free(in);
    free_weights(&w);
    block_close(&f);
}

static void any_cut_gives_the_same_bits_and_state(void **state)
{
    static const uint32_t cuts[][4] = { { 1, 1, 1, 10 }, { 3, 5, 4, 1 }, { 12, 1 }, { 2, 2, 9 } };
    struct block_fixture f;
    float whole[LONG * HIDDEN], cut[LONG * HIDDEN];

    (void)state;
    block_open(&f, 3, 23);
    struct gdn_weights w = make_weights(&f);
    float *in = block_floats(&f, LONG * HIDDEN, 2);
    struct place p = make_place();
    run(&f, whole, in, 0, LONG, &p, &w);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        struct place q = make_place();
        uint32_t pos = 0;
        for (int k = 0; k < 4 && cuts[i][k]; pos += cuts[i][k++])
            run(&f, cut, in, pos, cuts[i][k], &q, &w);
        assert_int_equal(pos, LONG);
        assert_memory_equal(cut, whole, sizeof whole);
        assert_memory_equal(q.state[q.now], p.state[p.now], gdn_state_size(&shape));
        free_place(&q);
    }
    free_place(&p);
    free(in);
    free_weights(&w);
    block_close(&f);
}

static void neighbours_and_a_step_that_is_dropped_change_nothing(void **state)
{
    struct block_fixture f;
    float whole[LONG * HIDDEN], both[LONG * HIDDEN], part[LONG * HIDDEN];
    struct err err;

    (void)state;
    block_open(&f, 2, 24);
    struct gdn_weights w = make_weights(&f);
    float *in = block_floats(&f, LONG * HIDDEN, 2);
    struct place alone = make_place(), a = make_place(), b = make_place();
    run(&f, whole, in, 0, LONG, &alone, &w);

    run(&f, part, in, 0, 4, &a, &w);
    /* What is written and never settled stays out of the next step. */
    struct gdn_state dropped = state_of(&a);
    block_clear(&f);
    block_rows(&f, 0, 4, 3);
    assert_int_equal(gdn_forward(both, whole, &shape, &w, &dropped, &f.step, &err), 0);

    struct gdn_state states[2] = { state_of(&a), state_of(&b) };
    block_clear(&f);
    block_rows(&f, 0, 4, 2);
    block_rows(&f, 1, 0, 5);
    float mixed[7 * HIDDEN];
    memcpy(mixed, in + 4 * HIDDEN, 2 * HIDDEN * sizeof *in);
    memcpy(mixed + 2 * HIDDEN, in, 5 * HIDDEN * sizeof *in);
    assert_int_equal(gdn_forward(both, mixed, &shape, &w, states, &f.step, &err), 0);
    assert_memory_equal(both, whole + 4 * HIDDEN, 2 * HIDDEN * sizeof *both);
    assert_memory_equal(both + 2 * HIDDEN, whole, 5 * HIDDEN * sizeof *both);
    free_place(&alone);
    free_place(&a);
    free_place(&b);
    free(in);
    free_weights(&w);
    block_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_recurrence),
        cmocka_unit_test(a_silu_gate_is_one),
        cmocka_unit_test(any_cut_gives_the_same_bits_and_state),
        cmocka_unit_test(neighbours_and_a_step_that_is_dropped_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
