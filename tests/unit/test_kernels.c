/* Every kernel table this CPU can run, against plain double arithmetic written here, and
 * the promise that a result depends on its row and the weights alone. */
#include "kernels/kernels.h"
#include "util/err.h"
#include "util/pool.h"

#include "kernels_fixture.h"

#include <math.h>
#include <stdio.h>

/* ---- material ---- */

static double value_of(enum dtype dtype, const char *at)
{
    uint8_t f8;
    uint16_t bits;
    uint32_t wide;
    float f;

    switch (dtype) {
    case DTYPE_F8_E4M3:
        memcpy(&f8, at, 1);
        int e = f8 >> 3 & 15, m = f8 & 7;
        double v = e ? ldexp(8 + m, e - 10) : ldexp(m, -9);
        return f8 & 0x80 ? -v : v;
    case DTYPE_F16:
        memcpy(&bits, at, 2);
        int exponent = bits >> 10 & 31, mantissa = bits & 1023;
        double h = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
        return bits & 0x8000 ? -h : h;
    case DTYPE_BF16:
        memcpy(&bits, at, 2);
        wide = (uint32_t)bits << 16;
        memcpy(&f, &wide, 4);
        return (double)f;
    default:
        memcpy(&f, at, 4);
        return (double)f;
    }
}

static size_t size_of(enum dtype dtype)
{
    return dtype == DTYPE_F8_E4M3 ? 1 : dtype == DTYPE_F32 ? 4 : 2;
}

/* A matrix in memory that ends exactly where its data ends, so that ASan sees a read past it. */
struct weights {
    struct matrix m;
    char *memory;  /* owned */
    float *scales; /* owned */
};

static struct weights make_weights(enum dtype dtype, uint32_t rows, uint32_t cols, size_t offset,
                                   uint64_t seed)
{
    const size_t n = (size_t)rows * cols, size = size_of(dtype);
    const size_t n_scales = (size_t)((rows + 127) / 128) * ((cols + 127) / 128);
    struct weights w = { .memory = malloc(offset + n * size) };
    uint64_t state = seed;

    assert_non_null(w.memory);
    for (size_t i = 0; i < n; i++) {
        char *at = w.memory + offset + i * size;
        float f = random_float(&state) * 0.5f;
        uint32_t bits;
        uint16_t half;

        memcpy(&bits, &f, 4);
        switch (dtype) {
        case DTYPE_F8_E4M3: /* all 254 codes alike, subnormals among them */
            *at = (char)(random_bits(&state) % 127 + (random_bits(&state) & 1) * 128);
            break;
        case DTYPE_BF16:
            half = (uint16_t)(bits >> 16);
            memcpy(at, &half, 2);
            break;
        case DTYPE_F16: /* exponents 0 (subnormal) to 15 */
            half = (uint16_t)(random_bits(&state) & 0xBFFF);
            memcpy(at, &half, 2);
            break;
        default:
            memcpy(at, &f, 4);
        }
    }
    if (dtype == DTYPE_F8_E4M3) {
        w.scales = malloc(n_scales * sizeof *w.scales);
        assert_non_null(w.scales);
        for (size_t i = 0; i < n_scales; i++)
            w.scales[i] = 0.002f + 0.001f * random_float(&state) * random_float(&state);
    }
    w.m = (struct matrix){ dtype, rows, cols, w.memory + offset, w.scales };
    return w;
}

static void free_weights(struct weights *w)
{
    free(w->memory);
    free(w->scales);
}

/* ---- choice ---- */

static void a_table_is_chosen_by_name_or_by_the_cpu(void **state)
{
    const struct kernels *k = NULL;
    enum kernel_class c;
    struct err err;

    (void)state;
    assert_true(kernels_parse(&c, "auto"));
    assert_int_equal(kernels_choose(&k, c, &err), 0);
    assert_true(kernels_parse(&c, k->name));
    assert_int_equal(c, k->class);
    assert_true(kernels_parse(&c, "scalar"));
    assert_int_equal(c, KERNELS_SCALAR);
    assert_true(kernels_parse(&c, "avx512"));
    assert_int_equal(c, KERNELS_AVX512);
    assert_false(kernels_parse(&c, "avx3"));
    assert_false(kernels_parse(&c, ""));
}

/* ---- matmul ---- */

static const enum dtype dtypes[] = { DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8_E4M3 };

static void check_product(const struct kernels *k, const struct matrix *w, uint32_t n_rows)
{
    const size_t stride = w->cols + 3, out_stride = w->rows + 2, size = size_of(w->dtype);
    float *in = make_floats((n_rows - 1) * stride + w->cols, 7);
    float *out = malloc(((n_rows - 1) * out_stride + w->rows) * sizeof *out);

    assert_non_null(out);
    k->matmul(out, out_stride, in, stride, n_rows, w, 0, w->rows);
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t o = 0; o < w->rows; o++) {
            double want = 0.0, sum = 0.0;

            for (uint32_t c = 0; c < w->cols; c++) {
                double v =
                    value_of(w->dtype, (const char *)w->data + ((size_t)o * w->cols + c) * size);
                if (w->scales)
                    v *= (double)w->scales[o / 128 * ((w->cols + 127) / 128) + c / 128];
                want += v * (double)in[r * stride + c];
                sum += fabs(v * (double)in[r * stride + c]);
            }
            assert_near((double)out[r * out_stride + o], want, sum);
        }
    free(in);
    free(out);
}

static void check_products(const struct kernels *k)
{
    static const uint32_t cols[] = { 1, 2, 7, 15, 16, 17, 31, 33, 64, 100, 127, 128, 129, 160, 192,
                                     255, 256, 300, 768, 1030 };
    static const uint32_t rows[] = { 1, 2, 3, 4, 5, 9, 131 };

    for (size_t d = 0; d < LENGTH(dtypes); d++)
        for (size_t c = 0; c < LENGTH(cols); c++)
            for (size_t r = 0; r < LENGTH(rows); r++) {
                struct weights w = make_weights(dtypes[d], rows[r], cols[c], c % 4, c * 100 + r);
                check_product(k, &w.m, 1);
                check_product(k, &w.m, r % 2 ? 3 : 19);
                free_weights(&w);
            }
}

static void products_equal_double_sums_for_odd_sizes_and_all_types(void **state)
{
    (void)state;
    with_each_table(check_products);
}

static void check_no_rows(const struct kernels *k)
{
    const float untouched[64] = { 0 };
    float out[64] = { 0 }, *values = make_floats(8 * 200, 3), *in = make_floats(8 * 200, 4);
    const struct matrix w = { .dtype = DTYPE_F32, .rows = 8, .cols = 200, .data = values };

    k->matmul(out, 8, in, 200, 0, &w, 0, 8);
    assert_memory_equal(out, untouched, sizeof out);
    free(values);
    free(in);
}

static void a_product_of_no_rows_writes_nothing(void **state)
{
    (void)state;
    with_each_table(check_no_rows);
}

static void check_codes(const struct kernels *k)
{
    /* One column: the output is the weight itself, times scale and input. */
    uint8_t codes[254];
    float out[254], scale[2] = { 0.5f, 0.25f }, in = 2.0f;

    for (uint32_t i = 0; i < 254; i++)
        codes[i] = (uint8_t)(i < 127 ? i : i + 1);
    struct matrix w = { DTYPE_F8_E4M3, 254, 1, codes, scale };
    k->matmul(out, 254, &in, 1, 1, &w, 0, 254);
    for (uint32_t i = 0; i < 254; i++) {
        double want = value_of(DTYPE_F8_E4M3, (const char *)&codes[i]) * (i < 128 ? 1.0 : 0.5);
        assert_true((double)out[i] == want);
    }
}

static void all_254_codes_are_converted_exactly(void **state)
{
    (void)state;
    with_each_table(check_codes);
}

static void check_rows_alone(const struct kernels *k)
{
    enum { MOST = 70 };
    static const uint32_t cols[] = { 64, 192, 520 };

    for (size_t d = 0; d < LENGTH(dtypes); d++)
        for (size_t c = 0; c < LENGTH(cols); c++) {
            const uint32_t n = cols[c];
            struct weights w = make_weights(dtypes[d], 150, n, 0, 11);
            float *in = make_floats(MOST * n, 5), *out = malloc(MOST * 150 * sizeof *out);
            float alone[150];

            assert_non_null(out);
            for (uint32_t n_rows = 1; n_rows <= MOST; n_rows += n_rows < 19 ? 1 : 17) {
                k->matmul(out, 150, in, n, n_rows, &w.m, 0, 150);
                for (uint32_t r = 0; r < n_rows; r++) {
                    k->matmul(alone, 150, in + r * n, n, 1, &w.m, 0, 150);
                    assert_same_bits(out + r * 150, alone, 150);
                }
            }
            free_weights(&w);
            free(in);
            free(out);
        }
}

static void a_row_gives_the_same_bits_alone_and_among_others(void **state)
{
    (void)state;
    with_each_table(check_rows_alone);
}

static void check_ranges(const struct kernels *k)
{
    static const uint32_t cuts[] = { 0, 1, 3, 4, 9, 12, 127, 128, 140, 141, 150 };

    for (size_t d = 0; d < LENGTH(dtypes); d++)
        for (uint32_t n_rows = 1; n_rows <= 9; n_rows += 2) {
            struct weights w = make_weights(dtypes[d], 150, 200, 0, 3);
            float *in = make_floats(n_rows * 200, 5), whole[9 * 150], parts[9 * 150];

            k->matmul(whole, 150, in, 200, n_rows, &w.m, 0, 150);
            for (size_t i = 0; i + 1 < LENGTH(cuts); i++)
                k->matmul(parts, 150, in, 200, n_rows, &w.m, cuts[i], cuts[i + 1]);
            assert_same_bits(parts, whole, n_rows * 150);
            /* An empty range writes nothing. */
            k->matmul(parts, 150, in, 200, n_rows, &w.m, 17, 17);
            assert_same_bits(parts, whole, n_rows * 150);
            free_weights(&w);
            free(in);
        }
}

static void an_output_gives_the_same_bits_in_every_range(void **state)
{
    (void)state;
    with_each_table(check_ranges);
}

static void check_alignment(const struct kernels *k)
{
    for (size_t d = 0; d < LENGTH(dtypes); d++) {
        struct weights w = make_weights(dtypes[d], 40, 333, 0, 3);
        const size_t size = 40 * 333 * size_of(dtypes[d]);
        float *in = make_floats(9 * 333, 5), want[9 * 40], got[9 * 40];

        k->matmul(want, 40, in, 333, 9, &w.m, 0, 40);
        for (size_t offset = 1; offset <= 3; offset++) {
            struct matrix moved = w.m;
            char *copy = malloc(offset + size);
            float *in_copy = malloc((9 * 333 + offset) * sizeof *in_copy);

            assert_non_null(copy);
            assert_non_null(in_copy);
            memcpy(copy + offset, w.m.data, size);
            memcpy(in_copy + offset, in, 9 * 333 * sizeof *in);
            moved.data = copy + offset;
            for (uint32_t n_rows = 1; n_rows <= 9; n_rows += 4) {
                k->matmul(got, 40, in_copy + offset, 333, n_rows, &moved, 0, 40);
                assert_same_bits(got, want, n_rows * 40);
            }
            free(copy);
            free(in_copy);
        }
        free_weights(&w);
        free(in);
    }
}

static void weights_and_rows_may_lie_at_any_address(void **state)
{
    (void)state;
    with_each_table(check_alignment);
}

static void check_pooled(const struct kernels *k)
{
    struct weights w = make_weights(DTYPE_F8_E4M3, 1001, 260, 0, 3);
    float *in = make_floats(5 * 260, 5), *want = malloc(5 * 1001 * sizeof *want);
    float *got = malloc(5 * 1001 * sizeof *got);

    assert_non_null(want);
    assert_non_null(got);
    for (uint32_t n_rows = 1; n_rows <= 5; n_rows += 4) {
        matmul_pooled(k, NULL, want, 1001, in, 260, n_rows, &w.m);
        for (uint32_t n_threads = 1; n_threads <= 5; n_threads++) {
            struct pool *pool = NULL;
            struct err err;

            assert_int_equal(pool_open(&pool, n_threads, &err), 0);
            memset(got, 0, 5 * 1001 * sizeof *got);
            matmul_pooled(k, pool, got, 1001, in, 260, n_rows, &w.m);
            assert_same_bits(got, want, n_rows * 1001);
            assert_int_equal(pool_jobs(pool) > 0, n_threads > 1);
            pool_close(pool);
        }
    }
    free_weights(&w);
    free(in);
    free(want);
    free(got);
}

static void a_product_gives_the_same_bits_on_any_number_of_threads(void **state)
{
    (void)state;
    with_each_table(check_pooled);
}

/* ---- functions of one row ---- */

static const size_t lengths[] = { 2, 6, 8, 16, 30, 32, 34, 64, 66, 100, 128, 192, 768, 2050 };

static void check_rmsnorm(const struct kernels *k)
{
    for (size_t i = 0; i < LENGTH(lengths); i++) {
        const size_t n = lengths[i];
        float *x = make_floats(n, i), *weight = make_floats(n, i + 50), *out = make_floats(n, 0);
        double sum = 0.0;

        k->rmsnorm(out, x, weight, n, 1e-6f);
        for (size_t j = 0; j < n; j++)
            sum += (double)x[j] * (double)x[j];
        for (size_t j = 0; j < n; j++) {
            double want = (double)x[j] / sqrt(sum / (double)n + 1e-6) * (double)weight[j];
            assert_near((double)out[j], want, fabs(want));
        }
        k->rmsnorm(x, x, weight, n, 1e-6f);
        assert_same_bits(x, out, n);
        free(x);
        free(weight);
        free(out);
    }
}

static void rmsnorm_follows_its_equation_also_in_place(void **state)
{
    (void)state;
    with_each_table(check_rmsnorm);
}

static void check_rope(const struct kernels *k)
{
    for (size_t i = 0; i < LENGTH(lengths); i++) {
        const size_t n = lengths[i], half = n / 2;
        float *x = make_floats(n, i), *before = make_floats(n, i);
        float *cosine = make_floats(half, 1), *sine = make_floats(half, 2);

        k->rope(x, cosine, sine, n);
        for (size_t j = 0; j < half; j++) {
            double a = (double)before[j], b = (double)before[j + half];
            double c = (double)cosine[j], s = (double)sine[j];
            assert_near((double)x[j], a * c - b * s, fabs(a * c) + fabs(b * s));
            assert_near((double)x[j + half], b * c + a * s, fabs(b * c) + fabs(a * s));
        }
        free(x);
        free(before);
        free(cosine);
        free(sine);
    }
}

static void rope_turns_the_pairs_of_the_two_halves(void **state)
{
    (void)state;
    with_each_table(check_rope);
}

static void check_elementwise(const struct kernels *k)
{
    for (size_t i = 0; i < LENGTH(lengths); i++) {
        const size_t n = lengths[i] - 1;
        float *x = make_floats(n, i), *y = make_floats(n, i + 9), *z = make_floats(n, i);

        for (size_t j = 0; j < n; j++) /* the range of gates, far out too */
            x[j] = z[j] *= j % 7 == 0 ? 40.0f : 4.0f;
        k->silu_mul(z, y, n);
        for (size_t j = 0; j < n; j++) {
            double want = (double)x[j] / (1.0 + exp(-(double)x[j])) * (double)y[j];
            assert_near((double)z[j], want, fabs(want));
        }
        memcpy(z, x, n * sizeof *x);
        k->add(z, y, n);
        for (size_t j = 0; j < n; j++)
            assert_true(z[j] == x[j] + y[j]);
        memcpy(z, x, n * sizeof *x);
        k->add_scaled(z, y, 0.37f, n);
        for (size_t j = 0; j < n; j++)
            assert_near((double)z[j], (double)x[j] + (double)0.37f * (double)y[j],
                        fabs((double)x[j]) + fabs((double)y[j]));
        free(x);
        free(y);
        free(z);
    }
}

static void silu_and_sums_equal_double_arithmetic(void **state)
{
    (void)state;
    with_each_table(check_elementwise);
}

static void check_silu_ends(const struct kernels *k)
{
    float gate[8] = { 1000.0f, -1000.0f, 0.0f, -0.0f, NAN, 88.5f, -88.5f, -87.4f };
    float up[8] = { 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f, 1.0f };

    k->silu_mul(gate, up, 8);
    assert_true(gate[0] == 1000.0f);
    assert_true(gate[1] <= 0.0f && gate[1] > -1e-30f);
    assert_true(gate[2] == 0.0f && gate[3] == 0.0f);
    assert_true(isnan(gate[4]));
    assert_true(gate[5] == 88.5f);
    assert_true(gate[6] <= 0.0f && gate[6] > -1e-30f);
    assert_true(gate[7] <= 0.0f && gate[7] > -1e-30f);
}

static void silu_has_no_overflow_and_keeps_nan(void **state)
{
    (void)state;
    with_each_table(check_silu_ends);
}

static void check_position(const struct kernels *k)
{
    float gate[67], up[67], one, one_up;

    for (size_t i = 0; i < 67; i++) {
        gate[i] = -1.7f;
        up[i] = 0.3f;
    }
    one = -1.7f;
    one_up = 0.3f;
    k->silu_mul(&one, &one_up, 1);
    k->silu_mul(gate, up, 67);
    for (size_t i = 0; i < 67; i++)
        assert_same_bits(&gate[i], &one, 1);
}

static void an_element_gives_the_same_bits_at_every_place(void **state)
{
    (void)state;
    with_each_table(check_position);
}

static void check_store(const struct kernels *k)
{
    static const uint32_t cases[][2] = {
        { 0x3F800000, 0x3F80 }, { 0x3F808000, 0x3F80 }, /* a tie goes to the even one */
        { 0x3F818000, 0x3F82 }, { 0x3F808001, 0x3F81 }, { 0xBF80FFFF, 0xBF81 },
        { 0x7F7FFFFF, 0x7F80 }, { 0x7F800000, 0x7F80 }, { 0xFF800000, 0xFF80 },
        { 0x00000001, 0x0000 }, { 0x80000000, 0x8000 }, { 0x00018000, 0x0002 },
        { 0x3DFCFFFF, 0x3DFD }, { 0x42F70001, 0x42F7 },
    };
    enum { N = LENGTH(cases), TIMES = 3, ALL = N * TIMES };
    float src[ALL], nan = NAN;
    uint16_t got[ALL + 1], nan_bits;
    char odd[4 * ALL + 1];

    for (size_t i = 0; i < ALL; i++)
        memcpy(&src[i], &cases[i % N][0], 4);
    got[ALL] = 0xABCD;
    k->store_row(got, DTYPE_BF16, src, ALL);
    for (size_t i = 0; i < ALL; i++)
        assert_int_equal(got[i], cases[i % N][1]);
    assert_int_equal(got[ALL], 0xABCD);
    k->store_row(odd + 1, DTYPE_BF16, src, ALL);
    assert_memory_equal(odd + 1, got, 2 * ALL);
    k->store_row(odd + 1, DTYPE_F32, src, ALL);
    assert_memory_equal(odd + 1, src, 4 * ALL);
    k->store_row(&nan_bits, DTYPE_BF16, &nan, 1);
    assert_true((nan_bits & 0x7F80) == 0x7F80 && (nan_bits & 0x7F) != 0);
}

static void stored_rows_are_rounded_to_nearest_even(void **state)
{
    (void)state;
    with_each_table(check_store);
}

/* ---- attention ---- */

struct cache {
    struct kv_view view;
    char **pages; /* owned, each of them too */
    uint32_t n_pages;
};

static char *token_at(const struct cache *c, size_t part, uint32_t t)
{
    const struct kv_view *v = &c->view;
    return v->pages[t / v->page_tokens] + part +
           (size_t)(t % v->page_tokens) * v->head_dim * size_of(v->dtype);
}

/* Pages end where their values end, for ASan. Tokens past n_tokens are NaN: nobody may
 * look at them. */
static struct cache make_cache(const struct kernels *k, enum dtype dtype, uint32_t page_tokens,
                               uint32_t dim, uint32_t n_tokens)
{
    const size_t part = (size_t)page_tokens * dim * size_of(dtype);
    const uint32_t n_pages = (n_tokens + page_tokens - 1) / page_tokens;
    struct cache c = { .n_pages = n_pages, .pages = calloc(n_pages, sizeof *c.pages) };

    assert_non_null(c.pages);
    for (uint32_t p = 0; p < n_pages; p++) {
        c.pages[p] = malloc(64 + 2 * part);
        assert_non_null(c.pages[p]);
        memset(c.pages[p], 0xFF, 64 + 2 * part);
    }
    c.view = (struct kv_view){ dtype, page_tokens, dim, c.pages, 64, 64 + part };
    for (uint32_t t = 0; t < n_tokens; t++) {
        float *key = make_floats(dim, t), *value = make_floats(dim, 1000 + t);
        k->store_row(token_at(&c, c.view.k_offset, t), dtype, key, dim);
        k->store_row(token_at(&c, c.view.v_offset, t), dtype, value, dim);
        free(key);
        free(value);
    }
    return c;
}

static void free_cache(struct cache *c)
{
    for (uint32_t p = 0; p < c->n_pages; p++)
        free(c->pages[p]);
    free(c->pages);
}

static void check_attend_case(const struct kernels *k, enum dtype dtype, uint32_t page_tokens,
                              uint32_t dim, uint32_t n_heads, uint32_t n_tokens, float sharp)
{
    struct cache c = make_cache(k, dtype, page_tokens, dim, n_tokens);
    const size_t size = size_of(dtype);
    float *q = make_floats(n_heads * dim, 99), *out = make_floats(n_heads * dim, 1);
    double *weight = malloc(n_tokens * sizeof *weight);
    float scale = sharp / sqrtf((float)dim);

    assert_non_null(weight);
    k->attend(out, q, n_heads, &c.view, n_tokens, scale);
    for (uint32_t h = 0; h < n_heads; h++) {
        double max = -HUGE_VAL, sum = 0.0;

        for (uint32_t t = 0; t < n_tokens; t++) {
            weight[t] = 0.0;
            for (uint32_t d = 0; d < dim; d++)
                weight[t] += (double)q[h * dim + d] *
                             value_of(dtype, token_at(&c, c.view.k_offset, t) + d * size);
            weight[t] *= (double)scale;
            max = fmax(max, weight[t]);
        }
        for (uint32_t t = 0; t < n_tokens; t++)
            sum += weight[t] = exp(weight[t] - max);
        for (uint32_t d = 0; d < dim; d++) {
            double want = 0.0, all = 0.0;

            for (uint32_t t = 0; t < n_tokens; t++) {
                double v = value_of(dtype, token_at(&c, c.view.v_offset, t) + d * size);
                want += weight[t] / sum * v;
                all += weight[t] / sum * fabs(v);
            }
            /* An F32 score of magnitude s shifts a weight by s units: ten are allowed. */
            assert_near((double)out[h * dim + d], want, 10.0 * (double)sharp * all);
        }
    }
    free_cache(&c);
    free(q);
    free(out);
    free(weight);
}

static void check_attend(const struct kernels *k)
{
    static const uint32_t tokens[] = { 1, 2, 3, 4, 5, 63, 64, 65, 129, 200 };
    static const enum dtype kinds[] = { DTYPE_F32, DTYPE_BF16 };

    for (size_t d = 0; d < LENGTH(kinds); d++)
        for (size_t t = 0; t < LENGTH(tokens); t++) {
            check_attend_case(k, kinds[d], 64, 128, 8, tokens[t], 1.0f);
            check_attend_case(k, kinds[d], 64, 64, 2, tokens[t], 8.0f);
            check_attend_case(k, kinds[d], 16, 32, 5, tokens[t], 1.0f);
            check_attend_case(k, kinds[d], 100, 18, 3, tokens[t], 1.0f);
            check_attend_case(k, kinds[d], 7, 256, 1, tokens[t], 1.0f);
            check_attend_case(k, kinds[d], 256, 80, 32, tokens[t], 1.0f);
        }
}

static void attention_equals_a_double_softmax_over_all_tokens(void **state)
{
    (void)state;
    with_each_table(check_attend);
}

static void check_history(const struct kernels *k)
{
    enum { DIM = 128, HEADS = 8, TOKENS = 150, SEEN = 100 };
    struct cache fresh = make_cache(k, DTYPE_BF16, 64, DIM, SEEN);
    struct cache longer = make_cache(k, DTYPE_BF16, 64, DIM, TOKENS);
    float *q = make_floats(HEADS * DIM, 4), a[HEADS * DIM], b[HEADS * DIM];

    k->attend(a, q, HEADS, &fresh.view, SEEN, 0.09f);
    k->attend(b, q, HEADS, &longer.view, SEEN, 0.09f); /* later tokens lie in the page already */
    assert_same_bits(b, a, HEADS * DIM);

    for (uint32_t t = SEEN; t < TOKENS; t++) /* and were dropped again */
        memset(token_at(&longer, longer.view.v_offset, t), 0xFF, DIM * 2);
    k->attend(b, q, HEADS, &longer.view, SEEN, 0.09f);
    assert_same_bits(b, a, HEADS * DIM);

    char *other = malloc(64 + 2 * 64 * DIM * 2); /* the same page at another address */
    assert_non_null(other);
    memcpy(other, fresh.pages[0], 64 + 2 * 64 * DIM * 2);
    free(fresh.pages[0]);
    fresh.pages[0] = other;
    k->attend(b, q, HEADS, &fresh.view, SEEN, 0.09f);
    assert_same_bits(b, a, HEADS * DIM);
    free_cache(&fresh);
    free_cache(&longer);
    free(q);
}

static void attention_does_not_depend_on_what_else_the_pages_hold(void **state)
{
    (void)state;
    with_each_table(check_history);
}

/* ---- router and sampler ---- */

static void softmax_equals_a_double_one(void **state)
{
    (void)state;
    for (size_t n = 1; n <= 300; n += 13) {
        float *x = make_floats(n, n), *y = make_floats(n, n);
        double max = -HUGE_VAL, sum = 0.0;

        for (size_t i = 0; i < n; i++)
            x[i] = y[i] = y[i] * 20.0f + 500.0f;
        for (size_t i = 0; i < n; i++)
            max = fmax(max, (double)y[i]);
        for (size_t i = 0; i < n; i++)
            sum += exp((double)y[i] - max);
        softmax(x, n);
        for (size_t i = 0; i < n; i++) {
            double want = exp((double)y[i] - max) / sum;
            assert_near((double)x[i], want, want);
        }
        free(x);
        free(y);
    }
}

static void top_k_is_descending_with_ties_to_the_lower_index(void **state)
{
    static const float x[8] = { 1.0f, 3.0f, 2.0f, 3.0f, 0.5f, 2.0f, 3.0f, -1.0f };
    static const uint32_t want[8] = { 1, 3, 6, 2, 5, 0, 4, 7 };
    uint32_t got[8];

    (void)state;
    for (uint32_t k = 0; k <= 8; k++) {
        memset(got, 0xFF, sizeof got);
        top_k(got, x, 8, k);
        assert_memory_equal(got, want, k * sizeof *got);
    }

    uint64_t seed = 1;
    for (int round = 0; round < 200; round++) { /* values with many ties, against a plain search */
        float y[128];
        bool taken[128] = { false };
        uint32_t index[20];

        for (size_t i = 0; i < 128; i++)
            y[i] = (float)(random_bits(&seed) % 40);
        top_k(index, y, 128, 20);
        for (uint32_t j = 0; j < 20; j++) {
            uint32_t best = 128;
            for (uint32_t i = 0; i < 128; i++)
                if (!taken[i] && (best == 128 || y[i] > y[best]))
                    best = i;
            taken[best] = true;
            assert_int_equal(index[j], best);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_is_chosen_by_name_or_by_the_cpu),
        cmocka_unit_test(products_equal_double_sums_for_odd_sizes_and_all_types),
        cmocka_unit_test(a_product_of_no_rows_writes_nothing),
        cmocka_unit_test(all_254_codes_are_converted_exactly),
        cmocka_unit_test(a_row_gives_the_same_bits_alone_and_among_others),
        cmocka_unit_test(an_output_gives_the_same_bits_in_every_range),
        cmocka_unit_test(weights_and_rows_may_lie_at_any_address),
        cmocka_unit_test(a_product_gives_the_same_bits_on_any_number_of_threads),
        cmocka_unit_test(rmsnorm_follows_its_equation_also_in_place),
        cmocka_unit_test(rope_turns_the_pairs_of_the_two_halves),
        cmocka_unit_test(silu_and_sums_equal_double_arithmetic),
        cmocka_unit_test(silu_has_no_overflow_and_keeps_nan),
        cmocka_unit_test(an_element_gives_the_same_bits_at_every_place),
        cmocka_unit_test(stored_rows_are_rounded_to_nearest_even),
        cmocka_unit_test(attention_equals_a_double_softmax_over_all_tokens),
        cmocka_unit_test(attention_does_not_depend_on_what_else_the_pages_hold),
        cmocka_unit_test(softmax_equals_a_double_one),
        cmocka_unit_test(top_k_is_descending_with_ties_to_the_lower_index),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
