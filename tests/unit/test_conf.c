/* The configuration: what is read from YAML and command lines, and what is refused where. */
#include "daemon/base/listen.h"
#include "daemon/conf/conf.h"
#include "util/err.h"
#include "util/size.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int parse(struct conf *c, const char *text, struct err *err)
{
    conf_init(c);
    return conf_parse(c, "test.yaml", text, strlen(text), err);
}

/* The text must be refused, at this place, with these words in the message. */
static void refuse(const char *text, const char *where, const char *words)
{
    struct conf c;
    struct err err = { 0 };

    int rc = parse(&c, text, &err);
    conf_done(&c);
    if (rc != -1)
        fail_msg("accepted: %s", text);
    assert_int_equal(err.kind, ERR_INPUT);
    if (!strstr(err.text, where) || !strstr(err.text, words))
        fail_msg("for '%s' the message '%s' lacks '%s' or '%s'", text, err.text, where, words);
}

static void the_table_of_the_manual_is_the_default(void **state)
{
    static const char table[] =
        "model:  { dir: /srv/m, name: null, aliases: [], strict_names: false, chat_template: null, "
        "mirrors: [] }\n"
        "memory: { ram: auto, vram: 0, profile: null, kv: auto, kv_dtype: bf16, dense: bf16, "
        "expert_slots: auto, reasoning: auto, lock: false }\n"
        "engine: { device: cpu, threads: auto, kernels: auto, numerics: invariant, context: auto, "
        "sequences: 4, queue: 32, prefill_rows: auto, token_gap: 2s, "
        "prefix_cache: true, io: auto, stall_timeout: 300s }\n"
        "http:   { listen: [\"127.0.0.1:8080\"], workers: 2, connections: 256, per_address: 64, "
        "body: 32MiB, buffer: 64MiB, header_timeout: 10s, body_timeout: 30s, idle_timeout: 60s, "
        "drain_timeout: 30s, keepalive: 10s, keys_file: null, cors: [], hosts: [] }\n"
        "admin:  { socket: /run/colizig/admin.sock }\n"
        "state:  { dir: /var/lib/colizig, priors: true, disk_cache: 0 }\n"
        "log:    { level: info }\n";
    struct conf written, silent;
    struct err err;
    char *a, *b;
    size_t a_size, b_size;

    (void)state;
    assert_int_equal(parse(&written, table, &err), 0);
    assert_int_equal(parse(&silent, "model: {dir: /srv/m}", &err), 0);
    assert_int_equal(conf_finish(&written, &err), 0);
    assert_int_equal(conf_finish(&silent, &err), 0);
    assert_int_equal(conf_write(&written, &a, &a_size, &err), 0);
    assert_int_equal(conf_write(&silent, &b, &b_size, &err), 0);
    assert_string_equal(a, b);
    assert_int_equal(silent.engine.context, 0);
    assert_int_equal(silent.engine.ram, 0);
    assert_true(silent.engine.direct_io);
    assert_int_equal(silent.buffer, 64 * MIB);
    assert_int_equal(silent.engine.http_buffer, 64 * MIB);
    assert_int_equal(silent.engine.workers, 2);
    assert_ptr_equal(silent.engine.model_dir, silent.model_dir);
    assert_string_equal(silent.model_name, "m");
    free(a);
    free(b);
    conf_done(&written);
    conf_done(&silent);
}

static void values_land_where_they_belong(void **state)
{
    struct conf c;
    struct err err;

    (void)state;
    assert_int_equal(parse(&c,
                           "model:\n  dir: /srv/models/A3B\n  aliases: [gpt-4o, 'x y']\n"
                           "  strict_names: true\n"
                           "memory: {ram: 1.5G, kv: 256MiB, kv_dtype: f32, dense: fp8, expert_slots: 40, "
                           "lock: true, profile: laptop, reasoning: 3MiB}\n"
                           "engine: {threads: 3, kernels: avx2, context: auto, queue: 0, "
                           "prefill_rows: 64, token_gap: 250ms, prefix_cache: false, io: buffered, stall_timeout: 2m}\n"
                           "http: {listen: ['127.0.0.1:1', '[::1]:2'], drain_timeout: 0s}\n"
                           "log: {level: debug}\n",
                           &err),
                     0);
    assert_int_equal(conf_finish(&c, &err), 0);
    assert_string_equal(c.model_dir, "/srv/models/A3B");
    assert_int_equal(c.n_aliases, 2);
    assert_string_equal(c.aliases[1], "x y");
    assert_true(c.strict_names);
    assert_int_equal(c.engine.ram, GIB + GIB / 2);
    assert_int_equal(c.engine.kv, 256 * MIB);
    assert_int_equal(c.engine.kv_dtype, CZ_KV_F32);
    assert_int_equal(c.engine.dense, CZ_DENSE_FP8);
    assert_int_equal(c.engine.profile, CZ_PROFILE_LAPTOP);
    assert_int_equal(c.engine.expert_slots, 40);
    assert_int_equal(c.engine.reasoning_memory, 3 * MIB);
    assert_true(c.engine.lock);
    assert_int_equal(c.engine.threads, 3);
    assert_int_equal(c.engine.kernels, CZ_KERNELS_AVX2);
    assert_int_equal(c.engine.context, 0);
    assert_int_equal(c.engine.queue, 0);
    assert_int_equal(c.engine.token_gap_ms, 250);
    assert_true(c.engine.no_prefix_cache);
    assert_false(c.engine.direct_io);
    assert_int_equal(c.engine.stall_timeout_ms, 120000);
    assert_int_equal(c.n_listen, 2);
    assert_string_equal(c.listen[1], "[::1]:2");
    assert_int_equal(c.drain_timeout_ms, 0);
    assert_int_equal(c.log_level, 7);
    conf_done(&c);
}

/* Where 0 means none, auto is no 0. */
static void memory_for_replies_may_be_none_or_automatic(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = { { "", CZ_MEMORY_AUTO },
                  { "memory: {reasoning: auto}\n", CZ_MEMORY_AUTO },
                  { "memory: {reasoning: 0}\n", 0 },
                  { "memory: {reasoning: 1MiB}\n", MIB } };
    struct conf c, again;
    struct err err;
    size_t size;
    char *text;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(parse(&c, cases[i].text, &err), 0);
        assert_int_equal(c.engine.reasoning_memory, cases[i].bytes);
        assert_int_equal(conf_write(&c, &text, &size, &err), 0);
        conf_init(&again);
        again.engine.reasoning_memory = 5;
        assert_int_equal(conf_parse(&again, "written", text, size, &err), 0);
        assert_int_equal(again.engine.reasoning_memory, cases[i].bytes);
        free(text);
        conf_done(&c);
        conf_done(&again);
    }
    refuse("memory: {reasoning: none}\n", "test.yaml:1:21", "or auto");
}

static void unknown_names_are_refused_with_the_nearest_one(void **state)
{
    (void)state;
    refuse("memory:\n  ram: 8G\n  ramm: 8G\n", "test.yaml:3:3", "did you mean 'ram'");
    refuse("engine: {contxt: 5}", "test.yaml:1:10", "did you mean 'context'");
    refuse("mem: {}", "test.yaml:1:1", "did you mean");
    refuse("http: {context: 5}", "test.yaml:1:8", "belongs under 'engine'");
    refuse("http: {zzzzzzzzzzzzzzzz: 5}", "test.yaml:1:8", "unknown key 'zzzz");
    refuse("ram: 8G", "test.yaml:1:1", "unknown section 'ram'");
    refuse("? [a]\n: 1", "test.yaml:1:3", "plain word");
    refuse("model: {? {a: b} : 1}", "test.yaml:1", "plain word");
}

static void doubled_keys_and_sections_are_refused(void **state)
{
    (void)state;
    refuse("memory: {ram: 8G, ram: 9G}", "test.yaml:1:19", "memory.ram is there twice");
    refuse("memory: {ram: 8G}\nlog: {}\nmemory: {kv: 1G}", "test.yaml:3:1", "twice");
}

static void numbers_nobody_can_mean_are_refused(void **state)
{
    static const char *const sizes[] = { "12 giraffes", "-1", "0", "1e30", "8 Q", "0x10", "''",
                                         "null", "8Gx", "+8G", "99999999999999999999", "1.G",
                                         ".5G", "8G 8G", "inf", "nan", "yes", "2048TiB" };
    static const char *const counts[] = { "-1", "1.5", "1e3", "0x10", "4294967296", "", "auto ",
                                          "999999999999999999999999", "four", "1 2" };
    static const char *const durations[] = { "10", "-1s", "1.5s", "10 s", "s", "10sec", "1d",
                                             "9999999999999999s", "5000000000ms", "'' ", "2h" };
    char text[128];

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        snprintf(text, sizeof text, "memory:\n  ram: %s\n", sizes[i]);
        refuse(text, "test.yaml:2:", "memory.ram: ");
    }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        snprintf(text, sizeof text, "engine:\n  sequences: '%s'\n", counts[i]);
        refuse(text, "test.yaml:2:14", "engine.sequences: ");
    }
    for (size_t i = 0; i < sizeof durations / sizeof *durations; i++) {
        snprintf(text, sizeof text, "http:\n  keepalive: %s\n", durations[i]);
        refuse(text, "test.yaml:2:14", "http.keepalive: ");
    }
    refuse("engine: {sequences: 0}", "test.yaml:1:21", "outside 1 to 256");
    refuse("http: {workers: 65}", "test.yaml:1:17", "outside 1 to 64");
    refuse("engine: {sequences: auto}", "test.yaml:1:21", "no whole number");
}

static void words_outside_a_choice_are_refused_with_the_choices(void **state)
{
    (void)state;
    refuse("engine: {kernels: sse}", "test.yaml:1:19", "auto, scalar, avx2, avx512");
    refuse("memory: {lock: yes}", "test.yaml:1:16", "true, false");
    refuse("memory: {kv_dtype: null}", "test.yaml:1:20", "bf16, f32");
    refuse("memory: {dense: f32}", "test.yaml:1:17", "bf16, fp8");
    refuse("log: {level: loud}", "test.yaml:1:14", "debug");
}

static void what_is_not_built_is_refused_by_name_and_its_default_is_not(void **state)
{
    struct conf c;
    struct err err;

    (void)state;
    refuse("memory: {vram: 4G}", "test.yaml:1:16", "memory.vram: '4G' is not built");
    refuse("engine: {device: cuda}", "test.yaml:1:18", "engine.device: 'cuda' is not built");
    refuse("engine: {numerics: fast}", "test.yaml:1", "not built");
    refuse("engine: {io: io_uring}", "test.yaml:1", "not built");
    refuse("model: {mirrors: [/mnt/b]}", "test.yaml:1:19", "model.mirrors: is not built");
    refuse("model: {mirrors: /mnt/b}", "test.yaml:1", "not built");
    refuse("model: {mirrors: [x]}", "test.yaml:1", "not built");
    refuse("http: {keys_file: /etc/keys}", "test.yaml:1", "not built");
    refuse("state: {disk_cache: 1G}", "test.yaml:1", "not built");
    assert_int_equal(parse(&c, "http: {keys_file: ~}\nmemory: {vram: 0}", &err), 0);
    conf_done(&c);
}

static void shapes_that_do_not_fit_are_refused_where_they_start(void **state)
{
    (void)state;
    refuse("memory: 8G", "test.yaml:1:9", "section");
    refuse("memory: [ram]", "test.yaml:1:9", "section");
    refuse("[1, 2]", "test.yaml:1:1", "sections");
    refuse("hello", "test.yaml:1:1", "sections");
    refuse("memory: {ram: [8G]}", "test.yaml:1:15", "must not be a list");
    refuse("memory: {ram: {a: 8G}}", "test.yaml:1:15", "plain value");
    refuse("http: {listen: 127.0.0.1:80}", "test.yaml:1:16", "list");
    refuse("http: {listen: []}", "test.yaml:1:16", "at least one");
    refuse("http: {listen: [[a]]}", "test.yaml:1:17", "plain values");
    refuse("http: {listen: [a,a,a,a,a,a,a,a,a]}", "test.yaml:1:33", "more than 8");
    refuse("model: {dir: ''}", "test.yaml:1:14", "empty");
    refuse("model: {dir: \"a\\nb\"}", "test.yaml:1:14", "control character");
    refuse("model: {dir: \"a\\0b\"}", "test.yaml:1:14", "plain value");
    refuse("log: {}\n---\nlog: {}", "test.yaml:2:1", "second document");
}

static void anchors_aliases_and_tags_are_refused(void **state)
{
    (void)state;
    refuse("memory: &m {ram: 8G}", "test.yaml:1:9", "anchors");
    refuse("memory: {ram: &x 8G, kv: *x}", "test.yaml:1:15", "anchors");
    refuse("memory: *m", "test.yaml:1:9", "aliases");
    refuse("memory: {ram: !!str 8G}", "test.yaml:1:15", "tags");
    refuse("memory: {<<: {ram: 8G}}", "test.yaml:1:10", "unknown key");
}

static void text_that_is_no_yaml_is_refused_with_its_line(void **state)
{
    (void)state;
    refuse("memory: {ram: 8G", "test.yaml:", "");
    refuse("memory:\n\tram: 8G\n", "test.yaml:2:", "");
    refuse("memory: {ram: \"8G}\n", "test.yaml:", "");
    refuse("memory:\n ram: 8G\n}\n", "test.yaml:3:", "");
    refuse("\xff\xff", "test.yaml:", "");
    refuse("a: \xc3\x28", "test.yaml:", "");
}

static void nesting_and_size_cost_nothing(void **state)
{
    enum { SIZE = 200000 };
    char *text = malloc(SIZE + 1);
    char *large = calloc(1, 300 << 10);
    struct conf c;
    struct err err;

    (void)state;
    assert_non_null(text);
    assert_non_null(large);
    memset(text, '[', SIZE);
    text[SIZE] = '\0';
    assert_int_equal(parse(&c, text, &err), -1);
    conf_done(&c);
    memcpy(text, "http: {cors: ", 13);
    assert_int_equal(parse(&c, text, &err), -1);
    conf_done(&c);
    memset(large, '#', 300 << 10);
    conf_init(&c);
    assert_int_equal(conf_parse(&c, "x", large, 300 << 10, &err), -1);
    assert_non_null(strstr(err.text, "256 KiB"));
    conf_done(&c);
    free(text);
    free(large);
}

static void an_empty_file_is_all_defaults(void **state)
{
    static const char *const empty[] = { "", "\n", "# nothing\n", "---\n", "null\n", "log:\n",
                                         "model: ~\nlog: {}\n" };
    struct conf c;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof empty / sizeof *empty; i++) {
        assert_int_equal(parse(&c, empty[i], &err), 0);
        assert_int_equal(c.workers, 2);
        conf_done(&c);
    }
}

static void what_is_written_is_read_back_the_same(void **state)
{
    struct conf c, again;
    struct err err;
    char *first, *second;
    size_t first_size, second_size;

    (void)state;
    assert_int_equal(parse(&c,
                           "model: {dir: \"/srv/it's #1: [a] \\\"b\\\" \xc3\xa9\", "
                           "aliases: [\"a'b\", '- x']}\n"
                           "memory: {ram: 123456789, kv: 77MiB, profile: gpu}\n"
                           "engine: {token_gap: 1ms, kernels: avx512, io: buffered}\n"
                           "admin: {socket: ''}\nlog: {level: err}\n",
                           &err),
                     0);
    assert_int_equal(conf_finish(&c, &err), 0);
    assert_int_equal(conf_write(&c, &first, &first_size, &err), 0);
    conf_init(&again);
    assert_int_equal(conf_parse(&again, "again", first, first_size, &err), 0);
    assert_int_equal(conf_finish(&again, &err), 0);
    assert_string_equal(again.model_dir, c.model_dir);
    assert_string_equal(again.model_name, c.model_name);
    assert_string_equal(again.aliases[0], "a'b");
    assert_string_equal(again.admin_socket, "");
    assert_int_equal(again.engine.ram, 123456789);
    assert_int_equal(again.engine.kernels, CZ_KERNELS_AVX512);
    assert_int_equal(conf_write(&again, &second, &second_size, &err), 0);
    assert_string_equal(first, second);
    free(first);
    free(second);
    conf_done(&c);
    conf_done(&again);
}

static void names_of_pages_and_hosts_are_checked(void **state)
{
    static const char *const bad[] = {
        "cors: ['*']", "cors: [chat.home.lan]", "cors: ['https://a/']", "cors: ['https://']",
        "cors: ['://a']", "cors: ['https://a b']", "hosts: ['a:80']", "hosts: ['a/b']",
        "hosts: ['[fd00::7']", "hosts: ['[x]']", "hosts: ['*']" };
    char text[128];
    struct conf c;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, "model: {dir: /m}\nhttp: {%s}", bad[i]);
        assert_int_equal(parse(&c, text, &err), 0);
        if (conf_finish(&c, &err) != -1)
            fail_msg("accepted: %s", bad[i]);
        assert_int_equal(err.kind, ERR_INPUT);
        assert_non_null(strstr(err.text, bad[i][0] == 'c' ? "http.cors" : "http.hosts"));
        conf_done(&c);
    }
    assert_int_equal(parse(&c, "model: {dir: /m}\nhttp: {cors: ['https://chat.home.lan', "
                               "'app://obsidian.md', 'http://10.0.0.7:3000'], "
                               "hosts: [llm.home.lan, '[fd00::7]', 10.0.0.7]}", &err), 0);
    assert_int_equal(conf_finish(&c, &err), 0);
    assert_int_equal(c.n_cors, 3);
    assert_string_equal(c.hosts[1], "[fd00::7]");
    conf_done(&c);
}

static void settings_of_the_command_line_stand_over_the_file(void **state)
{
    struct conf c;
    struct err err;

    (void)state;
    assert_int_equal(parse(&c, "memory: {ram: 8G}\nhttp: {listen: ['127.0.0.1:1']}", &err), 0);
    assert_int_equal(conf_set(&c, "--ram", "memory.ram", "1G", false, &err), 0);
    assert_int_equal(conf_set(&c, "--listen", "http.listen", "127.0.0.1:2", false, &err), 0);
    assert_int_equal(conf_set(&c, "--listen", "http.listen", "127.0.0.1:3", true, &err), 0);
    assert_int_equal(c.engine.ram, GIB);
    assert_int_equal(c.n_listen, 2);
    assert_string_equal(c.listen[0], "127.0.0.1:2");
    assert_int_equal(conf_set(&c, "--ram", "memory.ram", "12 giraffes", false, &err), -1);
    assert_non_null(strstr(err.text, "--ram: '12 giraffes'"));
    assert_int_equal(conf_set(&c, "--model", "model.dir", "/m/\xff", false, &err), -1);
    assert_non_null(strstr(err.text, "UTF-8"));
    /* Children read their settings as YAML, which knows these as the ends of lines or not at all. */
    const char *const odd[] = { "/m/\xc2\x80", "/m/\xc2\x85n", "/m/\xc2\x9f", "/m/\xef\xbf\xbf" };
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        assert_int_equal(conf_set(&c, "--model", "model.dir", odd[i], false, &err), -1);
        assert_non_null(strstr(err.text, "control character"));
    }
    assert_int_equal(conf_set(&c, "--model", "model.dir", "/m/\xc2\xa0", false, &err), 0);
    assert_int_equal(conf_set(&c, "x.y", "x.y", "1", false, &err), -1);
    assert_int_equal(conf_set(&c, "ram", "ram", "1", false, &err), -1);
    conf_done(&c);
}

static void finish(const char *text, const char *words)
{
    struct conf c;
    struct err err;

    assert_int_equal(parse(&c, text, &err), 0);
    assert_int_equal(conf_finish(&c, &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    assert_non_null(strstr(err.text, words));
    conf_done(&c);
}

static void what_only_the_whole_can_tell_is_told(void **state)
{
    (void)state;
    finish("", "no model");
    finish("model: {dir: /}", "model.name");
    finish("model: {dir: ..}", "model.name");
    finish("model: {dir: m}\nhttp: {listen: ['8080']}", "'8080'");
    finish("model: {dir: m}\nhttp: {listen: ['127.0.0.1:65536']}", "127.0.0.1:65536");
    finish("model: {dir: m}\nhttp: {body: 65MiB}", "http.body");
}

static void a_model_is_named_after_its_directory(void **state)
{
    static const char *const names[][2] = {
        { "/srv/models/Qwen3-30B/", "Qwen3-30B" },
        { "Qwen3", "Qwen3" },
        { "/c/hub/models--Qwen--Qwen3-30B-A3B-FP8/snapshots/4ac3", "Qwen3-30B-A3B-FP8" },
        { "/c/snapshots/4ac3//", "4ac3" },
    };
    struct conf c;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        conf_init(&c);
        assert_int_equal(conf_set(&c, "--model", "model.dir", names[i][0], false, &err), 0);
        assert_int_equal(conf_finish(&c, &err), 0);
        assert_string_equal(c.model_name, names[i][1]);
        conf_done(&c);
    }
}

static void addresses_that_others_reach_are_refused(void **state)
{
    static const struct {
        const char *address;
        int rc;
    } cases[] = { { "127.0.0.1:80", 0 }, { "127.9.9.9:80", 0 }, { "[::1]:80", 0 },
                  { "localhost:80", 0 }, { "0.0.0.0:80", -1 },  { "*:80", -1 },
                  { ":80", -1 },         { "[::]:80", -1 },     { "192.168.1.2:80", -1 } };
    struct conf c;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        conf_init(&c);
        assert_int_equal(conf_set(&c, "l", "http.listen", cases[i].address, false, &err), 0);
        assert_int_equal(conf_set(&c, "m", "model.dir", "m", false, &err), 0);
        assert_int_equal(conf_finish(&c, &err), 0);
        assert_int_equal(conf_check_exposure(&c, &err), cases[i].rc);
        if (cases[i].rc)
            assert_non_null(strstr(err.text, "--insecure-no-auth"));
        conf_done(&c);
    }
}

static void text_that_is_no_address_is_refused(void **state)
{
    static const char *const wrong[] = { "",           "127.0.0.1",     "127.0.0.1:",
                                         "1.2.3:80",   "[::1:80",       "::1:80",
                                         "a.b:80",     "127.0.0.1:-1",  "127.0.0.1:80x",
                                         "[::1]:99999", "[127.0.0.1]:80", "127.0.0.1:000080" };
    struct listen_address a;
    struct err err;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (listen_parse(&a, wrong[i], &err) == 0)
            fail_msg("accepted '%s'", wrong[i]);
}

static void the_files_that_come_with_us_are_fine(void **state)
{
    static const char *const files[] = { "conf/colizigd.yaml", "conf/tiny.yaml" };
    struct conf c;
    struct err err = { 0 };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        conf_init(&c);
        if (conf_read(&c, files[i], &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(conf_finish(&c, &err), 0);
        conf_done(&c);
    }
    conf_init(&c);
    assert_int_equal(conf_read(&c, "conf/no-such.yaml", &err), -1);
    assert_int_equal(err.kind, ERR_INPUT);
    assert_int_equal(conf_read(&c, "conf", &err), -1);
    conf_done(&c);
}

static void random_changes_of_a_good_file_never_crash(void **state)
{
    static const char good[] = "model: {dir: /m, aliases: [a, 'b']}\nmemory:\n  ram: 8G # x\n"
                               "http: {listen: [\"127.0.0.1:80\"], body: 1MiB}\n"
                               "log: {level: err}\n";
    static const char spice[] = "{}[]:,'\"#&*!|>%@`-\n\t ?~\\\xc3\xff";
    uint64_t seed = 42;

    (void)state;
    for (int round = 0; round < 20000; round++) {
        char text[sizeof good];
        struct conf c;
        struct err err;

        memcpy(text, good, sizeof good);
        for (int i = 0; i < 1 + round % 4; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            text[(seed >> 33) % (sizeof good - 1)] = spice[(seed >> 20) % (sizeof spice - 1)];
        }
        conf_init(&c);
        int rc = conf_parse(&c, "x", text, sizeof good - 1, &err);
        assert_true(rc == 0 || err.kind == ERR_INPUT);
        conf_done(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_of_the_manual_is_the_default),
        cmocka_unit_test(values_land_where_they_belong),
        cmocka_unit_test(memory_for_replies_may_be_none_or_automatic),
        cmocka_unit_test(unknown_names_are_refused_with_the_nearest_one),
        cmocka_unit_test(doubled_keys_and_sections_are_refused),
        cmocka_unit_test(numbers_nobody_can_mean_are_refused),
        cmocka_unit_test(words_outside_a_choice_are_refused_with_the_choices),
        cmocka_unit_test(what_is_not_built_is_refused_by_name_and_its_default_is_not),
        cmocka_unit_test(shapes_that_do_not_fit_are_refused_where_they_start),
        cmocka_unit_test(anchors_aliases_and_tags_are_refused),
        cmocka_unit_test(text_that_is_no_yaml_is_refused_with_its_line),
        cmocka_unit_test(nesting_and_size_cost_nothing),
        cmocka_unit_test(an_empty_file_is_all_defaults),
        cmocka_unit_test(what_is_written_is_read_back_the_same),
        cmocka_unit_test(names_of_pages_and_hosts_are_checked),
        cmocka_unit_test(settings_of_the_command_line_stand_over_the_file),
        cmocka_unit_test(what_only_the_whole_can_tell_is_told),
        cmocka_unit_test(a_model_is_named_after_its_directory),
        cmocka_unit_test(addresses_that_others_reach_are_refused),
        cmocka_unit_test(text_that_is_no_address_is_refused),
        cmocka_unit_test(the_files_that_come_with_us_are_fine),
        cmocka_unit_test(random_changes_of_a_good_file_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
