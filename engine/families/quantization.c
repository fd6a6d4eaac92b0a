#include "families/quantization.h"

#include "families/config_keys.h"
#include "formats/json.h"
#include "kernels/weights.h"
#include "util/err.h"
#include "util/shown.h"

#include <string.h>

static bool is_block_size(const json_t *v)
{
    return json_array_size(v) == 2 &&
           json_integer_value(json_array_get(v, 0)) == SCALE_BLOCK &&
           json_integer_value(json_array_get(v, 1)) == SCALE_BLOCK;
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);

    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

/* Tables that are FP8 with one scale: names of modules, or ends of them. */
static int read_tables(bool *fp8_table, const struct json *q, struct err *err)
{
    static const char key[] = "modules_to_convert";
    const json_t *list = json_object_get(q->root, key), *name;
    size_t i;

    *fp8_table = false;
    if (!list || json_is_null(list))
        return 0;
    if (!json_is_array(list))
        return err_set(err, ERR_FORMAT, "%s: '%s' must be a list of names", q->name, key);
    json_array_foreach(list, i, name) {
        if (!json_is_string(name) || !ends_with(json_string_value(name), "ngram_embedding"))
            return err_set(err, ERR_UNSUPPORTED, "%s: '%s' has %s: only 'ngram_embedding' is built",
                           q->name, key,
                           json_is_string(name) ? shown_name(json_string_value(name)).text
                                                : "what is no name");
        *fp8_table = true;
    }
    return 0;
}

int quantization_read(bool *fp8, const struct json *j, bool *fp8_table,
                      struct config_warnings *warnings, struct err *err)
{
    /* Which modules are kept in BF16 the tensors say themselves; dequantize and expert_dtype
     * tell the reference how to run. The last only where there may be a table. */
    static const char *const known[] = {
        "quant_method", "weight_block_size", "activation_scheme", "fmt", "scale_fmt",
        "expert_dtype", "modules_to_not_convert", "ignored_layers", "dequantize",
        "weight_per_tensor", "act_per_tensor", "modules_to_convert",
    };
    size_t n_known = sizeof known / sizeof known[0] - (fp8_table ? 0 : 1);
    struct json q;
    const char *method;

    *fp8 = false;
    if (fp8_table)
        *fp8_table = false;
    if (json_child(&q, j, "quantization_config", err) < 0)
        return -1;
    if (!q.root)
        return 0;
    if (json_string_or_null(&method, &q, "quant_method", err) < 0)
        return -1;
    if (!method)
        return err_set(err, ERR_FORMAT, "%s: 'quant_method' is missing", q.name);
    if (config_must_be(&q, "quant_method", "fp8", err) < 0 ||
        config_must_be(&q, "fmt", "e4m3", err) < 0 ||
        config_must_be(&q, "activation_scheme", "dynamic", err) < 0 ||
        config_must_be(&q, "scale_fmt", "float", err) < 0 ||
        config_must_be(&q, "expert_dtype", "fp8", err) < 0 ||
        config_must_be_off(&q, "weight_per_tensor", err) < 0 ||
        config_must_be_off(&q, "act_per_tensor", err) < 0 ||
        config_keys_check(&q, known, n_known, "block FP8", warnings, err) < 0)
        return -1;
    if (!is_block_size(json_object_get(q.root, "weight_block_size")))
        return err_set(err, ERR_UNSUPPORTED, "%s: 'weight_block_size' must be [128, 128]; no "
                       "other is built", q.name);
    if (fp8_table && read_tables(fp8_table, &q, err) < 0)
        return -1;
    *fp8 = true;
    return 0;
}
