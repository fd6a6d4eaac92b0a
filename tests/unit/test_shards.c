/* A directory of shards and its index, each held against the other. */
#include "checkpoint_fixture.h"

#include "formats/shards.h"

#include <time.h>

#define INDEX "model.safetensors.index.json"
#define SHARD(i, n) "model-0000" #i "-of-0000" #n ".safetensors"

static double seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Three shards with one tensor each, "a", "b" and "c", and an index with total_size. */
static void make_three(struct checkpoint_dir *d)
{
    dir_init(d);
    shard_one(d, SHARD(1, 3), "a");
    shard_one(d, SHARD(2, 3), "b");
    shard_one(d, SHARD(3, 3), "c");
    dir_text(d, INDEX, "{\"metadata\":{\"total_size\":24},\"weight_map\":{\"a\":\"" SHARD(1, 3)
             "\",\"c\":\"" SHARD(3, 3) "\",\"b\":\"" SHARD(2, 3) "\"}}");
}

static void opens(const struct checkpoint_dir *d, uint32_t n_files, uint32_t n_tensors)
{
    struct shards *s;
    struct err err = { 0 };

    if (shards_open(&s, d->path, &err) < 0)
        fail_msg("must open: %s", err.text);
    assert_int_equal(s->n_files, n_files);
    assert_int_equal(s->n_tensors, n_tensors);
    shards_close(s);
}

static void refuses(const struct checkpoint_dir *d, const char *part1, const char *part2)
{
    struct shards *s = NULL;
    struct err err = { 0 };

    if (shards_open(&s, d->path, &err) == 0)
        fail_msg("must be refused because of '%s'", part1);
    assert_null(s);
    assert_int_equal(err.kind, ERR_FORMAT);
    says(&err, part1);
    says(&err, part2);
}

static void tensors_are_found_by_name_with_file_and_offset(void **state)
{
    struct checkpoint_dir d;
    struct shards *s;
    struct err err;

    (void)state;
    make_three(&d);
    assert_int_equal(shards_open(&s, d.path, &err), 0);
    const struct tensor *t = shards_find(s, "b");
    assert_non_null(t);
    assert_string_equal(s->files[t->file].name, SHARD(2, 3));
    assert_int_equal(t->size, 8);
    assert_int_equal(t->offset + t->size, s->files[t->file].size);
    assert_null(shards_find(s, "bb"));
    assert_null(shards_find(s, ""));
    shards_close(s);
    dir_remove(d.path);
}

static void a_directory_opens_without_an_index(void **state)
{
    struct checkpoint_dir d;

    (void)state;
    make_three(&d);
    unlink(dir_file(&d, INDEX));
    opens(&d, 3, 3);
    dir_remove(d.path);
    dir_init(&d);
    shard_one(&d, "model.safetensors", "a");
    opens(&d, 1, 1);
    dir_text(&d, INDEX, "{\"weight_map\":{\"a\":\"model.safetensors\"}}");
    opens(&d, 1, 1);
    dir_remove(d.path);
}

static void a_missing_shard_is_named_with_its_cure(void **state)
{
    struct checkpoint_dir d;

    (void)state;
    make_three(&d);
    unlink(dir_file(&d, SHARD(2, 3)));
    refuses(&d, "missing " SHARD(2, 3) " (listed in " INDEX ")", "download it again");
    unlink(dir_file(&d, INDEX));
    refuses(&d, "missing " SHARD(2, 3), "numbered 1 to 3");
    shard_one(&d, SHARD(2, 3), "b");
    unlink(dir_file(&d, SHARD(3, 3)));
    refuses(&d, "missing " SHARD(3, 3), "download it again");
    dir_remove(d.path);
}

static void an_index_that_forgot_a_shard_is_refused(void **state)
{
    struct checkpoint_dir d;

    (void)state;
    make_three(&d);
    unlink(dir_file(&d, SHARD(3, 3)));
    dir_text(&d, INDEX, "{\"weight_map\":{\"a\":\"" SHARD(1, 3) "\",\"b\":\"" SHARD(2, 3) "\"}}");
    refuses(&d, "missing " SHARD(3, 3), "numbered 1 to 3");
    dir_remove(d.path);
}

static void a_stray_shard_is_refused(void **state)
{
    struct checkpoint_dir d;

    (void)state;
    make_three(&d);
    shard_one(&d, "model-00001-of-00002.safetensors", "x");
    refuses(&d, "model-00001-of-00002.safetensors is not listed", "stray");
    unlink(dir_file(&d, INDEX));
    refuses(&d, "different sets", "model-00001-of-00002.safetensors");
    unlink(dir_file(&d, "model-00001-of-00002.safetensors"));
    shard_one(&d, "model.safetensors", "x");
    refuses(&d, "model.safetensors beside other shards", INDEX);
    unlink(dir_file(&d, "model.safetensors"));
    shard_one(&d, "model-00004-of-00003.safetensors", "x");
    refuses(&d, "model-00004-of-00003.safetensors does not fit", "1 to 3");
    dir_remove(d.path);
}

static void other_files_beside_the_shards_do_not_matter(void **state)
{
    struct checkpoint_dir d;

    (void)state;
    make_three(&d);
    shard_one(&d, "consolidated.safetensors", "a");
    dir_text(&d, "README.md", "text");
    opens(&d, 3, 3);
    dir_remove(d.path);
}

static void a_truncated_shard_says_both_sizes(void **state)
{
    struct checkpoint_dir d;
    struct shard_text s = { 0 };

    (void)state;
    make_three(&d);
    shard_add(&s, "c", "BF16", 2, 1, 4, 0);
    shard_write(&s, &d, SHARD(3, 3), 3);
    refuses(&d, SHARD(3, 3) ": truncated at tensor 'c'", "download it again");
    refuses(&d, "describes 71 bytes", "has 68");
    dir_remove(d.path);
}

static void an_lfs_pointer_in_place_of_a_shard_or_the_index_is_named(void **state)
{
    static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:"
        "aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4\nsize 11422654\n";
    struct checkpoint_dir d;

    (void)state;
    make_three(&d);
    dir_text(&d, SHARD(2, 3), pointer);
    refuses(&d, SHARD(2, 3) ": looks like a Git LFS pointer", "run git lfs pull");
    dir_text(&d, INDEX, pointer);
    refuses(&d, INDEX ": looks like a Git LFS pointer", "run git lfs pull");
    dir_remove(d.path);
}

static void index_and_headers_must_agree_both_ways(void **state)
{
    struct checkpoint_dir d;

    (void)state;
    make_three(&d);
    shard_one(&d, SHARD(2, 3), "bb");
    refuses(&d, "lists tensor 'b' in " SHARD(2, 3), "does not hold it");

    struct shard_text s = { 0 };
    shard_add(&s, "b", "BF16", 2, 1, 4, 0);
    shard_add(&s, "extra", "BF16", 2, 1, 4, 0);
    shard_write(&s, &d, SHARD(2, 3), 0);
    refuses(&d, "tensor 'extra' of " SHARD(2, 3), "not listed");

    shard_one(&d, SHARD(2, 3), "b");
    dir_text(&d, INDEX, "{\"weight_map\":{\"a\":\"" SHARD(1, 3) "\",\"b\":\"" SHARD(3, 3)
             "\",\"c\":\"" SHARD(2, 3) "\"}}");
    refuses(&d, "lists tensor 'b' in " SHARD(3, 3), "does not hold it");

    dir_text(&d, INDEX, "{\"weight_map\":{\"a\":\"" SHARD(1, 3) "\",\"b\":\"" SHARD(2, 3)
             "\",\"c\":\"" SHARD(3, 3) "\",\"\\u0061\":\"" SHARD(1, 3) "\"}}");
    refuses(&d, "lists tensor 'a' twice", INDEX);
    dir_remove(d.path);
}

static void total_size_is_held_against_the_headers(void **state)
{
    struct checkpoint_dir d;

    (void)state;
    dir_init(&d);
    shard_one(&d, "model.safetensors", "a");
    dir_text(&d, INDEX, "{\"metadata\":{\"total_size\":9},"
             "\"weight_map\":{\"a\":\"model.safetensors\"}}");
    refuses(&d, "says 9 bytes in all", "hold 8");
    /* Text or a fraction is no promise. */
    dir_text(&d, INDEX, "{\"metadata\":{\"total_size\":8.0,\"x\":[{\"y\":[1,-2e3,null]},true]},"
             "\"weight_map\":{\"a\":\"model.safetensors\"}}");
    opens(&d, 1, 1);
    dir_remove(d.path);
}

static void a_tensor_in_two_shards_is_refused(void **state)
{
    struct checkpoint_dir d;

    (void)state;
    make_three(&d);
    shard_one(&d, SHARD(3, 3), "b");
    refuses(&d, "tensor 'b' is both in " SHARD(3, 3), SHARD(2, 3)); /* in the index's order */
    unlink(dir_file(&d, INDEX));
    refuses(&d, "tensor 'b' is both in " SHARD(2, 3), SHARD(3, 3));
    dir_remove(d.path);
}

static void a_broken_index_is_refused(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "", "object" },
        { "[]", "object" },
        { "{\"weight_map\":{}}", "lists no tensor" },
        { "{\"metadata\":{}}", "lists no tensor" },
        { "{\"weight_map\":{\"a\":1}}", "string" },
        { "{\"weight_map\":{\"a\":\"../model.safetensors\"}}", "plain name" },
        { "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "plain name" },
        { "{\"weight_map\":{\"a\":\"x/model.safetensors\"}}", "plain name" },
        { "{\"weight_map\":{\"a\":\"..\"}}", "plain name" },
        { "{\"weight_map\":{\"a\":\"\"}}", "plain name" },
        { "{\"weight_map\":{\"a\":\"model.safetensors\"},\"weight_map\":{}}", "twice" },
        { "{\"weight_map\":{\"a\":\"model.safetensors\"}} x", "behind the object" },
        { "{\"weight_map\":{\"a\":\"model.safetensors\",}}", "string" },
        { "{\"weight_map\":{\"a\":\"model.safetensors\"}", "ends too early" },
        { "{\"weight_map\":{\"a\":\"other.safetensors\"}}", "is not listed" },
    };
    struct checkpoint_dir d;

    (void)state;
    dir_init(&d);
    shard_one(&d, "model.safetensors", "a");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dir_text(&d, INDEX, cases[i].text);
        refuses(&d, cases[i].says, d.path);
    }
    unlink(dir_file(&d, "model.safetensors"));
    dir_text(&d, INDEX, "{\"weight_map\":{\"a\":\"other.safetensors\"}}");
    refuses(&d, "missing other.safetensors", "listed in " INDEX);
    dir_remove(d.path);
}

/* huggingface_hub keeps blobs by hash and snapshots of symbolic links into them. */
static void a_cache_of_symbolic_links_is_resolved(void **state)
{
    struct checkpoint_dir d, snapshot;
    struct shards *s;
    struct err err;

    (void)state;
    dir_init(&d);
    mkdir(dir_file(&d, "blobs"), 0755);
    mkdir(dir_file(&d, "snapshots"), 0755);
    mkdir(dir_file(&d, "snapshots/0123"), 0755);
    shard_one(&d, "blobs/ab12", "a");
    assert_int_equal(symlink("../../blobs/ab12", dir_file(&d, "snapshots/0123/model.safetensors")),
                     0);
    snprintf(snapshot.path, sizeof snapshot.path, "%s/snapshots/0123", d.path);
    assert_int_equal(shards_open(&s, snapshot.path, &err), 0);
    assert_string_equal(s->files[0].name, "model.safetensors");
    assert_string_equal(s->files[0].path, dir_file(&d, "blobs/ab12"));
    shards_close(s);
    unlink(dir_file(&d, "blobs/ab12"));
    refuses(&snapshot, "missing model.safetensors", "a link to a file that is not there");
    dir_remove(d.path);
}

static void a_directory_without_weights_says_what_it_looked_for(void **state)
{
    struct checkpoint_dir d;
    struct shards *s;
    struct err err;

    (void)state;
    dir_init(&d);
    refuses(&d, "no weights", "model.safetensors");
    assert_int_equal(shards_present(d.path, &err), 0);
    shard_one(&d, "model.safetensors", "a");
    assert_int_equal(shards_present(d.path, &err), 1);
    dir_remove(d.path);
    assert_int_equal(shards_open(&s, d.path, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    says(&err, d.path);
    assert_int_equal(shards_present(d.path, &err), -1);
}

static void a_hundred_and_fifty_thousand_tensors_open(void **state)
{
    enum { N = 150000, FILES = 5 };
    struct checkpoint_dir d;
    struct shard_text index = { 0 };
    struct shards *s;
    struct err err;
    char name[128], file[64];

    (void)state;
    dir_init(&d);
    text_add(&index, "{\"metadata\":{\"total_size\":%d},\"weight_map\":{", N * 32);
    for (int f = 0; f < FILES; f++) {
        struct shard_text text = { 0 };
        snprintf(file, sizeof file, "model-%05d-of-%05d.safetensors", f + 1, FILES);
        for (int i = f; i < N; i += FILES) {
            snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.gate_proj.weight_scale_inv",
                     i / 1000, i % 1000);
            shard_add(&text, name, "BF16", 2, 2, 4, 4);
            text_add(&index, "%s\"%s\":\"%s\"", f || i ? "," : "", name, file);
        }
        shard_write(&text, &d, file, 0);
    }
    text_add(&index, "}}");
    dir_text(&d, INDEX, index.text);
    free(index.text);

    double start = seconds();
    int rc = shards_open(&s, d.path, &err);
    double took = seconds() - start;
    assert_int_equal(rc, 0);
    print_message("%d tensors in %d shards with an index: %.3f s\n", N, FILES, took);
    assert_int_equal(s->n_tensors, N);
    start = seconds();
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.gate_proj.weight_scale_inv",
                 i / 1000, i % 1000);
        const struct tensor *t = shards_find(s, name);
        assert_true(t && strcmp(t->name, name) == 0);
        assert_true(t->file == (uint32_t)i % FILES);
    }
    print_message("all of them found again: %.3f s\n", seconds() - start);
    shards_close(s);
    dir_remove(d.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_found_by_name_with_file_and_offset),
        cmocka_unit_test(a_directory_opens_without_an_index),
        cmocka_unit_test(a_missing_shard_is_named_with_its_cure),
        cmocka_unit_test(an_index_that_forgot_a_shard_is_refused),
        cmocka_unit_test(a_stray_shard_is_refused),
        cmocka_unit_test(other_files_beside_the_shards_do_not_matter),
        cmocka_unit_test(a_truncated_shard_says_both_sizes),
        cmocka_unit_test(an_lfs_pointer_in_place_of_a_shard_or_the_index_is_named),
        cmocka_unit_test(index_and_headers_must_agree_both_ways),
        cmocka_unit_test(total_size_is_held_against_the_headers),
        cmocka_unit_test(a_tensor_in_two_shards_is_refused),
        cmocka_unit_test(a_broken_index_is_refused),
        cmocka_unit_test(a_cache_of_symbolic_links_is_resolved),
        cmocka_unit_test(a_directory_without_weights_says_what_it_looked_for),
        cmocka_unit_test(a_hundred_and_fifty_thousand_tensors_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
