/* config.json of each family: what is accepted is a shape that planning may trust.
 * Seeds: tests/data/configs tests/data/fuzz/config */
#include "tests/fuzz/fuzz.h"

#include "families/qwen3_moe.h"
#include "families/qwen4_exp.h"
#include "util/err.h"

static void check_sums(const struct model_shape *s, want_each *each)
{
    struct catalog_bytes bytes;
    struct err err = { 0 };

    if ((uint64_t)s->n_moe_layers * s->n_experts <= 256 && s->unused.n_mtp_layers <= 1)
        MUST(catalog_derive(&bytes, s, each, &err) == 0 || err.kind == ERR_FORMAT);
}

static void check_shape(const struct model_shape *s, const struct config_warnings *warnings)
{
    MUST(warnings->n <= 8 && s->n_layers >= 1 && s->n_layers <= MODEL_MAX_LAYERS);
    MUST(s->vocab && s->hidden && s->n_kv_heads && s->n_heads % s->n_kv_heads == 0);
    MUST(s->head_dim >= 1 && s->head_dim <= 256 && s->max_positions);
    MUST(s->n_moe_layers <= s->n_layers && (s->n_moe_layers > 0) == (s->n_experts > 0));
    MUST(!s->n_moe_layers || (s->expert_width && s->experts_per_token &&
                              s->experts_per_token <= s->n_experts));
    MUST(s->n_linear_layers <= s->n_layers);
}

static void check_qwen3(const struct json *j)
{
    struct config_warnings warnings;
    struct qwen3_moe_config config;
    struct model_shape s;
    struct err err = { 0 };

    if (qwen3_moe_read_shape(&s, &warnings, j, &err) < 0) {
        MUST((err.kind == ERR_FORMAT || err.kind == ERR_UNSUPPORTED) && err.text[0]);
        return;
    }
    MUST(qwen3_moe_read_config(&config, j, &err) == 0);
    MUST(config.rope_theta >= 2.0 && config.rms_eps >= 0.0f && config.rms_eps <= 1.0f);
    MUST(!config.yarn || (config.rope_yarn.factor >= 1.0 &&
                          config.rope_yarn.original_positions >= 1.0));
    MUST(s.head_dim % 2 == 0 && (s.n_moe_layers == s.n_layers || s.dense_width));
    check_shape(&s, &warnings);
    check_sums(&s, qwen3_moe_each_tensor);
}

static void check_qwen4(const struct json *j)
{
    struct config_warnings warnings;
    struct qwen4_exp_config config;
    struct model_shape s;
    struct err err = { 0 };

    if (qwen4_exp_read_shape(&s, &warnings, j, &err) < 0) {
        MUST((err.kind == ERR_FORMAT || err.kind == ERR_UNSUPPORTED) && err.text[0]);
        return;
    }
    MUST(qwen4_exp_read_config(&config, j, NULL, &err) == 0);
    MUST(config.rope_theta >= 2.0 && config.rms_eps > 0.0f && config.rms_eps <= 1.0f);
    MUST(config.rotary_dim >= 2 && config.rotary_dim <= s.head_dim && config.rotary_dim % 2 == 0);
    MUST(s.n_linear_layers == s.n_layers ||
         (s.index.ratio && s.index.budget % s.index.ratio == 0 &&
          s.index.head_dim >= config.rotary_dim));
    MUST(s.linear.n_value_heads % s.linear.n_key_heads == 0 && s.linear.kernel >= 2);
    MUST(s.streams.n >= 2 && s.streams.rank && s.shared_width);
    for (uint32_t i = 0; i < s.ngram.n_tables; i++)
        MUST(s.layer_is_linear[s.ngram.layers[i]] && s.ngram.rows[i] % s.ngram.n_parts == 0);
    check_shape(&s, &warnings);
    check_sums(&s, qwen4_exp_each_tensor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json j;
    struct err err = { 0 };

    if (json_open_buffer(&j, "config.json", data, size, &err) < 0) {
        MUST(err.kind == ERR_FORMAT && err.text[0]);
        return 0;
    }
    check_qwen3(&j);
    check_qwen4(&j);
    json_close(&j);
    return 0;
}
