#include "blocks/qsa.h"

#include "blocks/rope.h"
#include "blocks/step.h"
#include "kernels/kernels.h"
#include "util/err.h"
#include "util/pool.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>

enum {
    BATCH = 16,        /* rows whose block scores are held at once */
    MAX_ROTATED = 256, /* of the attention kernels */
};

struct qsa_job {
    const struct qsa_shape *s;
    const struct qsa_weights *w;
    const struct qsa_layout *at;
    char *const *const *pages;
    const struct rope *rope;
    const struct step *step;
    float *q;                /* [n_rows, n_heads, 2, head_dim]: queries and gates */
    float *k, *index;        /* [n_rows, n_kv_heads, head_dim], [n_rows, n_index_heads + 1, index_dim] */
    const float *v;
    float *query, *heads;    /* [n_rows, n_heads, head_dim] */
    /* of BATCH rows, from `first` on */
    uint32_t first;
    size_t cap;              /* full blocks that a row can have */
    float *score, *work;     /* [BATCH, cap] */
    uint32_t *chosen;        /* [BATCH, max_blocks] */
    uint32_t piece;          /* tokens: what a block and a page are both whole numbers of */
    size_t cap_list;
    char **list;             /* [BATCH, cap_list] chosen blocks as pages of `piece` tokens */
};

static size_t q_width(const struct qsa_shape *s)
{
    return (size_t)s->n_heads * s->head_dim;
}

static size_t kv_width(const struct qsa_shape *s)
{
    return (size_t)s->n_kv_heads * s->head_dim;
}

static size_t index_width(const struct qsa_shape *s)
{
    return (size_t)(s->n_index_heads + 1) * s->index_dim;
}

static bool is_sparse(const struct qsa_shape *s, uint32_t pos)
{
    return (pos + 1) / s->block > s->max_blocks;
}

/* A block may lie across pages; its pieces do not. */
static uint32_t piece_of(const struct qsa_shape *s, uint32_t page_tokens)
{
    uint32_t a = s->block, b = page_tokens;

    while (b) {
        uint32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Of the chosen blocks and the open one; at most one a token. */
static size_t list_size(const struct qsa_shape *s, uint32_t piece)
{
    return ((size_t)s->max_blocks + 1) * (s->block / piece);
}

/* The first block that begins in a page, or would. */
static uint32_t first_block(const struct qsa_job *job, uint32_t page)
{
    return (uint32_t)(((uint64_t)page * job->at->page_tokens + job->s->block - 1) / job->s->block);
}

static uint32_t n_pages_of(const struct qsa_job *job)
{
    uint64_t tokens = (uint64_t)job->cap * job->s->block;

    return (uint32_t)((tokens + job->at->page_tokens - 1) / job->at->page_tokens);
}

/* What only rows past the budget need; 0 blocks when there can be none. */
static uint64_t batch_size(const struct qsa_shape *s, uint32_t context, size_t *cap)
{
    *cap = context > 0 && is_sparse(s, context - 1) ? context / s->block : 0;
    if (*cap == 0)
        return 0;
    return 2 * arena_need(BATCH * *cap * sizeof(float)) +
           arena_need((uint64_t)BATCH * s->max_blocks * sizeof(uint32_t)) +
           arena_need(BATCH * list_size(s, 1) * sizeof(char *));
}

uint64_t qsa_scratch_size(const struct qsa_shape *s, uint32_t n_rows, uint32_t context)
{
    uint64_t n = n_rows;
    size_t cap;

    return arena_need(2 * n * q_width(s) * sizeof(float)) +
           2 * arena_need(n * q_width(s) * sizeof(float)) +
           2 * arena_need(n * kv_width(s) * sizeof(float)) +
           arena_need(n * index_width(s) * sizeof(float)) + batch_size(s, context, &cap);
}

/* ---- into the pages ---- */

static char *page_of(const struct qsa_job *job, uint32_t row)
{
    const struct row *r = &job->step->rows[row];

    return job->pages[r->seq][r->pos / job->at->page_tokens];
}

static void norm_and_turn(float *x, const float *weight, size_t dim, const float *cosines,
                          const float *sines, const struct qsa_job *job)
{
    job->step->kernels->rmsnorm(x, x, weight, dim, job->s->eps);
    job->step->kernels->rope(x, cosines, sines, job->s->rotated);
}

static bool has_nan(const float *x, size_t n)
{
    bool found = false;

    for (size_t i = 0; i < n; i++)
        found = found || isnan(x[i]);
    return found;
}

/* Items are rows. */
static void place_rows(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct qsa_job *job = ctx;
    const struct qsa_shape *s = job->s;
    const struct kernels *kernels = job->step->kernels;
    size_t dim = s->head_dim, size = dtype_size(job->at->dtype);

    (void)thread;
    for (uint32_t r = begin; r < end; r++) {
        const float *cosines = job->step->rope_cos + r * (size_t)(s->rotated / 2);
        const float *sines = job->step->rope_sin + r * (size_t)(s->rotated / 2);
        size_t token = job->step->rows[r].pos % job->at->page_tokens;
        char *page = page_of(job, r);

        for (uint32_t h = 0; h < s->n_heads; h++) {
            float *query = job->query + ((size_t)r * s->n_heads + h) * dim;
            const float *from = job->q + ((size_t)r * s->n_heads + h) * 2 * dim;
            kernels->rmsnorm(query, from, job->w->q_norm, dim, s->eps);
            kernels->rope(query, cosines, sines, s->rotated);
        }
        for (uint32_t h = 0; h < s->n_kv_heads; h++) {
            float *k = job->k + ((size_t)r * s->n_kv_heads + h) * dim;
            const float *v = job->v + ((size_t)r * s->n_kv_heads + h) * dim;
            size_t at = ((size_t)h * job->at->page_tokens + token) * dim * size;
            norm_and_turn(k, job->w->k_norm, dim, cosines, sines, job);
            kernels->store_row(page + job->at->k + at, job->at->dtype, k, dim);
            kernels->store_row(page + job->at->v + at, job->at->dtype, v, dim);
        }
        float *index = job->index + r * index_width(s);
        for (uint32_t h = 0; h < s->n_index_heads; h++)
            norm_and_turn(index + (size_t)h * s->index_dim, job->w->index_q_norm, s->index_dim,
                          cosines, sines, job);
        kernels->store_row(page + job->at->index + token * s->index_dim * size, job->at->dtype,
                           index + (size_t)s->n_index_heads * s->index_dim, s->index_dim);
        /* Scores lose what is no number, and blocks would be chosen as if nothing were wrong. */
        if (has_nan(index, index_width(s)))
            job->query[r * q_width(s)] = NAN;
    }
}

/* Items are rows; those that fill a block make its key. Their own scratch is the place of the
 * row's index key, which is in the page by now. */
static void close_blocks(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct qsa_job *job = ctx;
    const struct qsa_shape *s = job->s;
    size_t dim = s->index_dim, size = dtype_size(job->at->dtype);
    uint32_t page_tokens = job->at->page_tokens;
    float cosines[MAX_ROTATED / 2], sines[MAX_ROTATED / 2], one[MAX_ROTATED];

    (void)thread;
    for (uint32_t r = begin; r < end; r++) {
        uint32_t pos = job->step->rows[r].pos, first = pos + 1 - s->block;
        char *const *pages = job->pages[job->step->rows[r].seq];
        if ((pos + 1) % s->block)
            continue;
        float *mean = job->index + r * index_width(s) + (size_t)s->n_index_heads * dim;
        for (size_t d = 0; d < dim; d++)
            mean[d] = 0.0f;
        for (uint32_t t = first; t <= pos; t++) {
            dtype_to_f32(one, pages[t / page_tokens] + job->at->index + t % page_tokens * dim * size,
                         job->at->dtype, dim);
            for (size_t d = 0; d < dim; d++)
                mean[d] += one[d];
        }
        for (size_t d = 0; d < dim; d++)
            mean[d] /= (float)s->block;
        rope_angles(job->rope, first, cosines, sines);
        norm_and_turn(mean, job->w->index_k_norm, dim, cosines, sines, job);
        size_t slot = first / s->block - first_block(job, first / page_tokens);
        job->step->kernels->store_row(pages[first / page_tokens] + job->at->blocks +
                                          slot * dim * size,
                                      job->at->dtype, mean, dim);
    }
}

/* ---- choosing ---- */

/* Block keys lie a page apart, where the processor does not look ahead by itself. */
static void prefetch_keys(const struct qsa_job *job, uint16_t seq, uint32_t page)
{
    const char *keys = job->pages[seq][page] + job->at->blocks;
    size_t size = (size_t)(first_block(job, page + 1) - first_block(job, page)) *
                  job->s->index_dim * dtype_size(job->at->dtype);

    for (size_t i = 0; i < size; i += 64)
        __builtin_prefetch(keys + i, 0, 3);
}

/* Items are pages of the past of a row of the batch. */
static void score_pages(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    enum { MOST = 64 * 64 };
    const struct qsa_job *job = ctx;
    const struct qsa_shape *s = job->s;
    uint32_t most = (job->at->page_tokens + s->block - 1) / s->block, n_pages = n_pages_of(job);
    float scale = 1.0f / sqrtf((float)s->index_dim), products[MOST];

    (void)thread;
    assert(s->n_index_heads * most <= MOST);
    for (uint32_t item = begin; item < end; item++) {
        uint32_t i = item / n_pages, page = item % n_pages, r = job->first + i;
        const struct row *row = &job->step->rows[r];
        uint32_t full = (row->pos + 1) / s->block, from = first_block(job, page);
        uint32_t to = first_block(job, page + 1);
        to = to < full ? to : full;
        if (!is_sparse(s, row->pos) || from >= to)
            continue;
        if (page + 1 < n_pages && first_block(job, page + 1) < full)
            prefetch_keys(job, row->seq, page + 1);
        struct matrix keys = { .dtype = job->at->dtype, .rows = most, .cols = s->index_dim,
                               .data = job->pages[row->seq][page] + job->at->blocks };
        job->step->kernels->matmul(products, most, job->index + r * index_width(s), s->index_dim,
                                   s->n_index_heads, &keys, 0, to - from);
        float *score = job->score + i * job->cap + from;
        for (uint32_t j = 0; j < to - from; j++) {
            float sum = 0.0f;
            for (uint32_t h = 0; h < s->n_index_heads; h++)
                sum += fmaxf(products[h * most + j], 0.0f);
            score[j] = sum * scale;
        }
    }
}

/* The pieces of n tokens from a block's first on. Returns how many. */
static uint32_t list_pieces(char **list, const struct qsa_job *job, char *const *pages,
                            uint32_t block, uint32_t n)
{
    size_t size = job->s->head_dim * dtype_size(job->at->dtype);
    uint32_t first = block * job->s->block, count = 0;

    for (uint32_t t = 0; t < n; t += job->piece)
        list[count++] = pages[(first + t) / job->at->page_tokens] +
                        (first + t) % job->at->page_tokens * size;
    return count;
}

/* Items are rows of the batch. What is chosen becomes pages of their own, of `piece` tokens. */
static void choose_blocks(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct qsa_job *job = ctx;
    const struct qsa_shape *s = job->s;

    (void)thread;
    for (uint32_t i = begin; i < end; i++) {
        const struct row *row = &job->step->rows[job->first + i];
        uint32_t *chosen = job->chosen + (size_t)i * s->max_blocks;
        char **list = job->list + i * job->cap_list;
        char *const *pages = job->pages[row->seq];
        uint32_t full = (row->pos + 1) / s->block;
        if (!is_sparse(s, row->pos))
            continue;
        qsa_select(chosen, job->score + i * job->cap, job->work + i * job->cap, full,
                   s->max_blocks);
        for (uint32_t j = 0; j < s->max_blocks; j++)
            list += list_pieces(list, job, pages, chosen[j], s->block);
        list_pieces(list, job, pages, full, (row->pos + 1) % s->block);
    }
}

/* ---- attending ---- */

static void gate_head(float *x, const float *gate, const struct qsa_job *job)
{
    job->step->kernels->sigmoid_mul(x, gate, job->s->head_dim);
    for (size_t d = 0; d < job->s->head_dim && job->s->silu_gate; d++)
        x[d] *= gate[d];
}

/* An item is one row of the batch and one KV head with the query heads that share it. */
static void attend_items(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct qsa_job *job = ctx;
    const struct qsa_shape *s = job->s;
    uint32_t group = s->n_heads / s->n_kv_heads;
    size_t head = (size_t)job->at->page_tokens * s->head_dim * dtype_size(job->at->dtype);
    float scale = 1.0f / sqrtf((float)s->head_dim);

    (void)thread;
    for (uint32_t item = begin; item < end; item++) {
        uint32_t i = item / s->n_kv_heads, h = item % s->n_kv_heads, r = job->first + i;
        const struct row *row = &job->step->rows[r];
        bool sparse = is_sparse(s, row->pos);
        struct kv_view view = {
            .dtype = job->at->dtype,
            .page_tokens = sparse ? job->piece : job->at->page_tokens,
            .head_dim = s->head_dim,
            .pages = sparse ? job->list + i * job->cap_list : job->pages[row->seq],
            .k_offset = job->at->k + h * head,
            .v_offset = job->at->v + h * head,
        };
        uint32_t n = row->pos + 1;
        if (sparse)
            n = s->max_blocks * s->block + n % s->block;
        size_t at = ((size_t)r * s->n_heads + (size_t)h * group) * s->head_dim;
        job->step->kernels->attend(job->heads + at, job->query + at, group, &view, n, scale);
        for (uint32_t g = 0; g < group; g++)
            gate_head(job->heads + at + (size_t)g * s->head_dim,
                      job->q + 2 * (at + (size_t)g * s->head_dim) + s->head_dim, job);
    }
}

/* How many full blocks the farthest row of the step has, when it must choose among them. */
static size_t blocks_of(const struct qsa_shape *s, const struct step *step)
{
    struct step_counters *c = step->counters;
    uint32_t most = 0;

    for (uint32_t r = 0; r < step->n_rows; r++) {
        uint32_t seen = step->rows[r].pos + 1, tail = seen % s->block;
        if (!is_sparse(s, step->rows[r].pos)) {
            c->dense_rows++;
            continue;
        }
        c->sparse_rows++;
        c->blocks_left_out += seen / s->block - s->max_blocks;
        c->tails |= tail < 64 ? (uint64_t)1 << tail : 0;
        most = seen > most ? seen : most;
    }
    return most / s->block;
}

/* Of n rows of the batch: those that end a block and do not see it, or themselves. */
static void count_self(const struct qsa_job *job, uint32_t n)
{
    const struct qsa_shape *s = job->s;

    for (uint32_t i = 0; i < n; i++) {
        uint32_t seen = job->step->rows[job->first + i].pos + 1;
        const uint32_t *chosen = job->chosen + (size_t)i * s->max_blocks; /* rising */
        if (is_sparse(s, seen - 1) && seen % s->block == 0 &&
            chosen[s->max_blocks - 1] != seen / s->block - 1)
            job->step->counters->self_left_out++;
    }
}

/* BATCH rows after the other, as their scores take room. */
static void attend_all(struct qsa_job *job)
{
    struct pool *pool = job->step->pool;
    uint32_t n_rows = job->step->n_rows;

    for (; job->first < n_rows; job->first += BATCH) {
        uint32_t n = n_rows - job->first < BATCH ? n_rows - job->first : BATCH;
        if (job->cap) {
            pool_run(pool, score_pages, job, n * n_pages_of(job), 16);
            pool_run(pool, choose_blocks, job, n, 1);
            count_self(job, n);
        }
        pool_run(pool, attend_items, job, n * job->s->n_kv_heads, 1);
    }
}

int qsa_forward(float *out, const float *in, const struct qsa_shape *s, const struct qsa_weights *w,
                const struct qsa_layout *layout, char *const *const *pages,
                const struct rope *rope, struct step *step, struct err *err)
{
    uint32_t n = step->n_rows;
    uint64_t mark = arena_mark(step->scratch);
    float *q = arena_take(step->scratch, 2 * n * q_width(s) * sizeof *q);
    float *query = arena_take(step->scratch, n * q_width(s) * sizeof *query);
    float *heads = arena_take(step->scratch, n * q_width(s) * sizeof *heads);
    float *k = arena_take(step->scratch, n * kv_width(s) * sizeof *k);
    float *v = arena_take(step->scratch, n * kv_width(s) * sizeof *v);
    float *index = arena_take(step->scratch, n * index_width(s) * sizeof *index);
    struct qsa_job job = { .s = s, .w = w, .at = layout, .pages = pages, .rope = rope,
                           .step = step, .q = q, .k = k, .v = v, .index = index,
                           .query = query, .heads = heads,
                           .cap = blocks_of(s, step) };

    assert(s->rotated <= MAX_ROTATED && s->index_dim <= MAX_ROTATED);
    job.piece = piece_of(s, layout->page_tokens);
    job.cap_list = list_size(s, job.piece);
    if (job.cap) {
        job.score = arena_take(step->scratch, BATCH * job.cap * sizeof *job.score);
        job.work = arena_take(step->scratch, BATCH * job.cap * sizeof *job.work);
        job.chosen = arena_take(step->scratch,
                                (uint64_t)BATCH * s->max_blocks * sizeof *job.chosen);
        job.list = arena_take(step->scratch, BATCH * job.cap_list * sizeof *job.list);
    }
    if (!q || !query || !heads || !k || !v || !index ||
        (job.cap && (!job.score || !job.work || !job.chosen || !job.list)))
        return err_set(err, ERR_NOMEM, "attention scratch for %" PRIu32 " rows", n);

    matmul_pooled(step->kernels, step->pool, q, 2 * q_width(s), in, s->hidden, n, &w->q);
    matmul_pooled(step->kernels, step->pool, k, kv_width(s), in, s->hidden, n, &w->k);
    matmul_pooled(step->kernels, step->pool, v, kv_width(s), in, s->hidden, n, &w->v);
    matmul_pooled(step->kernels, step->pool, index, index_width(s), in, s->hidden, n, &w->index);
    pool_run(step->pool, place_rows, &job, n, 4);
    pool_run(step->pool, close_blocks, &job, n, 8);
    attend_all(&job);
    matmul_pooled(step->kernels, step->pool, out, s->hidden, heads, q_width(s), n, &w->o);
    step->counters->multi_row_products += n > 1 ? 5 : 0;
    arena_back(step->scratch, mark);
    return 0;
}
