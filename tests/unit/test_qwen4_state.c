/* What a sequence keeps between steps: whatever happens to it, or to others beside it, it goes on
 * with the same bits as one that read its text in one piece. */
#include "model_fixture.h"

#include <stdio.h>

#define TINY4 "build/models/tiny4-fp8" /* blocks of 4 tokens, convolutions over 4 and 10 */
#define FP8 "build/models/tiny-fp8"    /* keys and values alone */
#define ODD4 "build/models/tiny4-odd"  /* blocks of 3, over 3 and 9, two n-gram tables */

enum { LENGTH = 130, END = 456 };

static uint32_t texts[MODEL_SEQS][MODEL_CONTEXT], other[MODEL_CONTEXT];

static int make_texts(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < MODEL_CONTEXT; i++) {
        for (uint32_t s = 0; s < MODEL_SEQS; s++)
            texts[s][i] = (i * 37 + s * 101 + i * i % 13 + 5) % 300;
        other[i] = (i * 53 + 17) % 300;
    }
    for (uint32_t s = 0; s < MODEL_SEQS; s++)
        texts[s][20 + s] = texts[s][61] = texts[s][62] = END;
    return 0;
}

/* The logits of every token of all texts, each alone and in one piece. */
struct expected {
    float *logits[MODEL_SEQS];
    size_t row; /* bytes */
};

static struct expected expected[4]; /* of FP8, ODD4, TINY4, and with rounded keys and values */

static void make_expected(struct expected *e, const char *model, bool bf16)
{
    struct bench b;

    bench_open(&b, &(struct bench_options){ .model = model, .bf16 = bf16 });
    e->row = b.headers.shape.vocab * sizeof(float);
    for (uint32_t s = 0; s < MODEL_SEQS; s++) {
        b.readers[s].tokens = texts[s];
        bench_read(&b, &b.readers[s], LENGTH);
        e->logits[s] = b.readers[s].logits;
        b.readers[s].logits = NULL;
    }
    bench_close(&b);
}

static const struct expected *expect_rounded(const char *model, bool bf16)
{
    uint32_t which = strcmp(model, FP8) == 0 ? 0 : strcmp(model, ODD4) == 0 ? 1 : 2 + bf16;

    if (!expected[which].row)
        make_expected(&expected[which], model, bf16);
    return &expected[which];
}

static const struct expected *expect(const char *model)
{
    return expect_rounded(model, false);
}

static int drop_expected(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++)
        for (uint32_t s = 0; s < MODEL_SEQS; s++)
            free(expected[i].logits[s]);
    return 0;
}

/* Of text s, what reader r has seen from token `from` on. */
static void same_bits(const struct expected *e, uint32_t s, const struct reader *r, uint32_t from,
                      const char *what, uint32_t n)
{
    size_t at = from * e->row / sizeof(float);

    assert_true(r->n_seen > from && r->n_seen <= LENGTH);
    if (memcmp(r->logits + at, e->logits[s] + at, (r->n_seen - from) * e->row) != 0)
        fail_msg("%s %u: text %u from token %u to %u has other bits", what, n, s, from, r->n_seen);
}

static void open_with_texts(struct bench *b, const struct bench_options *o)
{
    bench_open(b, o);
    for (uint32_t s = 0; s < MODEL_SEQS; s++)
        b->readers[s].tokens = texts[s];
}

/* Texts of three lengths: one attends to all of its past, one leaves blocks out, one is long. */
static const uint32_t depths[MODEL_SEQS] = { 7, 41, 90 };

static void read_to_depths(struct bench *b)
{
    for (uint32_t s = 0; s < MODEL_SEQS; s++)
        bench_read(b, &b->readers[s], depths[s]);
}

/* ---- steps of many kinds ---- */

static void three_sequences_at_different_depths_are_as_each_alone(void **state)
{
    struct err err = { 0 };
    const struct expected *e = expect(TINY4);
    struct bench b;

    (void)state;
    open_with_texts(&b, &(struct bench_options){ .model = TINY4, .threads = 3, .few_slots = true });
    read_to_depths(&b);
    /* A dense row, a sparse one and a piece of a prompt; then whoever has something left. */
    for (uint32_t step = 0; b.readers[1].n_seen < LENGTH; step++) {
        bench_begin(&b);
        for (uint32_t i = 0; i < MODEL_SEQS; i++) {
            struct reader *r = &b.readers[(step + i) % MODEL_SEQS];
            uint32_t left = LENGTH - r->n_seen, want = r == &b.readers[1] ? 1 + step % 5 : 1;
            if (left > 0)
                bench_add(&b, r, want < left ? want : left);
        }
        bench_must(bench_run(&b, &err), &err);
    }
    for (uint32_t s = 0; s < MODEL_SEQS; s++)
        same_bits(e, s, &b.readers[s], 0, "sequence", s);
    assert_true(b.counters.dense_rows > 0 && b.counters.sparse_rows > 0);
    bench_close(&b);
}

static void a_step_put_down_at_every_layer_gives_the_same_bits(void **state)
{
    struct err err = { 0 };
    const struct expected *e = expect(ODD4);
    struct bench b;

    (void)state;
    open_with_texts(&b, &(struct bench_options){ .model = ODD4, .threads = 2, .few_slots = true });
    b.put_down = true;
    read_to_depths(&b);
    for (uint32_t rows = 1; rows < 8; rows++) {
        bench_begin(&b);
        for (uint32_t s = 0; s < MODEL_SEQS; s++)
            bench_add(&b, &b.readers[s], rows);
        bench_must(bench_run(&b, &err), &err);
    }
    for (uint32_t s = 0; s < MODEL_SEQS; s++)
        same_bits(e, s, &b.readers[s], 0, "sequence", s);
    assert_int_equal(b.n_put_downs, 10 * b.headers.shape.n_layers);
    bench_close(&b);
}

static void rows_kept_in_memory_do_not_change_a_bit(void **state)
{
    static const uint32_t cached[] = { 1, 200, 4096 };
    struct row_store_stats table;
    const struct expected *e = expect(TINY4);
    struct bench b;
    uint64_t misses = UINT64_MAX;

    (void)state;
    for (size_t i = 0; i < sizeof cached / sizeof *cached; i++) {
        open_with_texts(&b, &(struct bench_options){ .model = TINY4, .cached_rows = cached[i] });
        while (b.readers[0].n_seen < LENGTH)
            bench_read(&b, &b.readers[0], 5);
        same_bits(e, 0, &b.readers[0], 0, "rows in memory:", cached[i]);
        row_store_stats(b.tables.store[0], &table);
        assert_int_equal(table.hits + table.misses,
                         (uint64_t)LENGTH * b.headers.shape.ngram.n_heads);
        assert_true(table.misses < misses);
        misses = table.misses;
        bench_close(&b);
    }
}

/* ---- saved points ---- */

/* In the middle of blocks and of convolutions, at their borders, at those of pages, and where an end
 * of text stands within reach. */
static const uint32_t points[] = { 1, 3, 4, 6, 9, 10, 11, 13, 19, 20, 21, 22, 23, 31, 62, 63, 64,
                                   65, 66, 127 };

/* Goes on from a point with another text, so far that what it wrote would be noticed, and back. */
static void check_points(const char *model, bool bf16)
{
    struct err err = { 0 };
    struct bench b;

    const struct expected *e = expect_rounded(model, bf16);
    open_with_texts(&b, &(struct bench_options){ .model = model, .threads = 2, .bf16 = bf16 });
    const struct family *family = b.headers.family;
    struct reader *r = &b.readers[0];
    char *point = malloc(family->seq_saved_size(b.model));
    assert_non_null(point);
    for (size_t i = 0; i < sizeof points / sizeof *points; i++) {
        bench_read(&b, r, points[i] - r->n_seen);
        family->seq_save(r->state, point);
        for (uint32_t strayed = 0; strayed < 2; strayed++) {
            r->tokens = other;
            bench_read(&b, r, strayed ? 1 : 17);
            bench_must(family->seq_load(r->state, point, &err), &err);
            r->tokens = texts[0];
            r->n_seen = points[i];
        }
        uint32_t left = LENGTH - r->n_seen; /* ahead, to compare more than the next point's rows */
        bench_read(&b, r, left < 13 ? left : 13);
        same_bits(e, 0, r, 0, "after the point at", points[i]);
        bench_must(family->seq_load(r->state, point, &err), &err);
        r->n_seen = points[i];
    }
    bench_read(&b, r, LENGTH - r->n_seen);
    same_bits(e, 0, r, 0, "to the end from", points[sizeof points / sizeof *points - 1]);
    free(point);
    bench_close(&b);
}

static void a_sequence_goes_on_from_a_saved_point(void **state)
{
    (void)state;
    check_points(TINY4, false);
    check_points(TINY4, true);
    check_points(ODD4, false);
}

static void a_family_that_cuts_back_has_points_too(void **state)
{
    (void)state;
    check_points(FP8, false);
}

/* A point outlives what came of its sequence, but needs the pages. */
static void a_point_is_good_as_long_as_the_pages_are(void **state)
{
    struct err err = { 0 };
    const struct expected *e = expect(TINY4);
    struct bench b;

    (void)state;
    open_with_texts(&b, &(struct bench_options){ .model = TINY4 });
    const struct family *family = b.headers.family;
    struct reader *r = &b.readers[0];
    char *point = malloc(family->seq_saved_size(b.model));
    assert_non_null(point);
    bench_read(&b, r, 77);
    family->seq_save(r->state, point);
    bench_read(&b, r, 30);
    assert_int_equal(family->seq_rewind(r->state, 80), 0); /* a recurrence is not run backwards */
    bench_must(family->seq_load(r->state, point, &err), &err);
    r->n_seen = 77;
    bench_read(&b, r, 20);
    same_bits(e, 0, r, 0, "begun anew and loaded at", 77);

    bench_forget(&b, r);
    assert_int_equal(family->seq_load(r->state, point, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    bench_read(&b, r, 10);
    assert_int_equal(family->seq_load(r->state, point, &err), -1); /* pages for 64 */
    bench_read(&b, r, 40);
    same_bits(e, 0, r, 0, "a point refused at", 10);
    free(point);
    bench_close(&b);
}

static void a_place_that_held_a_point_begins_as_new(void **state)
{
    const struct expected *e = expect(TINY4);
    struct bench b;

    (void)state;
    open_with_texts(&b, &(struct bench_options){ .model = TINY4 });
    const struct family *family = b.headers.family;
    for (uint32_t used = 0; used < 2; used++) {
        bench_read(&b, &b.readers[0], 50);
        if (used)
            bench_read(&b, &b.readers[1], 3);
        assert_true(!used || !family->seq_spare(b.readers[1].state)); /* it has tokens */
        bench_forget(&b, &b.readers[1]);
        void *spare = family->seq_spare(b.readers[1].state);
        assert_non_null(spare);
        family->seq_save(b.readers[0].state, spare);
        bench_forget(&b, &b.readers[1]);
        bench_read(&b, &b.readers[1], 60);
        same_bits(e, 1, &b.readers[1], 0, "a place used before:", used);
        bench_forget(&b, &b.readers[0]);
        bench_forget(&b, &b.readers[1]);
    }
    bench_close(&b);
}

/* ---- steps that come to nothing ---- */

struct leaving {
    uint32_t who, after; /* layers */
};

static void leave(struct bench *b, void *ctx)
{
    const struct leaving *l = ctx;

    if (b->step.next_layer == l->after)
        b->gone[l->who] = true;
}

/* Rows of all three, the middle one's being a piece of its text. */
static void add_all(struct bench *b)
{
    static const uint32_t rows[MODEL_SEQS] = { 2, 9, 1 };

    bench_begin(b);
    for (uint32_t s = 0; s < MODEL_SEQS; s++)
        bench_add(b, &b->readers[s], rows[s]);
}

static void who_leaves_a_step_is_as_before_it_and_the_others_go_on(void **state)
{
    struct err err = { 0 };
    struct leaving l;
    const struct expected *e = expect(TINY4);
    struct bench b;

    (void)state;
    for (l.who = 0; l.who < MODEL_SEQS; l.who++) {
        open_with_texts(&b, &(struct bench_options){ .model = TINY4, .threads = 2 });
        b.between = leave;
        b.ctx = &l;
        read_to_depths(&b);
        for (l.after = 1; l.after <= b.headers.shape.n_layers; l.after++) {
            if (b.readers[1].n_seen + 9 > LENGTH)
                bench_forget(&b, &b.readers[1]);
            uint32_t before = b.readers[l.who].n_seen;
            add_all(&b);
            bench_must(bench_run(&b, &err), &err);
            assert_int_equal(b.readers[l.who].n_seen, before);
        }
        for (uint32_t s = 0; s < MODEL_SEQS; s++) {
            bench_read(&b, &b.readers[s], 3);
            same_bits(e, s, &b.readers[s], 0, "sequence beside, or itself, leaving:", l.who);
        }
        bench_close(&b);
    }
}

static void break_experts(struct bench *b, void *ctx)
{
    const uint32_t *layer = ctx;

    b->expert_breaker.armed = b->step.next_layer >= *layer;
}

/* The same step once more, and on, as if nothing had happened. */
static void check_goes_on(struct bench *b, const struct expected *e, uint32_t n)
{
    struct err err = { 0 };

    b->expert_breaker.armed = b->row_breaker.armed = b->table_breaker.armed = false;
    b->between = NULL;
    add_all(b);
    bench_must(bench_run(b, &err), &err);
    for (uint32_t s = 0; s < MODEL_SEQS; s++)
        same_bits(e, s, &b->readers[s], 0, "after an error", n);
}

static void an_expert_that_cannot_be_read_leaves_everybody_as_before_the_step(void **state)
{
    const struct expected *e = expect(TINY4);
    struct bench b;

    (void)state;
    open_with_texts(&b, &(struct bench_options){ .model = TINY4, .threads = 2, .few_slots = true });
    read_to_depths(&b);
    for (uint32_t layer = 1; layer < b.headers.shape.n_layers; layer += 2) {
        struct err err = { 0 };
        char which[32];
        b.between = break_experts;
        b.ctx = &layer;
        add_all(&b);
        assert_int_equal(bench_run(&b, &err), -1);
        assert_int_equal(err.kind, ERR_IO);
        snprintf(which, sizeof which, "layer %u expert", layer);
        if (!strstr(err.text, which))
            fail_msg("%s", err.text);
        check_goes_on(&b, e, layer);
    }
    assert_true(b.expert_breaker.n_broken >= 4);
    bench_close(&b);
}

static void a_row_that_cannot_be_read_leaves_everybody_as_before_the_step(void **state)
{
    const struct expected *e = expect(TINY4);
    struct bench b;

    (void)state;
    open_with_texts(&b, &(struct bench_options){ .model = TINY4, .threads = 2 });
    read_to_depths(&b);
    for (uint32_t table = 0; table < 2; table++) {
        struct err err = { 0 };
        struct breaker *breaker = table ? &b.table_breaker : &b.row_breaker;
        breaker->armed = true;
        add_all(&b);
        assert_int_equal(bench_run(&b, &err), -1);
        assert_int_equal(err.kind, ERR_IO);
        assert_true(breaker->n_broken >= 2); /* each was tried once more */
        if (!strstr(err.text, table ? "n-gram table of layer 1" : "embed_tokens"))
            fail_msg("%s", err.text);
        check_goes_on(&b, e, table);
    }
    bench_close(&b);
}

static void who_starts_over_gets_the_same_bits(void **state)
{
    static const uint32_t cuts[] = { 1, 40, 64, 99 };
    const struct expected *e = expect(ODD4);
    struct bench b;

    (void)state;
    open_with_texts(&b, &(struct bench_options){ .model = ODD4 });
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        bench_read(&b, &b.readers[2], cuts[i]);
        bench_forget(&b, &b.readers[2]);
    }
    bench_read(&b, &b.readers[2], LENGTH);
    same_bits(e, 2, &b.readers[2], 0, "started over at", 99);
    bench_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(three_sequences_at_different_depths_are_as_each_alone),
        cmocka_unit_test(a_step_put_down_at_every_layer_gives_the_same_bits),
        cmocka_unit_test(rows_kept_in_memory_do_not_change_a_bit),
        cmocka_unit_test(a_sequence_goes_on_from_a_saved_point),
        cmocka_unit_test(a_family_that_cuts_back_has_points_too),
        cmocka_unit_test(a_point_is_good_as_long_as_the_pages_are),
        cmocka_unit_test(a_place_that_held_a_point_begins_as_new),
        cmocka_unit_test(who_leaves_a_step_is_as_before_it_and_the_others_go_on),
        cmocka_unit_test(an_expert_that_cannot_be_read_leaves_everybody_as_before_the_step),
        cmocka_unit_test(a_row_that_cannot_be_read_leaves_everybody_as_before_the_step),
        cmocka_unit_test(who_starts_over_gets_the_same_bits),
    };
#ifdef __SANITIZE_ADDRESS__
    cmocka_set_test_filter("a_r*"); /* instrumented, the others would take a minute */
#endif
    return cmocka_run_group_tests(tests, make_texts, drop_expected);
}
