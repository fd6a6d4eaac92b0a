/* inspect: what a checkpoint is, from headers alone. */
#include "daemon/ctl/ctl.h"

#include "daemon/ctl/ctl_show.h"
#include "daemon/ctl/ctl_talk.h"
#include "daemon/host/engine_json.h"
#include "util/err.h"
#include "util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- a directory ---- */

static void show_experts(const json_t *m)
{
    char each[16];

    if (ctl_count(m, "n_experts"))
        printf("  experts     %" PRIu64 " a layer, %" PRIu64 " a token, width %" PRIu64
               ", %s each\n", ctl_count(m, "n_experts"), ctl_count(m, "experts_per_token"),
               ctl_count(m, "expert_width"),
               size_text(each, sizeof each, ctl_count(m, "expert_bytes")));
}

static void show_classes(const json_t *m)
{
    static const struct {
        const char *name, *key;
    } classes[] = {
        { "token embedding", "embedding_bytes" },
        { "attention", "attention_bytes" },
        { "linear attention", "linear_attention_bytes" },
        { "residual mixing", "residual_mixing_bytes" },
        { "n-gram projections", "ngram_projections_bytes" },
        { "norms", "norms_bytes" },
        { "router", "router_bytes" },
        { "shared experts", "shared_experts_bytes" },
        { "dense MLP", "dense_mlp_bytes" },
        { "head", "head_bytes" },
        { "experts", "experts_bytes" },
        { "expert scales", "expert_scales_bytes" },
        { "n-gram table", "table_bytes" },
        { "constants", "constants_bytes" },
        { "MTP, not used", "mtp_bytes" },
        { "vision, not used", "vision_bytes" },
    };
    uint64_t total = ctl_count(m, "total_bytes");

    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        if (ctl_count(m, classes[i].key))
            ctl_print_bytes(classes[i].name, ctl_count(m, classes[i].key), total, NULL);
    ctl_print_bytes("total", total, total, NULL);
}

void ctl_show_model(const json_t *m)
{
    char architecture[72], type[40], kv[16], fixed[16], plain[176];
    const json_t *warning;
    double n_params = ctl_number(m, "n_params");
    size_t i;

    bool billions = n_params >= 1e9;
    printf("%s (%s)%s, %.2f %s parameters%s\n",
           ctl_word(architecture, sizeof architecture, m, "architecture"),
           ctl_word(type, sizeof type, m, "model_type"),
           json_is_true(json_object_get(m, "fp8")) ? ", FP8 in blocks of 128 x 128" : "",
           n_params / (billions ? 1e9 : 1e6), billions ? "billion" : "million",
           json_is_true(json_object_get(m, "tied_embeddings")) ? ", head tied to the embedding"
                                                               : "");
    printf("  layers      %" PRIu64 ", of them %" PRIu64 " with experts\n",
           ctl_count(m, "n_layers"), ctl_count(m, "n_moe_layers"));
    show_experts(m);
    printf("  attention   %" PRIu64 " heads, %" PRIu64 " KV heads, head_dim %" PRIu64
           ", hidden %" PRIu64 "\n", ctl_count(m, "n_heads"), ctl_count(m, "n_kv_heads"),
           ctl_count(m, "head_dim"), ctl_count(m, "hidden"));
    printf("  vocabulary  %" PRIu64 " tokens, up to %" PRIu64 " positions\n",
           ctl_count(m, "vocab"), ctl_count(m, "max_positions"));
    printf("  KV cache    %s a token in bfloat16\n",
           size_text(kv, sizeof kv, ctl_count(m, "kv_bytes_per_token_bf16")));
    if (ctl_count(m, "fixed_state_bytes"))
        printf("  state       %s a sequence, and the indexer's %s a token in bfloat16\n",
               size_text(fixed, sizeof fixed, ctl_count(m, "fixed_state_bytes")),
               size_text(kv, sizeof kv, 2 * ctl_count(m, "index_values_per_token")));
    if (json_is_true(json_object_get(m, "derived")))
        printf("  files       no shards here: sizes are derived from config.json\n\n");
    else
        printf("  files       %" PRIu64 " shards, %" PRIu64 " tensors\n\n",
               ctl_count(m, "n_shards"), ctl_count(m, "n_tensors"));
    show_classes(m);
    json_array_foreach (json_object_get(m, "warnings"), i, warning)
        printf("warning: %s\n",
               ctl_plain(plain, sizeof plain,
                         json_is_string(warning) ? json_string_value(warning) : ""));
}

static int inspect_model(const struct ctl_args *args, const char *dir)
{
    struct cz_model_info info;
    struct cz_model_parts parts;
    struct err err;

    if (cz_inspect(&info, dir, &err) < 0 || cz_inspect_parts(&parts, dir, &err) < 0)
        return ctl_fail(args, &err);
    json_t *object = engine_json_info(&info), *more = engine_json_parts(&parts);
    json_object_update(object, more);
    json_decref(more);
    if (ctl_has(args, "--json")) {
        ctl_print_json(object);
    } else {
        ctl_show_model(object);
        json_decref(object);
    }
    return EXIT_FINE;
}

/* ---- one file ---- */

static void print_file_json(const struct cz_file_info *f)
{
    char plain[sizeof f->largest];
    json_t *dtypes = json_object();

    for (uint32_t i = 0; i < f->n_dtypes; i++)
        json_object_set_new(dtypes, f->dtypes[i].name,
                            json_pack("{s:I, s:I}", "tensors",
                                      (json_int_t)f->dtypes[i].n_tensors, "bytes",
                                      (json_int_t)f->dtypes[i].bytes));
    ctl_print_json(json_pack("{s:I, s:I, s:I, s:I, s:o, s:s, s:I}", "file_bytes",
                             (json_int_t)f->file_size, "data_bytes", (json_int_t)f->data_size,
                             "tensors", (json_int_t)f->n_tensors, "values",
                             (json_int_t)f->n_values, "dtypes", dtypes, "largest",
                             ctl_plain(plain, sizeof plain, f->largest), "largest_bytes",
                             (json_int_t)f->largest_bytes));
}

static void print_file(const struct cz_file_info *f)
{
    char plain[sizeof f->largest], text[16], grouped[CTL_BYTES_TEXT];

    printf("a valid safetensors file: %u tensors, %s values, %s\n", f->n_tensors,
           ctl_grouped(grouped, f->n_values), size_text(text, sizeof text, f->file_size));
    for (uint32_t i = 0; i < f->n_dtypes; i++)
        ctl_print_bytes(f->dtypes[i].name, f->dtypes[i].bytes, f->data_size, NULL);
    if (f->largest[0])
        printf("largest: %s, %s\n", ctl_plain(plain, sizeof plain, f->largest),
               size_text(text, sizeof text, f->largest_bytes));
}

static int inspect_file(const struct ctl_args *args, const char *path)
{
    struct cz_file_info info;
    struct err err;

    if (cz_inspect_file(&info, path, &err) < 0)
        return ctl_fail(args, &err);
    if (ctl_has(args, "--json"))
        print_file_json(&info);
    else
        print_file(&info);
    return EXIT_FINE;
}

static int run(const struct ctl_args *args)
{
    struct stat about;
    struct err err;

    if (args->n_operands == 0)
        return ctl_inspect_of_daemon(args);
    const char *path = args->operands[0];
    if (stat(path, &about) < 0) {
        /* Links in circles are a broken cache, anything else is a wrong operand. */
        err_set(&err, errno == ELOOP ? ERR_FORMAT : ERR_INPUT, "%s: %s", path, strerror(errno));
        return ctl_fail(args, &err);
    }
    return S_ISDIR(about.st_mode) ? inspect_model(args, path) : inspect_file(args, path);
}

static const struct ctl_flag flags[] = { CTL_SOCKET_FLAG, { 0 } };

const struct ctl_command ctl_inspect = {
    .name = "inspect",
    .operands = "[DIR|FILE.safetensors]",
    .summary = "what it is, from headers alone",
    .example = "A directory with nothing but config.json is enough: sizes are then derived.\n"
               "Without one: the model of the running daemon.",
    .flags = flags,
    .max_operands = 1,
    .run = run,
};
