#include "blocks/ffn.h"

#include "blocks/step.h"
#include "kernels/kernels.h"
#include "util/err.h"
#include "util/pool.h"

#include <inttypes.h>

/* Rows of weights that a thread takes at a time: about 128 KiB of FP8 at hidden 2048, ten
 * microseconds of work, so that the tail of a phase is short and the counter is not hot. */
enum { PIECE_ROWS = 32 };

struct ffn_batch {
    const struct ffn_job *jobs;
    const struct kernels *kernels;
    uint32_t pieces_per_job;
};

static uint32_t pieces(uint32_t rows)
{
    return (rows + PIECE_ROWS - 1) / PIECE_ROWS;
}

static void gate_up_pieces(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct ffn_batch *batch = ctx;

    (void)thread;
    for (uint32_t piece = begin; piece < end; piece++) {
        const struct ffn_job *job = &batch->jobs[piece / batch->pieces_per_job];
        const struct expert_weights *w = job->w;
        uint32_t width = w->gate.rows;
        uint32_t from = piece % batch->pieces_per_job * PIECE_ROWS;
        uint32_t to = from + PIECE_ROWS < width ? from + PIECE_ROWS : width;

        batch->kernels->matmul(job->gate, width, job->in, w->gate.cols, job->n_rows, &w->gate,
                               from, to);
        batch->kernels->matmul(job->up, width, job->in, w->up.cols, job->n_rows, &w->up, from, to);
        for (uint32_t r = 0; r < job->n_rows; r++)
            batch->kernels->silu_mul(job->gate + (size_t)r * width + from,
                                     job->up + (size_t)r * width + from, to - from);
    }
}

static void down_pieces(void *ctx, uint32_t begin, uint32_t end, uint32_t thread)
{
    const struct ffn_batch *batch = ctx;

    (void)thread;
    for (uint32_t piece = begin; piece < end; piece++) {
        const struct ffn_job *job = &batch->jobs[piece / batch->pieces_per_job];
        const struct matrix *down = &job->w->down;
        uint32_t from = piece % batch->pieces_per_job * PIECE_ROWS;
        uint32_t to = from + PIECE_ROWS < down->rows ? from + PIECE_ROWS : down->rows;

        batch->kernels->matmul(job->out, down->rows, job->gate, down->cols, job->n_rows, down,
                               from, to);
    }
}

/* All jobs have the same dimensions: they are experts of one layer, or one dense block. */
void ffn_run(const struct ffn_job *jobs, uint32_t n_jobs, struct step *step)
{
    struct ffn_batch batch = { .jobs = jobs, .kernels = step->kernels };

    if (n_jobs == 0)
        return;
    batch.pieces_per_job = pieces(jobs[0].w->gate.rows);
    pool_run(step->pool, gate_up_pieces, &batch, n_jobs * batch.pieces_per_job, 1);
    batch.pieces_per_job = pieces(jobs[0].w->down.rows);
    pool_run(step->pool, down_pieces, &batch, n_jobs * batch.pieces_per_job, 1);
    for (uint32_t i = 0; i < n_jobs; i++)
        step->counters->multi_row_products += jobs[i].n_rows > 1 ? 3 : 0;
}

uint64_t ffn_scratch_size(uint32_t hidden, uint32_t width, uint32_t n_rows)
{
    return 2 * arena_need((uint64_t)n_rows * width * sizeof(float)) +
           arena_need((uint64_t)n_rows * hidden * sizeof(float));
}

int ffn_forward(float *x, const float *in, const struct expert_weights *w, struct step *step,
                struct err *err)
{
    uint64_t mark = arena_mark(step->scratch);
    uint32_t n = step->n_rows, width = w->gate.rows, hidden = w->down.rows;
    struct ffn_job job = { .w = w, .in = in, .n_rows = n };

    job.gate = arena_take(step->scratch, (uint64_t)n * width * sizeof(float));
    job.up = arena_take(step->scratch, (uint64_t)n * width * sizeof(float));
    job.out = arena_take(step->scratch, (uint64_t)n * hidden * sizeof(float));
    if (!job.gate || !job.up || !job.out)
        return err_set(err, ERR_NOMEM, "feed-forward scratch for %" PRIu32 " rows", n);
    ffn_run(&job, 1, step);
    step->kernels->add(x, job.out, (size_t)n * hidden);
    arena_back(step->scratch, mark);
    return 0;
}
