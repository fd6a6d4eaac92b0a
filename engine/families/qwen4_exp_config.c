/* What config.json of a Qwen4-Exp model may say, beside its shape. Keys are an allow-list: those
 * read here, those that the reference class ignores, and nothing else. */
#include "families/qwen4_exp.h"

#include "blocks/ngram.h"
#include "families/config_keys.h"
#include "families/qwen4_exp_config.h"
#include "formats/json.h"
#include "util/err.h"
#include "util/shown.h"

#include <inttypes.h>
#include <string.h>

static const char family_name[] = "qwen4_exp";

#define N_OF(array) (sizeof(array) / sizeof(array)[0])

static const char *const text_keys[] = {
    /* read, here or for the shape */
    "architectures", "model_type", "vocab_size", "hidden_size", "num_hidden_layers",
    "layer_types", "full_attention_interval", "num_attention_heads", "num_key_value_heads",
    "head_dim", "attention_bias", "rms_norm_eps", "hidden_act", "output_gate_type",
    "rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor",
    "max_position_embeddings", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
    "shared_expert_intermediate_size", "norm_topk_prob", "linear_num_key_heads",
    "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
    "linear_conv_kernel_dim", "mamba_ssm_dtype", "hc_count", "hc_lowrank", "ple_layer_ids",
    "ple_embed_dim", "ple_conv_kernel_size", "ngram_size", "heads_per_ngram",
    "ngram_vocab_size_base", "make_ngram_vocab_size_divisible_by", "split_ngram_parts", "seed",
    "eos_token_id", "indexer_n_heads", "indexer_kv_heads", "indexer_head_dim", "indexer_budget",
    "indexer_compress_ratio", "tie_word_embeddings", "mtp_num_hidden_layers",
    "quantization_config",
    /* of no effect on a forward pass of the text class */
    "attention_dropout", "mtp", "mtp_use_dedicated_embeddings", "output_router_logits",
    "router_aux_loss_coef",
};

static const char *const root_keys[] = {
    "architectures", "model_type", "text_config", "vision_config", "quantization_config",
    "tie_word_embeddings",
    /* of vision, which is left alone */
    "image_token_id", "language_model_only", "video_token_id", "vision_end_token_id",
    "vision_start_token_id",
};

static bool is_type(const struct json *j, const char *type)
{
    const char *is = json_string_value(json_object_get(j->root, "model_type"));

    return is && strcmp(is, type) == 0;
}

int qwen4_exp_text_config(struct json *out, const struct json *config, struct err *err)
{
    const char *root_type = json_has(config, "text_config") ? "qwen4_exp" : "qwen4_exp_text";

    if (json_child(out, config, "text_config", err) < 0)
        return -1;
    if (!out->root)
        *out = *config;
    if (!is_type(config, root_type))
        return err_set(err, ERR_UNSUPPORTED, "%s: 'model_type' is not %s, %s 'text_config'",
                       config->name, root_type, out->root == config->root ? "without" : "beside");
    if (!is_type(out, "qwen4_exp_text"))
        return err_set(err, ERR_UNSUPPORTED, "%s: 'model_type' is not qwen4_exp_text", out->name);
    return 0;
}

/* ---- rotary embedding ---- */

static int read_rotary(struct qwen4_exp_config *c, const struct json *tc, double part,
                       struct err *err)
{
    uint32_t head_dim, index_dim;

    if (json_u32_or(&head_dim, tc, "head_dim", 256, 1, QWEN4_MAX_WIDTH, err) < 0 ||
        json_u32_or(&index_dim, tc, "indexer_head_dim", QWEN4_MAX_WIDTH, 1, QWEN4_MAX_WIDTH,
                    err) < 0)
        return -1;
    c->rotary_dim = (uint32_t)(head_dim * part);
    if (c->rotary_dim < 2 || c->rotary_dim % 2)
        return err_set(err, ERR_FORMAT, "%s: 'partial_rotary_factor' %g of 'head_dim' %u makes %u "
                       "rotated values: must be even, for a rotation by pairs", tc->name, part,
                       head_dim, c->rotary_dim);
    if (c->rotary_dim > index_dim)
        return err_set(err, ERR_FORMAT, "%s: 'indexer_head_dim' is %u, but %u values are rotated "
                       "('partial_rotary_factor' of 'head_dim')", tc->name, index_dim,
                       c->rotary_dim);
    return 0;
}

/* A number that may stand in the object and beside it: the inner one counts, as it does in the
 * reference, and a contradiction is refused. 0: in neither. */
static int read_twice(double *out, const struct json *tc, const struct json *rope,
                      const char *key, double min, double max, struct err *err)
{
    double outer, inner;

    if (json_f64_or(&outer, tc, key, 0.0, min, max, err) < 0 ||
        json_f64_or(&inner, rope, key, outer, min, max, err) < 0)
        return -1;
    if (json_has(tc, key) && (inner < outer || inner > outer))
        return err_set(err, ERR_FORMAT, "%s: '%s' is %g here and %g inside: keep one", tc->name,
                       key, outer, inner);
    *out = inner;
    return 0;
}

static int read_rope(struct qwen4_exp_config *c, const struct json *tc, struct err *err)
{
    static const char *const keys[] = {
        "rope_type", "type", "rope_theta", "partial_rotary_factor", "mrope_section",
        "mrope_interleaved", /* of images; alike for every position of a text */
    };
    struct json old, now, rope;
    double part;

    if (json_child(&old, tc, "rope_scaling", err) < 0 ||
        json_child(&now, tc, "rope_parameters", err) < 0)
        return -1;
    if (old.root && now.root)
        return err_set(err, ERR_FORMAT, "%s: both 'rope_scaling' and 'rope_parameters': keep one",
                       tc->name);
    rope = old.root ? old : now;
    if (rope.root && (config_must_be(&rope, "rope_type", "default", err) < 0 ||
                      config_must_be(&rope, "type", "default", err) < 0 ||
                      config_keys_check(&rope, keys, N_OF(keys), "plain rotary embedding", NULL,
                                        err) < 0))
        return -1;
    if (read_twice(&c->rope_theta, tc, &rope, "rope_theta", 2.0, 1e15, err) < 0 ||
        read_twice(&part, tc, &rope, "partial_rotary_factor", 1e-6, 1.0, err) < 0)
        return -1;
    if (!(c->rope_theta > 0.0))
        return err_set(err, ERR_FORMAT, "%s: 'rope_theta' is missing, here and in "
                       "'rope_parameters': no value can be assumed (the release uses 10000000)",
                       tc->name);
    return read_rotary(c, tc, part > 0.0 ? part : 1.0, err);
}

/* ---- n-grams ---- */

/* A list ends texts with any of its ids; hashes are made with the first. */
static int read_eos(struct qwen4_exp_config *c, const struct json *tc, struct err *err)
{
    uint32_t ids[64], n;

    if (json_u32_list(ids, &n, N_OF(ids), tc, "eos_token_id", err) < 0)
        return -1;
    if (n == 0)
        return err_set(err, ERR_FORMAT, "%s: 'eos_token_id' is missing: n-gram embeddings "
                       "('ple_layer_ids') need it", tc->name);
    c->ngram_eos = ids[0];
    return 0;
}

static int read_ngrams(struct qwen4_exp_config *c, const struct json *tc, struct err *err)
{
    const json_t *seed = json_object_get(tc->root, "seed");

    if (json_array_size(json_object_get(tc->root, "ple_layer_ids")) == 0)
        return 0;
    if (json_u32_or(&c->ngram_size, tc, "ngram_size", 3, 2, NGRAM_MAX_SIZE, err) < 0 ||
        json_u32_or(&c->heads_per_ngram, tc, "heads_per_ngram", 8, 1, NGRAM_MAX_HEADS, err) < 0 ||
        json_u32_or(&c->ngram_base, tc, "ngram_vocab_size_base", 20000000, 1, UINT32_MAX,
                    err) < 0 ||
        json_u32_or(&c->ngram_divisor, tc, "make_ngram_vocab_size_divisible_by", 128, 1, 1 << 30,
                    err) < 0)
        return -1;
    c->ngram_seed = 1234;
    if (seed && !json_is_null(seed)) {
        if (!json_is_integer(seed))
            return err_set(err, ERR_FORMAT, "%s: 'seed' is no integer", tc->name);
        c->ngram_seed = (uint64_t)json_integer_value(seed); /* hashes wrap at 64 bits */
    }
    return read_eos(c, tc, err);
}

int qwen4_exp_ngram(struct ngram *out, const struct qwen4_exp_config *c, uint32_t vocab,
                    uint32_t table, struct err *err)
{
    const struct ngram_shape shape = {
        .vocab = vocab, .size = c->ngram_size, .heads_per_order = c->heads_per_ngram,
        .base = c->ngram_base, .divisor = c->ngram_divisor, .seed = c->ngram_seed,
        .index = table, .end = c->ngram_eos,
    };

    return ngram_open(out, &shape, err);
}

/* ---- all of it ---- */

static int check_keys(const struct json *config, const struct json *tc,
                      struct config_warnings *warnings, struct err *err)
{
    static const char *const classes[] = {
        "Qwen4ExpForConditionalGeneration", "Qwen4ExpForCausalLM",
    };

    if (config_must_be_class(config, classes, N_OF(classes), err) < 0 ||
        config_keys_check_model(tc, text_keys, N_OF(text_keys), family_name, warnings, err) < 0)
        return -1;
    if (tc->root == config->root)
        return 0;
    if (json_has(tc, "quantization_config"))
        return err_set(err, ERR_FORMAT, "%s: 'quantization_config' belongs beside 'text_config'",
                       tc->name);
    if (config_keys_check_model(config, root_keys, N_OF(root_keys), family_name, warnings,
                                err) < 0 ||
        config_must_be_off(config, "tie_word_embeddings", err) < 0)
        return -1;
    return 0;
}

/* Absent, Gated DeltaNet's output gate is hidden_act, which must be silu. */
static int read_gate(bool *silu, const struct json *tc, struct err *err)
{
    const char *gate;

    if (json_string_or_null(&gate, tc, "output_gate_type", err) < 0)
        return -1;
    *silu = !gate || strcmp(gate, "silu") == 0;
    return *silu || strcmp(gate, "sigmoid") == 0
               ? 0
               : config_unsupported(tc, "output_gate_type", gate, "sigmoid or silu", err);
}

int qwen4_exp_read_config(struct qwen4_exp_config *out, const struct json *config,
                          struct config_warnings *warnings, struct err *err)
{
    struct qwen4_exp_config c = { 0 };
    struct json tc;
    double eps;

    if (qwen4_exp_text_config(&tc, config, err) < 0 ||
        check_keys(config, &tc, warnings, err) < 0 ||
        config_must_be_off(&tc, "tie_word_embeddings", err) < 0 ||
        config_must_be_off(&tc, "attention_bias", err) < 0 ||
        config_must_be(&tc, "hidden_act", "silu", err) < 0 ||
        config_must_be(&tc, "mamba_ssm_dtype", "float32", err) < 0 ||
        json_bool_or(&c.norm_topk_prob, &tc, "norm_topk_prob", true, err) < 0 ||
        json_f64_or(&eps, &tc, "rms_norm_eps", 1e-6, 1e-30, 1.0, err) < 0 ||
        json_u32_or(&c.max_positions, &tc, "max_position_embeddings", 32768, 1, 1 << 30,
                    err) < 0 ||
        read_gate(&c.gate_is_silu, &tc, err) < 0 || read_rope(&c, &tc, err) < 0 ||
        read_ngrams(&c, &tc, err) < 0)
        return -1;
    c.rms_eps = (float)eps;
    *out = c;
    return 0;
}
