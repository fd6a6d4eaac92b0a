/* render: conversations through a chat template, a JSON line each.
 *
 * {"messages": [...], "tools": [...], "kwargs": {...}} gives {"rendered": "..."} or {"error":
 * "..."}. */
#include "daemon/ctl.h"

#include "text/jinja.h"
#include "text/template_file.h"
#include "util/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int open_template(struct jinja_template **out, const struct ctl_args *args,
                         struct err *err)
{
    const char *file = ctl_text(args, "--template");
    const char *dir = args->n_operands ? args->operands[0] : NULL;
    char *source = NULL;
    size_t size = 0;

    if (!file == !dir)
        return err_set(err, ERR_INPUT, "render wants a model's directory or --template FILE");
    if ((file ? template_file_read(&source, &size, file, err)
              : template_file_find(&source, &size, dir, err)) < 0)
        return -1;
    if (!source)
        return err_set(err, ERR_FORMAT,
                       "'%s' has no chat template: neither chat_template.jinja nor one in "
                       "tokenizer_config.json", dir);
    int rc = jinja_open(out, source, size, err);
    free(source);
    return rc;
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
static const struct jinja_value *variables(struct jinja_mem *m, const struct jinja_value *line,
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
    const struct jinja_value *vars = line ? variables(m, line, &why) : NULL;
    if (vars && jinja_render(&out, t, m, vars, NULL, &why) == 0)
        answer = rendered(&out);
    else
        answer = json_pack("{s:s}", "error", why.text);
    jinja_mem_close(m);
    return answer;
}

static int render(const struct ctl_args *args)
{
    struct jinja_template *t = NULL;
    char *line = NULL;
    size_t cap = 0;
    ssize_t got;
    struct err err;

    if (!ctl_has(args, "--strict")) {
        err_set(&err, ERR_UNSUPPORTED,
                "only --strict is built: messages as they are, as transformers takes them");
        return ctl_fail(args, &err);
    }
    if (open_template(&t, args, &err) < 0)
        return ctl_fail(args, &err);
    while ((got = getline(&line, &cap, stdin)) > 0) {
        json_t *answer = render_line(t, line, (size_t)got);
        if (!answer) {
            err_set(&err, ERR_NOMEM, "an answer");
            free(line);
            jinja_close(t);
            return ctl_fail(args, &err);
        }
        ctl_print_json(answer);
        fflush(stdout);
    }
    free(line);
    jinja_close(t);
    return EXIT_FINE;
}

static const struct ctl_flag flags[] = {
    { "--template", "FILE", "a template of its own in place of the model's", NULL },
    { "--jsonl", NULL, "conversations from standard input, a line each (always so)", NULL },
    { "--strict", NULL, "messages as they are, as transformers takes them", NULL },
    { 0 },
};

const struct ctl_command ctl_render = {
    .name = "render",
    .operands = "[DIR]",
    .summary = "messages through a chat template, line by line",
    .example = "colizigctl render MODEL --jsonl --strict <conversations.jsonl",
    .flags = flags,
    .min_operands = 0,
    .max_operands = 1,
    .run = render,
};
