/* render: conversations through a chat template, a JSON line each. */
#include "daemon/ctl.h"

#include "text/jinja.h"
#include "util/err.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int read_file(char **out, size_t *size, const char *path, struct err *err)
{
    enum { MOST = 1 << 20 };
    FILE *from = fopen(path, "re");
    char *text = malloc(MOST + 1);
    int rc = 0;

    if (!from)
        rc = err_errno(err, "%s", path);
    else if (!text)
        rc = err_set(err, ERR_NOMEM, "%s", path);
    if (rc == 0) {
        *size = fread(text, 1, MOST + 1, from);
        if (ferror(from))
            rc = err_errno(err, "%s", path);
        else if (*size > MOST)
            rc = err_set(err, ERR_FORMAT, "%s: more than %d bytes, so no chat template", path, MOST);
    }
    if (from)
        fclose(from);
    if (rc < 0) {
        free(text);
        return -1;
    }
    *out = text;
    return 0;
}

static json_t *rendered(const struct jinja_output *out)
{
    char *text = malloc(out->size ? out->size : 1);
    size_t size = 0;

    if (!text)
        return NULL;
    for (size_t i = 0; i < out->n; size += out->run[i++].size)
        memcpy(text + size, out->run[i].bytes, out->run[i].size);
    json_t *string = json_stringn(text, size);
    free(text);
    return string ? json_pack("{s:o}", "rendered", string) : NULL;
}

/* As transformers calls a template: what is absent is None, but for what kwargs say. */
static const struct jinja_value *strict_vars(struct jinja_mem *m, const struct jinja_value *line,
                                             struct err *err)
{
    static const char *const names[] = { "messages", "tools", "documents" };
    struct jinja_value *vars = jinja_dict(m);
    int rc = vars ? 0 : -1;

    if (!jinja_is_dict(line)) {
        err_set(err, ERR_INPUT, "a line is one JSON object");
        return NULL;
    }
    for (size_t i = 0; rc == 0 && i < sizeof names / sizeof *names; i++) {
        const struct jinja_value *v = jinja_dict_get(line, names[i]);
        rc = jinja_dict_set(m, vars, names[i], v ? v : jinja_null(m));
    }
    if (rc == 0)
        rc = jinja_dict_set(m, vars, "add_generation_prompt", jinja_bool(m, false));
    if (rc == 0)
        rc = jinja_dict_update(m, vars, jinja_dict_get(line, "kwargs"));
    if (rc < 0)
        err_set(err, ERR_NOMEM, "variables of the template");
    return rc < 0 ? NULL : vars;
}

static json_t *render_line(const struct jinja_template *t, const char *text, size_t size)
{
    struct jinja_mem *m = jinja_mem_open(NULL);
    struct jinja_output out;
    struct err why = { 0 };
    json_t *answer = NULL;

    if (!m)
        return NULL;
    const struct jinja_value *line = jinja_json(m, text, size, &why);
    const struct jinja_value *vars = line ? strict_vars(m, line, &why) : NULL;
    if (vars && jinja_render(&out, t, m, vars, NULL, &why) == 0)
        answer = rendered(&out);
    else
        answer = json_pack("{s:s}", "error", why.text);
    jinja_mem_close(m);
    return answer;
}

static int render(const struct ctl_args *args)
{
    const char *path = ctl_text(args, "--template");
    struct jinja_template *t = NULL;
    char *source = NULL, *line = NULL;
    size_t size = 0, cap = 0;
    ssize_t got;
    struct err err;

    if (!path) {
        err_set(&err, ERR_INPUT, "--template FILE is missing");
        return ctl_fail(args, &err);
    }
    if (read_file(&source, &size, path, &err) < 0)
        return ctl_fail(args, &err);
    int rc = jinja_open(&t, source, size, &err);
    free(source);
    if (rc < 0)
        return ctl_fail(args, &err);
    while ((got = getline(&line, &cap, stdin)) > 0) {
        json_t *answer = render_line(t, line, (size_t)got);
        if (answer)
            ctl_print_json(answer);
    }
    free(line);
    jinja_close(t);
    return EXIT_FINE;
}

static const struct ctl_flag flags[] = {
    { "--template", "FILE", "the template", NULL },
    { "--jsonl", NULL, "a JSON line each", NULL },
    { "--strict", NULL, "as transformers does", NULL },
    { 0 },
};

const struct ctl_command ctl_render = {
    .name = "render",
    .operands = "[DIR]",
    .summary = "conversations through the chat template",
    .flags = flags,
    .min_operands = 0,
    .max_operands = 1,
    .run = render,
};
