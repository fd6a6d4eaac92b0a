/* What a reload finds changed, and the mark of a checkpoint's files. */
#include "daemon/conf/conf_diff.h"
#include "daemon/supervisor/model_mark.h"
#include "util/err.h"
#include "util/size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static void parse(struct conf *c, const char *text)
{
    struct err err;

    conf_init(c);
    if (conf_parse(c, "test.yaml", "model: {dir: /srv/m}\n", 21, &err) < 0 ||
        conf_parse(c, "test.yaml", text, strlen(text), &err) < 0 || conf_finish(c, &err) < 0)
        fail_msg("%s: %s", text, err.text);
}

/* These keys must be found, and no others: "engine.queue http.body". */
static void expect(const char *from, const char *to, const char *keys, unsigned changes)
{
    struct conf a, b;
    struct conf_diff d;
    char found[256] = "";

    parse(&a, from);
    parse(&b, to);
    conf_diff(&d, &a, &b);
    for (uint32_t i = 0; i < d.n; i++) {
        size_t used = strlen(found);
        snprintf(found + used, sizeof found - used, "%s%s.%s", i ? " " : "", d.keys[i]->section,
                 d.keys[i]->name);
        assert_true(conf_diff_has(&d, d.keys[i]->section, d.keys[i]->name));
    }
    assert_string_equal(found, keys);
    assert_int_equal(d.changes, changes);
    assert_false(conf_diff_has(&d, "engine", "kernels"));
    conf_done(&a);
    conf_done(&b);
}

static void what_is_the_same_is_no_change(void **state)
{
    (void)state;
    expect("", "", "", 0);
    expect("engine: {queue: 32}", "", "", 0);
    expect("memory: {ram: 8GiB}", "memory: {ram: 8192MiB}", "", 0);
    expect("http: {idle_timeout: 60s}", "http: {idle_timeout: 1m}", "", 0);
    expect("http: {listen: ['127.0.0.1:8080']}", "", "", 0);
    expect("state: {priors: false}", "", "", 0); /* kept nowhere */
}

static void every_kind_of_value_is_compared(void **state)
{
    (void)state;
    expect("", "log: {level: debug}", "log.level", CONF_LIVE);
    expect("", "http: {drain_timeout: 1s}", "http.drain_timeout", CONF_LIVE);
    expect("", "engine: {queue: 8}", "engine.queue", CONF_PLAN);
    expect("", "memory: {ram: 8GiB}", "memory.ram", CONF_PLAN);
    expect("", "http: {workers: 3}", "http.workers", CONF_WORKERS | CONF_PLAN);
    expect("", "model: {strict_names: true}", "model.strict_names", CONF_WORKERS);
    expect("model: {aliases: [a, b]}", "model: {aliases: [a, c]}", "model.aliases", CONF_WORKERS);
    expect("model: {aliases: [a, b]}", "model: {aliases: [a]}", "model.aliases", CONF_WORKERS);
    expect("", "engine: {context: 512}", "engine.context", CONF_ENGINE);
    expect("", "memory: {kv_dtype: f32}", "memory.kv_dtype", CONF_ENGINE);
    expect("", "memory: {dense: fp8}", "memory.dense", CONF_ENGINE);
    expect("", "http: {listen: [':1']}", "http.listen", CONF_RESTART);
    expect("", "admin: {socket: ''}", "admin.socket", CONF_RESTART);
    expect("", "model: {dir: /srv/n}", "model.dir model.name",
           CONF_WORKERS | CONF_ENGINE); /* the name follows from the directory */
    expect("engine: {queue: 1}", "http: {body: 1MiB}\nlog: {level: err}",
           "engine.queue http.body log.level", CONF_PLAN | CONF_WORKERS | CONF_LIVE);
}

static void every_key_that_is_built_says_who_begins_anew(void **state)
{
    const unsigned all = CONF_LIVE | CONF_WORKERS | CONF_ENGINE | CONF_PLAN | CONF_RESTART;

    (void)state;
    for (size_t i = 0; conf_key_at(i); i++) {
        const struct conf_key *key = conf_key_at(i);
        if (key->kind == CONF_UNBUILT)
            assert_int_equal(key->change, 0);
        else if (key->change == 0 || key->change & ~all)
            fail_msg("%s.%s: change %#x", key->section, key->name, key->change);
    }
}

static void what_needs_a_restart_is_kept_and_nothing_else(void **state)
{
    struct conf now, next;
    struct conf_diff d;
    struct err err;

    (void)state;
    parse(&now, "http: {listen: ['127.0.0.1:1', '127.0.0.1:2']}\nadmin: {socket: /a}\n"
                "engine: {queue: 1}");
    parse(&next, "http: {listen: ['127.0.0.1:3']}\nadmin: {socket: /b}\nengine: {queue: 2}");
    assert_int_equal(conf_keep(&next, &now, CONF_RESTART, &err), 0);
    conf_diff(&d, &now, &next);
    assert_int_equal(d.n, 1);
    assert_true(conf_diff_has(&d, "engine", "queue"));
    assert_int_equal(next.n_listen, 2);
    assert_string_equal(next.listen[1], "127.0.0.1:2");
    assert_ptr_not_equal(next.listen[1], now.listen[1]);
    assert_string_equal(next.admin_socket, "/a");
    conf_done(&now);
    conf_done(&next);
}

/* ---- model_mark ---- */

static void write_file(const char *dir, const char *name, const char *text)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void a_mark_changes_with_files_of_the_model_only(void **state)
{
    char dir[] = "/tmp/colizig-mark-XXXXXX", from[64], to[64], command[64];
    struct stat about;

    (void)state;
    assert_non_null(mkdtemp(dir));
    write_file(dir, "config.json", "{}");
    write_file(dir, "model.safetensors", "weights");
    uint64_t mark = model_mark(dir);
    assert_true(mark != 0);
    assert_int_equal(model_mark(dir), mark);
    write_file(dir, "README.md", "not of the model");
    assert_int_equal(model_mark(dir), mark);

    write_file(dir, "tokenizer.json", "{}");
    uint64_t more = model_mark(dir);
    assert_true(more != mark);
    /* Replaced by one of the same size and time: another inode. */
    snprintf(from, sizeof from, "%s/tokenizer.json", dir);
    snprintf(to, sizeof to, "%s/other", dir);
    write_file(dir, "other", "[]");
    assert_int_equal(stat(from, &about), 0);
    const struct timespec times[2] = { about.st_atim, about.st_mtim };
    assert_int_equal(utimensat(0, to, times, 0), 0);
    assert_int_equal(rename(to, from), 0);
    assert_true(model_mark(dir) != more);

    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(model_mark(dir), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_the_same_is_no_change),
        cmocka_unit_test(every_kind_of_value_is_compared),
        cmocka_unit_test(every_key_that_is_built_says_who_begins_anew),
        cmocka_unit_test(what_needs_a_restart_is_kept_and_nothing_else),
        cmocka_unit_test(a_mark_changes_with_files_of_the_model_only),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
