/* config.json of Qwen3-MoE: the released ones are read, and every refusal names its key. */
#include "families/qwen3_moe.h"
#include "util/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define CONFIGS "tests/data/configs/"

static void open_config(struct json *j, const char *name)
{
    struct err err = { 0 };
    char path[256];

    snprintf(path, sizeof path, CONFIGS "%s/config.json", name);
    if (json_open(j, path, 1 << 20, &err) < 0)
        fail_msg("%s", err.text);
}

static void the_released_configs_are_read(void **state)
{
    static const struct {
        const char *name;
        uint32_t hidden, n_layers, heads, width, positions;
        double theta;
        bool fp8;
        uint32_t n_warnings;
    } want[] = {
        { "Qwen3-30B-A3B", 2048, 48, 32, 768, 40960, 1e6, false, 0 },
        { "Qwen3-30B-A3B-FP8", 2048, 48, 32, 768, 40960, 1e6, true, 0 },
        { "Qwen3-30B-A3B-Instruct-2507", 2048, 48, 32, 768, 262144, 1e7, false, 0 },
        { "Qwen3-30B-A3B-Instruct-2507-FP8", 2048, 48, 32, 768, 262144, 1e7, true, 0 },
        { "Qwen3-30B-A3B-Thinking-2507-FP8", 2048, 48, 32, 768, 262144, 1e7, true, 0 },
        { "Qwen3-235B-A22B", 4096, 94, 64, 1536, 40960, 1e6, false, 0 },
        { "Qwen3-235B-A22B-Instruct-2507", 4096, 94, 64, 1536, 262144, 5e6, false, 0 },
        /* qkv_bias false, use_qk_norm true, shared_expert_intermediate_size 0 */
        { "Qwen3-Coder-30B-A3B-Instruct", 2048, 48, 32, 768, 262144, 1e7, false, 3 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct config_warnings warnings = { 0 };
        struct qwen3_moe_config c;
        struct model_shape s;
        struct json j;
        struct err err = { 0 };

        open_config(&j, want[i].name);
        if (qwen3_moe_read_shape(&s, &warnings, &j, &err) < 0 ||
            qwen3_moe_read_config(&c, &j, &err) < 0)
            fail_msg("%s", err.text);
        json_close(&j);
        assert_string_equal(s.model_type, "qwen3_moe");
        assert_int_equal(s.vocab, 151936);
        assert_int_equal(s.hidden, want[i].hidden);
        assert_int_equal(s.n_layers, want[i].n_layers);
        assert_int_equal(s.n_moe_layers, want[i].n_layers);
        assert_int_equal(s.n_heads, want[i].heads);
        assert_int_equal(s.n_kv_heads, 4);
        assert_int_equal(s.head_dim, 128);
        assert_int_equal(s.n_experts, 128);
        assert_int_equal(s.experts_per_token, 8);
        assert_int_equal(s.expert_width, want[i].width);
        assert_int_equal(s.dense_width, 0);
        assert_int_equal(s.max_positions, want[i].positions);
        assert_true(s.fp8 == want[i].fp8 && !s.tied_embeddings);
        assert_int_equal(s.kv_values_per_token, 2 * 4 * 128 * want[i].n_layers);
        assert_true(c.norm_topk_prob && !c.yarn && c.rope_theta == want[i].theta);
        assert_true(c.rms_eps == 1e-6f);
        if (warnings.n != want[i].n_warnings)
            fail_msg("%s: %u warnings, the first: %s", want[i].name, warnings.n,
                     warnings.text[0]);
    }
}

/* The tiny config with one key set to a JSON value, or removed (value NULL). */
static json_t *tiny(void)
{
    static const char text[] =
        "{\"architectures\":[\"Qwen3MoeForCausalLM\"],\"model_type\":\"qwen3_moe\","
        "\"vocab_size\":512,\"hidden_size\":256,\"intermediate_size\":384,"
        "\"moe_intermediate_size\":128,\"num_hidden_layers\":4,\"num_attention_heads\":4,"
        "\"num_key_value_heads\":2,\"head_dim\":128,\"num_experts\":8,\"num_experts_per_tok\":3,"
        "\"mlp_only_layers\":[1],\"rope_theta\":1000000.0,\"max_position_embeddings\":256,"
        "\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,128],"
        "\"activation_scheme\":\"dynamic\",\"fmt\":\"e4m3\"}}";
    json_t *root = json_loads(text, 0, NULL);

    assert_non_null(root);
    return root;
}

static void set(json_t *root, const char *key, const char *value)
{
    const char *dot = strchr(key, '.');
    char outer[64];

    if (dot) { /* one level is enough here */
        snprintf(outer, sizeof outer, "%.*s", (int)(dot - key), key);
        root = json_object_get(root, outer);
        key = dot + 1;
    }
    if (value)
        assert_int_equal(
            json_object_set_new(root, key, json_loads(value, JSON_DECODE_ANY, NULL)), 0);
    else
        json_object_del(root, key);
}

struct read_out {
    struct model_shape shape;
    struct qwen3_moe_config config;
    struct config_warnings warnings;
    struct err err;
};

static int read_with(struct read_out *r, const char *key, const char *value, const char *key2,
                     const char *value2)
{
    struct json j;
    json_t *root = tiny();

    *r = (struct read_out){ 0 };
    if (key)
        set(root, key, value);
    if (key2)
        set(root, key2, value2);
    char *text = json_dumps(root, 0);
    json_decref(root);
    assert_int_equal(json_open_buffer(&j, "config.json", text, strlen(text), &r->err), 0);
    free(text);
    int rc = qwen3_moe_read_shape(&r->shape, &r->warnings, &j, &r->err);
    if (rc == 0)
        rc = qwen3_moe_read_config(&r->config, &j, &r->err);
    json_close(&j);
    return rc;
}

static void accepted(struct read_out *r, const char *key, const char *value)
{
    if (read_with(r, key, value, NULL, NULL) < 0)
        fail_msg("%s = %s must be read: %s", key ? key : "all", value ? value : "(absent)",
                 r->err.text);
}

static void dense_layers_follow_from_step_and_list(void **state)
{
    struct read_out r;

    (void)state;
    accepted(&r, NULL, NULL);
    assert_int_equal(r.shape.n_moe_layers, 3);
    assert_true(r.shape.layer_is_moe[0] && !r.shape.layer_is_moe[1]);
    assert_int_equal(r.shape.dense_width, 384);
    assert_int_equal(read_with(&r, "decoder_sparse_step", "2", "mlp_only_layers", "[]"), 0);
    assert_int_equal(r.shape.n_moe_layers, 2);
    assert_true(!r.shape.layer_is_moe[0] && r.shape.layer_is_moe[1] && !r.shape.layer_is_moe[2]);
    accepted(&r, "mlp_only_layers", "null");
    assert_int_equal(r.shape.n_moe_layers, 4);
    assert_int_equal(read_with(&r, "mlp_only_layers", "[]", "intermediate_size", NULL), 0);
    assert_int_equal(read_with(&r, "num_experts", "0", "num_experts_per_tok", NULL), 0);
    assert_int_equal(r.shape.n_moe_layers, 0);
    accepted(&r, "mlp_only_layers", "[0,1,2,3]");
    assert_int_equal(r.shape.n_experts, 0);
}

static void defaults_are_those_of_the_reference(void **state)
{
    struct read_out r;

    (void)state;
    accepted(&r, "norm_topk_prob", NULL);
    assert_false(r.config.norm_topk_prob);
    assert_true(r.config.rms_eps == 1e-6f);
    assert_false(r.shape.tied_embeddings);
    accepted(&r, "head_dim", NULL);
    assert_int_equal(r.shape.head_dim, 64);
    accepted(&r, "head_dim", "null");
    assert_int_equal(r.shape.head_dim, 64);
    accepted(&r, "tie_word_embeddings", "true");
    assert_true(r.shape.tied_embeddings);
    accepted(&r, "eos_token_id", "[1,2]");
    accepted(&r, "quantization_config", "null");
    assert_false(r.shape.fp8);
}

static void both_generations_of_spelling_are_read(void **state)
{
    struct read_out r;

    (void)state;
    assert_int_equal(read_with(&r, "rope_theta", NULL, "rope_parameters",
                               "{\"rope_theta\":5000000,\"rope_type\":\"default\"}"), 0);
    assert_true(r.config.rope_theta == 5e6 && !r.config.yarn);
    accepted(&r, "rope_parameters", "{\"rope_theta\":1000000.0,\"rope_type\":\"default\"}");
    accepted(&r, "rope_scaling", "{\"type\":\"default\"}");
    assert_int_equal(read_with(&r, "num_experts", NULL, "num_local_experts", "8"), 0);
    assert_int_equal(r.shape.n_experts, 8);
    accepted(&r, "num_local_experts", "8");
    accepted(&r, "quantization_config.scale_fmt", "\"float\"");
    accepted(&r, "quantization_config.dequantize", "false");
}

static void yarn_is_read_with_the_references_defaults(void **state)
{
    struct read_out r;

    (void)state;
    accepted(&r, "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":4.0,"
             "\"original_max_position_embeddings\":64}");
    assert_true(r.config.yarn);
    assert_true(r.config.rope_yarn.factor == 4.0);
    assert_true(r.config.rope_yarn.original_positions == 64.0);
    assert_true(r.config.rope_yarn.beta_fast == 32.0 && r.config.rope_yarn.beta_slow == 1.0);
    assert_true(r.config.rope_yarn.attention_factor <= 0.0 && r.config.rope_yarn.mscale <= 0.0);
    assert_true(r.config.rope_yarn.truncate);
    assert_int_equal(r.shape.max_positions, 256);
    /* The legacy key, and a factor from the two contexts. */
    accepted(&r, "rope_scaling", "{\"type\":\"yarn\",\"original_max_position_embeddings\":128,"
             "\"beta_fast\":16,\"beta_slow\":2,\"attention_factor\":1.25,\"truncate\":false,"
             "\"mscale\":1.0,\"mscale_all_dim\":0.5,\"factor\":null}");
    assert_true(r.config.rope_yarn.factor == 2.0 && !r.config.rope_yarn.truncate);
    assert_true(r.config.rope_yarn.beta_fast == 16.0 && r.config.rope_yarn.beta_slow == 2.0);
    assert_true(r.config.rope_yarn.attention_factor == 1.25);
    assert_true(r.config.rope_yarn.mscale == 1.0 && r.config.rope_yarn.mscale_all_dim == 0.5);
    /* The context is what it stretches to. */
    accepted(&r, "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":4.0,"
             "\"original_max_position_embeddings\":256}");
    assert_int_equal(r.shape.max_positions, 1024);
}

static void every_refusal_names_the_key(void **state)
{
    static const struct {
        const char *key, *value;
        enum err_kind kind;
        const char *says;
    } cases[] = {
        /* dimensions */
        { "vocab_size", NULL, ERR_FORMAT, "'vocab_size' is missing" },
        { "vocab_size", "0", ERR_FORMAT, "'vocab_size' is 0" },
        { "vocab_size", "1e30", ERR_FORMAT, "'vocab_size'" },
        { "hidden_size", "256.5", ERR_FORMAT, "'hidden_size' is 256.5" },
        { "hidden_size", "-256", ERR_FORMAT, "'hidden_size' is -256" },
        { "hidden_size", "\"256\"", ERR_FORMAT, "'hidden_size' is \"256\"" },
        { "hidden_size", "4294967552", ERR_FORMAT, "'hidden_size'" },
        { "num_hidden_layers", "1025", ERR_FORMAT, "'num_hidden_layers'" },
        { "num_hidden_layers", "true", ERR_FORMAT, "'num_hidden_layers' is true" },
        { "num_attention_heads", "5", ERR_FORMAT, "'num_key_value_heads'" },
        { "num_attention_heads", "128", ERR_UNSUPPORTED, "at most 32" },
        { "num_key_value_heads", NULL, ERR_FORMAT, "'num_key_value_heads' is missing" },
        { "head_dim", "127", ERR_FORMAT, "'head_dim' is 127: must be even" },
        { "head_dim", "512", ERR_UNSUPPORTED, "'head_dim' is 512" },
        { "num_experts", NULL, ERR_FORMAT, "'num_experts' is missing" },
        { "num_experts", "2", ERR_FORMAT, "'num_experts_per_tok' is 3: there are 2" },
        { "num_experts_per_tok", "0", ERR_FORMAT, "'num_experts_per_tok' is 0" },
        { "num_local_experts", "9", ERR_FORMAT, "'num_local_experts' is 9" },
        { "moe_intermediate_size", NULL, ERR_FORMAT, "'moe_intermediate_size' is missing" },
        { "intermediate_size", NULL, ERR_FORMAT, "'intermediate_size' is missing" },
        { "decoder_sparse_step", "0", ERR_FORMAT, "'decoder_sparse_step' is 0" },
        { "mlp_only_layers", "[4]", ERR_FORMAT, "'mlp_only_layers' has 4" },
        { "mlp_only_layers", "[\"1\"]", ERR_FORMAT, "'mlp_only_layers'" },
        { "max_position_embeddings", NULL, ERR_FORMAT, "'max_position_embeddings' is missing" },
        { "rms_norm_eps", "\"1e-6\"", ERR_FORMAT, "'rms_norm_eps'" },
        { "norm_topk_prob", "1", ERR_FORMAT, "'norm_topk_prob' is 1" },
        /* what is not built */
        { "model_type", "\"qwen3\"", ERR_UNSUPPORTED, "'model_type'" },
        { "architectures", "[\"Qwen3MoeForSequenceClassification\"]", ERR_UNSUPPORTED,
          "'architectures' is Qwen3MoeForSequenceClassification" },
        { "use_sliding_window", "true", ERR_UNSUPPORTED, "'use_sliding_window' is true" },
        { "attention_bias", "true", ERR_UNSUPPORTED, "'attention_bias' is true" },
        { "qkv_bias", "true", ERR_UNSUPPORTED, "'qkv_bias' is true" },
        { "hidden_act", "\"gelu\"", ERR_UNSUPPORTED, "'hidden_act' is gelu" },
        { "use_qk_norm", "false", ERR_UNSUPPORTED, "'use_qk_norm' is false" },
        { "shared_expert_intermediate_size", "512", ERR_UNSUPPORTED,
          "'shared_expert_intermediate_size' is 512" },
        { "partial_rotary_factor", "0.5", ERR_UNSUPPORTED, "'partial_rotary_factor'" },
        { "some_new_trick", "\"on\"", ERR_UNSUPPORTED, "'some_new_trick' is \"on\"" },
        { "layer_types", "[\"sliding_attention\"]", ERR_UNSUPPORTED, "'layer_types'" },
        /* rotary embedding */
        { "rope_theta", NULL, ERR_FORMAT, "'rope_theta' is missing" },
        { "rope_theta", "0", ERR_FORMAT, "'rope_theta' is 0" },
        { "rope_parameters", "{\"rope_theta\":5}", ERR_FORMAT, "'rope_theta' is 1e+06 here and 5" },
        { "rope_scaling", "{\"rope_type\":\"linear\",\"factor\":2.0}", ERR_UNSUPPORTED,
          "rope_scaling: 'rope_type' is linear" },
        { "rope_scaling", "{\"type\":\"dynamic\",\"factor\":2.0}", ERR_UNSUPPORTED, "dynamic" },
        { "rope_scaling", "{\"factor\":2.0}", ERR_UNSUPPORTED, "rope_scaling: 'factor' is 2.0" },
        { "rope_scaling", "\"yarn\"", ERR_FORMAT, "'rope_scaling' is \"yarn\"" },
        { "rope_scaling", "{\"rope_type\":\"yarn\",\"type\":\"linear\"}", ERR_FORMAT, "keep one" },
        { "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":4.0}", ERR_FORMAT,
          "'original_max_position_embeddings'" },
        { "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":0.5,"
          "\"original_max_position_embeddings\":64}", ERR_FORMAT, "'factor' is 0.5" },
        { "rope_scaling", "{\"rope_type\":\"yarn\",\"original_max_position_embeddings\":512}",
          ERR_FORMAT, "a factor of 1 or more" },
        { "rope_scaling", "{\"rope_type\":\"yarn\",\"factor\":4,\"long_factor\":[1.0],"
          "\"original_max_position_embeddings\":64}", ERR_UNSUPPORTED, "'long_factor'" },
        /* quantization */
        { "quantization_config.quant_method", "\"gptq\"", ERR_UNSUPPORTED,
          "quantization_config: 'quant_method' is gptq" },
        { "quantization_config.quant_method", NULL, ERR_FORMAT, "'quant_method' is missing" },
        { "quantization_config.weight_block_size", "[64,64]", ERR_UNSUPPORTED,
          "'weight_block_size' must be [128, 128]" },
        { "quantization_config.weight_block_size", NULL, ERR_UNSUPPORTED, "'weight_block_size'" },
        { "quantization_config.activation_scheme", "\"static\"", ERR_UNSUPPORTED,
          "'activation_scheme' is static" },
        { "quantization_config.fmt", "\"e5m2\"", ERR_UNSUPPORTED, "'fmt' is e5m2" },
        { "quantization_config.scale_fmt", "\"ue8m0\"", ERR_UNSUPPORTED, "'scale_fmt' is ue8m0" },
        { "quantization_config.modules_to_convert", "[\"x\"]", ERR_UNSUPPORTED,
          "'modules_to_convert'" },
        { "quantization_config", "[]", ERR_FORMAT, "'quantization_config'" },
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct read_out r;

        if (read_with(&r, cases[i].key, cases[i].value, NULL, NULL) == 0)
            fail_msg("%s = %s must be refused", cases[i].key,
                     cases[i].value ? cases[i].value : "(absent)");
        if (!strstr(r.err.text, cases[i].says) || !strstr(r.err.text, "config.json"))
            fail_msg("%s = %s: '%s' should say '%s'", cases[i].key,
                     cases[i].value ? cases[i].value : "(absent)", r.err.text, cases[i].says);
        assert_int_equal(r.err.kind, cases[i].kind);
    }
}

static void both_rope_objects_at_once_are_refused(void **state)
{
    struct read_out r;

    (void)state;
    assert_int_equal(read_with(&r, "rope_scaling", "{\"type\":\"default\"}", "rope_parameters",
                               "{\"rope_type\":\"default\"}"), -1);
    assert_non_null(strstr(r.err.text, "both 'rope_scaling' and 'rope_parameters'"));
}

static void harmless_unknown_keys_are_warned_about_by_name(void **state)
{
    static const char *const values[] = { "false", "0", "0.0", "\"\"", "[]", "{}" };
    struct read_out r;

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        accepted(&r, "some_new_trick", values[i]);
        assert_int_equal(r.warnings.n, 1);
        assert_non_null(strstr(r.warnings.text[0], "'some_new_trick'"));
    }
    accepted(&r, "some_new_trick", "null");
    assert_int_equal(r.warnings.n, 0);
    accepted(&r, "use_qk_norm", "true");
    assert_int_equal(r.warnings.n, 1);
    assert_non_null(strstr(r.warnings.text[0], "'use_qk_norm' is true"));
}

static void more_warnings_than_fit_do_no_harm(void **state)
{
    char text[1024] = "{\"model_type\":\"qwen3_moe\",\"vocab_size\":8,\"hidden_size\":8,"
                      "\"num_hidden_layers\":1,\"num_attention_heads\":1,"
                      "\"num_key_value_heads\":1,\"num_experts\":0,\"intermediate_size\":8,"
                      "\"rope_theta\":10000,\"max_position_embeddings\":8";
    struct config_warnings w;
    struct model_shape s;
    struct json j;
    struct err err = { 0 };

    (void)state;
    for (int i = 0; i < 20; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), ",\"odd%d\":false", i);
    strcat(text, "}");
    assert_int_equal(json_open_buffer(&j, "config.json", text, strlen(text), &err), 0);
    assert_int_equal(qwen3_moe_read_shape(&s, &w, &j, &err), 0);
    assert_int_equal(w.n, 8);
    json_close(&j);
}

static void derived_sums_equal_the_published_totals(void **state)
{
    static const struct {
        const char *name;
        bool fp8;
        uint64_t n_tensors, experts, expert_scales, attention, attention_scales, bf16;
    } want[] = {
        { "Qwen3-30B-A3B-FP8", true, 37491, 28991029248, 3538944, 905969664, 110592, 1270247424 },
        { "Qwen3-235B-A22B", true, 73417, 227096395776, 27721728, 6702497792, 818176, 2589481984 },
        { "Qwen3-Coder-30B-A3B-Instruct", false, 18867, 2 * 28991029248, 0, 2 * 905969664, 0,
          1270247424 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        struct catalog_bytes b;
        struct model_shape s;
        struct json j;
        struct err err = { 0 };

        open_config(&j, want[i].name);
        assert_int_equal(qwen3_moe_read_shape(&s, NULL, &j, &err), 0);
        json_close(&j);
        s.fp8 = want[i].fp8; /* the 235B config here is of the BF16 release */
        assert_int_equal(catalog_derive(&b, &s, qwen3_moe_each_tensor, &err), 0);
        assert_int_equal(b.n_tensors, want[i].n_tensors);
        assert_int_equal(b.weights[ROLE_EXPERT], want[i].experts);
        assert_int_equal(b.scales[ROLE_EXPERT], want[i].expert_scales);
        assert_int_equal(b.weights[ROLE_ATTENTION], want[i].attention);
        assert_int_equal(b.scales[ROLE_ATTENTION], want[i].attention_scales);
        assert_int_equal(b.weights[ROLE_EMBEDDING] + b.weights[ROLE_HEAD] + b.weights[ROLE_NORM] +
                             b.weights[ROLE_ROUTER], want[i].bf16);
        assert_int_equal(b.weights[ROLE_DENSE_MLP], 0);
    }
}

static int stop_at(void *ctx, const struct tensor_want *want, struct err *err)
{
    (void)err;
    return strcmp(want->name, ctx) == 0 ? 7 : 0;
}

static void the_walk_over_tensors_stops_when_told(void **state)
{
    static char names[][64] = {
        "model.embed_tokens.weight", "model.layers.0.mlp.experts.3.up_proj.weight",
        "model.layers.1.mlp.down_proj.weight", "model.norm.weight", "lm_head.weight",
    };
    struct read_out r;
    struct err err;

    (void)state;
    accepted(&r, NULL, NULL);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_int_equal(qwen3_moe_each_tensor(&r.shape, stop_at, names[i], &err), 7);
    accepted(&r, "tie_word_embeddings", "true");
    assert_int_equal(qwen3_moe_each_tensor(&r.shape, stop_at, names[4], &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_released_configs_are_read),
        cmocka_unit_test(dense_layers_follow_from_step_and_list),
        cmocka_unit_test(defaults_are_those_of_the_reference),
        cmocka_unit_test(both_generations_of_spelling_are_read),
        cmocka_unit_test(yarn_is_read_with_the_references_defaults),
        cmocka_unit_test(every_refusal_names_the_key),
        cmocka_unit_test(both_rope_objects_at_once_are_refused),
        cmocka_unit_test(harmless_unknown_keys_are_warned_about_by_name),
        cmocka_unit_test(more_warnings_than_fit_do_no_harm),
        cmocka_unit_test(derived_sums_equal_the_published_totals),
        cmocka_unit_test(the_walk_over_tensors_stops_when_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
