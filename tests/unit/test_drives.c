/* The open shards: their sizes, changes underneath, and nothing left in the page cache. */
#include "io/drives.h"

#include "io/io.h"
#include "store_fixture.h"

#include <sys/mman.h>

/* Two small files of known bytes. */
static void make_files(struct fixture *f)
{
    fixture_init(f, 2);
    fixture_tensor(f, "a", 0, 5, DTYPE_U8, 0, 10000);
    fixture_tensor(f, "b", 1, 0, DTYPE_U8, 0, 3);
    fixture_write(f);
}

static struct drives *open_ok(const struct fixture *f, bool direct)
{
    struct drives *d = NULL;
    struct err err = { 0 };

    if (drives_open(&d, &f->shards, direct, &err) < 0)
        fail_msg("%s", err.text);
    return d;
}

static void files_are_open_with_the_sizes_of_their_headers(void **state)
{
    (void)state;
    struct fixture f;
    make_files(&f);

    for (int direct = 0; direct < 2; direct++) {
        struct drives *d = open_ok(&f, direct);

        assert_int_equal(drives_size(d, 0), 10005);
        assert_int_equal(drives_size(d, 1), 3);
        assert_string_equal(drives_name(d, 1), "shard-1.safetensors");
        assert_true(fcntl(drives_fd(d, 0), F_GETFD) & FD_CLOEXEC);
        assert_int_equal(drives_direct(d, 0),
                         (fcntl(drives_fd(d, 0), F_GETFL) & O_DIRECT) != 0);
        if (!direct)
            assert_false(drives_direct(d, 0));
        drives_close(d);
    }
    fixture_done(&f);
}

static void a_file_of_another_size_is_refused_by_name(void **state)
{
    (void)state;
    struct fixture f;
    struct drives *d = NULL;
    struct err err = { 0 };
    make_files(&f);

    f.files[0].size++;
    assert_int_equal(drives_open(&d, &f.shards, true, &err), -1);
    assert_non_null(strstr(err.text, "shard-0.safetensors"));
    assert_non_null(strstr(err.text, "10005"));
    assert_null(d);

    f.files[0].size--;
    unlink(f.files[1].path);
    assert_int_equal(drives_open(&d, &f.shards, true, &err), -1);
    assert_int_equal(err.kind, ERR_IO);
    assert_non_null(strstr(err.text, "shard-1.safetensors"));
    fixture_done(&f);
}

static void a_file_truncated_written_or_replaced_is_noticed(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = { 0 };
    make_files(&f);
    struct drives *d = open_ok(&f, true);

    assert_int_equal(drives_verify(d, &err), 0);
    assert_int_equal(truncate(f.files[0].path, 5000), 0);
    assert_int_equal(drives_verify(d, &err), -1);
    assert_int_equal(err.kind, ERR_IO);
    assert_non_null(strstr(err.text, "shard-0.safetensors: 5000 bytes now"));
    drives_close(d);

    fixture_write(&f);
    d = open_ok(&f, true);
    const struct timespec long_ago[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
    assert_int_equal(utimensat(AT_FDCWD, f.files[1].path, long_ago, 0), 0);
    assert_int_equal(drives_verify(d, &err), -1);
    assert_non_null(strstr(err.text, "shard-1.safetensors: written to"));
    drives_close(d);

    d = open_ok(&f, true);
    char other[160];
    snprintf(other, sizeof other, "%s.new", f.files[0].path);
    assert_int_equal(rename(f.files[0].path, other), 0);
    assert_int_equal(drives_verify(d, &err), -1);
    assert_non_null(strstr(err.text, "shard-0.safetensors: gone"));
    int fd = open(f.files[0].path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 10005), 0);
    close(fd);
    assert_int_equal(drives_verify(d, &err), -1);
    assert_non_null(strstr(err.text, "shard-0.safetensors: replaced"));
    drives_close(d);
    unlink(other);
    fixture_done(&f);
}

static size_t pages_in_cache(int fd, size_t size)
{
    unsigned char in[64] = { 0 };
    size_t n = (size + 4095) / 4096, found = 0;
    void *at = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);

    assert_true(at != MAP_FAILED && n <= sizeof in);
    assert_int_equal(mincore(at, size, in), 0);
    munmap(at, size);
    for (size_t i = 0; i < n; i++)
        found += in[i] & 1;
    return found;
}

static void buffered_reads_leave_nothing_in_the_page_cache(void **state)
{
    (void)state;
    struct fixture f;
    char bytes[8192];

    fixture_init(&f, 1);
    fixture_tensor(&f, "a", 0, 0, DTYPE_U8, 0, 32768);
    fixture_write(&f);
    struct drives *d = open_ok(&f, false);
    int fd = drives_fd(d, 0);

    assert_int_equal(fsync(fd), 0); /* dirty pages cannot be dropped */
    drives_drop(d, 0, 0, 32768);
    assert_int_equal(pread(fd, bytes, sizeof bytes, 4096), sizeof bytes);
    size_t before = pages_in_cache(fd, 32768);
    drives_drop(d, 0, 4096, sizeof bytes);
    size_t after = pages_in_cache(fd, 32768);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    drives_close(d);
    fixture_done(&f);
    if (before == 0 || after >= 8) {
        print_message("skipped: this file system keeps its pages (tmpfs)\n");
        skip();
    }
    assert_true(before >= 2);
    assert_int_equal(after, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_open_with_the_sizes_of_their_headers),
        cmocka_unit_test(a_file_of_another_size_is_refused_by_name),
        cmocka_unit_test(a_file_truncated_written_or_replaced_is_noticed),
        cmocka_unit_test(buffered_reads_leave_nothing_in_the_page_cache),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
