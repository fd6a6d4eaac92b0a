#include "store/expert_map.h"

#include "formats/shards.h"
#include "io/io.h"
#include "util/err.h"
#include "util/size.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>

/* Two ranges closer than this cost less as one read: 64 KiB take 26 us at 2.5 GB/s,
 * another read 70 us. Between the matrices of a plain checkpoint lie only scales. */
#define MERGE_GAP (64 * KIB)

/* The parts in the order in which they lie on disk. */
static void sort_parts(uint32_t order[N_PARTS], const struct tensor *const *parts)
{
    for (uint32_t i = 0; i < N_PARTS; i++) {
        uint32_t at = i;

        for (; at > 0; at--) {
            const struct tensor *before = parts[order[at - 1]], *t = parts[i];

            if (before->file < t->file || (before->file == t->file && before->offset <= t->offset))
                break;
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
}

/* Extents of one expert, and where its parts come to lie. Offsets were checked against
 * the files' sizes, so their sums do not wrap. */
static int place_expert(struct expert_place *out, uint64_t *slot_size,
                        const struct tensor *const *parts, struct err *err)
{
    uint64_t begin[N_PARTS], end[N_PARTS], in_slot = 0;
    uint32_t order[N_PARTS], extent_of[N_PARTS];

    sort_parts(order, parts);
    out->n_extents = 0;
    for (uint32_t i = 0; i < N_PARTS; i++) {
        const struct tensor *t = parts[order[i]];
        uint32_t last = out->n_extents - 1; /* read only when there is one */

        if (out->n_extents > 0 && out->extents[last].file == t->file &&
            t->offset < end[last] + MERGE_GAP) {
            if (end[last] < t->offset + t->size)
                end[last] = t->offset + t->size;
            extent_of[order[i]] = last;
            continue;
        }
        begin[out->n_extents] = t->offset;
        end[out->n_extents] = t->offset + t->size;
        out->extents[out->n_extents].file = t->file;
        extent_of[order[i]] = out->n_extents++;
    }
    for (uint32_t i = 0; i < out->n_extents; i++) {
        uint64_t from = size_down(begin[i], IO_ALIGN), to = size_up(end[i], IO_ALIGN);

        if (to - from > UINT32_MAX - in_slot)
            return err_set(err, ERR_UNSUPPORTED,
                           "the expert of '%s' needs more than 4 GiB in one slot",
                           parts[0]->name);
        out->extents[i].offset = from;
        out->extents[i].size = (uint32_t)(to - from);
        out->extents[i].in_slot = (uint32_t)in_slot;
        in_slot += to - from;
    }
    for (uint32_t i = 0; i < N_PARTS; i++) {
        const struct expert_extent *e = &out->extents[extent_of[i]];

        out->part_at[i] = (uint32_t)(e->in_slot + (parts[i]->offset - e->offset));
    }
    if (*slot_size < in_slot)
        *slot_size = in_slot;
    return 0;
}

static struct matrix *form_part(struct expert_weights *form, uint32_t part)
{
    switch (part) {
    case PART_GATE:
        return &form->gate;
    case PART_UP:
        return &form->up;
    default:
        return &form->down;
    }
}

static int take_form(struct expert_map *m, struct err *err)
{
    for (uint32_t p = 0; p < N_PARTS; p++) {
        const struct tensor *t = m->catalog->expert_tensors[p];
        uint64_t floats;

        if (t->n_dims != 2 || t->dims[0] > UINT32_MAX || t->dims[1] > UINT32_MAX)
            return err_set(err, ERR_UNSUPPORTED, "tensor '%s': not a matrix of 32-bit sides",
                           t->name);
        *form_part(&m->form, p) = (struct matrix){
            .dtype = t->dtype, .rows = (uint32_t)t->dims[0], .cols = (uint32_t)t->dims[1],
        };
        m->weight_bytes += t->size;
        if (!m->catalog->expert_scales[p])
            continue;
        floats = size_div_up(t->dims[0], SCALE_BLOCK) * size_div_up(t->dims[1], SCALE_BLOCK);
        if (floats > UINT32_MAX)
            return err_set(err, ERR_UNSUPPORTED, "tensor '%s': too many scales", t->name);
        m->scale_floats[p] = (uint32_t)floats;
    }
    return 0;
}

/* Slots are equal, so all experts must look alike. */
static int check_form(struct expert_map *m, uint32_t index, uint32_t p, struct err *err)
{
    const struct tensor *t = m->catalog->expert_tensors[(size_t)index * N_PARTS + p];
    const struct matrix *want = form_part(&m->form, p);
    bool scaled = m->catalog->expert_scales[(size_t)index * N_PARTS + p] != NULL;

    if (t->n_dims != 2 || t->dims[0] != want->rows || t->dims[1] != want->cols)
        return err_set(err, ERR_FORMAT, "tensor '%s': its shape differs from the first expert's",
                       t->name);
    if (t->dtype != want->dtype || scaled != (m->scale_floats[p] > 0))
        return err_set(err, ERR_UNSUPPORTED,
                       "tensor '%s': %s where the first expert has %s; experts of mixed types "
                       "are not built", t->name, dtype_name(t->dtype), dtype_name(want->dtype));
    return 0;
}

int expert_map_open(struct expert_map **out, const struct catalog *c, struct err *err)
{
    uint32_t n_layers = c->shape->n_moe_layers, n_experts = c->shape->n_experts;
    uint64_t n;
    struct expert_map *m = calloc(1, sizeof *m);

    if (!m)
        return err_set(err, ERR_NOMEM, "expert map");
    m->catalog = c;
    m->moe_ordinal = c->moe_ordinal;
    if (n_layers == 0 || n_experts == 0) {
        *out = m;
        return 0;
    }
    m->n_experts = n_experts;
    m->n_moe_layers = n_layers;
    /* Loans and hints carry 16-bit ids, tables 32-bit indices. */
    if (n_experts > UINT16_MAX || !size_mul(&n, n_layers, n_experts) ||
        n > UINT32_MAX / N_PARTS) {
        err_set(err, ERR_UNSUPPORTED, "%u experts in %u layers", n_experts, n_layers);
        goto fail;
    }
    m->places = calloc(n, sizeof *m->places);
    if (!m->places) {
        err_set(err, ERR_NOMEM, "map of %" PRIu64 " experts", n);
        goto fail;
    }
    if (take_form(m, err) < 0)
        goto fail;
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t p = 0; p < N_PARTS; p++)
            if (check_form(m, i, p, err) < 0)
                goto fail;
        if (place_expert(&m->places[i], &m->slot_size,
                         &c->expert_tensors[(size_t)i * N_PARTS], err) < 0)
            goto fail;
    }
    *out = m;
    return 0;

fail:
    expert_map_close(m);
    return -1;
}

void expert_map_close(struct expert_map *m)
{
    if (!m)
        return;
    free(m->places);
    free(m);
}

const struct expert_place *expert_map_at(const struct expert_map *m, uint32_t layer,
                                         uint32_t expert)
{
    assert(expert < m->n_experts && m->moe_ordinal[layer] < m->n_moe_layers);
    return &m->places[(size_t)m->moe_ordinal[layer] * m->n_experts + expert];
}
