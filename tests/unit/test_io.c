/* Reads under way: each done once, errors as errno, waits that end. */
#include "io/io.h"

#include "store_fixture.h"
#include "util/clock.h"

#include <dirent.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static struct io *open_ok(uint32_t depth)
{
    struct io *io = NULL;
    struct err err = { 0 };

    if (io_open(&io, IO_AUTO, depth, &err) < 0)
        fail_msg("%s", err.text);
    return io;
}

static int open_file(struct fixture *f, uint64_t size)
{
    fixture_init(f, 1);
    fixture_tensor(f, "a", 0, 0, DTYPE_U8, 0, size);
    fixture_write(f);
    int fd = open(f->files[0].path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static struct io_done reap_one(struct io *io)
{
    struct io_done done = { 0 };
    struct err err = { 0 };

    assert_int_equal(io->ops->reap(io, &done, 1, 10000, &err), 1);
    return done;
}

static void every_read_is_done_once_with_its_bytes(void **state)
{
    (void)state;
    enum { N = 200, SIZE = 8192 };
    struct fixture f;
    struct err err = { 0 };
    int fd = open_file(&f, 1 << 20);
    char *memory = aligned_alloc(IO_ALIGN, (size_t)N * SIZE);
    bool seen[N] = { false };

    assert_non_null(memory);
    for (uint32_t depth = 1; depth <= 8; depth *= 2) {
        struct io *io = open_ok(depth);
        size_t sent = 0, got = 0;

        memset(memory, 0, (size_t)N * SIZE);
        memset(seen, 0, sizeof seen);
        while (got < N) {
            struct io_read r[3];
            size_t n = 0;
            struct io_done done[5];

            for (; n < 3 && sent + n < N; n++)
                r[n] = (struct io_read){
                    .fd = fd, .size = SIZE, .need = SIZE, .offset = (sent + n) % 120 * 8192,
                    .to = memory + (sent + n) * SIZE, .tag = sent + n,
                };
            int took = io->ops->submit(io, r, n, &err);
            assert_in_range(took, 0, n);
            sent += (size_t)took;
            int ended = io->ops->reap(io, done, 5, 1000, &err);
            assert_in_range(ended, 0, 5);
            for (int i = 0; i < ended; i++) {
                assert_in_range(done[i].tag, 0, N - 1);
                assert_false(seen[done[i].tag]);
                seen[done[i].tag] = true;
                assert_int_equal(done[i].error, 0);
                for (uint64_t b = 0; b < SIZE; b++)
                    assert_int_equal((uint8_t)memory[done[i].tag * SIZE + b],
                                     fixture_byte(0, done[i].tag % 120 * 8192 + b));
            }
            got += (size_t)ended;
        }
        io_close(io);
    }
    free(memory);
    close(fd);
    fixture_done(&f);
}

static void a_read_past_the_end_is_done_when_all_that_is_needed_came(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = { 0 };
    int fd = open_file(&f, 5000);
    struct io *io = open_ok(2);
    char *to = aligned_alloc(IO_ALIGN, 8192);
    struct io_read r = { .fd = fd, .size = 8192, .need = 5000, .to = to, .tag = 7 };

    assert_non_null(to);
    assert_int_equal(io->ops->submit(io, &r, 1, &err), 1);
    struct io_done done = reap_one(io);
    assert_int_equal(done.tag, 7);
    assert_int_equal(done.error, 0);
    assert_int_equal((uint8_t)to[4999], fixture_byte(0, 4999));

    r.need = 5001;
    assert_int_equal(io->ops->submit(io, &r, 1, &err), 1);
    assert_int_equal(reap_one(io).error, EIO);
    r.offset = 8192;
    r.need = 1;
    assert_int_equal(io->ops->submit(io, &r, 1, &err), 1);
    assert_int_equal(reap_one(io).error, EIO);
    free(to);
    io_close(io);
    close(fd);
    fixture_done(&f);
}

static void a_truncated_file_is_an_error_with_and_without_o_direct(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = { 0 };
    close(open_file(&f, 65536));
    struct io *io = open_ok(1);
    char *to = aligned_alloc(IO_ALIGN, 65536);

    assert_non_null(to);
    assert_int_equal(truncate(f.files[0].path, 10000), 0);
    for (int direct = 0; direct < 2; direct++) {
        int fd = open(f.files[0].path, O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));

        if (fd < 0)
            continue; /* no O_DIRECT here */
        struct io_read r = { .fd = fd, .size = 65536, .need = 65536, .to = to };
        assert_int_equal(io->ops->submit(io, &r, 1, &err), 1);
        assert_int_equal(reap_one(io).error, EIO);
        close(fd);
    }
    free(to);
    io_close(io);
    fixture_done(&f);
}

static void a_failing_read_gives_its_errno(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct io *io = open_ok(1);
    char *to = aligned_alloc(IO_ALIGN, 4096);
    struct io_read r = { .fd = -1, .size = 4096, .need = 4096, .to = to, .tag = 3 };

    assert_non_null(to);
    assert_int_equal(io->ops->submit(io, &r, 1, &err), 1);
    struct io_done done = reap_one(io);
    assert_int_equal(done.tag, 3);
    assert_int_equal(done.error, EBADF);
    free(to);
    io_close(io);
}

static void reap_waits_no_longer_than_it_was_told(void **state)
{
    (void)state;
    struct err err = { 0 };
    struct io *io = open_ok(1);
    struct io_done done;
    uint64_t before = clock_ms();

    assert_int_equal(io->ops->reap(io, &done, 1, 0, &err), 0);
    assert_int_equal(io->ops->reap(io, &done, 1, 60, &err), 0);
    uint64_t took = clock_ms() - before;
    assert_in_range(took, 55, 5000);
    io_close(io);
}

static void submit_takes_what_it_has_room_for(void **state)
{
    (void)state;
    enum { N = 64 };
    struct fixture f;
    struct err err = { 0 };
    int fd = open_file(&f, 4096);
    struct io *io = open_ok(1);
    char *to = aligned_alloc(IO_ALIGN, 4096);
    struct io_read r[N];
    struct io_done done[N];

    assert_non_null(to);
    for (uint64_t i = 0; i < N; i++)
        r[i] = (struct io_read){ .fd = fd, .size = 4096, .need = 4096, .to = to, .tag = i };
    int took = io->ops->submit(io, r, N, &err);
    assert_in_range(took, 1, N - 1);
    for (int got = 0; got < took;) {
        int n = io->ops->reap(io, done, N, 1000, &err);

        assert_in_range(n, 1, took - got);
        got += n;
    }
    assert_int_equal(io->ops->submit(io, r, 1, &err), 1);
    io_close(io); /* with a read that nobody reaped */
    free(to);
    close(fd);
    fixture_done(&f);
}

static int count_threads_blocking(int signal_number, const char *name)
{
    DIR *tasks = opendir("/proc/self/task");
    int n = 0;

    assert_non_null(tasks);
    for (struct dirent *task; (task = readdir(tasks)) != NULL;) {
        char path[320], line[256], comm[32] = "";
        uint64_t blocked = 0;

        snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *from = fopen(path, "r");
        if (!from)
            continue;
        while (fgets(line, sizeof line, from)) {
            sscanf(line, "Name: %31s", comm);
            sscanf(line, "SigBlk: %" SCNx64, &blocked);
        }
        fclose(from);
        if (strncmp(comm, name, strlen(name)) == 0 && blocked >> (signal_number - 1) & 1)
            n++;
    }
    closedir(tasks);
    return n;
}

static void its_threads_are_named_and_leave_signals_to_others(void **state)
{
    (void)state;
    struct io *io = open_ok(3);
    sigset_t now;

    /* A thread names itself when it first runs. */
    for (int i = 0; i < 1000 && count_threads_blocking(SIGTERM, "cz-io-") < 3; i++)
        usleep(10000);
    assert_int_equal(count_threads_blocking(SIGTERM, "cz-io-"), 3);
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    assert_false(sigismember(&now, SIGTERM));
    io_close(io);
}

/* A read whose memory is not there until somebody provides it, which nobody does. -1: not allowed
 * here. */
static int freeze(void *page, size_t size)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
    struct uffdio_api api = { .api = UFFD_API };
    struct uffdio_register watch = {
        .range = { .start = (uintptr_t)page, .len = size }, .mode = UFFDIO_REGISTER_MODE_MISSING,
    };

    if (fd < 0)
        return -1;
    if (ioctl(fd, UFFDIO_API, &api) == 0 && ioctl(fd, UFFDIO_REGISTER, &watch) == 0)
        return fd;
    close(fd);
    return -1;
}

static void a_read_that_never_ends_does_not_hold_up_closing(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = { 0 };
    struct io_done done;
    int fd = open_file(&f, 4096);
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_true(page != MAP_FAILED);
    int frozen = freeze(page, 4096);
    if (frozen < 0) {
        close(fd);
        fixture_done(&f);
        skip();
    }
    struct io *io = open_ok(2);
    const struct io_read r = { .fd = fd, .size = 4096, .need = 4096, .to = page, .tag = 1 };
    assert_int_equal(io->ops->submit(io, &r, 1, &err), 1);
    assert_int_equal(io->ops->reap(io, &done, 1, 200, &err), 0);
    uint64_t before = clock_ms();
    assert_int_equal(io_forget(io, 1), 1);
    io_close(io);
    assert_in_range(clock_ms() - before, IO_CLOSE_MS, 2 * IO_CLOSE_MS + 10000);

    close(frozen); /* it ends after all, and its thread cleans up */
    for (int i = 0; i < 1000 && count_threads_blocking(SIGTERM, "cz-io-") > 0; i++)
        usleep(10000);
    assert_int_equal(count_threads_blocking(SIGTERM, "cz-io-"), 0);
    munmap(page, 4096); /* fd stays: nothing that can be seen says that the thread is done with it */
    fixture_done(&f);
}

static void reads_in_turn_are_done_when_submit_returns(void **state)
{
    (void)state;
    enum { N = 5, DEPTH = 3 };
    struct fixture f;
    struct err err = { 0 };
    int fd = open_file(&f, N * 4096 - 100);
    char *to = aligned_alloc(IO_ALIGN, N * 4096);
    struct io_read r[N];
    struct io_done done[N];
    struct io *io = NULL;

    assert_non_null(to);
    assert_int_equal(io_open(&io, IO_IN_TURN, DEPTH, &err), 0);
    for (uint64_t i = 0; i < N; i++)
        r[i] = (struct io_read){ .fd = fd, .size = 4096, .need = 4096, .offset = i * 4096,
                                 .to = to + i * 4096, .tag = i };
    assert_int_equal(io->ops->reap(io, done, N, 1000, &err), 0); /* at once: nothing can come */
    assert_int_equal(io->ops->submit(io, r, N, &err), DEPTH);
    for (uint64_t b = 0; b < DEPTH * 4096; b++)
        assert_int_equal((uint8_t)to[b], fixture_byte(0, b));
    assert_int_equal(io->ops->submit(io, r + DEPTH, N - DEPTH, &err), 0);
    assert_int_equal(io->ops->reap(io, done, 2, 0, &err), 2);
    assert_int_equal(io->ops->submit(io, r + DEPTH, N - DEPTH, &err), 2);
    assert_int_equal(io->ops->reap(io, done + 2, N, 0, &err), 3);
    for (uint64_t i = 0; i < N; i++) {
        assert_int_equal(done[i].tag, i);
        assert_int_equal(done[i].error, i == N - 1 ? EIO : 0); /* the file ends within the last */
    }
    assert_int_equal(io_forget(io, 0), 0);
    io_close(io);
    free(to);
    close(fd);
    fixture_done(&f);
}

static void absurd_depths_are_refused(void **state)
{
    (void)state;
    struct io *io = NULL;
    struct err err = { 0 };

    assert_int_equal(io_open(&io, IO_THREADS, 0, &err), -1);
    assert_int_equal(io_open(&io, IO_THREADS, 100000, &err), -1);
    assert_int_equal(io_open(&io, IO_IN_TURN, 0, &err), -1);
    assert_int_equal(io_open(&io, IO_IN_TURN, 100000, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    io_close(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_read_is_done_once_with_its_bytes),
        cmocka_unit_test(a_read_past_the_end_is_done_when_all_that_is_needed_came),
        cmocka_unit_test(a_truncated_file_is_an_error_with_and_without_o_direct),
        cmocka_unit_test(a_failing_read_gives_its_errno),
        cmocka_unit_test(reap_waits_no_longer_than_it_was_told),
        cmocka_unit_test(submit_takes_what_it_has_room_for),
        cmocka_unit_test(its_threads_are_named_and_leave_signals_to_others),
        cmocka_unit_test(a_read_that_never_ends_does_not_hold_up_closing),
        cmocka_unit_test(reads_in_turn_are_done_when_submit_returns),
        cmocka_unit_test(absurd_depths_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
