#include "store/resident.h"

#include "store/loader.h"
#include "util/err.h"
#include "util/hash.h"
#include "util/region.h"
#include "util/size.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A cache line, and what the widest vector loads like best. */
enum { PLACE_ALIGN = 64 };

struct placed {
    const struct catalog_item *item; /* borrowed */
    char *data;
    float *scales; /* NULL unless FP8 */
    bool quantised; /* it was not FP8 in the file */
};

struct resident {
    struct region region;
    struct placed *placed; /* owned; [n_placed] */
    uint32_t n_placed;
    struct hash names;     /* to placed; its keys are the items' names */
    float *expert_scales;  /* in region; NULL: experts carry none */
    uint32_t scales_per_expert;
};

/* ---- layout: one walk, for sizes and for places ---- */

static bool is_kept(const struct catalog *c, const struct catalog_item *item)
{
    if (item->want.role == ROLE_EMBEDDING)
        return c->shape->tied_embeddings;
    return !role_stays_on_disk(item->want.role);
}

/* Or the kernels of a convolution, [channels, 1, taps]. */
static bool is_vector(const struct catalog_item *item)
{
    return item->want.n_dims != 2;
}

static uint64_t n_values(const struct catalog_item *item)
{
    return item->tensor->size / dtype_size(item->tensor->dtype);
}

static uint64_t f32_size(const struct tensor *t)
{
    return t->size / dtype_size(t->dtype) * sizeof(float);
}

bool resident_quantises(const struct tensor_want *want, enum dtype dtype)
{
    if (want->n_dims != 2 || (dtype != DTYPE_BF16 && dtype != DTYPE_F16 && dtype != DTYPE_F32))
        return false;
    switch (want->role) {
    case ROLE_HEAD:
    case ROLE_ATTENTION:
    case ROLE_LINEAR:
    case ROLE_STREAMS:
    case ROLE_NGRAM:
    case ROLE_SHARED:
    case ROLE_DENSE_MLP:
        return true;
    default:
        return false;
    }
}

static uint64_t f8_scales_size(uint64_t rows, uint64_t cols)
{
    return size_div_up(rows, SCALE_BLOCK) * size_div_up(cols, SCALE_BLOCK) * sizeof(float);
}

uint64_t resident_f8_size(uint64_t rows, uint64_t cols)
{
    return rows * cols + f8_scales_size(rows, cols);
}

static bool is_quantised(const struct catalog_item *item, bool f8_dense)
{
    return f8_dense && resident_quantises(&item->want, item->tensor->dtype);
}

static uint64_t data_size(const struct catalog_item *item, bool f8_dense)
{
    uint64_t size = is_vector(item)                ? f32_size(item->tensor)
                    : is_quantised(item, f8_dense) ? n_values(item)
                                                   : item->tensor->size;

    return size_up(size, PLACE_ALIGN);
}

static uint64_t scales_size(const struct catalog_item *item, bool f8_dense)
{
    uint64_t size = 0;

    if (item->scale)
        size = f32_size(item->scale);
    else if (is_quantised(item, f8_dense))
        size = f8_scales_size(item->want.dims[0], item->want.dims[1]);
    return size_up(size, PLACE_ALIGN);
}

/* Floats of one expert's scales; 0 when the first expert has none. */
static uint64_t floats_per_expert(const struct catalog *c)
{
    uint64_t n = 0;

    if (c->shape->n_moe_layers == 0 || c->shape->n_experts == 0)
        return 0;
    for (uint32_t p = 0; p < N_PARTS; p++)
        if (c->expert_scales[p])
            n += f32_size(c->expert_scales[p]) / sizeof(float);
    return n;
}

uint64_t resident_size(uint64_t by_role[N_ROLES], const struct catalog *c, bool f8_dense)
{
    uint64_t sum = 0;

    memset(by_role, 0, N_ROLES * sizeof *by_role);
    for (uint32_t i = 0; i < c->n_items; i++)
        if (is_kept(c, &c->items[i]))
            by_role[c->items[i].want.role] += data_size(&c->items[i], f8_dense) +
                                              scales_size(&c->items[i], f8_dense);
    by_role[ROLE_EXPERT] = size_up((uint64_t)c->shape->n_moe_layers * c->shape->n_experts *
                                       floats_per_expert(c) * sizeof(float),
                                   PLACE_ALIGN);
    for (uint32_t role = 0; role < N_ROLES; role++)
        sum += by_role[role];
    return region_size(sum, REGION_HUGE);
}

uint64_t resident_strip_size(const struct catalog *c, bool f8_dense)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < c->n_items; i++) {
        const struct catalog_item *item = &c->items[i];
        if (!is_kept(c, item) || !is_quantised(item, f8_dense))
            continue;
        uint64_t size = loader_strip_size(item->want.dims[0], item->want.dims[1],
                                          item->tensor->dtype);
        most = size > most ? size : most;
    }
    return most;
}

/* ---- opening ---- */

struct loads {
    struct load *list; /* owned */
    uint32_t n;
};

static struct load *add_load(struct loads *l, const struct tensor *t, void *to, bool to_f32)
{
    l->list[l->n] = (struct load){ .tensor = t, .to = to, .to_f32 = to_f32 };
    return &l->list[l->n++];
}

static int place_items(struct resident *r, struct loads *l, const struct catalog *c, bool f8_dense,
                       char **at, struct err *err)
{
    for (uint32_t i = 0; i < c->n_items; i++) {
        const struct catalog_item *item = &c->items[i];
        struct placed *p = &r->placed[r->n_placed];

        if (!is_kept(c, item))
            continue;
        if (!is_vector(item) && (item->want.dims[0] > UINT32_MAX || item->want.dims[1] > UINT32_MAX))
            return err_set(err, ERR_UNSUPPORTED, "tensor '%s': sides beyond 32 bits",
                           item->want.name);
        if (hash_add(&r->names, item->want.name, r->n_placed, NULL, err) < 0)
            return -1;
        *p = (struct placed){ .item = item, .data = *at,
                              .quantised = is_quantised(item, f8_dense) };
        struct load *load = add_load(l, item->tensor, *at, is_vector(item));
        load->add_one = item->want.centred;
        *at += data_size(item, f8_dense);
        if (item->scale || p->quantised)
            p->scales = (float *)(void *)*at;
        if (item->scale)
            add_load(l, item->scale, *at, true);
        if (p->quantised)
            load->scales = p->scales;
        *at += scales_size(item, f8_dense);
        r->n_placed++;
    }
    return 0;
}

static int place_expert_scales(struct resident *r, struct loads *l, const struct catalog *c,
                               char **at, struct err *err)
{
    size_t n = (size_t)c->shape->n_moe_layers * c->shape->n_experts * N_PARTS;
    uint64_t floats = floats_per_expert(c);
    float *to = (float *)(void *)*at;

    if (floats == 0)
        return 0;
    if (floats > UINT32_MAX)
        return err_set(err, ERR_UNSUPPORTED, "%" PRIu64 " scales in one expert", floats);
    r->expert_scales = to;
    r->scales_per_expert = (uint32_t)floats;
    for (size_t i = 0; i < n; i++) {
        const struct tensor *scale = c->expert_scales[i], *first = c->expert_scales[i % N_PARTS];

        if (!scale != !first || (scale && f32_size(scale) != f32_size(first)))
            return err_set(err, ERR_UNSUPPORTED,
                           "tensor '%s': its scales differ from the first expert's",
                           c->expert_tensors[i]->name);
        if (!scale)
            continue;
        add_load(l, scale, to, true);
        to += f32_size(scale) / sizeof(float);
    }
    *at = (char *)to;
    return 0;
}

int resident_open(struct resident **out, const struct catalog *c, bool f8_dense,
                  const struct load_means *means, struct err *err)
{
    uint64_t by_role[N_ROLES], size = resident_size(by_role, c, f8_dense);
    size_t n_expert_scales = (size_t)c->shape->n_moe_layers * c->shape->n_experts * N_PARTS;
    struct loads loads = { 0 };
    struct resident *r = calloc(1, sizeof *r);

    if (!r)
        return err_set(err, ERR_NOMEM, "resident weights");
    r->placed = calloc((size_t)c->n_items + 1, sizeof *r->placed);
    loads.list = calloc((size_t)c->n_items * 2 + n_expert_scales + 1, sizeof *loads.list);
    if (!r->placed || !loads.list) {
        err_set(err, ERR_NOMEM, "places of %u resident tensors", c->n_items);
        goto fail;
    }
    if (hash_open(&r->names, c->n_items, err) < 0 ||
        region_open(&r->region, size, REGION_HUGE, err) < 0) {
        err_within(err, "resident weights");
        goto fail;
    }
    char *at = r->region.base;
    if (place_items(r, &loads, c, f8_dense, &at, err) < 0 ||
        place_expert_scales(r, &loads, c, &at, err) < 0)
        goto fail;
    assert(at <= r->region.base + r->region.size);
    if (loader_run(loads.list, loads.n, means, err) < 0)
        goto fail;
    free(loads.list);
    *out = r;
    return 0;

fail:
    free(loads.list);
    resident_close(r);
    return -1;
}

void resident_close(struct resident *r)
{
    if (!r)
        return;
    hash_close(&r->names);
    region_close(&r->region);
    free(r->placed);
    free(r);
}

/* ---- looking up ---- */

static const struct placed *find(const struct resident *r, const char *name, struct err *err)
{
    uint32_t i;

    if (hash_find(&r->names, name, &i))
        return &r->placed[i];
    err_set(err, ERR_FORMAT, "tensor '%s' is not among the resident ones", name);
    return NULL;
}

int resident_matrix(struct matrix *out, const struct resident *r, const char *name,
                    struct err *err)
{
    const struct placed *p = find(r, name, err);

    if (!p)
        return -1;
    if (is_vector(p->item))
        return err_set(err, ERR_FORMAT, "tensor '%s' is a vector, not a matrix", name);
    *out = (struct matrix){
        .dtype = p->quantised ? DTYPE_F8_E4M3 : p->item->tensor->dtype,
        .rows = (uint32_t)p->item->want.dims[0],
        .cols = (uint32_t)p->item->want.dims[1],
        .data = p->data,
        .scales = p->scales,
    };
    return 0;
}

int resident_vector(const float **out, const struct resident *r, const char *name,
                    uint64_t n, struct err *err)
{
    const struct placed *p = find(r, name, err);

    if (!p)
        return -1;
    if (!is_vector(p->item) || n_values(p->item) != n)
        return err_set(err, ERR_FORMAT, "tensor '%s' is not a vector of %" PRIu64, name, n);
    *out = (const float *)(const void *)p->data;
    return 0;
}

const float *resident_expert_scales(const struct resident *r)
{
    return r->expert_scales;
}

uint32_t resident_scales_per_expert(const struct resident *r)
{
    return r->scales_per_expert;
}
