/* One shard's header: the files of the manifest are accepted or refused as it says. */
#include "formats/safetensors.h"
#include "util/err.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define DATA "tests/data/bad-safetensors/"

static const struct tensor *find(const struct safetensors *s, const char *name)
{
    for (uint32_t i = 0; i < s->n_tensors; i++)
        if (strcmp(s->tensors[i].name, name) == 0)
            return &s->tensors[i];
    return NULL;
}

/* The manifest's [dtype, shape, begin, end]; offsets there count from the data's start. */
static void check_tensor(const struct tensor *t, const json_t *want, uint64_t data_start)
{
    const json_t *shape = json_array_get(want, 1);
    uint64_t begin = (uint64_t)json_integer_value(json_array_get(want, 2));
    uint64_t end = (uint64_t)json_integer_value(json_array_get(want, 3));

    assert_string_equal(dtype_name(t->dtype), json_string_value(json_array_get(want, 0)));
    assert_int_equal(t->n_dims, json_array_size(shape));
    for (uint32_t i = 0; i < t->n_dims; i++)
        assert_int_equal(t->dims[i], json_integer_value(json_array_get(shape, i)));
    assert_int_equal(t->offset, data_start + begin);
    assert_int_equal(t->size, end - begin);
}

static void check_tensors(const struct safetensors *s, const char *path, json_t *want)
{
    unsigned char word[8];
    uint64_t header = 0;
    const char *name;
    json_t *entry;
    FILE *f = fopen(path, "rb");

    assert_non_null(f);
    assert_int_equal(fread(word, 1, 8, f), 8);
    fclose(f);
    for (int i = 7; i >= 0; i--)
        header = header << 8 | word[i];
    assert_int_equal(s->n_tensors, json_object_size(want));
    json_object_foreach(want, name, entry) {
        const struct tensor *t = find(s, name);
        assert_non_null(t);
        check_tensor(t, entry, 8 + header);
    }
}

static void every_file_of_the_manifest_comes_out_as_it_says(void **state)
{
    json_t *manifest = json_load_file(DATA "manifest.json", 0, NULL), *entry;
    size_t i, n_valid = 0, n_invalid = 0;

    (void)state;
    assert_non_null(manifest);
    json_array_foreach(manifest, i, entry) {
        const char *file = json_string_value(json_object_get(entry, "file"));
        const char *expect = json_string_value(json_object_get(entry, "expect"));
        struct safetensors s;
        struct err err = { 0 };
        char path[256];

        snprintf(path, sizeof path, DATA "%s", file);
        int rc = safetensors_open(&s, path, &err);
        if (rc == 0 && json_object_get(entry, "tensors"))
            check_tensors(&s, path, json_object_get(entry, "tensors"));
        if (rc < 0) { /* every refusal names the file */
            assert_int_equal(err.kind, ERR_FORMAT);
            assert_non_null(strstr(err.text, file));
        }
        if (strcmp(expect, "valid") == 0 && rc < 0)
            fail_msg("%s must open: %s", file, err.text);
        if (strcmp(expect, "invalid") == 0 && rc == 0)
            fail_msg("%s must be refused: %s", file,
                     json_string_value(json_object_get(entry, "why")));
        n_valid += strcmp(expect, "valid") == 0;
        n_invalid += strcmp(expect, "invalid") == 0;
        if (rc == 0)
            safetensors_close(&s);
    }
    assert_int_equal(n_valid, 22);
    assert_int_equal(n_invalid, 97);
    json_decref(manifest);
}

static void all_fifteen_dtypes_have_their_sizes(void **state)
{
    struct safetensors s;
    struct err err;

    (void)state;
    assert_int_equal(safetensors_open(&s, DATA "ok-all-dtypes.safetensors", &err), 0);
    assert_int_equal(s.n_tensors, 15);
    for (uint32_t i = 0; i < s.n_tensors; i++) {
        assert_string_equal(dtype_name(s.tensors[i].dtype), s.tensors[i].name);
        assert_int_equal(s.tensors[i].size, dtype_size(s.tensors[i].dtype));
    }
    safetensors_close(&s);
}

/* A file of our own; removed by the caller. */
static char *write_file(const char *header, const void *data, size_t data_size, uint64_t length)
{
    static char path[64];
    FILE *f;

    snprintf(path, sizeof path, "/tmp/colizig-test-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    f = fdopen(fd, "wb");
    assert_non_null(f);
    for (int i = 0; i < 8; i++)
        fputc((int)(length >> 8 * i & 255), f);
    fputs(header, f);
    if (data_size)
        assert_int_equal(fwrite(data, 1, data_size, f), data_size);
    fclose(f);
    return path;
}

static void refused(const char *header, size_t n_data, const char *part1, const char *part2)
{
    static const char data[64];
    struct safetensors s;
    struct err err = { 0 };
    char *path = write_file(header, data, n_data, strlen(header));

    assert_int_equal(safetensors_open(&s, path, &err), -1);
    unlink(path);
    assert_int_equal(err.kind, ERR_FORMAT);
    if (!strstr(err.text, part1) || !strstr(err.text, part2))
        fail_msg("'%s' should say '%s' and '%s'", err.text, part1, part2);
}

static void a_refusal_names_the_tensor_and_what_is_wrong(void **state)
{
    (void)state;
    refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 12,
            "tensor 'w'", "truncated");
    refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[4,20]}}", 20,
            "tensor 'w'", "hole");
    refused("{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
            "\"b\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[4,12]}}", 12,
            "tensor 'b'", "inside one that ends at 8");
    refused("{\"w\":{\"dtype\":\"F32\",\"shape\":[5],\"data_offsets\":[0,16]}}", 16,
            "16 bytes", "needs 20");
    refused("{\"w\":{\"dtype\":\"Q4\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16,
            "tensor 'w'", "'Q4'");
    refused("{\"w\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,1]}}", 1,
            "tensor 'w'", "whole number of bytes");
    refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 5,
            "1 bytes behind the last tensor", "");
    refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[4]}}", 4, "tensor 'w'", "'data_offsets' is missing");
}

static void a_cut_file_says_expected_and_actual_size(void **state)
{
    const char *header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[16],\"data_offsets\":[0,64]}}";
    char want[64], have[64];
    static const char data[60];
    struct safetensors s;
    struct err err;
    char *path = write_file(header, data, 60, strlen(header));

    (void)state;
    assert_int_equal(safetensors_open(&s, path, &err), -1);
    unlink(path);
    snprintf(want, sizeof want, "describes %zu bytes", 8 + strlen(header) + 64);
    snprintf(have, sizeof have, "has %zu", 8 + strlen(header) + 60);
    assert_non_null(strstr(err.text, want));
    assert_non_null(strstr(err.text, have));
    assert_non_null(strstr(err.text, "download it again"));
}

static void a_git_lfs_pointer_is_recognised(void **state)
{
    char path[] = "/tmp/colizig-test-XXXXXX";
    int fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    struct safetensors s;
    struct err err;

    (void)state;
    assert_non_null(f);
    fputs("version https://git-lfs.github.com/spec/v1\n"
          "oid sha256:aeb13307a71acd8fe81861d94ad54ab689df773318809eed3cbe794b4492dae4\n"
          "size 3998000000\n", f);
    fclose(f);
    assert_int_equal(safetensors_open(&s, path, &err), -1);
    unlink(path);
    assert_non_null(strstr(err.text, "looks like a Git LFS pointer"));
    assert_non_null(strstr(err.text, "git lfs pull"));
}

static void control_codes_in_a_name_do_not_reach_the_message(void **state)
{
    (void)state;
    refused("{\"w\\u001b[31m\\n\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,8]}}", 8,
            "tensor 'w?[31m?'", "8 bytes");
    refused("{\"w\\u0000\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}", 16,
            "NUL", "tensor 'w'");
}

static void what_is_not_a_regular_file_is_refused(void **state)
{
    struct safetensors s;
    struct err err;

    (void)state;
    assert_int_equal(safetensors_open(&s, "/tmp", &err), -1);
    assert_int_equal(err.kind, ERR_FORMAT);
    assert_int_equal(safetensors_open(&s, "/tmp/no-such-shard", &err), -1);
    assert_int_equal(err.kind, ERR_IO);
    assert_non_null(strstr(err.text, "no-such-shard"));
}

static void tensors_come_in_order_of_their_offsets(void **state)
{
    struct safetensors s;
    struct err err;

    (void)state;
    assert_int_equal(
        safetensors_open(&s, DATA "ok-order-by-name-not-offset.safetensors", &err), 0);
    assert_string_equal(s.tensors[0].name, "a");
    assert_string_equal(s.tensors[1].name, "b");
    assert_true(s.tensors[0].offset < s.tensors[1].offset);
    safetensors_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_file_of_the_manifest_comes_out_as_it_says),
        cmocka_unit_test(all_fifteen_dtypes_have_their_sizes),
        cmocka_unit_test(a_refusal_names_the_tensor_and_what_is_wrong),
        cmocka_unit_test(a_cut_file_says_expected_and_actual_size),
        cmocka_unit_test(a_git_lfs_pointer_is_recognised),
        cmocka_unit_test(control_codes_in_a_name_do_not_reach_the_message),
        cmocka_unit_test(what_is_not_a_regular_file_is_refused),
        cmocka_unit_test(tensors_come_in_order_of_their_offsets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
