/* What is said of a checkpoint from its headers, and the defaults of generation_config.json. */
#include "checkpoint_fixture.h"

#include "colizig.h"
#include "formats/json.h"
#include "run/generation_config.h"

static void copy_config(const struct checkpoint_dir *d, const char *model, const char *name)
{
    static char text[65536];
    char path[256];

    snprintf(path, sizeof path, "tests/data/configs/%s/%s", model, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    dir_text(d, name, text);
}

static void a_config_alone_gives_derived_sizes_and_says_so(void **state)
{
    struct checkpoint_dir d;
    struct cz_model_info info;
    struct err err = { 0 };

    (void)state;
    dir_init(&d);
    copy_config(&d, "Qwen3-30B-A3B-FP8", "config.json");
    if (cz_inspect(&info, d.path, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(info.derived && info.fp8 && !info.tied_embeddings);
    assert_string_equal(info.model_type, "qwen3_moe");
    assert_string_equal(info.architecture, "Qwen3MoeForCausalLM");
    assert_int_equal(info.n_shards, 0);
    assert_int_equal(info.n_tensors, 37491);
    assert_int_equal(info.experts, 28991029248);
    assert_int_equal(info.expert_scales, 3538944);
    assert_int_equal(info.attention, 905969664 + 110592);
    assert_int_equal(info.embedding + info.head + info.router + info.norms, 1270247424);
    assert_int_equal(info.total, 31170895872);
    assert_int_equal(info.expert_bytes, 4718592);
    assert_int_equal(info.kv_bytes_per_token_bf16, 98304);
    assert_int_equal(info.n_warnings, 0);
    dir_remove(d.path);
}

static void shards_are_looked_at_when_they_are_there(void **state)
{
    struct checkpoint_dir d;
    struct cz_model_info info;
    struct shard_text s = { 0 };
    struct err err = { 0 };
    static const struct {
        const char *name;
        uint32_t n_dims;
        uint64_t rows, cols;
    } tensors[] = {
        { "model.embed_tokens.weight", 2, 32, 8 },
        { "model.layers.0.input_layernorm.weight", 1, 8, 0 },
        { "model.layers.0.self_attn.q_norm.weight", 1, 4, 0 },
        { "model.layers.0.self_attn.k_norm.weight", 1, 4, 0 },
        { "model.layers.0.self_attn.q_proj.weight", 2, 8, 8 },
        { "model.layers.0.self_attn.k_proj.weight", 2, 4, 8 },
        { "model.layers.0.self_attn.v_proj.weight", 2, 4, 8 },
        { "model.layers.0.self_attn.o_proj.weight", 2, 8, 8 },
        { "model.layers.0.post_attention_layernorm.weight", 1, 8, 0 },
        { "model.layers.0.mlp.gate.weight", 2, 1, 8 },
        { "model.layers.0.mlp.experts.0.gate_proj.weight", 2, 6, 8 },
        { "model.layers.0.mlp.experts.0.up_proj.weight", 2, 6, 8 },
        { "model.layers.0.mlp.experts.0.down_proj.weight", 2, 8, 6 },
        { "model.norm.weight", 1, 8, 0 },
    };

    (void)state;
    dir_init(&d);
    dir_text(&d, "config.json",
             "{\"model_type\":\"qwen3_moe\",\"vocab_size\":32,\"hidden_size\":8,"
             "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
             "\"num_experts\":1,\"num_experts_per_tok\":1,\"moe_intermediate_size\":6,"
             "\"rope_theta\":10000,\"max_position_embeddings\":64,\"tie_word_embeddings\":true,"
             "\"qkv_bias\":false}");
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        shard_add(&s, tensors[i].name, "BF16", 2, tensors[i].n_dims, tensors[i].rows,
                  tensors[i].cols);
    uint64_t bytes = s.data;
    shard_write(&s, &d, "model.safetensors", 0);
    if (cz_inspect(&info, d.path, &err) < 0)
        fail_msg("%s", err.text);
    assert_false(info.derived);
    assert_int_equal(info.n_shards, 1);
    assert_int_equal(info.n_tensors, sizeof tensors / sizeof tensors[0]);
    assert_int_equal(info.total, bytes);
    assert_int_equal(info.head, 0);
    assert_int_equal(info.expert_bytes, 3 * 6 * 8 * 2);
    assert_int_equal(info.n_params * 2, bytes);
    assert_int_equal(info.n_warnings, 1);
    assert_non_null(strstr(info.warnings[0], "'qkv_bias'"));

    shard_one(&d, "model.safetensors", "model.norm.weight");
    assert_int_equal(cz_inspect(&info, d.path, &err), -1);
    assert_int_equal(err.kind, ERR_FORMAT);
    dir_remove(d.path);
}

static void what_is_no_model_is_refused_with_the_reason(void **state)
{
    struct checkpoint_dir d;
    struct cz_model_info info;
    struct err err = { 0 };

    (void)state;
    assert_int_equal(cz_inspect(&info, "", &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    dir_init(&d);
    assert_int_equal(cz_inspect(&info, d.path, &err), -1);
    says(&err, "config.json");
    dir_text(&d, "config.json", "{\"model_type\":\"llama\"}");
    assert_int_equal(cz_inspect(&info, d.path, &err), -1);
    assert_int_equal(err.kind, ERR_UNSUPPORTED);
    says(&err, "model_type 'llama' is not built; there is: qwen3_moe, qwen4_exp");
    dir_remove(d.path);
}

/* ---- generation config ---- */

static int read_generation(const struct checkpoint_dir *d, const char *config,
                           struct cz_sampling *s, uint32_t *ids, uint32_t *n, struct err *err)
{
    struct json j;

    assert_int_equal(json_open_buffer(&j, "config.json", config, strlen(config), err), 0);
    int rc = generation_config_read(s, ids, n, d->path, &j, err);
    json_close(&j);
    return rc;
}

static void released_defaults_and_both_stop_ids_are_read(void **state)
{
    struct checkpoint_dir d;
    struct cz_sampling s;
    struct err err = { 0 };
    uint32_t ids[GENERATION_STOP_IDS], n;

    (void)state;
    dir_init(&d);
    copy_config(&d, "Qwen3-Coder-30B-A3B-Instruct", "generation_config.json");
    if (read_generation(&d, "{\"eos_token_id\":151645}", &s, ids, &n, &err) < 0)
        fail_msg("%s", err.text);
    assert_true(s.temperature == 0.7f && s.top_p == 0.8f && s.repetition_penalty == 1.05f);
    assert_int_equal(s.top_k, 20);
    assert_true(s.min_p == 0.0f && s.presence_penalty == 0.0f && s.frequency_penalty == 0.0f);
    assert_int_equal(n, 2); /* each once */
    assert_int_equal(ids[0], 151645);
    assert_int_equal(ids[1], 151643);
    dir_remove(d.path);
}

static void without_the_file_sampling_is_plain(void **state)
{
    struct checkpoint_dir d;
    struct cz_sampling s;
    struct err err = { 0 };
    uint32_t ids[GENERATION_STOP_IDS], n;

    (void)state;
    dir_init(&d);
    assert_int_equal(read_generation(&d, "{\"eos_token_id\":[5,6,5]}", &s, ids, &n, &err), 0);
    assert_true(s.temperature == 1.0f && s.top_p == 1.0f && s.repetition_penalty == 1.0f);
    assert_int_equal(s.top_k, 0);
    assert_true(n == 2 && ids[0] == 5 && ids[1] == 6);
    assert_int_equal(read_generation(&d, "{}", &s, ids, &n, &err), 0);
    assert_int_equal(n, 0);
    dir_text(&d, "generation_config.json", "{\"do_sample\":false,\"temperature\":0.6}");
    assert_int_equal(read_generation(&d, "{}", &s, ids, &n, &err), 0);
    assert_true(s.temperature == 0.0f);
    dir_remove(d.path);
}

static void a_wrong_generation_config_names_file_and_key(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "{\"temperature\":-1}", "generation_config.json: 'temperature' is -1" },
        { "{\"top_p\":1.5}", "'top_p' is 1.5" },
        { "{\"top_k\":2.5}", "'top_k' is 2.5" },
        { "{\"repetition_penalty\":0}", "'repetition_penalty' is 0" },
        { "{\"do_sample\":\"yes\"}", "'do_sample'" },
        { "{\"eos_token_id\":\"<eos>\"}", "'eos_token_id'" },
        { "{\"eos_token_id\":[0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15]}", "more than 16 stop ids" },
        { "{", "generation_config.json: line 1" },
    };
    struct checkpoint_dir d;

    (void)state;
    dir_init(&d);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct cz_sampling s;
        struct err err = { 0 };
        uint32_t ids[GENERATION_STOP_IDS], n;

        dir_text(&d, "generation_config.json", cases[i].text);
        assert_int_equal(read_generation(&d, "{\"eos_token_id\":99}", &s, ids, &n, &err), -1);
        assert_int_equal(err.kind, ERR_FORMAT);
        says(&err, cases[i].says);
    }
    unlink(dir_file(&d, "generation_config.json"));
    assert_int_equal(symlink("nowhere", dir_file(&d, "generation_config.json")), 0);
    struct cz_sampling s;
    struct err err = { 0 };
    uint32_t ids[GENERATION_STOP_IDS], n;
    assert_int_equal(read_generation(&d, "{}", &s, ids, &n, &err), -1);
    says(&err, "generation_config.json");
    dir_remove(d.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_config_alone_gives_derived_sizes_and_says_so),
        cmocka_unit_test(shards_are_looked_at_when_they_are_there),
        cmocka_unit_test(what_is_no_model_is_refused_with_the_reason),
        cmocka_unit_test(released_defaults_and_both_stop_ids_are_read),
        cmocka_unit_test(without_the_file_sampling_is_plain),
        cmocka_unit_test(a_wrong_generation_config_names_file_and_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
