/* A configuration: what is accepted survives being written and read again, what is refused is
 * refused with a place. Behind the last zero byte stand settings as from the command line, one
 * KEY=VALUE a line. */
#include "tests/fuzz/fuzz.h"

#include "daemon/conf/conf.h"
#include "daemon/conf/conf_diff.h"
#include "daemon/supervisor/conf_seal.h"
#include "util/err.h"

#include <fcntl.h>
#include <string.h>

static void check_refusal(const struct err *err, const char *name)
{
    MUST(err->kind == ERR_INPUT && strncmp(err->text, name, strlen(name)) == 0);
    MUST(strlen(err->text) > strlen(name));
}

static int read_file(struct conf *c, const uint8_t *data, size_t size)
{
    struct err err = { 0 };
    char path[64];
    int fd = fuzz_file(path, data, size);
    int rc = conf_read(c, path, &err);

    if (rc < 0)
        check_refusal(&err, path);
    close(fd);
    return rc;
}

/* 0 when all settings were taken. */
static int set_all(struct conf *c, const char *lines, size_t size)
{
    char *text = strndup(lines, size), *rest = text, *line;
    struct err err = { 0 };
    char before[64] = "";
    int rc = 0;

    while (rc == 0 && (line = strsep(&rest, "\n"))) {
        char *value = strchr(line, '=');
        if (!value)
            continue;
        *value++ = '\0';
        rc = conf_set(c, "--set", line, value, strcmp(line, before) == 0, &err);
        if (rc < 0)
            check_refusal(&err, "--set");
        snprintf(before, sizeof before, "%s", line);
    }
    free(text);
    return rc;
}

/* Children read the sealed text: they must see the same. */
static void check_children_agree(const struct conf *c)
{
    struct conf child;
    struct err err = { 0 };
    char *ours, *theirs;
    size_t our_size, their_size;
    int fd = -1;

    MUST(conf_seal(&fd, c, &err) == 0);
    conf_init(&child);
    if (conf_read_fd(&child, "sealed", fd, &err) < 0 || conf_finish(&child, &err) < 0)
        fuzz_broken(err.text);
    MUST(conf_write(c, &ours, &our_size, &err) == 0);
    MUST(conf_write(&child, &theirs, &their_size, &err) == 0);
    MUST(our_size == their_size && memcmp(ours, theirs, our_size) == 0);
    MUST(child.n_listen == c->n_listen && child.engine.ram == c->engine.ram);
    MUST(pwrite(fd, "x", 1, 0) < 0);
    free(ours);
    free(theirs);
    close(fd);
    conf_done(&child);
}

/* A reload to it from another: what must stay is kept, and then no difference of that kind is
 * left. */
static void check_reload(const struct conf *c)
{
    static const char other[] = "model: {dir: /other, aliases: [a]}\nmemory: {ram: 7GiB}\n"
                                "http: {workers: 3, listen: [\"127.0.0.1:1\"]}\n"
                                "admin: {socket: /other.sock}\nlog: {level: debug}\n";
    struct conf now, next;
    struct conf_diff diff;
    struct err err;
    char *text;
    size_t size;

    conf_init(&now);
    conf_init(&next);
    MUST(conf_parse(&now, "other", other, sizeof other - 1, &err) == 0);
    MUST(conf_finish(&now, &err) == 0 && conf_write(c, &text, &size, &err) == 0);
    MUST(conf_parse(&next, "next", text, size, &err) == 0 && conf_finish(&next, &err) == 0);
    conf_diff(&diff, c, &next);
    MUST(diff.n == 0 && diff.changes == 0);
    MUST(conf_keep(&next, &now, CONF_RESTART, &err) == 0);
    conf_diff(&diff, &now, &next);
    MUST(!(diff.changes & CONF_RESTART) && diff.n <= CONF_MAX_DIFF);
    MUST(!conf_diff_has(&diff, "no", "key"));
    free(text);
    conf_done(&next);
    conf_done(&now);
}

static void use(struct conf *c)
{
    struct err err = { 0 };

    if (conf_finish(c, &err) < 0) {
        MUST(err.kind == ERR_INPUT && err.text[0]);
        return;
    }
    MUST(c->model_name && c->model_name[0] && c->n_listen > 0 && c->workers > 0);
    MUST(c->workers <= CONF_MAX_WORKERS && c->body <= c->buffer);
    if (conf_check_exposure(c, &err) < 0)
        MUST(err.kind == ERR_INPUT && err.text[0]);
    check_children_agree(c);
    check_reload(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memrchr(data, '\0', size) : NULL;
    size_t file_size = end ? (size_t)(end - data) : size;
    struct conf c;

    conf_init(&c);
    if (read_file(&c, data, file_size) == 0 &&
        (!end || set_all(&c, (const char *)end + 1, size - file_size - 1) == 0))
        use(&c);
    conf_done(&c);
    return 0;
}
