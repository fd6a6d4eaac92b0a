/* What config.json of a Qwen3-MoE model may say. Keys are an allow-list: those read here,
 * those that the reference class ignores, and nothing else. */
#include "families/config_keys.h"
#include "families/qwen3_moe.h"
#include "families/qwen3_moe_config.h"
#include "formats/json.h"
#include "util/err.h"
#include "util/shown.h"

#include <math.h>
#include <string.h>

static const char family_name[] = "qwen3_moe";

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

static const char *const known_keys[] = {
    /* read, here or for the shape */
    "architectures", "model_type", "vocab_size", "hidden_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "head_dim", "moe_intermediate_size",
    "intermediate_size", "num_experts", "num_local_experts", "num_experts_per_tok",
    "norm_topk_prob", "decoder_sparse_step", "mlp_only_layers", "rms_norm_eps", "rope_theta",
    "rope_scaling", "rope_parameters", "partial_rotary_factor", "max_position_embeddings",
    "use_sliding_window", "tie_word_embeddings", "attention_bias", "hidden_act",
    "quantization_config", "use_qk_norm", "eos_token_id",
    /* of no effect on a forward pass of this class */
    "attention_dropout", "max_window_layers", "output_router_logits", "router_aux_loss_coef",
    "sliding_window",
};

static int must_be_whole_rotary(const struct json *j, struct err *err)
{
    double part;

    if (json_f64_or(&part, j, "partial_rotary_factor", 1.0, 0.0, 1.0, err) < 0)
        return -1;
    return part < 1.0 ? config_unsupported(j, "partial_rotary_factor", "below 1", "1", err) : 0;
}

/* Some releases say it; the class always normalises queries and keys. */
static int check_qk_norm(const struct json *j, struct config_warnings *warnings,
                         struct err *err)
{
    bool on;

    if (json_bool_or(&on, j, "use_qk_norm", true, err) < 0)
        return -1;
    if (!on)
        return config_unsupported(j, "use_qk_norm", "false", "true", err);
    if (json_has(j, "use_qk_norm"))
        config_warn(warnings, "'use_qk_norm' is true: always so for %s, ignored", family_name);
    return 0;
}

/* ---- rotary embedding ---- */

static int read_yarn(struct rope_yarn *y, const struct json *rope, uint32_t max_positions,
                     struct err *err)
{
    static const char original[] = "original_max_position_embeddings";
    uint32_t positions;

    if (!json_has(rope, original)) /* versions of the reference disagree on what it would be */
        return err_set(err, ERR_FORMAT, "%s: yarn needs '%s', the context of pretraining",
                       rope->name, original);
    if (json_u32(&positions, rope, original, 1, 1 << 30, err) < 0 ||
        json_f64_or(&y->factor, rope, "factor", max_positions / (double)positions, 1.0, 4096.0,
                    err) < 0 ||
        json_f64_or(&y->beta_fast, rope, "beta_fast", 0.0, 0.0, 1e6, err) < 0 ||
        json_f64_or(&y->beta_slow, rope, "beta_slow", 0.0, 0.0, 1e6, err) < 0 ||
        json_f64_or(&y->attention_factor, rope, "attention_factor", 0.0, 0.0, 1e6, err) < 0 ||
        json_f64_or(&y->mscale, rope, "mscale", 0.0, 0.0, 1e6, err) < 0 ||
        json_f64_or(&y->mscale_all_dim, rope, "mscale_all_dim", 0.0, 0.0, 1e6, err) < 0 ||
        json_bool_or(&y->truncate, rope, "truncate", true, err) < 0)
        return -1;
    /* The reference takes zero for "not given", and these are its defaults. */
    if (!(y->beta_fast > 0.0))
        y->beta_fast = 32.0;
    if (!(y->beta_slow > 0.0))
        y->beta_slow = 1.0;
    if (y->factor < 1.0 || y->beta_fast < y->beta_slow)
        return err_set(err, ERR_FORMAT, "%s: yarn needs a factor of 1 or more (it is %g) and "
                       "beta_fast above beta_slow (%g, %g)", rope->name, y->factor, y->beta_fast,
                       y->beta_slow);
    y->original_positions = positions;
    return 0;
}

static int read_rope_object(struct qwen3_moe_config *c, const struct json *rope,
                            uint32_t max_positions, struct err *err)
{
    static const char *const plain_keys[] = {
        "rope_type", "type", "rope_theta", "partial_rotary_factor"
    };
    static const char *const yarn_keys[] = {
        "rope_type", "type", "rope_theta", "partial_rotary_factor", "factor",
        "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor",
        "mscale", "mscale_all_dim", "truncate",
    };
    const char *type, *legacy;

    if (json_string_or_null(&type, rope, "rope_type", err) < 0 ||
        json_string_or_null(&legacy, rope, "type", err) < 0)
        return -1;
    if (type && legacy && strcmp(type, legacy) != 0)
        return err_set(err, ERR_FORMAT, "%s: 'rope_type' is %s and 'type' is %s: keep one",
                       rope->name, shown_name(type).text, shown_name(legacy).text);
    type = type ? type : legacy ? legacy : "default";
    if (must_be_whole_rotary(rope, err) < 0)
        return -1;
    if (strcmp(type, "default") == 0)
        return config_keys_check(rope, plain_keys, N_OF(plain_keys), "plain rotary embedding",
                                 NULL, err);
    if (strcmp(type, "yarn") != 0)
        return config_unsupported(rope, "rope_type", type, "default or yarn", err);
    c->yarn = true;
    if (config_keys_check(rope, yarn_keys, N_OF(yarn_keys), "yarn", NULL, err) < 0)
        return -1;
    return read_yarn(&c->rope_yarn, rope, max_positions, err);
}

/* transformers 4 writes rope_theta and rope_scaling, transformers 5 rope_parameters. */
static int read_rope(struct qwen3_moe_config *c, const struct json *j, uint32_t max_positions,
                     struct err *err)
{
    enum { MIN_THETA = 2 }; /* YaRN divides by its logarithm */
    static const double max_theta = 1e15;
    struct json old, now, rope;
    double inner = 0.0;

    if (json_child(&old, j, "rope_scaling", err) < 0 ||
        json_child(&now, j, "rope_parameters", err) < 0)
        return -1;
    if (old.root && now.root)
        return err_set(err, ERR_FORMAT, "%s: both 'rope_scaling' and 'rope_parameters': keep one",
                       j->name);
    rope = now.root ? now : old;
    if (must_be_whole_rotary(j, err) < 0 ||
        json_f64_or(&c->rope_theta, j, "rope_theta", 0.0, MIN_THETA, max_theta, err) < 0)
        return -1;
    if (rope.root) {
        if (read_rope_object(c, &rope, max_positions, err) < 0 ||
            json_f64_or(&inner, &rope, "rope_theta", c->rope_theta, MIN_THETA, max_theta, err) < 0)
            return -1;
        if (json_has(j, "rope_theta") && (inner < c->rope_theta || inner > c->rope_theta))
            return err_set(err, ERR_FORMAT, "%s: 'rope_theta' is %g here and %g inside: keep one",
                           j->name, c->rope_theta, inner);
        c->rope_theta = inner;
    }
    if (c->rope_theta > 0.0)
        return 0;
    return err_set(err, ERR_FORMAT, "%s: 'rope_theta' is missing, here and in 'rope_parameters': "
                   "no value can be assumed (releases use 1000000 to 10000000)", j->name);
}

/* ---- all of it ---- */

int qwen3_moe_check_keys(const struct json *j, struct config_warnings *warnings,
                         struct err *err)
{
    static const char *const classes[] = { "Qwen3MoeForCausalLM" };

    if (config_keys_check_model(j, known_keys, N_OF(known_keys), family_name, warnings, err) < 0 ||
        config_must_be_class(j, classes, N_OF(classes), err) < 0 || check_qk_norm(j, warnings, err) < 0 ||
        config_must_be_off(j, "use_sliding_window", err) < 0 ||
        config_must_be_off(j, "attention_bias", err) < 0 || config_must_be(j, "hidden_act", "silu", err) < 0)
        return -1;
    return 0;
}

int qwen3_moe_read_config(struct qwen3_moe_config *out, const struct json *config,
                          struct err *err)
{
    struct qwen3_moe_config c = { 0 };
    uint32_t max_positions;
    double eps;

    /* Defaults of the reference: norm_topk_prob false, rms_norm_eps 1e-6. */
    if (qwen3_moe_check_keys(config, NULL, err) < 0 ||
        json_bool_or(&c.norm_topk_prob, config, "norm_topk_prob", false, err) < 0 ||
        json_f64_or(&eps, config, "rms_norm_eps", 1e-6, 0.0, 1.0, err) < 0 ||
        json_u32(&max_positions, config, "max_position_embeddings", 1, 1 << 30, err) < 0 ||
        read_rope(&c, config, max_positions, err) < 0)
        return -1;
    c.rms_eps = (float)eps;
    *out = c;
    return 0;
}
