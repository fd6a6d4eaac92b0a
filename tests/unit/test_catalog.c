/* Which tensors a model needs: each found with its scales, shape and type, and none left over. */
#include "checkpoint_fixture.h"

#include "families/qwen3_moe.h"
#include "formats/shards.h"
#include "store/catalog.h"

#include <time.h>

/* Four layers of which one is dense; head_dim x heads differs from hidden. */
#define TINY(extra) \
    "{\"model_type\":\"qwen3_moe\",\"vocab_size\":512,\"hidden_size\":256," \
    "\"intermediate_size\":384,\"moe_intermediate_size\":192,\"num_hidden_layers\":4," \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":128,\"num_experts\":8," \
    "\"num_experts_per_tok\":3,\"mlp_only_layers\":[1],\"rope_theta\":1000000," \
    "\"max_position_embeddings\":256" extra "}"
#define FP8 ",\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]}"

/* How a checkpoint is written, and in which one way it is wrong. */
struct recipe {
    const char *config;
    bool fp8;
    const char *scale_dtype; /* NULL: BF16 */
    const char *without;     /* this tensor is left out */
    const char *odd;         /* this one gets odd_dtype, or one row more */
    const char *odd_dtype;
    const char *extra;       /* one tensor more, BF16 [4] */
};

struct writer {
    const struct recipe *r;
    struct shard_text text;
};

static uint32_t bytes_of(const char *dtype)
{
    enum dtype d;
    uint32_t bits;

    assert_true(dtype_parse(&d, &bits, dtype));
    return bits / 8;
}

static void write_tensor(struct writer *w, const char *name, const char *dtype, uint32_t n_dims,
                         uint64_t rows, uint64_t cols)
{
    if (w->r->without && strcmp(name, w->r->without) == 0)
        return;
    if (w->r->odd && strcmp(name, w->r->odd) == 0) {
        if (w->r->odd_dtype)
            dtype = w->r->odd_dtype;
        else
            rows++;
    }
    shard_add(&w->text, name, dtype, bytes_of(dtype), n_dims, rows, cols);
}

static int write_want(void *ctx, const struct tensor_want *want, struct err *err)
{
    struct writer *w = ctx;
    bool fp8 = w->r->fp8 && want->may_be_fp8;
    char scale[256];

    (void)err;
    write_tensor(w, want->name, fp8 ? "F8_E4M3" : "BF16", want->n_dims, want->dims[0],
                 want->dims[1]);
    if (fp8) {
        snprintf(scale, sizeof scale, "%s_scale_inv", want->name);
        write_tensor(w, scale, w->r->scale_dtype ? w->r->scale_dtype : "BF16", 2,
                     (want->dims[0] + 127) / 128, (want->dims[1] + 127) / 128);
    }
    return 0;
}

static void shape_of(struct model_shape *shape, const char *config)
{
    struct json j;
    struct err err = { 0 };

    assert_int_equal(json_open_buffer(&j, "config.json", config, strlen(config), &err), 0);
    if (qwen3_moe_read_shape(shape, NULL, &j, &err) < 0)
        fail_msg("%s", err.text);
    json_close(&j);
}

/* The opened catalog, or NULL with err filled. Everything else is opened and closed here. */
struct opened {
    struct checkpoint_dir dir;
    struct model_shape shape;
    struct shards *shards;
    struct catalog *catalog;
};

static int open_recipe(struct opened *o, const struct recipe *r, struct err *err)
{
    struct writer w = { .r = r };

    *o = (struct opened){ 0 };
    dir_init(&o->dir);
    shape_of(&o->shape, r->config);
    assert_int_equal(qwen3_moe_each_tensor(&o->shape, write_want, &w, err), 0);
    if (r->extra)
        shard_add(&w.text, r->extra, "BF16", 2, 1, 4, 0);
    shard_write(&w.text, &o->dir, "model.safetensors", 0);
    if (shards_open(&o->shards, o->dir.path, err) < 0)
        fail_msg("%s", err->text);
    return catalog_open(&o->catalog, o->shards, &o->shape, qwen3_moe_each_tensor, err);
}

static void close_recipe(struct opened *o)
{
    catalog_close(o->catalog);
    shards_close(o->shards);
    dir_remove(o->dir.path);
}

static void accepts(const struct recipe *r)
{
    struct opened o;
    struct err err = { 0 };

    if (open_recipe(&o, r, &err) < 0)
        fail_msg("must open: %s", err.text);
    close_recipe(&o);
}

static void refuses(const struct recipe *r, enum err_kind kind, const char *part1,
                    const char *part2)
{
    struct opened o;
    struct err err = { 0 };

    if (open_recipe(&o, r, &err) == 0)
        fail_msg("must be refused because of '%s'", part1);
    close_recipe(&o);
    assert_int_equal(err.kind, kind);
    says(&err, part1);
    says(&err, part2);
}

static void every_tensor_is_found_with_its_scales(void **state)
{
    struct recipe r = { .config = TINY(FP8), .fp8 = true };
    struct opened o;
    struct err err;

    (void)state;
    assert_int_equal(open_recipe(&o, &r, &err), 0);
    const struct catalog *c = o.catalog;
    assert_int_equal(c->n_items, 1 + 4 * 8 + 3 + 3 + 2); /* embed, layers, routers, dense, ends */
    for (uint32_t i = 0; i < c->n_items; i++) {
        const struct catalog_item *item = &c->items[i];
        assert_string_equal(item->tensor->name, item->want.name);
        assert_true((item->scale != NULL) == item->want.may_be_fp8);
    }
    assert_int_equal(c->moe_ordinal[0], 0);
    assert_int_equal(c->moe_ordinal[1], UINT32_MAX);
    assert_int_equal(c->moe_ordinal[2], 1);
    assert_int_equal(c->moe_ordinal[3], 2);
    const struct tensor *t = c->expert_tensors[(2 * 8 + 5) * N_PARTS + PART_UP];
    assert_string_equal(t->name, "model.layers.3.mlp.experts.5.up_proj.weight");
    t = c->expert_scales[(1 * 8 + 7) * N_PARTS + PART_DOWN];
    assert_string_equal(t->name, "model.layers.2.mlp.experts.7.down_proj.weight_scale_inv");
    assert_int_equal(t->dims[0], 2);
    assert_int_equal(t->dims[1], 2); /* 192 columns: a partial block counts */
    close_recipe(&o);
}

static void plain_floats_need_no_scales_and_may_be_mixed_outside_experts(void **state)
{
    (void)state;
    accepts(&(struct recipe){ .config = TINY("") });
    accepts(&(struct recipe){ .config = TINY(FP8), .fp8 = true, .scale_dtype = "F32" });
    accepts(&(struct recipe){ .config = TINY(FP8) }); /* the tensors decide */
    accepts(&(struct recipe){ .config = TINY(""), .odd = "lm_head.weight", .odd_dtype = "F32" });
    accepts(&(struct recipe){ .config = TINY(""), .odd = "model.norm.weight",
                              .odd_dtype = "F16" });
}

static void what_is_missing_is_named(void **state)
{
    (void)state;
    refuses(&(struct recipe){ .config = TINY(""), .without = "model.norm.weight" }, ERR_FORMAT,
            "'model.norm.weight' is missing", "");
    refuses(&(struct recipe){ .config = TINY(FP8), .fp8 = true,
                              .without = "model.layers.2.mlp.experts.4.up_proj.weight" },
            ERR_FORMAT, "'model.layers.2.mlp.experts.4.up_proj.weight' is missing", "fused");
    refuses(&(struct recipe){ .config = TINY(FP8), .fp8 = true, .without =
                                  "model.layers.1.self_attn.q_proj.weight_scale_inv" },
            ERR_FORMAT, "scales 'model.layers.1.self_attn.q_proj.weight_scale_inv' are missing",
            "download");
}

static void what_has_another_shape_says_both(void **state)
{
    (void)state;
    refuses(&(struct recipe){ .config = TINY(""), .odd = "model.layers.0.mlp.gate.weight" },
            ERR_FORMAT, "'model.layers.0.mlp.gate.weight' in model.safetensors: shape [9, 256]",
            "needs [8, 256]");
    refuses(&(struct recipe){ .config = TINY(FP8), .fp8 = true, .odd =
                                  "model.layers.0.self_attn.o_proj.weight_scale_inv" },
            ERR_FORMAT, "shape [3, 4]", "128x128 blocks needs [2, 4]");
}

static void a_dtype_that_cannot_be_is_refused(void **state)
{
    (void)state;
    refuses(&(struct recipe){ .config = TINY(""), .odd = "model.layers.0.mlp.gate.weight",
                              .odd_dtype = "I32" },
            ERR_UNSUPPORTED, "dtype I32 is not built", "mlp.gate.weight");
    refuses(&(struct recipe){ .config = TINY(FP8), .odd = "model.embed_tokens.weight",
                              .odd_dtype = "F8_E4M3" },
            ERR_UNSUPPORTED, "dtype F8_E4M3 is not built", "embed_tokens");
    refuses(&(struct recipe){ .config = TINY(FP8), .fp8 = true, .scale_dtype = "F16" },
            ERR_UNSUPPORTED, "scales of dtype F16", "BF16 and F32");
    refuses(&(struct recipe){ .config = TINY(""), .fp8 = true }, ERR_FORMAT,
            "no quantization_config", "F8_E4M3");
    refuses(&(struct recipe){ .config = TINY(FP8), .fp8 = true,
                              .odd = "model.layers.0.self_attn.k_proj.weight",
                              .odd_dtype = "BF16" },
            ERR_FORMAT, "scales of a tensor that is BF16",
            "model.layers.0.self_attn.k_proj.weight_scale_inv");
    refuses(&(struct recipe){ .config = TINY(""),
                              .odd = "model.layers.3.mlp.experts.0.down_proj.weight",
                              .odd_dtype = "F16" },
            ERR_UNSUPPORTED, "mixed experts", "model.layers.3.mlp.experts.0.down_proj.weight");
}

static void what_is_left_over_is_named(void **state)
{
    (void)state;
    refuses(&(struct recipe){ .config = TINY(""), .extra = "model.layers.4.input_layernorm.weight" },
            ERR_FORMAT, "'model.layers.4.input_layernorm.weight'", "has no such tensor");
    refuses(&(struct recipe){ .config = TINY(""),
                              .extra = "model.layers.0.self_attn.q_proj.bias" },
            ERR_FORMAT, "'model.layers.0.self_attn.q_proj.bias'", "model.safetensors");
    accepts(&(struct recipe){ .config = TINY(""),
                              .extra = "model.layers.0.self_attn.rotary_emb.inv_freq" });
    accepts(&(struct recipe){ .config = TINY(",\"tie_word_embeddings\":true"),
                              .extra = "lm_head.weight" });
    accepts(&(struct recipe){ .config = TINY(",\"tie_word_embeddings\":true") });
}

static void an_absurd_expert_count_is_refused_before_allocating(void **state)
{
    struct recipe r = { .config = TINY("") };
    struct opened o;
    struct catalog *c = NULL;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(open_recipe(&o, &r, &err), 0);
    o.shape.n_experts = 4096;
    assert_int_equal(catalog_open(&c, o.shards, &o.shape, qwen3_moe_each_tensor, &err), -1);
    assert_null(c);
    says(&err, "needs 36864 expert tensors");
    o.shape.n_experts = 8;
    close_recipe(&o);
}

static void sums_from_headers_equal_sums_from_the_shape(void **state)
{
    struct recipe recipes[] = { { .config = TINY(FP8), .fp8 = true }, { .config = TINY("") } };

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct catalog_bytes seen, derived;
        struct opened o;
        struct err err;

        assert_int_equal(open_recipe(&o, &recipes[i], &err), 0);
        catalog_sum(&seen, o.catalog);
        assert_int_equal(catalog_derive(&derived, &o.shape, qwen3_moe_each_tensor, &err), 0);
        assert_memory_equal(&seen, &derived, sizeof seen);
        assert_int_equal(seen.n_tensors, o.shards->n_tensors);
        close_recipe(&o);
    }
}

static char *read_config(const char *path)
{
    static char text[65536];
    FILE *f = fopen(path, "r");

    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    return text;
}

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Headers as the release has them, 31 GB of holes behind. */
static void the_full_30b_fp8_layout_opens_with_the_published_sums(void **state)
{
    struct recipe r = { .config = read_config("tests/data/configs/Qwen3-30B-A3B-FP8/config.json"),
                        .fp8 = true };
    struct catalog_bytes b;
    struct catalog *again;
    struct opened o;
    struct err err;

    (void)state;
    if (open_recipe(&o, &r, &err) < 0)
        fail_msg("%s", err.text);
    double start = seconds();
    assert_int_equal(
        catalog_open(&again, o.shards, &o.shape, qwen3_moe_each_tensor, &err), 0);
    print_message("catalog of %u tensors: %.3f s\n", o.shards->n_tensors, seconds() - start);
    catalog_close(again);
    catalog_sum(&b, o.catalog);
    assert_int_equal(b.n_tensors, 37491);
    assert_int_equal(b.weights[ROLE_EXPERT], 28991029248);
    assert_int_equal(b.scales[ROLE_EXPERT], 3538944);
    assert_int_equal(b.weights[ROLE_ATTENTION], 905969664);
    assert_int_equal(b.scales[ROLE_ATTENTION], 110592);
    assert_int_equal(b.weights[ROLE_EMBEDDING] + b.weights[ROLE_HEAD] + b.weights[ROLE_ROUTER] +
                         b.weights[ROLE_NORM], 1270247424);
    close_recipe(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_tensor_is_found_with_its_scales),
        cmocka_unit_test(plain_floats_need_no_scales_and_may_be_mixed_outside_experts),
        cmocka_unit_test(what_is_missing_is_named),
        cmocka_unit_test(what_has_another_shape_says_both),
        cmocka_unit_test(a_dtype_that_cannot_be_is_refused),
        cmocka_unit_test(what_is_left_over_is_named),
        cmocka_unit_test(an_absurd_expert_count_is_refused_before_allocating),
        cmocka_unit_test(sums_from_headers_equal_sums_from_the_shape),
        cmocka_unit_test(the_full_30b_fp8_layout_opens_with_the_published_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
