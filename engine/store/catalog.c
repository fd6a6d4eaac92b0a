#include "store/catalog.h"

#include "formats/shards.h"
#include "kernels/weights.h"
#include "util/err.h"
#include "util/shown.h"
#include "util/size.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char scale_suffix[] = "_scale_inv";

enum { NAME_SIZE = sizeof((struct tensor_want *)0)->name + sizeof scale_suffix };

/* A catalog being made. */
struct maker {
    struct catalog *c;
    bool *claimed; /* owned; [shards.n_tensors] */
    uint32_t cap_items, n_moe;
    bool expert_seen, table_seen;
    enum dtype expert_dtype, table_dtype;
};

static const char mtp_prefix[] = "mtp.", vision_prefix[] = "model.visual.";

static const char *file_of(const struct shards *s, const struct tensor *t)
{
    return s->files[t->file].name;
}

static void claim(struct maker *m, const struct tensor *t)
{
    m->claimed[t - m->c->shards->tensors] = true;
}

/* "[768, 2048]" */
static const char *dims_text(char *buf, size_t cap, uint32_t n_dims, const uint64_t *dims)
{
    size_t at = 0;

    buf[at++] = '[';
    for (uint32_t i = 0; i < n_dims && at + 24 < cap; i++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%" PRIu64, i ? ", " : "", dims[i]);
    snprintf(buf + at, cap - at, "]");
    return buf;
}

static int check_dims(const struct maker *m, const struct tensor *t, uint32_t n_dims,
                      const uint64_t *dims, const char *why, struct err *err)
{
    char is[200], want[64];

    if (t->n_dims == n_dims && memcmp(t->dims, dims, n_dims * sizeof *dims) == 0)
        return 0;
    return err_set(err, ERR_FORMAT, "tensor '%s' in %s: shape %s: %s needs %s",
                   shown_name(t->name).text, file_of(m->c->shards, t),
                   dims_text(is, sizeof is, t->n_dims, t->dims), why,
                   dims_text(want, sizeof want, n_dims, dims));
}

static bool is_plain_float(enum dtype d)
{
    return d == DTYPE_BF16 || d == DTYPE_F16 || d == DTYPE_F32;
}

static int check_scale(const struct maker *m, const struct tensor_want *want,
                       const struct tensor *t, const struct tensor *scale, const char *name,
                       struct err *err)
{
    uint64_t blocks[2] = { size_div_up(want->dims[0], SCALE_BLOCK),
                           size_div_up(want->dims[1], SCALE_BLOCK) };

    if (!m->c->shape->fp8)
        return err_set(err, ERR_FORMAT, "tensor '%s' in %s is F8_E4M3, but config.json has no "
                       "quantization_config: it belongs to another checkpoint", want->name,
                       file_of(m->c->shards, t));
    if (!scale)
        return err_set(err, ERR_FORMAT, "tensor '%s' in %s is F8_E4M3 and its scales '%s' are "
                       "missing: download the checkpoint again", want->name,
                       file_of(m->c->shards, t), name);
    if (scale->dtype != DTYPE_BF16 && scale->dtype != DTYPE_F32)
        return err_set(err, ERR_UNSUPPORTED, "tensor '%s' in %s: scales of dtype %s: only BF16 and "
                       "F32 are built", name, file_of(m->c->shards, scale),
                       dtype_name(scale->dtype));
    return check_dims(m, scale, 2, blocks, "128x128 blocks", err);
}

/* By a name of the want, or by the same with the other class's beginning. */
static const struct tensor *find(const struct maker *m, const struct tensor_want *want,
                                 const char *name)
{
    const struct tensor *t = shards_find(m->c->shards, name);
    char other[NAME_SIZE + 32];

    if (t || !want->prefix)
        return t;
    assert(strncmp(name, want->prefix, strlen(want->prefix)) == 0);
    snprintf(other, sizeof other, "%s%s", want->other_prefix, name + strlen(want->prefix));
    return shards_find(m->c->shards, other);
}

static int missing(const struct tensor_want *want, struct err *err)
{
    return err_set(err, ERR_FORMAT, "tensor '%s' is missing: the shards do not belong to this "
                   "config.json, or a download is incomplete%s", want->name,
                   want->role == ROLE_EXPERT && !want->fused
                       ? " (experts must be separate tensors, not fused)" : "");
}

static int make_slices(struct catalog *c, struct err *err)
{
    uint64_t n = (uint64_t)c->shape->n_moe_layers * c->shape->n_experts * N_PARTS;

    c->slices = calloc(n, sizeof *c->slices);
    return c->slices ? 0 : err_set(err, ERR_NOMEM, "a catalog of %" PRIu64 " expert tensors", n);
}

static size_t expert_place(const struct maker *m, const struct tensor_want *want)
{
    const struct model_shape *shape = m->c->shape;

    assert(want->layer < shape->n_layers && want->expert < shape->n_experts);
    assert(shape->layer_is_moe[want->layer] && want->part < N_PARTS);
    return ((size_t)m->c->moe_ordinal[want->layer] * shape->n_experts + want->expert) * N_PARTS +
           want->part;
}

/* A matrix out of a tensor that holds those of all experts. */
static int match_fused(struct maker *m, const struct tensor_want *want,
                       const struct tensor **tensor, struct err *err)
{
    const struct tensor *whole = find(m, want, want->fused);
    uint64_t dims[3] = { m->c->shape->n_experts, want->fused_rows, want->dims[1] };

    if (!whole)
        return missing(want, err);
    if (check_dims(m, whole, 3, dims, "config.json", err) < 0)
        return -1;
    if (!is_plain_float(whole->dtype))
        return err_set(err, ERR_UNSUPPORTED, "tensor '%s' in %s: fused experts of dtype %s are not "
                       "built: BF16, F16 or F32", whole->name, file_of(m->c->shards, whole),
                       dtype_name(whole->dtype));
    if (!m->c->slices && m->expert_seen)
        return err_set(err, ERR_UNSUPPORTED, "tensor '%s' in %s: other experts are not fused: "
                       "mixed experts are not built", whole->name, file_of(m->c->shards, whole));
    if (!m->c->slices && make_slices(m->c, err) < 0)
        return -1;
    /* Inside the tensor, whose size was checked against its dims: nothing overflows. */
    uint64_t row_size = want->dims[1] * dtype_size(whole->dtype);
    struct tensor *slice = &m->c->slices[expert_place(m, want)];
    *slice = (struct tensor){
        .name = whole->name, .dtype = whole->dtype, .n_dims = 2,
        .dims = { want->dims[0], want->dims[1] }, .file = whole->file,
        .offset = whole->offset +
                  (want->expert * want->fused_rows + want->rows_before) * row_size,
        .size = want->dims[0] * row_size,
    };
    claim(m, whole);
    *tensor = slice;
    return 0;
}

static int match_constant(struct maker *m, const struct tensor_want *want,
                          const struct tensor *t, struct err *err)
{
    if (t->dtype != DTYPE_I64)
        return err_set(err, ERR_FORMAT, "tensor '%s' in %s is %s, not I64", want->name,
                       file_of(m->c->shards, t), dtype_name(t->dtype));
    claim(m, t);
    return 0;
}

/* One part of a table; all parts share one scale. */
static int match_table(struct maker *m, const struct tensor_want *want, const struct tensor *t,
                       const struct tensor **scale, struct err *err)
{
    const char *file = file_of(m->c->shards, t);
    const struct tensor *found = find(m, want, want->table_scale);
    bool fp8 = m->c->shape->ngram.fp8;

    if (fp8 ? t->dtype != DTYPE_F8_E4M3 : !is_plain_float(t->dtype))
        return err_set(err, ERR_FORMAT, "tensor '%s' in %s is %s, but config.json %s "
                       "'modules_to_convert': it belongs to another checkpoint", want->name, file,
                       dtype_name(t->dtype), fp8 ? "lists it in" : "does not list it in");
    if (m->table_seen && t->dtype != m->table_dtype)
        return err_set(err, ERR_FORMAT, "tensor '%s' in %s is %s, other parts of the table are %s",
                       want->name, file, dtype_name(t->dtype), dtype_name(m->table_dtype));
    m->table_seen = true;
    m->table_dtype = t->dtype;
    claim(m, t);
    if (!fp8)
        return 0; /* a scale all the same would be left over, and refused as that */
    if (!found)
        return err_set(err, ERR_FORMAT, "tensor '%s' in %s is F8_E4M3 and its scale '%s' is "
                       "missing: download the checkpoint again", want->name, file,
                       want->table_scale);
    if (found->dtype != DTYPE_BF16 && found->dtype != DTYPE_F32)
        return err_set(err, ERR_UNSUPPORTED, "tensor '%s' in %s: a scale of dtype %s: only BF16 "
                       "and F32 are built", want->table_scale, file_of(m->c->shards, found),
                       dtype_name(found->dtype));
    if (found->size != dtype_size(found->dtype))
        return err_set(err, ERR_FORMAT, "tensor '%s' in %s: one scale for the whole table was "
                       "expected", want->table_scale, file_of(m->c->shards, found));
    claim(m, found);
    *scale = found;
    return 0;
}

/* The tensor and, for FP8, its scales. */
static int match(struct maker *m, const struct tensor_want *want, const struct tensor **tensor,
                 const struct tensor **scale, struct err *err)
{
    const struct shards *s = m->c->shards;
    const struct tensor *t = find(m, want, want->name);
    char name[NAME_SIZE];

    if (!t && want->fused)
        return match_fused(m, want, tensor, err);
    if (!t)
        return missing(want, err);
    if (check_dims(m, t, want->n_dims, want->dims, "config.json", err) < 0)
        return -1;
    *tensor = t;
    if (want->role == ROLE_CONSTANT)
        return match_constant(m, want, t, err);
    if (want->role == ROLE_TABLE)
        return match_table(m, want, t, scale, err);
    snprintf(name, sizeof name, "%s%s", want->name, scale_suffix);
    const struct tensor *found = want->n_dims == 2 ? find(m, want, name) : NULL;
    if (t->dtype == DTYPE_F8_E4M3 && want->may_be_fp8) {
        if (check_scale(m, want, t, found, name, err) < 0)
            return -1;
    } else if (!is_plain_float(t->dtype)) {
        return err_set(err, ERR_UNSUPPORTED, "tensor '%s' in %s: dtype %s is not built here: %s",
                       want->name, file_of(s, t), dtype_name(t->dtype),
                       want->may_be_fp8 ? "F8_E4M3 with block scales, BF16, F16 or F32"
                                        : "BF16, F16 or F32");
    } else if (found) {
        return err_set(err, ERR_FORMAT, "tensor '%s' in %s: scales of a tensor that is %s, not "
                       "F8_E4M3", name, file_of(s, found), dtype_name(t->dtype));
    }
    claim(m, t);
    if (found)
        claim(m, found);
    *scale = found;
    return 0;
}

static int place_expert(struct maker *m, const struct tensor_want *want,
                        const struct tensor *t, const struct tensor *scale, struct err *err)
{
    if (!m->expert_seen) {
        m->expert_seen = true;
        m->expert_dtype = t->dtype;
    }
    /* Slots are alike, so experts must be. */
    if (t->dtype != m->expert_dtype)
        return err_set(err, ERR_UNSUPPORTED, "tensor '%s' in %s is %s, other experts are %s: mixed "
                       "experts are not built", want->name, file_of(m->c->shards, t),
                       dtype_name(t->dtype), dtype_name(m->expert_dtype));
    /* Nor is fusing some of them: what a layer takes of the files would differ. */
    if (m->c->slices && t != &m->c->slices[expert_place(m, want)])
        return err_set(err, ERR_UNSUPPORTED, "tensor '%s' in %s: other experts are fused: mixed "
                       "experts are not built", want->name, file_of(m->c->shards, t));
    size_t at = expert_place(m, want);
    m->c->expert_tensors[at] = t;
    m->c->expert_scales[at] = scale;
    return 0;
}

static int place_item(struct maker *m, const struct tensor_want *want, const struct tensor *t,
                      const struct tensor *scale, struct err *err)
{
    struct catalog *c = m->c;

    if (c->n_items == m->cap_items) {
        uint32_t cap = m->cap_items ? m->cap_items * 2 : 256;
        struct catalog_item *more = realloc(c->items, cap * sizeof *more);
        if (!more)
            return err_set(err, ERR_NOMEM, "a catalog of %u tensors", cap);
        c->items = more;
        m->cap_items = cap;
    }
    c->items[c->n_items++] =
        (struct catalog_item){ .want = *want, .tensor = t, .scale = scale };
    c->items[c->n_items - 1].want.table_scale = NULL; /* borrowed for the visit, and found now */
    return 0;
}

static int visit(void *ctx, const struct tensor_want *want, struct err *err)
{
    struct maker *m = ctx;
    const struct tensor *t = NULL, *scale = NULL;

    if (want->role == ROLE_MTP || want->role == ROLE_VISION)
        return 0; /* left alone, whatever there is of it */
    if (match(m, want, &t, &scale, err) < 0)
        return -1;
    if (want->role == ROLE_EXPERT)
        return place_expert(m, want, t, scale, err);
    return place_item(m, want, t, scale, err);
}

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), n_end = strlen(end);

    return n >= n_end && strcmp(text + n - n_end, end) == 0;
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* What is counted and never read: N_ROLES for everything else. */
static enum tensor_role unused_role(const struct model_shape *shape, const char *name)
{
    if (!shape->unused.may_be_there)
        return N_ROLES;
    return starts_with(name, mtp_prefix) ? ROLE_MTP
           : starts_with(name, vision_prefix) ? ROLE_VISION : N_ROLES;
}

/* That, buffers that old writers saved, and a head that repeats the embedding it is tied to. */
static bool may_be_left(const struct model_shape *shape, const char *name)
{
    return unused_role(shape, name) != N_ROLES || ends_with(name, ".rotary_emb.inv_freq") ||
           (shape->tied_embeddings && strcmp(name, "lm_head.weight") == 0);
}

static int check_left_over(const struct maker *m, struct err *err)
{
    const struct shards *s = m->c->shards;
    const struct tensor *first = NULL;
    uint32_t n = 0;
    char more[48] = "";

    for (uint32_t i = 0; i < s->n_tensors; i++) {
        if (m->claimed[i] || may_be_left(m->c->shape, s->tensors[i].name))
            continue;
        if (!first)
            first = &s->tensors[i];
        n++;
    }
    if (!first)
        return 0;
    if (n > 1)
        snprintf(more, sizeof more, " (and %u more like it)", n - 1);
    return err_set(err, ERR_FORMAT, "tensor '%s' in %s%s: a %s model with this config.json has no "
                   "such tensor: leaving it out would change the answers",
                   shown_name(first->name).text, file_of(s, first), more,
                   m->c->shape->model_type);
}

static int make_expert_tables(struct maker *m, struct err *err)
{
    struct catalog *c = m->c;
    const struct model_shape *shape = c->shape;
    uint64_t n = (uint64_t)shape->n_moe_layers * shape->n_experts * N_PARTS;

    for (uint32_t i = 0; i < MODEL_MAX_LAYERS; i++)
        c->moe_ordinal[i] = UINT32_MAX;
    for (uint32_t i = 0; i < shape->n_layers; i++)
        if (shape->layer_is_moe[i])
            c->moe_ordinal[i] = m->n_moe++;
    assert(m->n_moe == shape->n_moe_layers);
    /* Before allocating for an absurd config: each entry must be a tensor of its own, or a layer's
     * be two. */
    uint64_t least = shape->may_be_fused ? 2 * (uint64_t)shape->n_moe_layers : n;
    if (least > c->shards->n_tensors)
        return err_set(err, ERR_FORMAT, "config.json needs %" PRIu64 " expert tensors, the shards "
                       "hold %u tensors in all: they do not belong together%s", least,
                       c->shards->n_tensors,
                       shape->may_be_fused ? "" : " (experts must be separate tensors, not fused)");
    c->expert_tensors = calloc(n ? n : 1, sizeof *c->expert_tensors);
    c->expert_scales = calloc(n ? n : 1, sizeof *c->expert_scales);
    if (!c->expert_tensors || !c->expert_scales)
        return err_set(err, ERR_NOMEM, "a catalog of %" PRIu64 " expert tensors", n);
    return 0;
}

int catalog_open(struct catalog **out, const struct shards *shards,
                 const struct model_shape *shape, want_each *each, struct err *err)
{
    struct maker m = { .c = calloc(1, sizeof *m.c) };
    int rc = -1;

    m.claimed = calloc(shards->n_tensors ? shards->n_tensors : 1, sizeof *m.claimed);
    if (!m.c || !m.claimed) {
        err_set(err, ERR_NOMEM, "a catalog of %u tensors", shards->n_tensors);
        goto done;
    }
    m.c->shards = shards;
    m.c->shape = shape;
    if (make_expert_tables(&m, err) < 0 || each(shape, visit, &m, err) != 0 ||
        check_left_over(&m, err) < 0)
        goto done;
    *out = m.c;
    m.c = NULL;
    rc = 0;

done:
    free(m.claimed);
    catalog_close(m.c);
    return rc;
}

void catalog_close(struct catalog *c)
{
    if (!c)
        return;
    free(c->items);
    free(c->expert_tensors);
    free(c->expert_scales);
    free(c->slices);
    free(c);
}

/* ---- sums ---- */

static void count(struct catalog_bytes *b, enum tensor_role role, const struct tensor *t,
                  const struct tensor *scale)
{
    uint64_t n = 1; /* no overflow: the header was checked against a real file */

    for (uint32_t i = 0; i < t->n_dims; i++)
        n *= t->dims[i];
    if (role < ROLE_CONSTANT)
        b->n_params += n;
    b->tensors[role] += 1 + (scale != NULL);
    b->weights[role] += t->size;
    b->scales[role] += scale ? scale->size : 0;
}

static void count_tensors(struct catalog_bytes *b)
{
    b->n_tensors = 0;
    for (uint32_t role = 0; role < N_ROLES; role++)
        b->n_tensors += b->tensors[role];
}

void catalog_sum(struct catalog_bytes *out, const struct catalog *c)
{
    size_t n = (size_t)c->shape->n_moe_layers * c->shape->n_experts * N_PARTS;

    *out = (struct catalog_bytes){ 0 };
    for (uint32_t i = 0; i < c->n_items; i++) {
        const struct catalog_item *item = &c->items[i];
        bool shared = item->want.role == ROLE_TABLE && item->want.expert > 0; /* its scale */
        count(out, item->want.role, item->tensor, shared ? NULL : item->scale);
    }
    for (size_t i = 0; i < n; i++)
        count(out, ROLE_EXPERT, c->expert_tensors[i], c->expert_scales[i]);
    if (c->slices)
        out->tensors[ROLE_EXPERT] = 2 * (uint64_t)c->shape->n_moe_layers;
    for (uint32_t i = 0; i < c->shards->n_tensors; i++) {
        enum tensor_role role = unused_role(c->shape, c->shards->tensors[i].name);
        if (role != N_ROLES)
            count(out, role, &c->shards->tensors[i], NULL);
    }
    count_tensors(out);
}

struct derived {
    struct catalog_bytes *bytes;
    bool fp8, fp8_table;
};

static int derive(void *ctx, const struct tensor_want *want, struct err *err)
{
    struct derived *d = ctx;
    struct catalog_bytes *b = d->bytes;
    bool table = want->role == ROLE_TABLE, fp8 = table ? d->fp8_table : d->fp8 && want->may_be_fp8;
    uint64_t n = want->dims[0], size, scale_size = 0, n_tensors = 1;

    for (uint32_t i = 1; i < want->n_dims; i++)
        if (!size_mul(&n, n, want->dims[i]))
            return err_set(err, ERR_FORMAT, "tensor '%s': its size overflows 64 bits", want->name);
    if (!size_mul(&size, n, fp8 ? 1 : want->role == ROLE_CONSTANT ? 8 : 2))
        return err_set(err, ERR_FORMAT, "tensor '%s': its size overflows 64 bits", want->name);
    if (fp8 && table)
        scale_size = want->expert == 0 ? 2 : 0;
    else if (fp8)
        scale_size = 2 * size_div_up(want->dims[0], SCALE_BLOCK) *
                     size_div_up(want->dims[1], SCALE_BLOCK);
    if (want->fused && !fp8) /* said once, for all experts */
        n_tensors = want->expert == 0 && want->rows_before == 0;
    if (!size_add(&b->weights[want->role], b->weights[want->role], size) ||
        !size_add(&b->scales[want->role], b->scales[want->role], scale_size) ||
        (want->role < ROLE_CONSTANT && !size_add(&b->n_params, b->n_params, n)))
        return err_set(err, ERR_FORMAT, "the sizes that config.json describes overflow 64 bits");
    b->tensors[want->role] += n_tensors + (scale_size > 0);
    return 0;
}

int catalog_derive(struct catalog_bytes *out, const struct model_shape *shape, want_each *each,
                   struct err *err)
{
    struct catalog_bytes bytes = { 0 };
    struct derived d = { .bytes = &bytes, .fp8 = shape->fp8,
                         .fp8_table = shape->ngram.fp8 };

    if (each(shape, derive, &d, err) != 0)
        return -1;
    count_tensors(&bytes);
    *out = bytes;
    return 0;
}
