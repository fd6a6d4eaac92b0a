/* inspect: what a checkpoint is, from headers alone. */
#include "daemon/ctl.h"

#include "daemon/engine_json.h"
#include "util/err.h"
#include "util/size.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- a directory ---- */

struct byte_class {
    const char *name;
    uint64_t bytes;
};

enum { N_CLASSES = 8 };

static void classes_of(struct byte_class out[N_CLASSES], const struct cz_model_info *m)
{
    const struct byte_class all[N_CLASSES] = {
        { "token embedding", m->embedding },
        { "attention", m->attention },
        { "norms", m->norms },
        { "router", m->router },
        { "dense MLP", m->dense_mlp },
        { "head", m->head },
        { "experts", m->experts },
        { "expert scales", m->expert_scales },
    };

    memcpy(out, all, sizeof all);
}

static void print_model(const struct cz_model_info *m)
{
    struct byte_class classes[N_CLASSES];
    char text[16], plain[sizeof m->warnings[0]];

    bool billions = m->n_params >= 1000000000;
    printf("%s (%s)%s, %.2f %s parameters%s\n", m->architecture, m->model_type,
           m->fp8 ? ", FP8 in blocks of 128 x 128" : "",
           (double)m->n_params / (billions ? 1e9 : 1e6), billions ? "billion" : "million",
           m->tied_embeddings ? ", head tied to the embedding" : "");
    printf("  layers      %u, of them %u with experts\n", m->n_layers, m->n_moe_layers);
    if (m->n_experts)
        printf("  experts     %u a layer, %u a token, width %u, %s each\n", m->n_experts,
               m->experts_per_token, m->expert_width,
               size_text(text, sizeof text, m->expert_bytes));
    printf("  attention   %u heads, %u KV heads, head_dim %u, hidden %u\n", m->n_heads,
           m->n_kv_heads, m->head_dim, m->hidden);
    printf("  vocabulary  %u tokens, up to %u positions\n", m->vocab, m->max_positions);
    printf("  KV cache    %s a token in bfloat16\n",
           size_text(text, sizeof text, m->kv_bytes_per_token_bf16));
    if (m->derived)
        printf("  files       no shards here: sizes are derived from config.json\n\n");
    else
        printf("  files       %u shards, %u tensors\n\n", m->n_shards, m->n_tensors);

    classes_of(classes, m);
    for (size_t i = 0; i < N_CLASSES; i++)
        if (classes[i].bytes)
            ctl_print_bytes(classes[i].name, classes[i].bytes, m->total, NULL);
    ctl_print_bytes("total", m->total, m->total, NULL);
    for (uint32_t i = 0; i < m->n_warnings; i++)
        printf("warning: %s\n", ctl_plain(plain, sizeof plain, m->warnings[i]));
}

static int inspect_model(const struct ctl_args *args, const char *dir)
{
    struct cz_model_info info;
    struct err err;

    if (cz_inspect(&info, dir, &err) < 0)
        return ctl_fail(args, &err);
    if (ctl_has(args, "--json"))
        ctl_print_json(engine_json_info(&info));
    else
        print_model(&info);
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
    const char *path = args->operands[0];
    struct stat about;
    struct err err;

    if (stat(path, &about) < 0) {
        err_set(&err, ERR_INPUT, "%s: %s", path, strerror(errno));
        return ctl_fail(args, &err);
    }
    return S_ISDIR(about.st_mode) ? inspect_model(args, path) : inspect_file(args, path);
}

const struct ctl_command ctl_inspect = {
    .name = "inspect",
    .operands = "DIR|FILE.safetensors",
    .summary = "what it is, from headers alone",
    .example = "A directory with nothing but config.json is enough: sizes are then derived.",
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};
