/* Blocks of Qwen4-Exp against what transformers computes: weights and shapes out of the small
 * checkpoints, inputs and outputs of sub-layers out of tests/data/golden. */
#include "block_fixture.h"

#include "blocks/gdn.h"
#include "blocks/hyper.h"
#include "blocks/ngram.h"
#include "blocks/ple.h"
#include "blocks/qsa.h"
#include "blocks/rope.h"
#include "families/qwen4_exp.h"
#include "formats/shards.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

/* Sums of float32 in another order leave 1e-6; an error of form 1e-3 and more. */
static const double TOLERANCE = 1e-5;

enum { ROWS = 40, PAGE = 64, MAX_OWNED = 64 };

/* A checkpoint, its golden, and everything taken out of them. */
struct bench {
    struct block_fixture f;
    struct shards *shards;
    struct json config;
    struct model_shape shape;
    struct qwen4_exp_config c;
    json_t *golden;
    float *parts; /* owned; all of NAME-parts.f32 */
    void *owned[MAX_OWNED];
    uint32_t n_owned;
};

static void *own(struct bench *b, void *p)
{
    assert_non_null(p);
    assert_true(b->n_owned < MAX_OWNED);
    return b->owned[b->n_owned++] = p;
}

static void *read_whole(const char *path)
{
    FILE *file = fopen(path, "rb");

    if (!file)
        fail_msg("%s is missing; run make models", path);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long size = ftell(file);
    rewind(file);
    void *bytes = malloc((size_t)size + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)size, file), size);
    fclose(file);
    return bytes;
}

static void open_bench(struct bench *b, const char *name)
{
    char path[128];
    struct err err = { 0 };

    *b = (struct bench){ 0 };
    block_open(&b->f, 3, 1);
    snprintf(path, sizeof path, "build/models/%s/config.json", name);
    if (json_open(&b->config, path, 1 << 20, &err) < 0 ||
        qwen4_exp_read_shape(&b->shape, NULL, &b->config, &err) < 0 ||
        qwen4_exp_read_config(&b->c, &b->config, NULL, &err) < 0)
        fail_msg("%s; run make models", err.text);
    snprintf(path, sizeof path, "build/models/%s", name);
    if (shards_open(&b->shards, path, &err) < 0)
        fail_msg("%s", err.text);
    snprintf(path, sizeof path, "tests/data/golden/%s.json", name);
    b->golden = json_load_file(path, 0, NULL);
    assert_non_null(b->golden);
    snprintf(path, sizeof path, "tests/data/golden/%s-parts.f32", name);
    b->parts = read_whole(path);
}

static void close_bench(struct bench *b)
{
    for (uint32_t i = 0; i < b->n_owned; i++)
        free(b->owned[i]);
    free(b->parts);
    json_decref(b->golden);
    shards_close(b->shards);
    json_close(&b->config);
    block_close(&b->f);
}

/* What a sub-layer saw or said: the first ROWS rows. */
static const float *part(const struct bench *b, const char *sub_layer, uint32_t layer,
                         const char *what)
{
    char name[64];

    snprintf(name, sizeof name, "%s%u.%s", sub_layer, layer, what);
    json_t *at = json_object_get(json_object_get(b->golden, "parts"), name);
    if (!at)
        fail_msg("the golden has no %s", name);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(at, "shape"), 0)), ROWS);
    return b->parts + json_integer_value(json_object_get(at, "at"));
}

/* Float32 values of a tensor, each with `plus` added, and its dims. */
static float *tensor(struct bench *b, const struct tensor **found, float plus, uint32_t layer,
                     const char *rest)
{
    char name[160];

    snprintf(name, sizeof name, "model.%slayers.%u.%s", b->shape.text_only ? "" : "language_model.",
             layer, rest);
    const struct tensor *t = shards_find(b->shards, name);
    if (!t)
        fail_msg("no tensor %s", name);
    size_t n = t->size / dtype_size(t->dtype);
    char *raw = malloc(t->size);
    float *out = own(b, malloc(n * sizeof *out));
    int fd = open(b->shards->files[t->file].path, O_RDONLY | O_CLOEXEC);

    assert_non_null(raw);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, raw, t->size, (off_t)t->offset), t->size);
    close(fd);
    assert_true(dtype_to_f32(out, raw, t->dtype, n));
    free(raw);
    for (size_t i = 0; i < n; i++)
        out[i] += plus;
    *found = t;
    return out;
}

static struct matrix matrix(struct bench *b, uint32_t layer, const char *rest)
{
    const struct tensor *t;
    float *data = tensor(b, &t, 0.0f, layer, rest);

    return (struct matrix){ .dtype = DTYPE_F32, .rows = (uint32_t)t->dims[0],
                            .cols = (uint32_t)t->dims[1], .data = data };
}

static const float *vector(struct bench *b, float plus, uint32_t layer, const char *rest)
{
    const struct tensor *t;

    return tensor(b, &t, plus, layer, rest);
}

static float *zeros(struct bench *b, uint64_t n)
{
    return own(b, calloc(n, sizeof(float)));
}

/* Row by row, by the size of the row. */
static void agree(const float *ours, const float *theirs, size_t width)
{
    for (size_t r = 0; r < ROWS; r++) {
        double off = 0, size = 0;
        for (size_t i = r * width; i < (r + 1) * width; i++) {
            off += ((double)ours[i] - (double)theirs[i]) * ((double)ours[i] - (double)theirs[i]);
            size += (double)theirs[i] * (double)theirs[i];
        }
        if (!(sqrt(off) <= TOLERANCE * sqrt(size)))
            fail_msg("row %zu is %.1e off", r, sqrt(off / size));
    }
}

/* ---- residual streams ---- */

static void check_hyper(const char *name, uint32_t layer)
{
    struct bench b;
    struct err err;

    open_bench(&b, name);
    const struct model_shape *m = &b.shape;
    const struct hyper_shape shape = { m->hidden, m->streams.n, m->streams.rank, b.c.rms_eps };
    const struct hyper_weights w = {
        .norm = vector(&b, 1.0f, layer, "attn_hyper_connection.hc_norm.weight"),
        .down = matrix(&b, layer, "attn_hyper_connection.input_mix_weight_down.weight"),
        .up = matrix(&b, layer, "attn_hyper_connection.input_mix_weight_up.weight"),
        .inject = matrix(&b, layer, "attn_hyper_connection.block_inject_weight.weight"),
    };
    float *out = zeros(&b, ROWS * m->hidden), *inject = zeros(&b, ROWS * m->streams.n);
    block_rows(&b.f, 0, 0, ROWS);
    assert_int_equal(hyper_read(out, inject, part(&b, "residual", layer, "h"), &shape, &w,
                                &b.f.step, &err), 0);
    agree(out, part(&b, "residual", layer, "m"), m->hidden);
    agree(inject, part(&b, "residual", layer, "inject"), m->streams.n);
    close_bench(&b);
}

static void streams_are_read_as_the_reference_reads_them(void **state)
{
    (void)state;
    check_hyper("tiny4-fp8", 1);
    check_hyper("tiny4-odd", 1);
}

/* ---- gated delta network ---- */

static void check_gdn(const char *name, uint32_t layer)
{
    struct bench b;
    struct err err;

    open_bench(&b, name);
    const struct model_shape *m = &b.shape;
    const struct gdn_shape shape = {
        m->hidden, m->linear.n_key_heads, m->linear.n_value_heads, m->linear.key_dim,
        m->linear.value_dim, m->linear.kernel, b.c.rms_eps, b.c.gate_is_silu,
    };
    const struct gdn_weights w = {
        .qkv = matrix(&b, layer, "linear_attn.in_proj_qkv.weight"),
        .z = matrix(&b, layer, "linear_attn.in_proj_z.weight"),
        .b = matrix(&b, layer, "linear_attn.in_proj_b.weight"),
        .a = matrix(&b, layer, "linear_attn.in_proj_a.weight"),
        .out = matrix(&b, layer, "linear_attn.out_proj.weight"),
        .taps = vector(&b, 0.0f, layer, "linear_attn.conv1d.weight"),
        .dt_bias = vector(&b, 0.0f, layer, "linear_attn.dt_bias"),
        .a_log = vector(&b, 0.0f, layer, "linear_attn.A_log"),
        .norm = vector(&b, 0.0f, layer, "linear_attn.norm.weight"),
    };
    uint64_t floats = gdn_state_size(&shape) / sizeof(float);
    const struct gdn_state gdn = { zeros(&b, floats), zeros(&b, floats) };
    float *out = zeros(&b, ROWS * m->hidden);
    block_rows(&b.f, 0, 0, ROWS);
    assert_int_equal(gdn_forward(out, part(&b, "gdn", layer, "m"), &shape, &w, &gdn, &b.f.step,
                                 &err), 0);
    agree(out, part(&b, "gdn", layer, "out"), m->hidden);
    close_bench(&b);
}

static void the_recurrence_is_the_chunked_form_of_the_reference(void **state)
{
    (void)state;
    check_gdn("tiny4-fp8", 0);
    check_gdn("tiny4-odd", 2);
}

/* ---- n-gram embeddings ---- */

/* The rows of the golden's prompt, out of all parts of the table; one scale for FP8. */
static float *embed(struct bench *b, uint32_t layer, uint32_t table)
{
    const struct table_shape *n = &b->shape.ngram;
    uint64_t per_part = n->rows[table] / n->n_parts, rows[NGRAM_MAX_HEADS];
    float *out = zeros(b, (uint64_t)ROWS * n->n_heads * n->head_dim), scale = 1.0f;
    const float *parts[64];
    const struct tensor *t;
    uint32_t tokens[ROWS];
    struct ngram ngram;
    struct err err;
    char name[96];

    assert_true(n->n_parts <= 64);
    for (uint32_t i = 0; i < n->n_parts; i++) {
        snprintf(name, sizeof name, "ple.ple_embedding.ngram_embedding.shard_%u.weight", i);
        parts[i] = tensor(b, &t, 0.0f, layer, name);
    }
    if (n->fp8)
        scale = *vector(b, 0.0f, layer, "ple.ple_embedding.ngram_embedding.weight_scale");
    for (uint32_t i = 0; i < ROWS; i++)
        tokens[i] = (uint32_t)json_integer_value(
            json_array_get(json_object_get(b->golden, "prompt"), i));
    assert_int_equal(qwen4_exp_ngram(&ngram, &b->c, b->shape.vocab, table, &err), 0);
    for (uint32_t at = 0; at < ROWS; at++) {
        ngram_rows(rows, &ngram, tokens, at);
        for (uint32_t h = 0; h < n->n_heads; h++)
            for (uint32_t d = 0; d < n->head_dim; d++)
                out[((size_t)at * n->n_heads + h) * n->head_dim + d] =
                    scale * parts[rows[h] / per_part][rows[h] % per_part * n->head_dim + d];
    }
    return out;
}

static void check_ple(const char *name, uint32_t table)
{
    struct bench b;
    struct err err;

    open_bench(&b, name);
    const struct model_shape *m = &b.shape;
    uint32_t layer = m->ngram.layers[table], wide = m->streams.n * m->hidden;
    const struct ple_shape shape = {
        m->hidden, m->streams.n, m->ngram.n_heads * m->ngram.head_dim, m->ngram.kernel,
        m->ngram.order, b.c.rms_eps,
    };
    const struct ple_weights w = {
        .key = matrix(&b, layer, "ple.key_proj.weight"),
        .value = matrix(&b, layer, "ple.value_proj.weight"),
        .norm_key = vector(&b, 1.0f, layer, "ple.norm_key.weight"),
        .norm_query = vector(&b, 1.0f, layer, "ple.norm_query.weight"),
        .norm_conv = vector(&b, 1.0f, layer, "ple.norm_conv.weight"),
        .taps = vector(&b, 0.0f, layer, "ple.conv1d.weight"),
    };
    const struct conv_past past = { zeros(&b, ple_past(&shape)), zeros(&b, ple_past(&shape)) };
    const float *embedded = embed(&b, layer, table), *h = part(&b, "ple", layer, "h");
    const float *theirs = part(&b, "ple", layer, "embedded");
    float *streams = zeros(&b, (uint64_t)ROWS * wide), *want = zeros(&b, (uint64_t)ROWS * wide);

    assert_memory_equal(embedded, theirs, (size_t)ROWS * shape.embedded * sizeof *embedded);
    memcpy(streams, h, (size_t)ROWS * wide * sizeof *streams);
    for (size_t i = 0; i < (size_t)ROWS * wide; i++)
        want[i] = h[i] + part(&b, "ple", layer, "out")[i];
    block_rows(&b.f, 0, 0, ROWS);
    assert_int_equal(ple_forward(streams, embedded, &shape, &w, &past, &b.f.step, &err), 0);
    agree(streams, want, wide);
    close_bench(&b);
}

static void n_grams_are_embedded_as_in_the_reference(void **state)
{
    (void)state;
    check_ple("tiny4-fp8", 0);
    check_ple("tiny4-odd", 0);
    check_ple("tiny4-odd", 1);
}

/* ---- sparse attention ---- */

static void sparse_attention_is_that_of_the_reference(void **state)
{
    const uint32_t layer = 3;
    struct rope rope;
    struct bench b;
    struct err err;

    (void)state;
    open_bench(&b, "tiny4-fp8");
    const struct model_shape *m = &b.shape;
    const struct qsa_shape shape = {
        .hidden = m->hidden, .n_heads = m->n_heads, .n_kv_heads = m->n_kv_heads,
        .head_dim = m->head_dim, .rotated = b.c.rotary_dim, .n_index_heads = m->index.n_heads,
        .index_dim = m->index.head_dim, .block = m->index.ratio,
        .max_blocks = m->index.budget / m->index.ratio, .eps = b.c.rms_eps,
    };
    const struct qsa_weights w = {
        .q = matrix(&b, layer, "self_attn.q_proj.weight"),
        .k = matrix(&b, layer, "self_attn.k_proj.weight"),
        .v = matrix(&b, layer, "self_attn.v_proj.weight"),
        .o = matrix(&b, layer, "self_attn.o_proj.weight"),
        .index = matrix(&b, layer, "self_attn.indexer.index_qk_proj.weight"),
        .q_norm = vector(&b, 1.0f, layer, "self_attn.q_norm.weight"),
        .k_norm = vector(&b, 1.0f, layer, "self_attn.k_norm.weight"),
        .index_q_norm = vector(&b, 1.0f, layer, "self_attn.indexer.q_layernorm.weight"),
        .index_k_norm = vector(&b, 1.0f, layer, "self_attn.indexer.k_layernorm.weight"),
    };
    size_t keys = (size_t)PAGE * m->n_kv_heads * m->head_dim;
    size_t index = (size_t)PAGE * m->index.head_dim;
    const struct qsa_layout layout = {
        .dtype = DTYPE_F32, .page_tokens = PAGE, .k = 0, .v = keys * 4, .index = 2 * keys * 4,
        .blocks = (2 * keys + index) * 4,
    };
    char *page = own(&b, aligned_alloc(64, (2 * keys + 2 * index) * 4));
    char *const pages[] = { page }, *const *const books[] = { pages };
    float *out = zeros(&b, (uint64_t)ROWS * m->hidden);

    b.f.step.rope_cos = zeros(&b, (uint64_t)ROWS * b.c.rotary_dim / 2);
    b.f.step.rope_sin = zeros(&b, (uint64_t)ROWS * b.c.rotary_dim / 2);
    assert_int_equal(rope_open(&rope, b.c.rotary_dim, b.c.rope_theta, NULL, &err), 0);
    block_rows(&b.f, 0, 0, ROWS);
    rope_fill(&rope, &b.f.step);
    assert_int_equal(qsa_forward(out, part(&b, "qsa", layer, "m"), &shape, &w, &layout, books,
                                 &rope, &b.f.step, &err), 0);
    agree(out, part(&b, "qsa", layer, "out"), m->hidden);
    /* Rows past the budget and an unfinished block leave blocks out. */
    assert_int_equal(b.f.counters.sparse_rows, ROWS - (m->index.budget + m->index.ratio - 1));
    rope_close(&rope);
    close_bench(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_read_as_the_reference_reads_them),
        cmocka_unit_test(the_recurrence_is_the_chunked_form_of_the_reference),
        cmocka_unit_test(n_grams_are_embedded_as_in_the_reference),
        cmocka_unit_test(sparse_attention_is_that_of_the_reference),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
