#include "blocks/gqa.h"

#include "blocks/kv_seq.h"
#include "blocks/step.h"
#include "kernels/kernels.h"
#include "store/kv_pool.h"
#include "util/err.h"
#include "util/pool.h"

#include <inttypes.h>

struct gqa_job {
    const struct gqa_shape *shape;
    const struct gqa_weights *w;
    struct kv_seq *const *seqs;
    const struct step *step;
    uint32_t layer;
    float *q, *k, *out; /* [n_rows, heads of each, head_dim] */
    const float *v;
};

uint64_t gqa_scratch_size(const struct gqa_shape *s, uint32_t n_rows)
{
    uint64_t q = (uint64_t)n_rows * s->n_heads * s->head_dim;
    uint64_t kv = (uint64_t)n_rows * s->n_kv_heads * s->head_dim;

    return 2 * arena_need(q * sizeof(float)) + 2 * arena_need(kv * sizeof(float));
}

/* Norms and rotates one row's heads and puts its K and V into the page they belong to. */
static void place_rows(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct gqa_job *job = ctx;
    const struct gqa_shape *s = job->shape;
    const struct kernels *kernels = job->step->kernels;
    size_t dim = s->head_dim;

    (void)thread;
    for (uint32_t r = begin; r < end; r++) {
        const struct row *row = &job->step->rows[r];
        const struct kv_seq *seq = job->seqs[row->seq];
        const struct kv_pool *pool = seq->pool;
        enum dtype dtype = kv_pool_dtype(pool);
        const float *cosines = job->step->rope_cos + r * (dim / 2);
        const float *sines = job->step->rope_sin + r * (dim / 2);
        char *page = seq->pages[row->pos / KV_PAGE_TOKENS];
        size_t at = row->pos % KV_PAGE_TOKENS * dim * dtype_size(dtype);

        for (uint32_t h = 0; h < s->n_heads; h++) {
            float *q = job->q + ((size_t)r * s->n_heads + h) * dim;
            kernels->rmsnorm(q, q, job->w->q_norm, dim, s->eps);
            kernels->rope(q, cosines, sines, dim);
        }
        for (uint32_t h = 0; h < s->n_kv_heads; h++) {
            float *k = job->k + ((size_t)r * s->n_kv_heads + h) * dim;
            const float *v = job->v + ((size_t)r * s->n_kv_heads + h) * dim;
            kernels->rmsnorm(k, k, job->w->k_norm, dim, s->eps);
            kernels->rope(k, cosines, sines, dim);
            kernels->store_row(page + kv_pool_k_offset(pool, job->layer, h) + at, dtype, k, dim);
            kernels->store_row(page + kv_pool_v_offset(pool, job->layer, h) + at, dtype, v, dim);
        }
    }
}

/* One item is one row and one KV head with the query heads that share it. */
static void attend_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct gqa_job *job = ctx;
    const struct gqa_shape *s = job->shape;
    uint32_t group = s->n_heads / s->n_kv_heads;

    (void)thread;
    for (uint32_t item = begin; item < end; item++) {
        uint32_t r = item / s->n_kv_heads, h = item % s->n_kv_heads;
        const struct row *row = &job->step->rows[r];
        const struct kv_seq *seq = job->seqs[row->seq];
        size_t at = ((size_t)r * s->n_heads + (size_t)h * group) * s->head_dim;
        struct kv_view view = {
            .dtype = kv_pool_dtype(seq->pool),
            .page_tokens = KV_PAGE_TOKENS,
            .head_dim = s->head_dim,
            .pages = seq->pages,
            .k_offset = kv_pool_k_offset(seq->pool, job->layer, h),
            .v_offset = kv_pool_v_offset(seq->pool, job->layer, h),
        };
        job->step->kernels->attend(job->out + at, job->q + at, group, &view, row->pos + 1,
                                   s->scale);
    }
}

int gqa_forward(float *out, const float *in, const struct gqa_shape *s,
                const struct gqa_weights *w, uint32_t layer, struct kv_seq *const *seqs,
                struct step *step, struct err *err)
{
    uint32_t n = step->n_rows;
    size_t q_cols = (size_t)s->n_heads * s->head_dim, kv_cols = (size_t)s->n_kv_heads * s->head_dim;
    uint64_t mark = arena_mark(step->scratch);
    float *q = arena_take(step->scratch, n * q_cols * sizeof *q);
    float *k = arena_take(step->scratch, n * kv_cols * sizeof *k);
    float *v = arena_take(step->scratch, n * kv_cols * sizeof *v);
    float *heads = arena_take(step->scratch, n * q_cols * sizeof *heads);

    if (!q || !k || !v || !heads)
        return err_set(err, ERR_NOMEM, "attention scratch for %" PRIu32 " rows", n);

    matmul_pooled(step->kernels, step->pool, q, q_cols, in, s->hidden, n, &w->q);
    matmul_pooled(step->kernels, step->pool, k, kv_cols, in, s->hidden, n, &w->k);
    matmul_pooled(step->kernels, step->pool, v, kv_cols, in, s->hidden, n, &w->v);

    struct gqa_job job = {
        .shape = s, .w = w, .seqs = seqs, .step = step, .layer = layer,
        .q = q, .k = k, .v = v, .out = heads,
    };
    pool_run(step->pool, place_rows, &job, n, 4);
    pool_run(step->pool, attend_items, &job, n * s->n_kv_heads, 1);

    matmul_pooled(step->kernels, step->pool, out, s->hidden, heads, q_cols, n, &w->o);
    step->counters->multi_row_products += n > 1 ? 4 : 0;
    arena_back(step->scratch, mark);
    return 0;
}
