/* Parts of reading a Qwen3-MoE config.json that the shape needs as well. */
#ifndef FAMILIES_QWEN3_MOE_CONFIG_H
#define FAMILIES_QWEN3_MOE_CONFIG_H

struct config_warnings;
struct err;
struct json;

/* Unknown keys, and switches that are set to what is not built. */
int qwen3_moe_check_keys(const struct json *j, struct config_warnings *warnings,
                         struct err *err);

#endif
