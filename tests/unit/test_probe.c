/* A drive that does not answer while it is measured: its buffers are not given to anybody else. */
#include "run/probe.h"

#include "formats/shards.h"
#include "util/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MODEL "build/models/tiny-fp8"

static atomic_bool stuck, answered;

ssize_t pread(int fd, void *to, size_t size, off_t at);

/* libc's, but for reads of experts' size, which come after anybody has stopped to wait. */
ssize_t pread(int fd, void *to, size_t size, off_t at)
{
    if (!atomic_load(&stuck) || size < 1 << 16)
        return syscall(SYS_pread64, fd, to, size, at);
    sleep(10);
    memset(to, 0x5a, size);
    atomic_store(&answered, true);
    return (ssize_t)size;
}

static void a_read_that_comes_late_finds_its_buffer(void **state)
{
    struct shards *shards;
    struct err err;
    double gbps;

    (void)state;
    assert_int_equal(shards_open(&shards, MODEL, &err), 0);
    atomic_store(&stuck, true);
    assert_int_equal(probe_disk(&gbps, shards, false, &err), -1);
    assert_int_equal(err.kind, ERR_IO);
    for (int i = 0; i < 20 && !atomic_load(&answered); i++)
        sleep(1);
    assert_true(atomic_load(&answered));
    shards_close(shards);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_that_comes_late_finds_its_buffer),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
