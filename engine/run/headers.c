#include "run/headers.h"

#include "run/sched.h"
#include "store/catalog.h"
#include "store/expert_map.h"
#include "store/loader.h"
#include "store/machine.h"
#include "store/plan.h"
#include "store/resident.h"
#include "store/row_store.h"
#include "formats/file.h"
#include "formats/shards.h"
#include "io/io.h"
#include "text/tokenizer.h"
#include "util/err.h"
#include "util/pool.h"
#include "util/size.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The largest config.json known is 6 KiB; one of a megabyte is not a config. */
enum { CONFIG_MAX_SIZE = 1 << 20 };

static int path_in(char *buf, size_t cap, const char *dir, const char *name, struct err *err)
{
    int n = snprintf(buf, cap, "%s/%s", dir, name);

    if (n < 0 || (size_t)n >= cap)
        return err_set(err, ERR_INPUT, "the path of the model is too long: '%.200s...'", dir);
    return 0;
}

int headers_read_config(struct model_headers *out, const char *model_dir, struct err *err)
{
    struct model_headers *h = out;
    char path[4096];
    const char *type;

    if (!model_dir || !*model_dir)
        return err_set(err, ERR_INPUT, "no model directory was given");
    if (path_in(path, sizeof path, model_dir, "config.json", err) < 0)
        return -1;
    if (access(path, F_OK) < 0)
        return err_set(err, errno == ENOENT || file_leads_nowhere(errno) ? ERR_FORMAT : ERR_IO,
                       "%s: %s; a model is a directory with config.json, *.safetensors and "
                       "tokenizer.json", path, strerror(errno));
    if (json_open(&h->config, path, CONFIG_MAX_SIZE, err) < 0)
        return -1;
    if (json_string_or_null(&type, &h->config, "model_type", err) < 0)
        return -1;
    if (!type)
        return err_set(err, ERR_FORMAT, "%s: 'model_type' is missing", path);
    h->family = family_find(type);
    if (!h->family)
        return err_set(err, ERR_UNSUPPORTED, "%s: model_type '%.64s' is not built; there is: %s",
                       path, type, family_names());
    return h->family->read_shape(&h->shape, &h->warnings, &h->config, err);
}

static int find_embedding(struct model_headers *h, struct err *err)
{
    for (uint32_t i = 0; i < h->catalog->n_items; i++) {
        if (h->catalog->items[i].want.role == ROLE_EMBEDDING) {
            h->embedding = h->catalog->items[i].tensor;
            return 0;
        }
    }
    return err_set(err, ERR_FORMAT, "the checkpoint has no token embedding");
}

static int measure_tokenizer(struct model_headers *h, const char *dir, struct err *err)
{
    char path[4096];

    if (path_in(path, sizeof path, dir, "tokenizer.json", err) < 0)
        return -1;
    if (access(path, F_OK) < 0)
        return 0; /* whoever needs text will say so; ids need no tokenizer */
    return tokenizer_plan_size(&h->tokenizer_bytes, &h->tokenizer, path, err);
}

static int read_headers(struct model_headers *h, const char *model_dir, bool shards_needed,
                        struct err *err)
{
    if (headers_read_config(h, model_dir, err) < 0 || measure_tokenizer(h, model_dir, err) < 0)
        return -1;
    if (!shards_needed) {
        int present = shards_present(model_dir, err);
        if (present <= 0)
            return present;
    }
    if (shards_open(&h->shards, model_dir, err) < 0 ||
        catalog_open(&h->catalog, h->shards, &h->shape, h->family->each_tensor, err) < 0)
        return -1;
    if (h->shape.n_moe_layers && expert_map_open(&h->map, h->catalog, err) < 0)
        return -1;
    return find_embedding(h, err);
}

int headers_open(struct model_headers *out, const char *model_dir, struct err *err)
{
    *out = (struct model_headers){ 0 };
    if (read_headers(out, model_dir, true, err) == 0)
        return 0;
    headers_close(out);
    return -1;
}

int headers_open_to_plan(struct model_headers *out, const char *model_dir, struct err *err)
{
    *out = (struct model_headers){ 0 };
    if (read_headers(out, model_dir, false, err) == 0)
        return 0;
    headers_close(out);
    return -1;
}

void headers_close(struct model_headers *h)
{
    expert_map_close(h->map);
    catalog_close(h->catalog);
    shards_close(h->shards);
    if (h->config.root)
        json_close(&h->config);
    *h = (struct model_headers){ 0 };
}

static uint64_t sum_of(const uint64_t by_role[N_ROLES])
{
    uint64_t sum = 0;

    for (int role = 0; role < N_ROLES; role++)
        if (!role_stays_on_disk(role) && !size_add(&sum, sum, by_role[role]))
            return UINT64_MAX;
    return sum;
}

static void sizes_from_files(struct plan_input *in, const struct model_headers *h, bool f8_dense)
{
    uint64_t other[N_ROLES];

    in->slot_size = h->map ? h->map->slot_size : 0;
    for (uint32_t i = 0; i < h->catalog->n_items; i++)
        if (h->catalog->items[i].want.role == ROLE_TABLE)
            in->table_dtype = h->catalog->items[i].tensor->dtype;
    resident_size(in->resident, h->catalog, f8_dense);
    resident_size(other, h->catalog, !f8_dense);
    in->other_resident = sum_of(other);
    in->strip_bytes = resident_strip_size(h->catalog, f8_dense);
    if (!h->shape.tied_embeddings)
        in->row_store_bytes = row_store_size(h->embedding, 0, ROW_STORE_DEPTH);
}

/* What FP8 saves of the BF16 that a config speaks of. */
struct saving {
    bool fp8; /* what may be FP8 in the files is */
    uint64_t by_role[N_ROLES], strip_bytes;
};

static int count_saving(void *ctx, const struct tensor_want *want, struct err *err)
{
    struct saving *s = ctx;

    (void)err; /* sizes were found to fit */
    if ((s->fp8 && want->may_be_fp8) || !resident_quantises(want, DTYPE_BF16))
        return 0;
    uint64_t rows = want->dims[0], cols = want->dims[1], now = 2 * rows * cols;
    uint64_t then = resident_f8_size(rows, cols), strip = loader_strip_size(rows, cols, DTYPE_BF16);
    s->by_role[want->role] += now - then; /* wraps, and back again, where scales weigh more */
    s->strip_bytes = strip > s->strip_bytes ? strip : s->strip_bytes;
    return 0;
}

/* As the files would have it: vectors and scales are held as F32, twice their size on disk;
 * an expert's three parts start anywhere and are read in whole blocks. */
static int sizes_from_config(struct plan_input *in, const struct model_headers *h, bool f8_dense,
                             struct err *err)
{
    struct saving saving = { .fp8 = h->shape.fp8 };
    const struct model_shape *s = &h->shape;
    uint64_t n_experts = (uint64_t)s->n_moe_layers * s->n_experts;
    struct tensor table = { .name = "embedding", .dtype = DTYPE_BF16, .n_dims = 2,
                            .dims = { s->vocab, s->hidden } };
    struct catalog_bytes b;

    in->table_dtype = s->ngram.fp8 ? DTYPE_F8_E4M3 : DTYPE_BF16;
    if (catalog_derive(&b, s, h->family->each_tensor, err) < 0)
        return -1;
    for (int role = 0; role < N_ROLES; role++)
        in->resident[role] = b.weights[role] + 2 * b.scales[role];
    in->resident[ROLE_NORM] = 2 * b.weights[ROLE_NORM];
    in->resident[ROLE_EXPERT] = 2 * b.scales[ROLE_EXPERT];
    if (!s->tied_embeddings) {
        in->resident[ROLE_EMBEDDING] = 0;
        in->row_store_bytes = row_store_size(&table, 0, ROW_STORE_DEPTH);
    }
    if (h->family->each_tensor(s, count_saving, &saving, err) != 0)
        return -1;
    uint64_t other[N_ROLES];
    for (int role = 0; role < N_ROLES; role++)
        other[role] = in->resident[role] - saving.by_role[role];
    in->other_resident = sum_of(f8_dense ? in->resident : other);
    if (f8_dense) {
        memcpy(in->resident, other, sizeof other);
        in->strip_bytes = saving.strip_bytes;
    }
    if (n_experts)
        in->slot_size = size_up(b.weights[ROLE_EXPERT] / n_experts, IO_ALIGN) + N_PARTS * IO_ALIGN;
    return 0;
}

static int plan_input_of(struct plan_input *out, const struct model_headers *h,
                         const struct cz_options *opt, struct err *err)
{
    *out = (struct plan_input){
        .options = opt,
        .shape = &h->shape,
        .tokenizer_bytes = h->tokenizer_bytes,
        .family = h->family,
        .run_size = sched_size,
    };
    if (!h->catalog)
        return sizes_from_config(out, h, opt->dense == CZ_DENSE_FP8, err);
    sizes_from_files(out, h, opt->dense == CZ_DENSE_FP8);
    return 0;
}

int plan_for(struct cz_plan *out, const struct model_headers *h, const struct cz_options *opt,
             struct err *err)
{
    struct machine_memory memory;
    struct plan_input in;

    if (machine_memory(&memory, "", err) < 0 || plan_input_of(&in, h, opt, err) < 0)
        return -1;
    if (!size_add(&in.available, memory.available, opt->held))
        in.available = UINT64_MAX;
    in.available_source = memory.source;
    in.auto_threads = pool_auto_threads();
    int rc = plan_make(out, &in, err);
    out->derived = h->catalog == NULL;
    return rc;
}

int plan_again(struct cz_plan *out, const struct model_headers *h, const struct cz_options *opt,
               const struct cz_plan *now, uint64_t ram, uint32_t most_slots, uint64_t available,
               struct err *err)
{
    struct plan_input in;

    if (plan_input_of(&in, h, opt, err) < 0)
        return -1;
    in.available = available;
    in.auto_threads = now->threads;
    return plan_refit(out, &in, now, ram, most_slots, err);
}
