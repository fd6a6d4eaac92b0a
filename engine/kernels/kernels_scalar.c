/* The reference: plain loops, sums in double, one element after the other. */
#include "kernels/tables.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { F8_CODES = 256, ROWS_AT_ONCE = 16, SUMS = 4 };

/* Four interleaved sums: a single one waits for its own latency at every element. */
static double dot(const float *a, const float *b, size_t n)
{
    double sum[SUMS] = { 0.0 };
    size_t i = 0;

    for (; i + SUMS <= n; i += SUMS)
        for (size_t k = 0; k < SUMS; k++)
            sum[k] += (double)a[i + k] * (double)b[i + k];
    for (size_t k = 0; i < n; i++, k++)
        sum[k] += (double)a[i] * (double)b[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* One block of at most SCALE_BLOCK weights as F32, without the block scale. */
static void widen(float *out, const char *data, enum dtype dtype, size_t n, const float *f8_values)
{
    if (dtype == DTYPE_F8_E4M3)
        for (size_t i = 0; i < n; i++)
            out[i] = f8_values[(unsigned char)data[i]];
    else
        dtype_to_f32(out, data, dtype, n);
}

static void matmul(float *out, size_t out_stride, const float *in, size_t in_stride,
                   uint32_t n_rows, const struct matrix *w, uint32_t begin, uint32_t end)
{
    const size_t cols = w->cols, size = dtype_size(w->dtype);
    const size_t n_blocks = (cols + SCALE_BLOCK - 1) / SCALE_BLOCK;
    float f8_values[F8_CODES], block[SCALE_BLOCK];

    assert(end <= w->rows && begin <= end);
    if (w->dtype == DTYPE_F8_E4M3)
        for (uint32_t code = 0; code < F8_CODES; code++)
            f8_values[code] = dtype_f8_e4m3_to_f32((uint8_t)code);

    for (uint32_t o = begin; o < end; o++) {
        const char *row = (const char *)w->data + o * cols * size;
        const float *scales = w->scales ? w->scales + o / SCALE_BLOCK * n_blocks : NULL;

        for (uint32_t first = 0; first < n_rows; first += ROWS_AT_ONCE) {
            uint32_t n = n_rows - first < ROWS_AT_ONCE ? n_rows - first : ROWS_AT_ONCE;
            double sum[ROWS_AT_ONCE] = { 0.0 };

            for (size_t b = 0; b < n_blocks; b++) {
                size_t c = b * SCALE_BLOCK;
                size_t len = cols - c < SCALE_BLOCK ? cols - c : SCALE_BLOCK;
                double scale = scales ? (double)scales[b] : 1.0;

                widen(block, row + c * size, w->dtype, len, f8_values);
                for (uint32_t r = 0; r < n; r++)
                    sum[r] += scale * dot(block, in + (first + r) * in_stride + c, len);
            }
            for (uint32_t r = 0; r < n; r++)
                out[(first + r) * out_stride + o] = (float)sum[r];
        }
    }
}

static void rmsnorm(float *out, const float *x, const float *weight, size_t dim, float eps)
{
    double scale = 1.0 / sqrt(dot(x, x, dim) / (double)dim + (double)eps);

    for (size_t i = 0; i < dim; i++)
        out[i] = x[i] * (float)scale * weight[i];
}

static void rope(float *x, const float *cos, const float *sin, size_t dim)
{
    size_t half = dim / 2;

    for (size_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        x[i] = a * cos[i] - b * sin[i];
        x[i + half] = b * cos[i] + a * sin[i];
    }
}

static void silu_mul(float *gate, const float *up, size_t n)
{
    for (size_t i = 0; i < n; i++)
        gate[i] = gate[i] / (1.0f + expf(-gate[i])) * up[i];
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

static void silu(float *x, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] * scale * sigmoid(x[i] * scale);
}

static void sigmoid_mul(float *x, const float *gate, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= sigmoid(gate[i]);
}

static void l2norm(float *x, float scale, size_t dim, float eps)
{
    float factor = (float)((double)scale / sqrt(dot(x, x, dim) + (double)eps));

    for (size_t i = 0; i < dim; i++)
        x[i] *= factor;
}

static void conv_silu(float *out, const float *const *in, const float *taps, uint32_t n_taps,
                      size_t n)
{
    for (size_t c = 0; c < n; c++) {
        double sum = 0.0;
        for (uint32_t t = 0; t < n_taps; t++)
            sum += (double)taps[c * n_taps + t] * (double)in[t][c];
        out[c] = (float)sum * sigmoid((float)sum);
    }
}

/* Columns are independent of each other; some at a time, so that rows are read in pieces. */
static void delta_step(float *out, float *to, const float *from, const float *q, const float *k,
                       const float *v, float decay, float beta, size_t key_dim, size_t value_dim)
{
    enum { COLUMNS = 64 };
    double along = dot(q, k, key_dim);

    for (size_t first = 0; first < value_dim; first += COLUMNS) {
        size_t n = value_dim - first < COLUMNS ? value_dim - first : COLUMNS;
        double held[COLUMNS] = { 0.0 }, seen[COLUMNS] = { 0.0 };

        for (size_t i = 0; i < key_dim; i++)
            for (size_t j = 0; j < n; j++) {
                held[j] += (double)from[i * value_dim + first + j] * (double)k[i];
                seen[j] += (double)from[i * value_dim + first + j] * (double)q[i];
            }
        for (size_t j = 0; j < n; j++) { /* held becomes d */
            held[j] = (double)beta * ((double)v[first + j] - (double)decay * held[j]);
            out[first + j] = (float)((double)decay * seen[j] + along * held[j]);
        }
        for (size_t i = 0; i < key_dim; i++)
            for (size_t j = 0; j < n; j++) {
                size_t at = i * value_dim + first + j;
                to[at] = (float)((double)decay * (double)from[at] + (double)k[i] * held[j]);
            }
    }
}

static void add(float *x, const float *y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

static void add_scaled(float *x, const float *y, float s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] += s * y[i];
}

/* ---- attention ---- */

/* Tokens whose scores are held at once; a page is cut at multiples of it. */
enum { SPAN = 64 };

/* Running softmax of one head: values weighted by exp(score - max), and the weights' sum. */
struct soft_sum {
    double max, sum;
    double values[ATTEND_HEAD_DIM_MAX];
};

static void load_vector(float *out, const char *at, enum dtype dtype, uint32_t index, uint32_t dim)
{
    dtype_to_f32(out, at + (size_t)index * dim * dtype_size(dtype), dtype, dim);
}

static void attend_span(struct soft_sum *s, const float *q, const char *k, const char *v,
                        const struct kv_view *kv, uint32_t n, float scale)
{
    const uint32_t dim = kv->head_dim;
    double score[SPAN], max = -HUGE_VAL, sum = 0.0, local[ATTEND_HEAD_DIM_MAX] = { 0.0 };
    float vector[ATTEND_HEAD_DIM_MAX];

    for (uint32_t t = 0; t < n; t++) {
        load_vector(vector, k, kv->dtype, t, dim);
        score[t] = dot(q, vector, dim) * (double)scale;
        max = fmax(max, score[t]);
    }
    for (uint32_t t = 0; t < n; t++) {
        double weight = exp(score[t] - max);
        sum += weight;
        load_vector(vector, v, kv->dtype, t, dim);
        for (uint32_t d = 0; d < dim; d++)
            local[d] += weight * (double)vector[d];
    }

    double all = fmax(s->max, max), keep = exp(s->max - all), take = exp(max - all);
    for (uint32_t d = 0; d < dim; d++)
        s->values[d] = s->values[d] * keep + local[d] * take;
    s->sum = s->sum * keep + sum * take;
    s->max = all;
}

static void attend(float *out, const float *q, uint32_t n_heads, const struct kv_view *kv,
                   uint32_t n_tokens, float scale)
{
    const uint32_t dim = kv->head_dim;
    const size_t token_size = (size_t)dim * dtype_size(kv->dtype);

    assert(dim <= ATTEND_HEAD_DIM_MAX && n_heads <= ATTEND_HEADS_MAX && n_tokens > 0);
    for (uint32_t h = 0; h < n_heads; h++) {
        struct soft_sum s = { .max = -HUGE_VAL };

        for (uint32_t first = 0; first < n_tokens; first += kv->page_tokens) {
            const char *page = kv->pages[first / kv->page_tokens];
            uint32_t in_page =
                n_tokens - first < kv->page_tokens ? n_tokens - first : kv->page_tokens;

            for (uint32_t t = 0; t < in_page; t += SPAN)
                attend_span(&s, q + h * dim, page + kv->k_offset + t * token_size,
                            page + kv->v_offset + t * token_size, kv,
                            in_page - t < SPAN ? in_page - t : SPAN, scale);
        }
        for (uint32_t d = 0; d < dim; d++)
            out[h * dim + d] = (float)(s.values[d] / s.sum);
    }
}

static void store_row(void *dst, enum dtype dtype, const float *src, size_t n)
{
    if (dtype == DTYPE_F32) {
        memcpy(dst, src, n * sizeof *src);
        return;
    }
    assert(dtype == DTYPE_BF16);
    char *to = dst;
    for (size_t i = 0; i < n; i++) {
        uint16_t bits = dtype_bf16_from_f32(src[i]);
        memcpy(to + i * sizeof bits, &bits, sizeof bits);
    }
}

const struct kernels kernels_scalar = {
    .class = KERNELS_SCALAR,
    .name = "scalar",
    .matmul = matmul,
    .rmsnorm = rmsnorm,
    .rope = rope,
    .silu_mul = silu_mul,
    .silu = silu,
    .sigmoid_mul = sigmoid_mul,
    .l2norm = l2norm,
    .conv_silu = conv_silu,
    .delta_step = delta_step,
    .add = add,
    .add_scaled = add_scaled,
    .attend = attend,
    .store_row = store_row,
};
