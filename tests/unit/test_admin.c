/* The admin socket: lines in pieces and in heaps, operations and their late answers. */
#include "daemon/admin/admin.h"
#include "daemon/admin/admin_line.h"
#include "daemon/base/log.h"
#include "daemon/base/nearest.h"
#include "util/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- lines ---- */

static enum err_kind parse(struct admin_line *line, const char *text)
{
    struct err err = { .kind = ERR_NONE };

    if (admin_line_parse(line, text, strlen(text), &err) == 0)
        return ERR_NONE;
    assert_true(err.kind != ERR_NONE && err.text[0]);
    return err.kind;
}

static void a_line_is_a_command_with_its_fields(void **state)
{
    struct admin_line line;

    (void)state;
    assert_int_equal(parse(&line, "{\"cmd\":\"experts\"}"), ERR_NONE);
    assert_true(line.verb == ADMIN_EXPERTS && !line.acts && line.top == 20 && !line.id);
    assert_int_equal(parse(&line, "{\"cmd\":\"experts\",\"top\":null}"), ERR_NONE);
    assert_int_equal(line.top, 20);
    assert_int_equal(parse(&line, "{\"top\":0,\"cmd\":\"experts\"}"), ERR_NONE);
    assert_int_equal(line.top, 0);
    assert_int_equal(parse(&line, "{\"cmd\":\"cancel\",\"request\":\"req_1-A\"}"), ERR_NONE);
    assert_true(line.acts);
    assert_string_equal(line.request, "req_1-A");
    assert_int_equal(parse(&line, "{\"cmd\":\"drain\"}"), ERR_NONE);
    assert_true(line.acts && line.timeout_ms == 0);
    assert_int_equal(parse(&line, "{\"cmd\":\"drain\",\"timeout\":\"2m\"}"), ERR_NONE);
    assert_int_equal(line.timeout_ms, 120000);
    assert_int_equal(parse(&line, "{\"cmd\":\"drain\",\"timeout\":1500}"), ERR_NONE);
    assert_int_equal(line.timeout_ms, 1500);
    assert_int_equal(parse(&line, "{\"cmd\":\"budget\",\"ram\":\"1.5G\"}"), ERR_NONE);
    assert_true(line.acts && line.ram == 3ull << 29);
    assert_int_equal(parse(&line, "{\"cmd\":\"budget\",\"ram\":12345}"), ERR_NONE);
    assert_int_equal(line.ram, 12345);
    assert_int_equal(parse(&line, "{\"cmd\":\"log\"}"), ERR_NONE);
    assert_true(!line.acts && line.level == 0);
    assert_int_equal(parse(&line, "{\"cmd\":\"log\",\"level\":\"debug\"}"), ERR_NONE);
    assert_true(line.acts && line.level == LOG_LEVEL_DEBUG);
    assert_int_equal(parse(&line, "{\"cmd\":\"watch\"}"), ERR_NONE);
    assert_true(!line.acts && line.every_ms == 1000);
}

static void what_is_wrong_in_a_line_is_refused_and_its_id_is_kept(void **state)
{
    static const char *const wrong[] = {
        "", " ", "{", "[]", "\"cmd\"", "{\"cmd\":\"cancel\"}", "{\"cmd\":\"cancel\",\"request\":\"\"}",
        "{\"cmd\":\"cancel\",\"request\":\"0123456789012345678901234567890123456789\"}",
        "{\"cmd\":\"drain\",\"timeout\":0}", "{\"cmd\":\"drain\",\"timeout\":\"0s\"}",
        "{\"cmd\":\"drain\",\"timeout\":4294967296}", "{\"cmd\":\"budget\",\"ram\":-1}",
        "{\"cmd\":\"budget\",\"ram\":1.5}", "{\"cmd\":\"log\",\"level\":7}",
        "{\"cmd\":\"watch\",\"every_ms\":3600001}", "{\"cmd\":\"stats\",\"id\":[]}",
    };
    struct admin_line line;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(parse(&line, wrong[i]), ERR_INPUT);
        assert_null(line.id);
    }
    assert_int_equal(parse(&line, "{\"id\":7,\"cmd\":\"nope\"}"), ERR_UNSUPPORTED);
    assert_int_equal(json_integer_value(line.id), 7);
    admin_line_done(&line);
    assert_int_equal(parse(&line, "{\"cmd\":\"cancel\",\"id\":\"x\"}"), ERR_INPUT);
    assert_string_equal(json_string_value(line.id), "x");
    admin_line_done(&line);
}

static void the_nearest_word_is_one_slip_away(void **state)
{
    static const char *const words[] = { "status", "stats", "cancel", "--context", "log" };

    (void)state;
    assert_string_equal(nearest("statsu", words, 5), "status");
    assert_string_equal(nearest("stat", words, 5), "status");
    assert_string_equal(nearest("cancle", words, 5), "cancel");
    assert_string_equal(nearest("cansel", words, 5), "cancel");
    assert_string_equal(nearest("--contxet", words, 5), "--context");
    assert_string_equal(nearest("--cont", words, 5), "--context");
    assert_string_equal(nearest("logg", words, 5), "log");
    assert_null(nearest("budget", words, 5));
    assert_null(nearest("", words, 5));
    assert_null(nearest("x", words, 5));
    char endless[500];
    memset(endless, 's', sizeof endless);
    endless[sizeof endless - 1] = '\0';
    assert_null(nearest(endless, words, 5));
}

/* ---- a socket with operations that only remember ---- */

enum { N_QUESTIONS = 64 };

struct scene {
    sd_event *loop;
    struct admin *admin;
    char dir[64], path[96];
    uint64_t ids[N_QUESTIONS]; /* of what was begun */
    char questions[N_QUESTIONS][128];
    size_t n;
    uint32_t drained_ms;
    int level;
    uint64_t ram;
    bool at_once; /* a reload is answered within the call */
    bool lengthy; /* a status is more than a socket holds */
};

static json_t *tell_status(void *ctx)
{
    const struct scene *s = ctx;
    json_t *status = json_pack("{s:s}", "phase", "serving");

    if (s->lengthy) {
        enum { SIZE = 2 << 20 };
        char *text = malloc(SIZE);
        assert_non_null(text);
        memset(text, 'x', SIZE);
        json_object_set_new(status, "padding", json_stringn(text, SIZE));
        free(text);
    }
    return status;
}

static void begun(struct scene *s, uint64_t id, const char *what)
{
    assert_true(s->n < N_QUESTIONS);
    s->ids[s->n] = id;
    snprintf(s->questions[s->n++], sizeof s->questions[0], "%s", what);
}

static int ask(void *ctx, uint64_t id, const char *question, struct err *err)
{
    (void)err;
    begun(ctx, id, question);
    return 0;
}

static int reload(void *ctx, uint64_t id, struct err *err)
{
    struct scene *s = ctx;

    (void)err;
    begun(s, id, "reload");
    if (s->at_once)
        admin_answer(s->admin, id, ERR_NONE, "{\"applied\":[]}", 14);
    return 0;
}

static int budget(void *ctx, uint64_t id, uint64_t ram, struct err *err)
{
    struct scene *s = ctx;

    if (ram < 1000)
        return err_set(err, ERR_BUDGET, "the least is 1000 bytes");
    s->ram = ram;
    begun(s, id, "budget");
    return 0;
}

static int drain(void *ctx, uint32_t timeout_ms, struct err *err)
{
    struct scene *s = ctx;

    (void)err;
    s->drained_ms = timeout_ms;
    return 0;
}

static int set_log(void *ctx, int level, struct err *err)
{
    struct scene *s = ctx;

    (void)err;
    s->level = level;
    return 0;
}

static int open_scene(void **state)
{
    struct scene *s = calloc(1, sizeof *s);
    struct admin_ops ops = { .ctx = s, .status = tell_status, .ask = ask, .reload = reload,
                             .budget = budget, .drain = drain, .set_log = set_log };
    struct err err;
    int fd;

    assert_non_null(s);
    log_start("test", LOG_PROGRAM, LOG_LEVEL_ERR);
    snprintf(s->dir, sizeof s->dir, "/tmp/test-admin-XXXXXX");
    assert_non_null(mkdtemp(s->dir));
    snprintf(s->path, sizeof s->path, "%s/a.sock", s->dir);
    assert_true(sd_event_new(&s->loop) >= 0);
    assert_int_equal(admin_listen(&fd, s->path, &err), 0);
    assert_int_equal(admin_open(&s->admin, s->loop, fd, &ops, &err), 0);
    *state = s;
    return 0;
}

static int close_scene(void **state)
{
    struct scene *s = *state;

    admin_close(s->admin);
    sd_event_unref(s->loop);
    unlink(s->path);
    rmdir(s->dir);
    free(s);
    return 0;
}

/* As long as something is ready. */
static void turn(struct scene *s)
{
    for (int i = 0; i < 100000 && sd_event_run(s->loop, 0) > 0; i++)
        ;
}

static int come(struct scene *s)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    assert_true(fd >= 0);
    memcpy(address.sun_path, s->path, strlen(s->path) + 1);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    turn(s);
    return fd;
}

static void say(struct scene *s, int fd, const char *text)
{
    assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
    turn(s);
}

/* All that is there to read, at most cap - 1 bytes. */
static const char *hear(int fd, char *buf, size_t cap)
{
    ssize_t n = recv(fd, buf, cap - 1, MSG_DONTWAIT);

    buf[n > 0 ? n : 0] = '\0';
    return buf;
}

/* ---- framing ---- */

static void a_line_may_come_byte_by_byte(void **state)
{
    static const char line[] = "{\"id\":1,\"cmd\":\"status\"}\n";
    struct scene *s = *state;
    char buf[512];
    int fd = come(s);

    for (size_t i = 0; line[i]; i++) {
        assert_string_equal(hear(fd, buf, sizeof buf), "");
        say(s, fd, (char[]){ line[i], '\0' });
    }
    assert_string_equal(hear(fd, buf, sizeof buf),
                        "{\"id\":1,\"ok\":true,\"data\":{\"phase\":\"serving\"}}\n");
    close(fd);
}

static void a_line_waits_for_the_answer_before_it(void **state)
{
    struct scene *s = *state;
    char buf[512];
    int fd = come(s);

    say(s, fd, "{\"id\":1,\"cmd\":\"stats\"}\n{\"id\":2,\"cmd\":\"status\"}\n{\"id\":3,\"cm");
    assert_int_equal(s->n, 1);
    assert_string_equal(s->questions[0], "{\"cmd\":\"stats\"}");
    assert_string_equal(hear(fd, buf, sizeof buf), "");
    admin_answer(s->admin, s->ids[0] + 1, ERR_NONE, "{}", 2); /* nobody's */
    assert_string_equal(hear(fd, buf, sizeof buf), "");
    admin_answer(s->admin, s->ids[0], ERR_NONE, "{\"a\":1}", 7);
    turn(s);
    assert_string_equal(hear(fd, buf, sizeof buf),
                        "{\"id\":1,\"ok\":true,\"data\":{\"a\":1}}\n"
                        "{\"id\":2,\"ok\":true,\"data\":{\"phase\":\"serving\"}}\n");
    admin_answer(s->admin, s->ids[0], ERR_NONE, "{}", 2); /* twice */
    turn(s);
    say(s, fd, "d\":\"nope\"}\n");
    assert_non_null(strstr(hear(fd, buf, sizeof buf), "{\"id\":3,\"ok\":false"));
    close(fd);
}

static void a_line_of_64_kib_is_the_longest(void **state)
{
    enum { LONGEST = 64 << 10 };
    struct scene *s = *state;
    char buf[512], *line = malloc(LONGEST + 3);
    int fd = come(s), bytes = 4 << 20;

    assert_non_null(line);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    memset(line, ' ', LONGEST + 2);
    memcpy(line, "{\"cmd\":\"status\"}", 16);
    line[LONGEST] = '\n';
    line[LONGEST + 1] = '\0';
    say(s, fd, line);
    assert_non_null(strstr(hear(fd, buf, sizeof buf), "serving"));
    line[LONGEST] = ' ';
    line[LONGEST + 1] = '\n';
    line[LONGEST + 2] = '\0';
    say(s, fd, line);
    assert_non_null(strstr(hear(fd, buf, sizeof buf), "a line has at most 64 KiB"));
    assert_int_equal(recv(fd, buf, sizeof buf, MSG_DONTWAIT), 0); /* the end, and no reset */
    close(fd);
    free(line);
}

static void thousands_of_lines_keep_nobody_waiting(void **state)
{
    enum { N = 3000 };
    struct scene *s = *state;
    char buf[512], *heap = calloc(N, 20);
    int greedy = come(s), other = come(s);

    assert_non_null(heap);
    for (int i = 0; i < N; i++)
        strcat(heap + i * 17, "{\"cmd\":\"status\"}\n");
    assert_int_equal(send(greedy, heap, strlen(heap), MSG_NOSIGNAL), (ssize_t)strlen(heap));
    assert_int_equal(send(other, "{\"cmd\":\"log\"}\n", 14, MSG_NOSIGNAL), 14);
    for (int i = 0; i < 10; i++)
        sd_event_run(s->loop, 0);
    assert_non_null(strstr(hear(other, buf, sizeof buf), "level"));
    close(greedy);
    close(other);
    free(heap);
}

static void a_client_that_left_is_not_answered(void **state)
{
    struct scene *s = *state;
    int fd = come(s);

    say(s, fd, "{\"id\":1,\"cmd\":\"plan\"}\n");
    assert_int_equal(s->n, 1);
    close(fd);
    turn(s);
    admin_answer(s->admin, s->ids[0], ERR_NONE, "{}", 2);
    admin_fail_questions(s->admin);
    turn(s);
}

static void an_answer_above_4_mib_is_an_error(void **state)
{
    enum { SIZE = 5 << 20 };
    struct scene *s = *state;
    char buf[512], *text = malloc(SIZE);
    int fd = come(s);

    assert_non_null(text);
    memset(text, 'x', SIZE);
    text[0] = text[SIZE - 1] = '"';
    say(s, fd, "{\"id\":1,\"cmd\":\"plan\"}\n");
    admin_answer(s->admin, s->ids[0], ERR_NONE, text, SIZE);
    turn(s);
    assert_non_null(strstr(hear(fd, buf, sizeof buf), "larger than 4 MiB"));
    close(fd);
    free(text);
}

/* ---- operations ---- */

static void acts_reach_their_operation_with_its_argument(void **state)
{
    struct scene *s = *state;
    char buf[512];
    int fd = come(s);

    say(s, fd, "{\"cmd\":\"drain\",\"timeout\":\"3s\"}\n");
    assert_int_equal(s->drained_ms, 3000);
    assert_non_null(strstr(hear(fd, buf, sizeof buf), "\"draining\":true"));
    say(s, fd, "{\"cmd\":\"log\",\"level\":\"debug\"}\n");
    assert_int_equal(s->level, LOG_LEVEL_DEBUG);
    assert_non_null(strstr(hear(fd, buf, sizeof buf), "\"ok\":true"));
    say(s, fd, "{\"cmd\":\"budget\",\"ram\":\"2G\"}\n");
    assert_int_equal(s->ram, 2ull << 30);
    admin_answer(s->admin, s->ids[0], ERR_NONE, "{\"ram\":5}", 9);
    assert_non_null(strstr(hear(fd, buf, sizeof buf), "\"data\":{\"ram\":5}"));
    say(s, fd, "{\"cmd\":\"budget\",\"ram\":5}\n");
    assert_non_null(strstr(hear(fd, buf, sizeof buf),
                           "{\"kind\":\"budget\",\"message\":\"the least is 1000 bytes\"}"));
    say(s, fd, "{\"cmd\":\"cancel\",\"request\":\"req_5\"}\n");
    assert_string_equal(s->questions[1], "{\"cmd\":\"cancel\",\"request\":\"req_5\"}");
    admin_answer(s->admin, s->ids[1], ERR_INPUT, "no such request", 15);
    assert_non_null(strstr(hear(fd, buf, sizeof buf),
                           "{\"kind\":\"input\",\"message\":\"no such request\"}"));
    close(fd);
}

static void a_reload_outlives_the_engine_and_a_question_does_not(void **state)
{
    struct scene *s = *state;
    char buf[512];
    int asks = come(s), reloads = come(s);

    say(s, asks, "{\"id\":1,\"cmd\":\"requests\"}\n");
    say(s, reloads, "{\"id\":2,\"cmd\":\"reload\"}\n");
    assert_int_equal(s->n, 2);
    admin_fail_questions(s->admin);
    turn(s);
    assert_non_null(strstr(hear(asks, buf, sizeof buf), "\"kind\":\"closed\""));
    assert_string_equal(hear(reloads, buf, sizeof buf), "");
    admin_answer(s->admin, s->ids[1], ERR_NONE, "{\"applied\":[\"x\"]}", 17);
    assert_string_equal(hear(reloads, buf, sizeof buf),
                        "{\"id\":2,\"ok\":true,\"data\":{\"applied\":[\"x\"]}}\n");
    s->at_once = true;
    say(s, reloads, "{\"id\":3,\"cmd\":\"reload\"}\n{\"id\":4,\"cmd\":\"status\"}\n");
    assert_non_null(strstr(hear(reloads, buf, sizeof buf), "{\"id\":4,\"ok\":true"));
    close(asks);
    close(reloads);
}

/* ---- watching ---- */

/* Whatever happens within that time. */
static void turn_for(struct scene *s, uint64_t ms)
{
    for (uint64_t end = clock_ms() + ms, now; (now = clock_ms()) < end;)
        sd_event_run(s->loop, (end - now) * 1000);
}

static void a_watcher_that_does_not_read_costs_one_reply(void **state)
{
    struct scene *s = *state;
    char buf[65536];
    int fd = come(s);
    bool end = false;

    s->lengthy = true;
    say(s, fd, "{\"id\":1,\"cmd\":\"watch\",\"every_ms\":100}\n");
    turn_for(s, 20);
    assert_int_equal(s->n, 1);
    admin_answer(s->admin, s->ids[0], ERR_NONE, "{}", 2);
    turn_for(s, 350);
    assert_int_equal(s->n, 1); /* three ticks, and nothing is asked for somebody who is deaf */
    for (uint64_t limit = clock_ms() + 20000; !end && clock_ms() < limit;) {
        size_t n = strlen(hear(fd, buf, sizeof buf));
        end = n > 0 && buf[n - 1] == '\n';
        turn(s);
    }
    assert_true(end);
    turn_for(s, 150);
    assert_int_equal(s->n, 2);
    close(fd);
}

static void a_watch_ends_with_the_next_line_and_its_answer_is_nobodys(void **state)
{
    struct scene *s = *state;
    char buf[512];
    int fd = come(s);

    say(s, fd, "{\"id\":1,\"cmd\":\"watch\"}\n");
    turn_for(s, 20);
    assert_int_equal(s->n, 1);
    say(s, fd, "{\"id\":2,\"cmd\":\"log\"}\n");
    assert_non_null(strstr(hear(fd, buf, sizeof buf), "{\"id\":2,\"ok\":true"));
    admin_answer(s->admin, s->ids[0], ERR_NONE, "{}", 2);
    turn(s);
    assert_string_equal(hear(fd, buf, sizeof buf), "");
    close(fd);
}

/* ---- the file ---- */

static void the_sockets_file_is_for_owner_and_group(void **state)
{
    struct scene *s = *state;
    struct stat about;
    struct err err;
    int fd;

    assert_int_equal(stat(s->path, &about), 0);
    assert_int_equal(about.st_mode & 0777, 0660);
    assert_int_equal(admin_listen(&fd, s->path, &err), -1);
    assert_non_null(strstr(err.text, "another daemon has it"));
}

static void a_file_that_nobody_listens_on_is_replaced(void **state)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    char dir[] = "/tmp/test-admin-XXXXXX";
    struct err err;
    int fd, dead = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(address.sun_path, sizeof address.sun_path, "%s/a.sock", dir);
    assert_int_equal(bind(dead, (const struct sockaddr *)&address, sizeof address), 0);
    close(dead);
    assert_int_equal(admin_listen(&fd, address.sun_path, &err), 0);
    close(fd);
    unlink(address.sun_path);
    FILE *plain = fopen(address.sun_path, "w"); /* somebody's file is left alone */
    assert_non_null(plain);
    fclose(plain);
    assert_int_equal(admin_listen(&fd, address.sun_path, &err), -1);
    unlink(address.sun_path);
    rmdir(dir);
}

#define SCENE(test) cmocka_unit_test_setup_teardown(test, open_scene, close_scene)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_is_a_command_with_its_fields),
        cmocka_unit_test(what_is_wrong_in_a_line_is_refused_and_its_id_is_kept),
        cmocka_unit_test(the_nearest_word_is_one_slip_away),
        SCENE(a_line_may_come_byte_by_byte),
        SCENE(a_line_waits_for_the_answer_before_it),
        SCENE(a_line_of_64_kib_is_the_longest),
        SCENE(thousands_of_lines_keep_nobody_waiting),
        SCENE(a_client_that_left_is_not_answered),
        SCENE(an_answer_above_4_mib_is_an_error),
        SCENE(acts_reach_their_operation_with_its_argument),
        SCENE(a_reload_outlives_the_engine_and_a_question_does_not),
        SCENE(a_watcher_that_does_not_read_costs_one_reply),
        SCENE(a_watch_ends_with_the_next_line_and_its_answer_is_nobodys),
        SCENE(the_sockets_file_is_for_owner_and_group),
        cmocka_unit_test(a_file_that_nobody_listens_on_is_replaced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
