/* config.json of the one family: what is accepted is a shape that planning may trust.
 * Seeds: tests/data/configs tests/data/fuzz/config */
#include "tests/fuzz/fuzz.h"

#include "families/qwen3_moe.h"
#include "util/err.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config_warnings warnings;
    struct qwen3_moe_config config;
    struct catalog_bytes bytes;
    struct model_shape s;
    struct json j;
    struct err err = { 0 };

    if (json_open_buffer(&j, "config.json", data, size, &err) < 0) {
        MUST(err.kind == ERR_FORMAT && err.text[0]);
        return 0;
    }
    if (qwen3_moe_read_shape(&s, &warnings, &j, &err) < 0) {
        MUST((err.kind == ERR_FORMAT || err.kind == ERR_UNSUPPORTED) && err.text[0]);
    } else {
        MUST(qwen3_moe_read_config(&config, &j, &err) == 0);
        MUST(config.rope_theta >= 2.0 && config.rms_eps >= 0.0f && config.rms_eps <= 1.0f);
        MUST(!config.yarn || (config.rope_yarn.factor >= 1.0 &&
                              config.rope_yarn.original_positions >= 1.0));
        MUST(warnings.n <= 8 && s.n_layers >= 1 && s.n_layers <= MODEL_MAX_LAYERS);
        MUST(s.vocab && s.hidden && s.n_kv_heads && s.n_heads % s.n_kv_heads == 0);
        MUST(s.head_dim >= 2 && s.head_dim <= 256 && s.head_dim % 2 == 0 && s.max_positions);
        MUST(s.n_moe_layers <= s.n_layers && (s.n_moe_layers > 0) == (s.n_experts > 0));
        MUST(!s.n_moe_layers || (s.expert_width && s.experts_per_token &&
                                 s.experts_per_token <= s.n_experts));
        MUST(s.n_moe_layers == s.n_layers || s.dense_width);
        if ((uint64_t)s.n_moe_layers * s.n_experts <= 256)
            MUST(catalog_derive(&bytes, &s, qwen3_moe_each_tensor, &err) == 0 ||
                 err.kind == ERR_FORMAT);
    }
    json_close(&j);
    return 0;
}
