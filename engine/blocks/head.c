#include "blocks/head.h"

#include "blocks/step.h"
#include "kernels/kernels.h"
#include "util/err.h"
#include "util/pool.h"

#include <inttypes.h>
#include <string.h>

struct norm_job {
    const struct kernels *kernels;
    float *out;
    const float *x, *weight;
    size_t dim;
    float eps;
};

static void norm_some(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct norm_job *job = ctx;

    (void)thread;
    for (uint32_t r = begin; r < end; r++)
        job->kernels->rmsnorm(job->out + r * job->dim, job->x + r * job->dim, job->weight,
                              job->dim, job->eps);
}

void norm_rows(float *out, const float *x, const float *weight, uint32_t dim, float eps,
               struct step *step)
{
    struct norm_job job = { step->kernels, out, x, weight, dim, eps };

    pool_run(step->pool, norm_some, &job, step->n_rows, 8);
}

uint64_t head_scratch_size(uint32_t vocab, uint32_t hidden, uint32_t logit_rows)
{
    return arena_need((uint64_t)logit_rows * hidden * sizeof(float)) +
           arena_need((uint64_t)logit_rows * vocab * sizeof(float));
}

static void take_row(float *out, const float *hidden, const struct head *head,
                     const struct step *step)
{
    size_t cols = head->weight.cols;

    if (head->norm)
        step->kernels->rmsnorm(out, hidden, head->norm, cols, head->eps);
    else
        memcpy(out, hidden, cols * sizeof *out);
}

int head_forward(const float *hidden, const struct head *head, struct step *step, struct err *err)
{
    uint64_t mark = arena_mark(step->scratch);
    size_t cols = head->weight.cols, vocab = head->weight.rows;
    float *in = arena_take(step->scratch, head->logit_rows * cols * sizeof *in);
    float *logits = arena_take(step->scratch, head->logit_rows * vocab * sizeof *logits);

    if (!in || !logits)
        return err_set(err, ERR_NOMEM, "scratch for %" PRIu32 " rows of logits", head->logit_rows);
    for (uint32_t row = 0; row < step->n_rows;) {
        uint32_t first = row, n = 0;
        for (; row < step->n_rows && n < head->logit_rows; row++)
            if (step->rows[row].want_logits)
                take_row(in + n++ * cols, hidden + row * cols, head, step);
        if (n == 0)
            break;
        matmul_pooled(step->kernels, step->pool, logits, vocab, in, cols, n, &head->weight);
        step->counters->multi_row_products += n > 1;
        for (uint32_t r = first, i = 0; r < row; r++) {
            if (!step->rows[r].want_logits)
                continue;
            if (step->take_logits(step->logits_ctx, r, logits + i++ * vocab, err) < 0)
                return -1;
        }
    }
    arena_back(step->scratch, mark);
    return 0;
}
