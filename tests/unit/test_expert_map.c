/* Where each expert lies in the files, and in how many reads it comes. */
#include "store/expert_map.h"

#include "io/io.h"
#include "store_fixture.h"

static struct expert_map *open_ok(const struct fixture *f)
{
    struct expert_map *m = NULL;
    struct err err = { 0 };

    if (expert_map_open(&m, &f->catalog, &err) < 0)
        fail_msg("%s", err.text);
    return m;
}

/* Every part's bytes are where the map says, inside extents that are aligned, inside
 * the slot and apart from each other. */
static void check_place(const struct fixture *f, const struct expert_map *m, uint32_t layer,
                        uint32_t expert)
{
    const struct expert_place *place = expert_map_at(m, layer, expert);
    uint64_t in_slot = 0;

    assert_in_range(place->n_extents, 1, N_PARTS);
    for (uint32_t i = 0; i < place->n_extents; i++) {
        const struct expert_extent *e = &place->extents[i];

        assert_int_equal(e->offset % IO_ALIGN, 0);
        assert_int_equal(e->size % IO_ALIGN, 0);
        assert_int_equal(e->in_slot, in_slot);
        in_slot += e->size;
        assert_true(e->offset + e->size < f->files[e->file].size + IO_ALIGN);
    }
    assert_true(in_slot <= m->slot_size);
    for (uint32_t p = 0; p < N_PARTS; p++) {
        const struct tensor *t =
            f->catalog.expert_tensors[fixture_part(f, layer, expert, (enum expert_part)p)];
        bool found = false;

        for (uint32_t i = 0; i < place->n_extents; i++) {
            const struct expert_extent *e = &place->extents[i];

            if (e->file == t->file && t->offset >= e->offset &&
                t->offset + t->size <= e->offset + e->size) {
                assert_int_equal(place->part_at[p], e->in_slot + (t->offset - e->offset));
                found = true;
            }
        }
        assert_true(found);
    }
}

static void a_published_layout_is_one_read_an_expert(void **state)
{
    (void)state;
    struct fixture f;

    fixture_init(&f, 1);
    fixture_tensor(&f, "odd", 0, 0, DTYPE_U8, 0, 1237); /* all that follows is at odd bytes */
    fixture_experts(&f, 2, 5, 130, 260);
    fixture_plain_experts(&f, 0, DTYPE_F8_E4M3);
    struct expert_map *m = open_ok(&f);

    assert_int_equal(m->n_experts, 5);
    assert_int_equal(m->n_moe_layers, 2);
    assert_int_equal(m->weight_bytes, 3 * 130 * 260);
    assert_int_equal(m->scale_floats[PART_GATE], 2 * 3);
    assert_int_equal(m->scale_floats[PART_DOWN], 3 * 2);
    assert_int_equal(m->slot_size % IO_ALIGN, 0);
    assert_true(m->slot_size >= m->weight_bytes && m->slot_size < m->weight_bytes + 3 * IO_ALIGN);
    assert_int_equal(m->form.gate.rows, 130);
    assert_int_equal(m->form.gate.cols, 260);
    assert_int_equal(m->form.down.rows, 260);
    assert_int_equal(m->form.down.dtype, DTYPE_F8_E4M3);
    for (uint32_t layer = 0; layer < 2; layer++) {
        for (uint32_t e = 0; e < 5; e++) {
            assert_int_equal(expert_map_at(m, layer, e)->n_extents, 1);
            check_place(&f, m, layer, e);
        }
    }
    expert_map_close(m);
    fixture_done(&f);
}

static void an_expert_may_be_scattered_over_files_and_gaps(void **state)
{
    (void)state;
    struct fixture f;
    const struct {
        uint32_t file;
        uint64_t offset;
    } at[4][N_PARTS] = {
        { { 0, 0 }, { 1, 7 }, { 2, 4095 } },                    /* a file each */
        { { 0, 500000 }, { 0, 10000 }, { 0, 300001 } },         /* far apart, backwards */
        { { 1, 20000 }, { 2, 50000 }, { 1, 20000 + 8192 + 65535 } }, /* just near enough */
        { { 1, 400000 }, { 2, 90000 }, { 1, 400000 + 8192 + 65536 } }, /* just too far */
    };
    static const uint32_t n_extents[4] = { 3, 3, 2, 3 };

    fixture_init(&f, 3);
    fixture_experts(&f, 1, 4, 64, 64);
    for (uint32_t e = 0; e < 4; e++)
        for (uint32_t p = 0; p < N_PARTS; p++)
            f.catalog.expert_tensors[fixture_part(&f, 0, e, (enum expert_part)p)] =
                fixture_tensor(&f, "part", at[e][p].file, at[e][p].offset, DTYPE_BF16, 64, 64);
    struct expert_map *m = open_ok(&f);

    for (uint32_t e = 0; e < 4; e++) {
        assert_int_equal(expert_map_at(m, 0, e)->n_extents, n_extents[e]);
        check_place(&f, m, 0, e);
    }
    assert_int_equal(m->scale_floats[PART_UP], 0);
    expert_map_close(m);
    fixture_done(&f);
}

static void layers_without_experts_are_skipped(void **state)
{
    (void)state;
    struct fixture f;

    fixture_init(&f, 1);
    fixture_experts(&f, 2, 3, 8, 16);
    fixture_plain_experts(&f, 0, DTYPE_F32);
    f.catalog.moe_ordinal[1] = 0; /* layers 1 and 4 of a model of five */
    f.catalog.moe_ordinal[4] = 1;
    struct expert_map *m = open_ok(&f);

    assert_ptr_equal(expert_map_at(m, 1, 0), &m->places[0]);
    assert_ptr_equal(expert_map_at(m, 4, 2), &m->places[5]);
    expert_map_close(m);
    fixture_done(&f);
}

static void experts_that_differ_are_refused_by_name(void **state)
{
    (void)state;
    struct fixture f;
    struct expert_map *m = NULL;
    struct err err = { 0 };

    fixture_init(&f, 1);
    fixture_experts(&f, 1, 3, 8, 16);
    fixture_plain_experts(&f, 0, DTYPE_BF16);
    size_t at = fixture_part(&f, 0, 2, PART_UP);
    f.catalog.expert_tensors[at] = fixture_tensor(&f, "the.other.one", 0, 0, DTYPE_F32, 8, 16);
    assert_int_equal(expert_map_open(&m, &f.catalog, &err), -1);
    assert_int_equal(err.kind, ERR_UNSUPPORTED);
    assert_non_null(strstr(err.text, "the.other.one"));
    f.catalog.expert_tensors[at] = fixture_tensor(&f, "the.long.one", 0, 0, DTYPE_BF16, 9, 16);
    assert_int_equal(expert_map_open(&m, &f.catalog, &err), -1);
    assert_int_equal(err.kind, ERR_FORMAT);
    assert_non_null(strstr(err.text, "the.long.one"));
    fixture_done(&f);
}

static void an_expert_beyond_a_slots_numbers_is_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct expert_map *m = NULL;
    struct err err = { 0 };

    fixture_init(&f, 1); /* never written: only the numbers count */
    fixture_experts(&f, 1, 1, 60000, 60000);
    fixture_plain_experts(&f, 0, DTYPE_BF16);
    assert_int_equal(expert_map_open(&m, &f.catalog, &err), -1);
    assert_int_equal(err.kind, ERR_UNSUPPORTED);
    assert_null(m);
    fixture_done(&f);
}

static void a_model_without_experts_has_an_empty_map(void **state)
{
    (void)state;
    struct fixture f;

    fixture_init(&f, 1);
    struct expert_map *m = open_ok(&f);
    assert_int_equal(m->slot_size, 0);
    assert_int_equal(m->n_moe_layers, 0);
    expert_map_close(m);
    fixture_done(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_published_layout_is_one_read_an_expert),
        cmocka_unit_test(an_expert_may_be_scattered_over_files_and_gaps),
        cmocka_unit_test(layers_without_experts_are_skipped),
        cmocka_unit_test(experts_that_differ_are_refused_by_name),
        cmocka_unit_test(an_expert_beyond_a_slots_numbers_is_refused),
        cmocka_unit_test(a_model_without_experts_has_an_empty_map),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
