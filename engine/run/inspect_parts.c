/* cz_inspect_parts: the bytes of a checkpoint by how they are used. */
#include "colizig.h"

#include "formats/shards.h"
#include "run/headers.h"
#include "store/catalog.h"
#include "util/err.h"

static uint64_t bytes_of(const struct catalog_bytes *b, enum tensor_role role)
{
    return b->weights[role] + b->scales[role];
}

static void take_files(struct cz_model_parts *p, const struct catalog_bytes *b)
{
    for (int role = 0; role < N_ROLES; role++) {
        if (role == ROLE_EXPERT || role_stays_on_disk(role))
            continue;
        p->dense += bytes_of(b, role);
        p->n_dense_tensors += (uint32_t)b->tensors[role];
    }
    p->routed = bytes_of(b, ROLE_EXPERT);
    p->table = bytes_of(b, ROLE_TABLE);
    p->constants = bytes_of(b, ROLE_CONSTANT);
    p->linear_attention = bytes_of(b, ROLE_LINEAR);
    p->residual_mixing = bytes_of(b, ROLE_STREAMS);
    p->ngram_projections = bytes_of(b, ROLE_NGRAM);
    p->shared_experts = bytes_of(b, ROLE_SHARED);
    p->mtp = bytes_of(b, ROLE_MTP);
    p->vision = bytes_of(b, ROLE_VISION);
    p->n_routed_tensors = (uint32_t)b->tensors[ROLE_EXPERT];
    p->n_table_tensors = (uint32_t)b->tensors[ROLE_TABLE];
    p->n_mtp_tensors = (uint32_t)b->tensors[ROLE_MTP];
    p->n_vision_tensors = (uint32_t)b->tensors[ROLE_VISION];
}

static void take_state(struct cz_model_parts *p, const struct model_shape *s)
{
    uint64_t index = (uint64_t)shape_kv_layers(s) * s->index.head_dim;

    for (uint32_t i = 0; i < s->ngram.n_tables; i++)
        p->table_rows += s->ngram.rows[i];
    p->table_rows_per_token = (uint64_t)s->ngram.n_tables * s->ngram.n_heads;
    p->fixed_state = s->recurrent_floats * sizeof(float);
    p->kv_values_per_token = s->kv_values_per_token;
    p->index_values_per_token = index;
    p->block_values = index;
    p->block_tokens = s->index.ratio;
}

static int sum(struct catalog_bytes *bytes, struct model_headers *h, const char *model_dir,
               struct err *err)
{
    int present = shards_present(model_dir, err);

    if (present < 0)
        return -1;
    if (!present)
        return catalog_derive(bytes, &h->shape, h->family->each_tensor, err);
    if (shards_open(&h->shards, model_dir, err) < 0 ||
        catalog_open(&h->catalog, h->shards, &h->shape, h->family->each_tensor, err) < 0)
        return -1;
    catalog_sum(bytes, h->catalog);
    return 0;
}

int cz_inspect_parts(struct cz_model_parts *out, const char *model_dir, struct err *err)
{
    struct cz_model_parts parts = { 0 };
    struct model_headers h = { 0 };
    struct catalog_bytes bytes;
    int rc = headers_read_config(&h, model_dir, err);

    if (rc == 0)
        rc = sum(&bytes, &h, model_dir, err);
    if (rc == 0) {
        take_files(&parts, &bytes);
        take_state(&parts, &h.shape);
        *out = parts;
    }
    headers_close(&h);
    return rc;
}
