/* Looking after the model's files in the middle of a step, as cz_watch allows. */
#include "engine_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

static struct cz_engine *engine;
static char folder[] = "/tmp/test_engine_tend.XXXXXX", shard[128];
static bool decodes, touched;

/* The files are looked at once a second. */
static void change_and_tend(void *ctx)
{
    const struct timespec second = { .tv_sec = 1, .tv_nsec = 100000000 };

    (void)ctx;
    if (!decodes || touched)
        return;
    touched = true;
    assert_int_equal(utimensat(AT_FDCWD, shard, NULL, 0), 0);
    nanosleep(&second, NULL);
    cz_tend(engine);
    assert_non_null(cz_fault(engine));
}

static void files_that_change_within_a_step_fail_its_requests_after_it(void **state)
{
    const struct cz_watch watch = { .between_layers = change_and_tend };
    struct cz_event events[16];
    struct cz_options opt;
    struct err err;
    char copy[256];
    uint32_t n_failed = 0;

    (void)state;
    assert_non_null(mkdtemp(folder));
    snprintf(copy, sizeof copy, "cp -L " MODEL "/* %s", folder);
    assert_int_equal(system(copy), 0);
    snprintf(shard, sizeof shard, "%s/model-00001-of-00003.safetensors", folder);
    defaults(&opt);
    opt.model_dir = folder;
    if (cz_open(&engine, &opt, &watch, &err) < 0)
        fail_msg("%s", err.text);
    submit(engine, NULL, 1, 0, 20, N_NEW);
    submit(engine, NULL, 2, 1, 20, N_NEW);
    while (!cz_idle(engine)) {
        int n = cz_step(engine, events, 16, &err);
        assert_true(n >= 0);
        for (int i = 0; i < n; i++) {
            decodes = decodes || events[i].type == CZ_EVENT_TOKEN;
            n_failed += events[i].type == CZ_EVENT_FAILED;
        }
    }
    assert_true(touched);
    assert_int_equal(n_failed, 2);
    cz_close(engine);
    snprintf(copy, sizeof copy, "rm -r %s", folder);
    assert_int_equal(system(copy), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_change_within_a_step_fail_its_requests_after_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
