/* The residual streams after each layer of a whole forward pass, against what transformers computed,
 * and that the pass went through every branch of sparse attention and n-gram lookup. */
#include "model_fixture.h"

#include "store/shape.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>

static const double TOLERANCE = 1e-4; /* of the size of a row */

struct golden { /* scripts/oracle/golden_qwen4.py says what is in there */
    json_t *facts;
    uint32_t tokens[MODEL_CONTEXT], n_tokens; /* that were read: the prompt and the answer but its last */
    uint32_t rows[16], n_rows;
    const float *streams; /* [layers, n_rows, wide] */
    float *parts;         /* owned */
    size_t wide;
    double worst;
};

static uint32_t read_ids(uint32_t *to, const json_t *facts, const char *key)
{
    const json_t *list = json_object_get(facts, key);
    size_t n = json_array_size(list);

    assert_true(n > 0 && n < MODEL_CONTEXT);
    for (size_t i = 0; i < n; i++)
        to[i] = (uint32_t)json_integer_value(json_array_get(list, i));
    return (uint32_t)n;
}

static void golden_open(struct golden *g, const char *name)
{
    char path[128];

    *g = (struct golden){ 0 };
    snprintf(path, sizeof path, "tests/data/golden/%s.json", name);
    g->facts = json_load_file(path, 0, NULL);
    assert_non_null(g->facts);
    g->n_tokens = read_ids(g->tokens, g->facts, "prompt");
    g->n_tokens += read_ids(g->tokens + g->n_tokens, g->facts, "tokens") - 1;
    g->n_rows = read_ids(g->rows, g->facts, "stream_rows");

    const json_t *at = json_object_get(json_object_get(g->facts, "parts"), "streams");
    snprintf(path, sizeof path, "tests/data/golden/%s-parts.f32", name);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    size_t size = (size_t)ftell(f);
    rewind(f);
    g->parts = malloc(size);
    assert_non_null(g->parts);
    assert_int_equal(fread(g->parts, 1, size, f), size);
    fclose(f);
    g->streams = g->parts + json_integer_value(json_object_get(at, "at"));
    g->wide = (size_t)json_integer_value(json_array_get(json_object_get(at, "shape"), 2));
}

static void golden_close(struct golden *g)
{
    json_decref(g->facts);
    free(g->parts);
}

static void compare_layer(struct bench *b, void *ctx)
{
    struct golden *g = ctx;
    uint32_t layer = b->step.next_layer - 1;

    for (uint32_t i = 0; i < g->n_rows; i++) {
        const float *theirs = g->streams + ((size_t)layer * g->n_rows + i) * g->wide;
        const float *ours = b->step.hidden + g->rows[i] * g->wide;
        double apart = 0.0, size = 0.0;
        for (size_t d = 0; d < g->wide; d++) {
            double by = (double)ours[d] - (double)theirs[d];
            apart += by * by;
            size += (double)theirs[d] * (double)theirs[d];
        }
        double relative = sqrt(apart / size);
        g->worst = relative > g->worst ? relative : g->worst;
        if (!(relative <= TOLERANCE))
            fail_msg("layer %u, row %u: the streams are %.2e apart", layer, g->rows[i], relative);
    }
}

/* What the counters must say follows from the tokens. */
static void check_branches(const struct bench *b, const struct golden *g, uint32_t end)
{
    const struct model_shape *s = &b->headers.shape;
    const struct step_counters *c = &b->counters;
    uint32_t layers = shape_kv_layers(s), block = s->index.ratio, most = s->index.budget / block;
    uint64_t dense = 0, left_out = 0, block_ends = 0, starts = 0, cuts = 0, ends = 0;
    struct row_store_stats table;

    for (uint32_t t = 0; t < g->n_tokens; t++) {
        uint32_t full = (t + 1) / block;
        bool cut = false;
        dense += full <= most;
        left_out += full > most ? full - most : 0;
        block_ends += full > most && (t + 1) % block == 0;
        starts += t + 1 < s->ngram.order;
        ends += g->tokens[t] == end;
        for (uint32_t back = 1; back < s->ngram.order && back <= t; back++)
            cut = cut || g->tokens[t - back] == end;
        cuts += cut;
    }
    assert_int_equal(dense, s->index.budget + block - 1);
    assert_int_equal(c->dense_rows, layers * dense);
    assert_int_equal(c->sparse_rows, layers * (g->n_tokens - dense));
    assert_int_equal(c->blocks_left_out, layers * left_out);
    assert_int_equal(c->tails, (1u << block) - 1);
    assert_in_range(c->self_left_out, 1, layers * block_ends - 1); /* some see themselves, some not */
    assert_int_equal(c->ngram_starts, s->ngram.n_tables * starts);
    assert_int_equal(c->ngram_ends, s->ngram.n_tables * ends);
    assert_int_equal(c->ngram_cuts, s->ngram.n_tables * cuts);
    assert_true(starts == s->ngram.order - 1 && ends >= 5 && cuts > ends);
    for (uint32_t i = 0; i < s->ngram.n_tables; i++) {
        row_store_stats(b->tables.store[i], &table);
        assert_int_equal(table.parts_read, s->ngram.n_parts);
        assert_int_equal(table.misses, (uint64_t)g->n_tokens * s->ngram.n_heads);
    }
    assert_true(s->linear.n_value_heads > s->linear.n_key_heads);
    assert_true(s->linear.key_dim != s->linear.value_dim);
    assert_true(s->ngram.n_heads * s->ngram.head_dim != s->hidden);
}

static void check_streams(const char *name, uint32_t chunk)
{
    char path[64];
    struct golden g;
    struct bench b;

    snprintf(path, sizeof path, "build/models/%s", name);
    golden_open(&g, name);
    bench_open(&b, &(struct bench_options){ .model = path, .threads = 2 });
    b.readers[0].tokens = g.tokens;
    if (chunk == g.n_tokens || chunk == 0) {
        b.between = compare_layer;
        b.ctx = &g;
        bench_read(&b, &b.readers[0], g.n_tokens);
        assert_true(g.worst > 0.0);
    }
    while (b.readers[0].n_seen < g.n_tokens) {
        uint32_t left = g.n_tokens - b.readers[0].n_seen;
        bench_read(&b, &b.readers[0], chunk < left ? chunk : left);
    }
    check_branches(&b, &g, g.tokens[0]); /* every golden begins with an end of text */
    bench_close(&b);
    golden_close(&g);
}

static void the_streams_after_each_layer_are_those_of_transformers(void **state)
{
    (void)state;
    check_streams("tiny4-fp8", 0);
    check_streams("tiny4-fused", 0);
    check_streams("tiny4-odd", 0);
}

static void branches_do_not_depend_on_how_a_text_is_cut(void **state)
{
    static const uint32_t chunks[] = { 1, 5, 65 };

    (void)state;
    for (size_t i = 0; i < sizeof chunks / sizeof *chunks; i++)
        check_streams("tiny4-odd", chunks[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_streams_after_each_layer_are_those_of_transformers),
        cmocka_unit_test(branches_do_not_depend_on_how_a_text_is_cut),
    };
#ifdef __SANITIZE_ADDRESS__
    cmocka_set_test_filter("the_streams*"); /* instrumented, the others take long */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
