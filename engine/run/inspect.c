/* cz_inspect: what a checkpoint is, from its headers, or from config.json alone. */
#include "colizig.h"

#include "formats/shards.h"
#include "run/headers.h"
#include "store/catalog.h"
#include "util/err.h"

#include <stdio.h>
#include <string.h>

static void take_shape(struct cz_model_info *info, const struct model_headers *h)
{
    const struct model_shape *s = &h->shape;
    const json_t *names = json_object_get(h->config.root, "architectures");
    const char *name = json_string_value(json_array_get(names, 0));

    snprintf(info->model_type, sizeof info->model_type, "%s", s->model_type);
    snprintf(info->architecture, sizeof info->architecture, "%s", name ? name : "");
    info->vocab = s->vocab;
    info->hidden = s->hidden;
    info->n_layers = s->n_layers;
    info->n_moe_layers = s->n_moe_layers;
    info->n_heads = s->n_heads;
    info->n_kv_heads = s->n_kv_heads;
    info->head_dim = s->head_dim;
    info->n_experts = s->n_experts;
    info->experts_per_token = s->experts_per_token;
    info->expert_width = s->expert_width;
    info->dense_width = s->dense_width;
    info->max_positions = s->max_positions;
    info->tied_embeddings = s->tied_embeddings;
    info->fp8 = s->fp8;
    info->kv_bytes_per_token_bf16 = 2 * s->kv_values_per_token;
    _Static_assert(sizeof info->warnings == sizeof h->warnings.text, "one list of warnings");
    memcpy(info->warnings, h->warnings.text, sizeof info->warnings);
    info->n_warnings = h->warnings.n;
}

static void take_bytes(struct cz_model_info *info, const struct model_shape *s,
                       const struct catalog_bytes *b)
{
    uint64_t n_experts = (uint64_t)s->n_moe_layers * s->n_experts;

    info->n_params = b->n_params;
    info->n_tensors = (uint32_t)b->n_tensors;
    info->embedding = b->weights[ROLE_EMBEDDING] + b->scales[ROLE_EMBEDDING];
    info->head = b->weights[ROLE_HEAD] + b->scales[ROLE_HEAD];
    info->norms = b->weights[ROLE_NORM] + b->scales[ROLE_NORM];
    info->attention = b->weights[ROLE_ATTENTION] + b->scales[ROLE_ATTENTION];
    info->router = b->weights[ROLE_ROUTER] + b->scales[ROLE_ROUTER];
    info->dense_mlp = b->weights[ROLE_DENSE_MLP] + b->scales[ROLE_DENSE_MLP];
    info->experts = b->weights[ROLE_EXPERT];
    info->expert_scales = b->scales[ROLE_EXPERT];
    info->expert_bytes = n_experts ? b->weights[ROLE_EXPERT] / n_experts : 0;
    for (int role = 0; role < N_ROLES; role++)
        info->total += b->weights[role] + b->scales[role];
}

static int inspect(struct cz_model_info *info, struct model_headers *h, const char *model_dir,
                   struct err *err)
{
    struct catalog_bytes bytes;

    if (headers_read_config(h, model_dir, err) < 0)
        return -1;
    take_shape(info, h);
    int present = shards_present(model_dir, err);
    if (present < 0)
        return -1;
    if (!present) {
        info->derived = true;
        if (catalog_derive(&bytes, &h->shape, h->family->each_tensor, err) < 0)
            return -1;
    } else {
        if (shards_open(&h->shards, model_dir, err) < 0 ||
            catalog_open(&h->catalog, h->shards, &h->shape, h->family->each_tensor, err) < 0)
            return -1;
        info->n_shards = h->shards->n_files;
        catalog_sum(&bytes, h->catalog);
    }
    take_bytes(info, &h->shape, &bytes);
    return 0;
}

int cz_inspect(struct cz_model_info *out, const char *model_dir, struct err *err)
{
    struct cz_model_info info = { 0 };
    struct model_headers h = { 0 };
    int rc = inspect(&info, &h, model_dir, err);

    headers_close(&h);
    if (rc == 0)
        *out = info;
    return rc;
}
