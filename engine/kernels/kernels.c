/* Choosing a table, and the few functions that are the same for all of them. */
#include "kernels/kernels.h"

#include "kernels/tables.h"
#include "util/err.h"
#include "util/pool.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* ---- choice ---- */

#if defined(__x86_64__)
/* NULL when the class can run, else what the CPU lacks. __builtin_cpu_supports also asks
 * whether the operating system saves the registers; it knows no name for F16C everywhere. */
static const char *missing(enum kernel_class class)
{
    unsigned a, b, c = 0, d;

    if (class == KERNELS_SCALAR)
        return NULL;
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return "AVX2 and FMA";
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_F16C))
        return "F16C";
    if (class == KERNELS_AVX512 &&
        (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
         !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq")))
        return "AVX-512 F, BW, VL and DQ";
    return NULL;
}

static const struct kernels *table(enum kernel_class class)
{
    if (class == KERNELS_AVX512)
        return &kernels_avx512;
    return class == KERNELS_AVX2 ? &kernels_avx2 : &kernels_scalar;
}
#else
static const char *missing(enum kernel_class class)
{
    return class == KERNELS_SCALAR ? NULL : "the x86-64 instruction set";
}

static const struct kernels *table(enum kernel_class class)
{
    (void)class;
    return &kernels_scalar;
}
#endif

static const char *const names[] = {
    [KERNELS_AUTO] = "auto",
    [KERNELS_SCALAR] = "scalar",
    [KERNELS_AVX2] = "avx2",
    [KERNELS_AVX512] = "avx512",
};

int kernels_choose(const struct kernels **out, enum kernel_class want, struct err *err)
{
    if (want == KERNELS_AUTO) {
        want = KERNELS_AVX512;
        while (missing(want))
            want--;
    }
    const char *lack = missing(want);
    if (lack)
        return err_set(err, ERR_UNSUPPORTED,
                       "kernels '%s': this CPU lacks %s; use 'auto' or 'scalar'", names[want],
                       lack);
    *out = table(want);
    return 0;
}

bool kernels_parse(enum kernel_class *out, const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (enum kernel_class)i;
            return true;
        }
    return false;
}

/* ---- the product over a pool ---- */

/* Below so many multiplications the caller is done before a second thread has begun. */
enum { POOLED_WORK_MIN = 16384 };
/* Pieces: several a thread, so that a late thread costs little, but not short, because each
 * starts with weights that nobody prefetched. */
enum { PIECES_PER_THREAD = 8, PIECE_WORK_MIN = 128 * 1024, PIECE_ALIGN = 16 };

struct matmul_job {
    const struct kernels *k;
    float *out;
    const float *in;
    size_t out_stride, in_stride;
    uint32_t n_rows;
    const struct matrix *w;
};

static void matmul_piece(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct matmul_job *j = ctx;

    (void)thread;
    j->k->matmul(j->out, j->out_stride, j->in, j->in_stride, j->n_rows, j->w, begin, end);
}

void matmul_pooled(const struct kernels *k, struct pool *pool, float *out, size_t out_stride,
                   const float *in, size_t in_stride, uint32_t n_rows, const struct matrix *w)
{
    const uint64_t per_output = (uint64_t)w->cols * n_rows;
    const uint32_t n_threads = pool ? pool_threads(pool) : 1;
    struct matmul_job job = { .k = k, .out = out, .in = in, .out_stride = out_stride,
                              .in_stride = in_stride, .n_rows = n_rows, .w = w };

    if (n_threads == 1 || per_output * w->rows < POOLED_WORK_MIN) {
        matmul_piece(&job, 0, w->rows, 0);
        return;
    }

    uint64_t grain = w->rows / (n_threads * PIECES_PER_THREAD);
    uint64_t least = PIECE_WORK_MIN / (per_output ? per_output : 1);
    uint64_t most = w->rows / n_threads + 1; /* a small matrix is shared all the same */
    if (grain < least)
        grain = least < most ? least : most;
    grain = (grain + PIECE_ALIGN - 1) / PIECE_ALIGN * PIECE_ALIGN;
    pool_run(pool, matmul_piece, &job, w->rows, (uint32_t)grain);
}

/* ---- small functions of the router and the sampler ---- */

void softmax(float *x, size_t n)
{
    float max = -INFINITY;
    double sum = 0.0;

    for (size_t i = 0; i < n; i++)
        max = fmaxf(max, x[i]);
    for (size_t i = 0; i < n; i++) {
        x[i] = expf(x[i] - max);
        sum += (double)x[i];
    }
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] / sum);
}

/* True when entry a belongs before entry b. */
static bool before(const float *x, uint32_t a, uint32_t b)
{
    return x[a] > x[b] || (!(x[a] < x[b]) && a < b);
}

/* An insertion into the k found so far: k is small, and most entries fail the first test. */
void top_k(uint32_t *index, const float *x, uint32_t n, uint32_t k)
{
    uint32_t found = 0;

    assert(k <= n);
    for (uint32_t i = 0; i < n; i++) {
        if (found == k && (k == 0 || !before(x, i, index[k - 1])))
            continue;
        uint32_t at = found < k ? found++ : k - 1;
        for (; at > 0 && before(x, i, index[at - 1]); at--)
            index[at] = index[at - 1];
        index[at] = i;
    }
}
