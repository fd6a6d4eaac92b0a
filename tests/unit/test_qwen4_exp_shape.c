/* config.json of Qwen4-Exp: the released ones are read, and every refusal names its key. */
#include "families/qwen4_exp.h"

#include "blocks/ngram.h"
#include "util/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

static json_t *released(const char *name)
{
    char path[256];

    snprintf(path, sizeof path, "tests/data/configs/%s/config.json", name);
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    return root;
}

struct read_out {
    struct model_shape shape;
    struct qwen4_exp_config config;
    struct config_warnings warnings;
    struct err err;
};

/* Takes root. */
static int read_json(struct read_out *r, json_t *root)
{
    struct json j;
    char *text = json_dumps(root, 0);

    json_decref(root);
    *r = (struct read_out){ 0 };
    assert_int_equal(json_open_buffer(&j, "config.json", text, strlen(text), &r->err), 0);
    free(text);
    int rc = qwen4_exp_read_shape(&r->shape, &r->warnings, &j, &r->err);
    if (rc == 0)
        rc = qwen4_exp_read_config(&r->config, &j, NULL, &r->err);
    json_close(&j);
    return rc;
}

/* "text_config.hidden_size", to a JSON value; NULL removes it. */
static void set(json_t *root, const char *path, const char *value)
{
    char part[64];
    const char *dot;

    while ((dot = strchr(path, '.'))) {
        snprintf(part, sizeof part, "%.*s", (int)(dot - path), path);
        root = json_object_get(root, part);
        assert_non_null(root);
        path = dot + 1;
    }
    if (!value) {
        json_object_del(root, path);
        return;
    }
    json_t *v = json_loads(value, JSON_DECODE_ANY, NULL);
    assert_non_null(v);
    assert_int_equal(json_object_set_new(root, path, v), 0);
}

static int read_with(struct read_out *r, const char *path, const char *value)
{
    json_t *root = released("Qwen3.8-Flash-Next-FP8");

    set(root, path, value);
    return read_json(r, root);
}

static void the_released_configs_are_read(void **state)
{
    static const struct {
        const char *name;
        bool fp8;
    } want[] = { { "Qwen3.8-Flash-Next", false }, { "Qwen3.8-Flash-Next-FP8", true } };
    struct read_out r;

    (void)state;
    for (size_t i = 0; i < N_OF(want); i++) {
        if (read_json(&r, released(want[i].name)) < 0)
            fail_msg("%s", r.err.text);
        const struct model_shape *s = &r.shape;
        assert_string_equal(s->model_type, "qwen4_exp");
        assert_int_equal(r.warnings.n, 0);
        assert_true(s->fp8 == want[i].fp8 && s->ngram.fp8 == want[i].fp8 && !s->text_only);
        assert_int_equal(s->vocab, 248320);
        assert_int_equal(s->hidden, 2560);
        assert_int_equal(s->n_layers, 48);
        assert_int_equal(s->n_moe_layers, 48);
        assert_int_equal(s->n_linear_layers, 36);
        for (uint32_t l = 0; l < 48; l++)
            assert_true(s->layer_is_linear[l] == (l % 4 != 3));
        assert_true(s->n_heads == 24 && s->n_kv_heads == 2 && s->head_dim == 256);
        assert_true(s->index.n_heads == 4 && s->index.head_dim == 128);
        assert_true(s->index.budget == 2048 && s->index.ratio == 4);
        assert_true(s->linear.n_key_heads == 16 && s->linear.n_value_heads == 48);
        assert_true(s->linear.key_dim == 128 && s->linear.value_dim == 128);
        assert_int_equal(s->linear.kernel, 4);
        assert_true(s->streams.n == 4 && s->streams.rank == 320);
        assert_true(s->n_experts == 512 && s->experts_per_token == 10);
        assert_true(s->expert_width == 640 && s->shared_width == 640);
        assert_true(s->ngram.n_tables == 1 && s->ngram.layers[0] == 1);
        assert_int_equal(s->ngram.rows[0], 320001536);
        assert_true(s->ngram.n_heads == 16 && s->ngram.head_dim == 160);
        assert_true(s->ngram.n_parts == 128 && s->ngram.order == 3 && s->ngram.kernel == 4);
        assert_int_equal(s->max_positions, 262144);
        assert_int_equal(s->recurrent_floats * 4, 118038528);
        assert_int_equal(s->unused.n_mtp_layers, 1);
        assert_int_equal(s->unused.vision.depth, 27);
        assert_true(r.config.norm_topk_prob && !r.config.gate_is_silu);
        assert_true(r.config.rope_theta == 1e7 && r.config.rotary_dim == 64);
        assert_true(r.config.ngram_seed == 1234 && r.config.ngram_eos == 248044);
    }
}

static void a_save_by_the_text_class_has_its_keys_at_the_root(void **state)
{
    json_t *whole = released("Qwen3.8-Flash-Next"), *text = json_object_get(whole, "text_config");
    struct read_out r, same;

    (void)state;
    json_object_set_new(text, "architectures", json_loads("[\"Qwen4ExpForCausalLM\"]", 0, NULL));
    json_incref(text);
    json_decref(whole);
    if (read_json(&r, text) < 0)
        fail_msg("%s", r.err.text);
    assert_int_equal(read_json(&same, released("Qwen3.8-Flash-Next")), 0);
    assert_true(r.shape.text_only && r.shape.unused.vision.depth == 0);
    r.shape.text_only = false;
    r.shape.unused = same.shape.unused;
    assert_memory_equal(&r.shape, &same.shape, sizeof r.shape);
}

static void sparse_attention_has_three_names(void **state)
{
    static const char *const names[] = {
        "full_attention", "indexed_attention", "qwen_sparse_attention",
    };
    char list[2048];
    struct read_out r;

    (void)state;
    for (size_t i = 0; i < N_OF(names); i++) {
        size_t at = 0;
        for (uint32_t l = 0; l < 48; l++)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s\"%s\"", l ? "," : "[",
                                   l % 4 == 3 ? names[i] : "linear_attention");
        snprintf(list + at, sizeof list - at, "]");
        assert_int_equal(read_with(&r, "text_config.layer_types", list), 0);
        assert_int_equal(r.shape.n_linear_layers, 36);
    }
}

static void absent_keys_are_as_in_the_reference(void **state)
{
    static const char least[] =
        "{\"model_type\":\"qwen4_exp_text\",\"rope_parameters\":{\"rope_theta\":10000000},"
        "\"indexer_n_heads\":4,\"indexer_kv_heads\":1,\"indexer_head_dim\":256,"
        "\"indexer_budget\":2048,\"indexer_compress_ratio\":4}";
    json_t *root = json_loads(least, 0, NULL);
    struct read_out r;

    (void)state;
    assert_non_null(root);
    if (read_json(&r, json_incref(root)) < 0)
        fail_msg("%s", r.err.text);
    const struct model_shape *s = &r.shape;
    assert_true(s->vocab == 248320 && s->hidden == 2048 && s->n_layers == 40);
    assert_int_equal(s->n_linear_layers, 30);
    assert_true(!s->layer_is_linear[3] && s->layer_is_linear[38] && !s->layer_is_linear[39]);
    assert_true(s->n_heads == 16 && s->n_kv_heads == 2 && s->head_dim == 256);
    assert_true(s->n_experts == 512 && s->experts_per_token == 10);
    assert_true(s->expert_width == 512 && s->shared_width == 512);
    assert_true(s->linear.n_key_heads == 16 && s->linear.n_value_heads == 32);
    assert_true(s->linear.key_dim == 128 && s->linear.value_dim == 128 && s->linear.kernel == 4);
    assert_true(s->streams.n == 4 && s->streams.rank == 320);
    assert_int_equal(s->max_positions, 32768);
    assert_int_equal(s->ngram.n_tables, 0);
    /* The gate is hidden_act then, and all of a head is rotated. */
    assert_true(r.config.norm_topk_prob && r.config.gate_is_silu && r.config.rotary_dim == 256);

    set(root, "ple_layer_ids", "[2, 1, 2]");
    set(root, "eos_token_id", "[9, 8]");
    if (read_json(&r, root) < 0)
        fail_msg("%s", r.err.text);
    assert_int_equal(s->ngram.n_tables, 2); /* sorted, each once */
    assert_true(s->ngram.layers[0] == 0 && s->ngram.layers[1] == 1);
    assert_true(s->ngram.n_heads == 16 && s->ngram.head_dim == 128 && s->ngram.n_parts == 512);
    assert_true(s->ngram.order == 3 && s->ngram.kernel == 4);
    assert_int_equal(s->ngram.rows[0], 320001536);
    assert_true(s->ngram.rows[1] > s->ngram.rows[0]); /* later primes */
    assert_true(r.config.ngram_eos == 9 && r.config.ngram_seed == 1234);
}

#define T "text_config."

static void what_is_refused_is_named(void **state)
{
    static const struct {
        const char *path, *value, *says;
    } cases[] = {
        { "model_type", "\"qwen4_exp_text\"", "model_type" },
        { T "model_type", "\"qwen3_next\"", "model_type" },
        { "architectures", "[\"LlamaForCausalLM\"]", "LlamaForCausalLM" },
        { "text_config", "7", "text_config" },
        { "some_new_switch", "true", "some_new_switch" },
        { T "some_new_switch", "true", "some_new_switch" },
        { T "quantization_config", "{}", "quantization_config" },
        { T "vocab_size", "0", "vocab_size" },
        { T "hidden_size", "0", "hidden_size" },
        { T "hidden_size", "-2560", "hidden_size" },
        { T "hidden_size", "2560.5", "hidden_size" },
        { T "hidden_size", "1099511627776", "hidden_size" },
        { T "num_hidden_layers", "0", "num_hidden_layers" },
        { T "num_hidden_layers", "47", "layer_types" },
        { T "layer_types", "[\"linear_attention\"]", "layer_types" },
        { T "layer_types", "{}", "layer_types" },
        { T "full_attention_interval", "0", "full_attention_interval" },
        { T "num_attention_heads", "25", "num_attention_heads" },
        { T "num_key_value_heads", "0", "num_key_value_heads" },
        { T "head_dim", "0", "head_dim" },
        { T "head_dim", "512", "head_dim" },
        { T "attention_bias", "true", "attention_bias" },
        { T "rms_norm_eps", "0", "rms_norm_eps" },
        { T "rms_norm_eps", "-1e-6", "rms_norm_eps" },
        { T "hidden_act", "\"gelu\"", "hidden_act" },
        { T "output_gate_type", "\"tanh\"", "output_gate_type" },
        { T "rope_parameters.rope_type", "\"yarn\"", "rope_type" },
        { T "rope_parameters.rope_theta", NULL, "rope_theta" },
        { T "rope_parameters.rope_theta", "0", "rope_theta" },
        { T "rope_parameters.rope_theta", "-5", "rope_theta" },
        { T "rope_parameters.factor", "2.0", "factor" },
        { T "rope_parameters.partial_rotary_factor", "0.3", "partial_rotary_factor" },
        { T "partial_rotary_factor", "0.5", "partial_rotary_factor" },
        { T "rope_scaling", "{\"rope_type\": \"default\"}", "rope_scaling" },
        { T "max_position_embeddings", "0", "max_position_embeddings" },
        { T "num_experts", "0", "num_experts" },
        { T "num_experts_per_tok", "0", "num_experts_per_tok" },
        { T "num_experts_per_tok", "513", "num_experts_per_tok" },
        { T "moe_intermediate_size", "0", "moe_intermediate_size" },
        { T "shared_expert_intermediate_size", "0", "shared_expert_intermediate_size" },
        { T "norm_topk_prob", "1", "norm_topk_prob" },
        { T "linear_num_value_heads", "40", "linear_num_value_heads" },
        { T "linear_num_key_heads", "0", "linear_num_key_heads" },
        { T "linear_key_head_dim", "0", "linear_key_head_dim" },
        { T "linear_value_head_dim", "0", "linear_value_head_dim" },
        { T "linear_conv_kernel_dim", "1", "linear_conv_kernel_dim" },
        { T "mamba_ssm_dtype", "\"bfloat16\"", "mamba_ssm_dtype" },
        { T "hc_count", "1", "hc_count" },
        { T "hc_lowrank", "0", "hc_lowrank" },
        { T "ple_layer_ids", "[0]", "ple_layer_ids" },
        { T "ple_layer_ids", "[49]", "ple_layer_ids" },
        { T "ple_layer_ids", "[4]", "ple_layer_ids" },
        { T "ple_layer_ids", "2", "ple_layer_ids" },
        { T "ple_embed_dim", "2561", "ple_embed_dim" },
        { T "ple_conv_kernel_size", "0", "ple_conv_kernel_size" },
        { T "ngram_size", "1", "ngram_size" },
        { T "heads_per_ngram", "0", "heads_per_ngram" },
        { T "heads_per_ngram", "160", "heads_per_ngram" },
        { T "ngram_vocab_size_base", "0", "ngram_vocab_size_base" },
        { T "make_ngram_vocab_size_divisible_by", "0", "make_ngram_vocab_size_divisible_by" },
        { T "split_ngram_parts", "0", "split_ngram_parts" },
        { T "split_ngram_parts", "127", "split_ngram_parts" },
        { T "seed", "1.5", "seed" },
        { T "eos_token_id", "null", "eos_token_id" },
        { T "eos_token_id", "[]", "eos_token_id" },
        { T "eos_token_id", "248320", "eos_token_id" },
        { T "indexer_n_heads", "null", "indexer_n_heads" },
        { T "indexer_n_heads", "65", "indexer_n_heads" },
        { T "indexer_kv_heads", "2", "indexer_kv_heads" },
        { T "indexer_head_dim", "32", "indexer_head_dim" },
        { T "indexer_head_dim", "0", "indexer_head_dim" },
        { T "indexer_head_dim", "512", "indexer_head_dim" },
        { T "indexer_budget", "2047", "indexer_budget" },
        { T "indexer_budget", NULL, "indexer_budget" },
        { T "indexer_compress_ratio", "0", "indexer_compress_ratio" },
        { "tie_word_embeddings", "true", "tie_word_embeddings" },
        { T "tie_word_embeddings", "true", "tie_word_embeddings" },
        { T "mtp_num_hidden_layers", "-1", "mtp_num_hidden_layers" },
        { "vision_config.depth", "-1", "depth" },
        { "quantization_config.quant_method", "\"gptq\"", "gptq" },
        { "quantization_config.activation_scheme", "\"static\"", "activation_scheme" },
        { "quantization_config.weight_block_size", "[64, 64]", "weight_block_size" },
        { "quantization_config.weight_per_tensor", "true", "weight_per_tensor" },
        { "quantization_config.act_per_tensor", "true", "act_per_tensor" },
        { "quantization_config.scale_fmt", "\"ue8m0\"", "scale_fmt" },
        { "quantization_config.modules_to_convert", "[\"lm_head\"]", "modules_to_convert" },
        { "quantization_config.modules_to_convert", "\"x\"", "modules_to_convert" },
    };
    struct read_out r;

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        if (read_with(&r, cases[i].path, cases[i].value) == 0)
            fail_msg("%s: %s is accepted", cases[i].path, cases[i].value);
        if (!strstr(r.err.text, cases[i].says) ||
            (r.err.kind != ERR_FORMAT && r.err.kind != ERR_UNSUPPORTED))
            fail_msg("%s: %s: '%s'", cases[i].path, cases[i].value, r.err.text);
    }
}

static void what_changes_nothing_is_accepted(void **state)
{
    static const struct {
        const char *path, *value;
        uint32_t n_warnings;
    } cases[] = {
        { T "attention_dropout", "0.1", 0 },
        { T "pad_token_id", "5", 0 },
        { T "rope_parameters.mrope_section", "[1, 2, 3]", 0 },
        { T "mtp_use_dedicated_embeddings", "true", 0 },
        { T "rope_theta", "10000000", 0 },
        { T "partial_rotary_factor", NULL, 0 },
        { "language_model_only", "true", 0 },
        { "quantization_config.modules_to_not_convert", "[\"a\", \"b\"]", 0 },
        { T "qkv_bias", "false", 1 },
        { T "full_attention_interval", "3", 1 },
    };
    struct read_out r;

    (void)state;
    for (size_t i = 0; i < N_OF(cases); i++) {
        if (read_with(&r, cases[i].path, cases[i].value) < 0)
            fail_msg("%s", r.err.text);
        assert_int_equal(r.warnings.n, cases[i].n_warnings);
    }
}

/* Bytes from the config alone: the published totals. */
static void the_released_totals_follow_from_the_config(void **state)
{
    struct catalog_bytes b;
    struct read_out r;
    uint64_t dense = 0;

    (void)state;
    assert_int_equal(read_json(&r, released("Qwen3.8-Flash-Next-FP8")), 0);
    assert_int_equal(catalog_derive(&b, &r.shape, qwen4_exp_each_tensor, &r.err), 0);
    for (int role = 0; role < ROLE_EXPERT; role++)
        dense += b.weights[role] + b.scales[role];
    assert_int_equal(b.n_tensors, 152089);
    assert_int_equal(dense, 9895397120);
    assert_int_equal(b.weights[ROLE_EMBEDDING], 1271398400);
    assert_int_equal(b.weights[ROLE_EXPERT], 120795955200);
    assert_int_equal(b.scales[ROLE_EXPERT], 14745600);
    assert_int_equal(b.weights[ROLE_TABLE] + b.scales[ROLE_TABLE], 51200245762);
    assert_int_equal(b.weights[ROLE_CONSTANT], 280);
    assert_int_equal(b.weights[ROLE_MTP] + b.scales[ROLE_MTP], 2698026496);
    assert_int_equal(b.tensors[ROLE_MTP], 3101);
    assert_int_equal(b.tensors[ROLE_VISION], 333);
    assert_int_equal(b.weights[ROLE_VISION], 897862112);

    assert_int_equal(read_json(&r, released("Qwen3.8-Flash-Next")), 0);
    assert_int_equal(catalog_derive(&b, &r.shape, qwen4_exp_each_tensor, &r.err), 0);
    assert_int_equal(b.n_tensors, 1658);
    assert_int_equal(b.weights[ROLE_TABLE], 102400491520);
    uint64_t total = 0;
    for (int role = 0; role < N_ROLES; role++)
        total += b.weights[role] + b.scales[role];
    assert_int_equal(total, 359999963128);
}

/* Constants and rows for tokens: test_ngram.c. */
static void the_table_is_looked_up_as_the_config_says(void **state)
{
    struct ngram n, second;
    struct read_out r;

    (void)state;
    assert_int_equal(read_json(&r, released("Qwen3.8-Flash-Next")), 0);
    assert_int_equal(qwen4_exp_ngram(&n, &r.config, r.shape.vocab, 0, &r.err), 0);
    assert_true(n.shape.size == 3 && n.n_heads == 16 && n.shape.end == 248044);
    assert_int_equal(n.multipliers[0], 23703573157769);
    assert_int_equal(n.sizes[15], 20000171);
    assert_int_equal(n.n_rows, r.shape.ngram.rows[0]);
    assert_int_equal(qwen4_exp_ngram(&second, &r.config, r.shape.vocab, 1, &r.err), 0);
    assert_true(second.sizes[0] > n.sizes[15] && second.offsets[0] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_released_configs_are_read),
        cmocka_unit_test(a_save_by_the_text_class_has_its_keys_at_the_root),
        cmocka_unit_test(sparse_attention_has_three_names),
        cmocka_unit_test(absent_keys_are_as_in_the_reference),
        cmocka_unit_test(what_is_refused_is_named),
        cmocka_unit_test(what_changes_nothing_is_accepted),
        cmocka_unit_test(the_released_totals_follow_from_the_config),
        cmocka_unit_test(the_table_is_looked_up_as_the_config_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
