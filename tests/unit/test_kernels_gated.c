/* The kernels of recurrent and gated blocks, in every table this CPU can run, against plain double
 * arithmetic written here. */
#include "kernels/kernels.h"

#include "kernels_fixture.h"

#include <math.h>

static const size_t lengths[] = { 2, 6, 8, 16, 30, 32, 34, 64, 66, 100, 128, 192, 768, 2050 };

static void check_gates(const struct kernels *k)
{
    for (size_t i = 0; i < LENGTH(lengths); i++) {
        const size_t n = lengths[i] - 1;
        float *x = make_floats(n, i), *gate = make_floats(n, i + 9), *got = make_floats(n, i);

        for (size_t j = 0; j < n; j++)
            gate[j] *= j % 7 == 0 ? 40.0f : 4.0f;
        k->sigmoid_mul(got, gate, n);
        for (size_t j = 0; j < n; j++) {
            double want = (double)x[j] / (1.0 + exp(-(double)gate[j]));
            assert_near((double)got[j], want, fabs(want));
        }
        memcpy(got, gate, n * sizeof *got);
        k->silu(got, 0.25f, n);
        for (size_t j = 0; j < n; j++) {
            double scaled = 0.25 * (double)gate[j], want = scaled / (1.0 + exp(-scaled));
            assert_near((double)got[j], want, fabs(want));
        }
        free(x);
        free(gate);
        free(got);
    }
}

static void gates_equal_double_arithmetic(void **state)
{
    (void)state;
    with_each_table(check_gates);
}

static void check_l2norm(const struct kernels *k)
{
    for (size_t i = 0; i < LENGTH(lengths); i++) {
        const size_t n = lengths[i];
        float *x = make_floats(n, i), *got = make_floats(n, i), zero[3] = { 0.0f };
        double sum = 1e-6;

        k->l2norm(got, 0.3f, n, 1e-6f);
        for (size_t j = 0; j < n; j++)
            sum += (double)x[j] * (double)x[j];
        for (size_t j = 0; j < n; j++) {
            double want = (double)x[j] * (double)0.3f / sqrt(sum);
            assert_near((double)got[j], want, fabs(want));
        }
        k->l2norm(zero, 1.0f, 3, 1e-6f);
        assert_true(zero[0] == 0.0f && zero[2] == 0.0f);
        free(x);
        free(got);
    }
}

static void l2norm_gives_the_length_asked_for(void **state)
{
    (void)state;
    with_each_table(check_l2norm);
}

static void check_conv(const struct kernels *k)
{
    static const uint32_t n_taps[] = { 1, 2, 4, 5 };

    for (size_t i = 0; i < LENGTH(lengths) * LENGTH(n_taps); i++) {
        const size_t n = lengths[i / LENGTH(n_taps)];
        const uint32_t taps = n_taps[i % LENGTH(n_taps)];
        float *x = make_floats(n * taps, i), *w = make_floats(n * taps, i + 1);
        float *out = make_floats(n, 0), *part = make_floats(n, 0);
        const float *in[5];

        for (uint32_t t = 0; t < taps; t++)
            in[t] = x + t * n;
        k->conv_silu(out, in, w, taps, n);
        for (size_t c = 0; c < n; c++) {
            double sum = 0.0, size = 0.0;
            for (uint32_t t = 0; t < taps; t++) {
                sum += (double)w[c * taps + t] * (double)in[t][c];
                size += fabs((double)w[c * taps + t] * (double)in[t][c]);
            }
            assert_near((double)out[c], sum / (1.0 + exp(-sum)), size);
        }
        for (size_t c = 0; c < n; c++) { /* a channel alone has the same bits */
            const float *from[5];
            for (uint32_t t = 0; t < taps; t++)
                from[t] = in[t] + c;
            k->conv_silu(part + c, from, w + c * taps, taps, 1);
        }
        assert_same_bits(part, out, n);
        free(x);
        free(w);
        free(out);
        free(part);
    }
}

static void convolutions_equal_double_sums(void **state)
{
    (void)state;
    with_each_table(check_conv);
}

static void check_delta_case(const struct kernels *k, size_t keys, size_t values)
{
    float *from = make_floats(keys * values, 1), *to = make_floats(keys * values, 2);
    float *q = make_floats(keys, 3), *key = make_floats(keys, 4), *v = make_floats(values, 5);
    float *out = make_floats(values, 6), *again = make_floats(values, 7);
    const double decay = 0.75, beta = 0.625;

    k->l2norm(key, 1.0f, keys, 1e-6f); /* as they come, and then a step cannot run away */
    k->l2norm(q, 1.0f, keys, 1e-6f);
    k->delta_step(out, to, from, q, key, v, (float)decay, (float)beta, keys, values);
    for (size_t j = 0; j < values; j++) {
        double held = 0.0, seen = 0.0, size = fabs((double)v[j]);
        for (size_t i = 0; i < keys; i++) {
            double s = decay * (double)from[i * values + j];
            held += s * (double)key[i];
            size += fabs(s);
        }
        double change = beta * ((double)v[j] - held);
        for (size_t i = 0; i < keys; i++) {
            double s = decay * (double)from[i * values + j] + (double)key[i] * change;
            assert_near((double)to[i * values + j], s, size);
            seen += s * (double)q[i];
        }
        assert_near((double)out[j], seen, size);
    }
    k->delta_step(again, from, from, q, key, v, (float)decay, (float)beta, keys, values);
    assert_same_bits(again, out, values);
    assert_same_bits(from, to, keys * values);
    free(from);
    free(to);
    free(q);
    free(key);
    free(v);
    free(out);
    free(again);
}

static void check_delta(const struct kernels *k)
{
    static const size_t sizes[][2] = { { 1, 1 },    { 8, 5 },    { 32, 16 },  { 3, 33 },
                                       { 16, 130 }, { 128, 64 }, { 128, 128 } };

    for (size_t i = 0; i < LENGTH(sizes); i++)
        check_delta_case(k, sizes[i][0], sizes[i][1]);
}

static void delta_rule_equals_its_equations_also_in_place(void **state)
{
    (void)state;
    with_each_table(check_delta);
}

static void check_gate_ends(const struct kernels *k)
{
    float x[5] = { 2.0f, 2.0f, 2.0f, 2.0f, 2.0f }, y[5] = { 1e3f, -1e3f, 0.0f, NAN, -88.5f };
    const float gate[5] = { 1e3f, -1e3f, 0.0f, NAN, -88.5f };

    k->sigmoid_mul(x, gate, 5);
    assert_true(x[0] == 2.0f && x[1] >= 0.0f && x[1] < 1e-30f && x[2] == 1.0f && isnan(x[3]) &&
                x[4] >= 0.0f && x[4] < 1e-30f);
    k->silu(y, 1.0f, 5);
    assert_true(y[0] == 1e3f && y[1] <= 0.0f && y[1] > -1e-30f && y[2] == 0.0f && isnan(y[3]) &&
                y[4] <= 0.0f && y[4] > -1e-30f);
}

static void gates_have_no_overflow_and_keep_nan(void **state)
{
    (void)state;
    with_each_table(check_gate_ends);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gates_equal_double_arithmetic),
        cmocka_unit_test(gates_have_no_overflow_and_keep_nan),
        cmocka_unit_test(l2norm_gives_the_length_asked_for),
        cmocka_unit_test(convolutions_equal_double_sums),
        cmocka_unit_test(delta_rule_equals_its_equations_also_in_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
