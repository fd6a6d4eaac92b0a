/* Sparse attention against its formula in double, dense and sparse; how rows are cut, which pages
 * they lie in and who else is in the step changes no bit. */
#include "blocks/qsa.h"

#include "block_fixture.h"

#include "blocks/rope.h"

#include <math.h>

enum { HIDDEN = 16, HEADS = 4, KV = 2, DIM = 8, ROTATED = 4, INDEX_HEADS = 2, INDEX = 6, MOST = 3,
       PAGE = 8, LONG = 42, N_PAGES = (LONG + PAGE - 1) / PAGE,
       Q = HEADS * DIM, KEYS = KV * DIM, INDEXES = (INDEX_HEADS + 1) * INDEX };

/* Blocks of 4 tokens, or of what a test sets. */
static struct qsa_shape shape = { HIDDEN, HEADS, KV, DIM, ROTATED, INDEX_HEADS, INDEX, 4, MOST,
                                  1e-6f, false };
static const struct qsa_layout layout = {
    .dtype = DTYPE_F32, .page_tokens = PAGE, .k = 0, .v = KV * PAGE * DIM * 4,
    .index = 2 * KV * PAGE * DIM * 4, .blocks = 2 * KV * PAGE * DIM * 4 + PAGE * INDEX * 4,
};
enum { PAGE_SIZE = (2 * KV * PAGE * DIM + PAGE * INDEX + PAGE * INDEX) * 4 };

struct setup {
    struct block_fixture f;
    struct qsa_weights w;
    struct rope rope;
    float *in;
};

static void open_setup(struct setup *k, uint64_t seed)
{
    struct block_fixture *f = &k->f;
    struct err err;

    block_open(f, 3, seed);
    k->w = (struct qsa_weights){
        .q = block_matrix(f, 2 * Q, HIDDEN, 0.6f), .k = block_matrix(f, KEYS, HIDDEN, 0.6f),
        .v = block_matrix(f, KEYS, HIDDEN, 0.6f), .o = block_matrix(f, HIDDEN, Q, 0.6f),
        .index = block_matrix(f, INDEXES, HIDDEN, 0.6f), .q_norm = block_floats(f, DIM, 2),
        .k_norm = block_floats(f, DIM, 2), .index_q_norm = block_floats(f, INDEX, 1.5f),
        .index_k_norm = block_floats(f, INDEX, 1.5f),
    };
    k->in = block_floats(f, LONG * HIDDEN, 2);
    assert_int_equal(rope_open(&k->rope, ROTATED, 10000, NULL, &err), 0);
    f->step.rope_cos = malloc(LONG * ROTATED / 2 * sizeof(float));
    f->step.rope_sin = malloc(LONG * ROTATED / 2 * sizeof(float));
}

static void close_setup(struct setup *k)
{
    const float *const vectors[] = { k->w.q_norm, k->w.k_norm, k->w.index_q_norm,
                                     k->w.index_k_norm };
    const struct matrix *const matrices[] = { &k->w.q, &k->w.k, &k->w.v, &k->w.o, &k->w.index };

    for (size_t i = 0; i < 4; i++)
        free((void *)(uintptr_t)vectors[i]);
    for (size_t i = 0; i < 5; i++)
        block_free(matrices[i]);
    free(k->f.step.rope_cos);
    free(k->f.step.rope_sin);
    free(k->in);
    rope_close(&k->rope);
    block_close(&k->f);
}

struct book { /* the pages of one sequence, from the last to the first in memory */
    char *memory, *page[N_PAGES];
};

static struct book make_book(void)
{
    struct book b = { .memory = aligned_alloc(64, N_PAGES * ((PAGE_SIZE + 63) & ~63)) };

    for (int i = 0; i < N_PAGES; i++)
        b.page[i] = b.memory + (N_PAGES - 1 - i) * ((PAGE_SIZE + 63) & ~63);
    return b;
}

/* One step; sequences' rows are in the fixture. */
static uint64_t run(struct setup *k, float *out, const float *in, const struct book *books)
{
    char *const *pages[BLOCK_SEQS];
    uint64_t before = k->f.counters.sparse_rows;
    struct err err;

    for (uint32_t i = 0; i < k->f.step.n_states; i++)
        pages[i] = books[i].page;
    rope_fill(&k->rope, &k->f.step);
    assert_int_equal(qsa_forward(out, in, &shape, &k->w, &layout, pages, &k->rope, &k->f.step,
                                 &err), 0);
    assert_int_equal(k->f.scratch.used, 0);
    return k->f.counters.sparse_rows - before;
}

/* ---- the formula ---- */

static void norm(double *x, int n, const float *weight)
{
    double sum = 0;

    for (int i = 0; i < n; i++)
        sum += x[i] * x[i];
    for (int i = 0; i < n; i++)
        x[i] *= (double)weight[i] / sqrt(sum / n + 1e-6);
}

static void turn(double *x, int pos)
{
    for (int i = 0; i < ROTATED / 2; i++) {
        double angle = pos / pow(10000, 2.0 * i / ROTATED), a = x[i], b = x[i + ROTATED / 2];
        x[i] = a * cos(angle) - b * sin(angle);
        x[i + ROTATED / 2] = a * sin(angle) + b * cos(angle);
    }
}

static bool sees(const double (*index_keys)[INDEX], const double *queries, int t, int other,
                 const float *weight)
{
    int size = (int)shape.block, full = (t + 1) / size, better = 0;
    double score[LONG], key[INDEX];

    if (other >= full * size)
        return other <= t;
    for (int b = 0; b < full; b++) {
        memset(key, 0, sizeof key);
        for (int i = 0; i < size; i++)
            for (int d = 0; d < INDEX; d++)
                key[d] += index_keys[b * size + i][d] / size;
        norm(key, INDEX, weight);
        turn(key, b * size);
        score[b] = 0;
        for (int h = 0; h < INDEX_HEADS; h++) {
            double dot = 0;
            for (int d = 0; d < INDEX; d++)
                dot += queries[h * INDEX + d] * key[d];
            score[b] += dot > 0 ? dot : 0;
        }
    }
    for (int b = 0; b < full; b++)
        better += score[b] > score[other / size] ||
                  (b < other / size && !(score[b] < score[other / size]));
    return better < MOST;
}

static void formula(double *out, const struct setup *k)
{
    static double q[LONG][2 * Q], key[LONG][KEYS], value[LONG][KEYS], index[LONG][INDEXES];
    static double index_key[LONG][INDEX];
    double x[HIDDEN], heads[Q];

    for (int t = 0; t < LONG; t++) {
        for (int i = 0; i < HIDDEN; i++)
            x[i] = (double)k->in[t * HIDDEN + i];
        block_product(q[t], &k->w.q, x);
        block_product(key[t], &k->w.k, x);
        block_product(value[t], &k->w.v, x);
        block_product(index[t], &k->w.index, x);
        memcpy(index_key[t], index[t] + INDEX_HEADS * INDEX, sizeof index_key[t]);
        for (int h = 0; h < HEADS; h++) {
            norm(q[t] + h * 2 * DIM, DIM, k->w.q_norm);
            turn(q[t] + h * 2 * DIM, t);
        }
        for (int h = 0; h < KV; h++) {
            norm(key[t] + h * DIM, DIM, k->w.k_norm);
            turn(key[t] + h * DIM, t);
        }
        for (int h = 0; h < INDEX_HEADS; h++) {
            norm(index[t] + h * INDEX, INDEX, k->w.index_q_norm);
            turn(index[t] + h * INDEX, t);
        }
        for (int h = 0; h < HEADS; h++) {
            double sum = 0, o[DIM] = { 0 };
            for (int u = 0; u <= t; u++) {
                double dot = 0;
                if (!sees((const double (*)[INDEX])index_key, index[t], t, u, k->w.index_k_norm))
                    continue;
                for (int d = 0; d < DIM; d++)
                    dot += q[t][h * 2 * DIM + d] * key[u][h / (HEADS / KV) * DIM + d];
                double weight = exp(dot / sqrt(DIM));
                sum += weight;
                for (int d = 0; d < DIM; d++)
                    o[d] += weight * value[u][h / (HEADS / KV) * DIM + d];
            }
            for (int d = 0; d < DIM; d++)
                heads[h * DIM + d] = o[d] / sum / (1 + exp(-q[t][h * 2 * DIM + DIM + d]));
        }
        block_product(out + t * HIDDEN, &k->w.o, heads);
    }
}

/* ---- tests ---- */

static void check_formula(uint32_t block)
{
    static const uint32_t cuts[][6] = { { LONG }, { 1, 2, 3, 4, 5, 27 }, { 16, 1, 1, 1, 1, 22 },
                                        { 41, 1 }, { 7, 30, 5 } };
    struct setup k;
    double want[LONG * HIDDEN];
    float first[LONG * HIDDEN], out[LONG * HIDDEN];

    shape.block = block;
    open_setup(&k, 41);
    formula(want, &k);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        struct book book = make_book();
        uint64_t n_sparse = 0;
        for (uint32_t c = 0, pos = 0; pos < LONG; pos += cuts[i][c++]) {
            block_clear(&k.f);
            block_rows(&k.f, 0, pos, cuts[i][c]);
            n_sparse += run(&k, out + pos * HIDDEN, k.in + pos * HIDDEN, &book);
        }
        assert_int_equal(n_sparse, LONG - (shape.block * (MOST + 1) - 1));
        block_near(out, want, LONG * HIDDEN, 2e-5);
        if (i == 0)
            memcpy(first, out, sizeof first);
        assert_memory_equal(out, first, sizeof first);
        free(book.memory);
    }
    assert_true(k.f.scratch.peak <= qsa_scratch_size(&shape, LONG, LONG));
    close_setup(&k);
}

static void it_is_the_formula_however_it_is_cut(void **state)
{
    (void)state;
    check_formula(4);
}

/* 3 and 5 lie across pages of 8, as some of 6 and 10 do. */
static void blocks_may_lie_across_pages(void **state)
{
    (void)state;
    static const uint32_t blocks[] = { 1, 2, 3, 5, 6, 8, 10 };

    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++)
        check_formula(blocks[i]);
    shape.block = 4;
}

static void neighbours_change_nothing(void **state)
{
    struct setup k;
    float whole[LONG * HIDDEN], both[LONG * HIDDEN], in[9 * HIDDEN];
    struct book books[2] = { make_book(), make_book() }, alone = make_book();

    (void)state;
    open_setup(&k, 42);
    block_rows(&k.f, 0, 0, LONG);
    run(&k, whole, k.in, &alone);
    block_clear(&k.f);
    block_rows(&k.f, 0, 0, 30);
    run(&k, both, k.in, books);

    /* Sparse decoding beside the dense beginning of another. */
    block_clear(&k.f);
    block_rows(&k.f, 0, 30, 2);
    block_rows(&k.f, 1, 0, 7);
    memcpy(in, k.in + 30 * HIDDEN, 2 * HIDDEN * sizeof *in);
    memcpy(in + 2 * HIDDEN, k.in, 7 * HIDDEN * sizeof *in);
    assert_int_equal(run(&k, both, in, books), 2);
    assert_memory_equal(both, whole + 30 * HIDDEN, 2 * HIDDEN * sizeof *both);
    assert_memory_equal(both + 2 * HIDDEN, whole, 7 * HIDDEN * sizeof *both);
    free(books[0].memory);
    free(books[1].memory);
    free(alone.memory);
    close_setup(&k);
}

/* Bad weights are found where logits are looked at, so nothing may hide them on the way. */
static void an_indexer_of_no_number_is_not_followed(void **state)
{
    static const uint32_t bad[] = { 0, INDEX_HEADS * INDEX }; /* rows: of a query, of the key */

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct book book = make_book();
        float out[LONG * HIDDEN];
        struct setup k;

        open_setup(&k, 9);
        ((float *)(uintptr_t)k.w.index.data)[bad[i] * HIDDEN] = NAN;
        block_rows(&k.f, 0, 0, LONG);
        run(&k, out, k.in, &book);
        for (int d = 0; d < LONG * HIDDEN; d++)
            assert_true(isnan(out[d]));
        free(book.memory);
        close_setup(&k);
    }
}

static void the_best_are_chosen_and_ties_go_to_the_earlier(void **state)
{
    static const float plain[] = { 3, 1, 4, 1, 5, 9, 2, 6 }, ties[] = { 0, 2, 0, 2, 0, 2, 0 };
    uint32_t index[8];
    float work[8];

    (void)state;
    qsa_select(index, plain, work, 8, 3);
    assert_int_equal(index[0], 4);
    assert_int_equal(index[1], 5);
    assert_int_equal(index[2], 7);
    qsa_select(index, ties, work, 7, 2);
    assert_int_equal(index[0], 1);
    assert_int_equal(index[1], 3);
    qsa_select(index, ties, work, 7, 5);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(index[i], i);
    assert_int_equal(index[4], 5);
}

/* Against sorting, for many lengths, with many equal scores. */
static void choosing_agrees_with_sorting(void **state)
{
    enum { MAX = 300 };
    struct block_fixture f = { .seed = 43 };
    float scores[MAX], work[MAX];
    uint32_t index[MAX];

    (void)state;
    for (uint32_t n = 1; n <= MAX; n += 7) {
        uint32_t k = 1 + n * 5 / 7 % n;
        for (uint32_t i = 0; i < n; i++)
            scores[i] = floorf(fabsf(block_draw(&f, (float)(n / 3 + 1))));
        qsa_select(index, scores, work, n, k);
        for (uint32_t j = 0; j < k; j++) {
            uint32_t better = 0, i = index[j];
            assert_true(j == 0 || index[j - 1] < i);
            for (uint32_t o = 0; o < n; o++)
                better += scores[o] > scores[i] || (o < i && scores[o] >= scores[i]);
            assert_true(better < k);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_formula_however_it_is_cut),
        cmocka_unit_test(blocks_may_lie_across_pages),
        cmocka_unit_test(neighbours_change_nothing),
        cmocka_unit_test(an_indexer_of_no_number_is_not_followed),
        cmocka_unit_test(the_best_are_chosen_and_ties_go_to_the_earlier),
        cmocka_unit_test(choosing_agrees_with_sorting),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
