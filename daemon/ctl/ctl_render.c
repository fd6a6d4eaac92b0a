/* render: conversations through a chat template, a JSON line each.
 *
 * {"messages": [...], "tools": [...], "kwargs": {...}} gives {"rendered": "..."} or {"error":
 * "..."}. Messages are mended as the daemon mends them, or left as they are with --strict. */
#include "daemon/ctl/ctl.h"

#include "daemon/conf/chat_template.h"
#include "daemon/conf/conf.h"
#include "daemon/openai/json_read.h"
#include "daemon/openai/openai_in.h"
#include "daemon/wire/wire.h"
#include "text/jinja.h"
#include "util/err.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One of both. */
struct renderer {
    struct jinja_template *strict; /* owned */
    struct chat_format *format;    /* owned */
};

static int open_strict(struct renderer *r, const struct template_files *files, const char *dir,
                       struct err *err)
{
    struct template_text text;

    if (template_files_look(&text, files, err) < 0)
        return -1;
    int rc = text.template
                 ? jinja_open(&r->strict, text.template, text.size, err)
                 : err_set(err, ERR_FORMAT,
                           "'%s' has no chat template: neither chat_template.jinja nor one in "
                           "tokenizer_config.json", dir);
    template_text_done(&text);
    return rc;
}

static int open_renderer(struct renderer *r, const struct ctl_args *args, struct err *err)
{
    const char *choice = ctl_text(args, "--template");
    const char *dir = args->n_operands ? args->operands[0] : NULL;
    struct template_files files;
    char name[CHAT_TEMPLATE_NAME];
    bool strict = ctl_has(args, "--strict");

    if (!choice == !dir)
        return err_set(err, ERR_INPUT, "render wants a model's directory or --template FILE");
    if (strict && choice && strncmp(choice, "builtin:", 8) == 0)
        return err_set(err, ERR_INPUT, "--strict runs templates; '%s' is built in", choice);
    if (chat_template_read(&files, dir, choice ? choice : "", err) < 0)
        return -1;
    int rc = strict ? open_strict(r, &files, dir, err)
                    : chat_template_open(&r->format, &files, choice ? choice : "", NULL, name, err);
    template_files_done(&files);
    return rc;
}

static json_t *rendered(const struct text_run *run, size_t n, uint64_t bytes)
{
    char *text = malloc(bytes ? bytes : 1);
    size_t size = 0;

    if (!text)
        return NULL;
    for (size_t i = 0; i < n; size += run[i++].size)
        memcpy(text + size, run[i].bytes, run[i].size);
    json_t *string = json_stringn(text, size);
    free(text);
    return string ? json_pack("{s:o}", "rendered", string) : NULL;
}

/* ---- as they are ---- */

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

static json_t *render_strictly(const struct jinja_template *t, const char *text, size_t size)
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
        answer = rendered(out.run, out.n, out.size);
    else
        answer = json_pack("{s:s}", "error", why.text);
    jinja_mem_close(m);
    return answer;
}

/* ---- as the daemon takes them ---- */

/* The line as a request: kwargs that are fields of their own become that. */
static void make_request(json_t *root)
{
    static const char *const fields[] = { "add_generation_prompt", "continue_final_message" };
    json_t *kwargs = json_object_get(root, "kwargs");

    json_object_set_new(root, "add_generation_prompt", json_false());
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        json_t *v = json_object_get(kwargs, fields[i]);
        if (!v)
            continue;
        json_object_set(root, fields[i], v);
        json_object_del(kwargs, fields[i]);
    }
    if (kwargs)
        json_object_set(root, "chat_template_kwargs", kwargs);
}

static json_t *render_request(const struct chat_format *f, const struct openai_request *r)
{
    struct jinja_mem *m = jinja_mem_open(NULL);
    struct chat_rendered out;
    struct err why = { 0 };

    if (!m)
        return NULL;
    json_t *answer = openai_render(&out, r, f, m, &why) < 0
                         ? json_pack("{s:s}", "error", why.text)
                         : rendered(out.run, out.n, out.size);
    jinja_mem_close(m);
    return answer;
}

static json_t *render_mended(const struct chat_format *f, char *text, size_t size)
{
    struct quota quota = { .cap = UINT64_MAX };
    struct json_read read = { .bytes = text, .size = size, .quota = &quota };
    const struct wire_hello hello = { .vocab = UINT32_MAX,
                                      .defaults = { .repetition_penalty = 1 } };
    struct conf conf;
    const struct openai_rules rules = { .conf = &conf, .hello = &hello, .quota = &quota };
    struct openai_request r;
    struct api_error e;
    json_t *root = json_read(&read), *answer = NULL;

    if (!root || !json_is_object(root)) {
        json_decref(root);
        return json_pack("{s:s}", "error", root || !read.problem ? "a line is one JSON object"
                                                                 : read.problem);
    }
    json_t *tools = json_incref(json_object_get(root, "tools"));
    json_object_del(root, "tools");
    make_request(root);
    conf_init(&conf);
    if (openai_in_take(&r, OPENAI_CHAT, root, read.cost, &rules, &e) < 0) {
        answer = json_pack("{s:s}", "error", e.message);
        json_decref(tools);
    } else {
        json_decref(r.tools);
        r.tools = tools;
        answer = render_request(f, &r);
        openai_in_done(&r);
    }
    conf_done(&conf);
    return answer;
}

/* ---- the command ---- */

static int render_lines(const struct renderer *r, struct err *err)
{
    char *line = NULL;
    size_t cap = 0;
    ssize_t got;
    int rc = 0;

    while (rc == 0 && (got = getline(&line, &cap, stdin)) > 0) {
        json_t *answer = r->strict ? render_strictly(r->strict, line, (size_t)got)
                                   : render_mended(r->format, line, (size_t)got);
        if (!answer) {
            rc = err_set(err, ERR_NOMEM, "an answer");
            break;
        }
        ctl_print_json(answer);
        fflush(stdout);
    }
    free(line);
    return rc;
}

static int render(const struct ctl_args *args)
{
    struct renderer r = { 0 };
    struct err err;
    int rc = open_renderer(&r, args, &err);

    if (rc == 0)
        rc = render_lines(&r, &err);
    jinja_close(r.strict);
    chat_format_close(r.format);
    return rc < 0 ? ctl_fail(args, &err) : EXIT_FINE;
}

static const struct ctl_flag flags[] = {
    { "--template", "FILE", "a template, or builtin:NAME, in place of the model's", NULL },
    { "--jsonl", NULL, "conversations from standard input, a line each (always so)", NULL },
    { "--strict", NULL, "messages as they are, as transformers takes them", NULL },
    { 0 },
};

const struct ctl_command ctl_render = {
    .name = "render",
    .operands = "[DIR]",
    .summary = "messages through a chat template, line by line",
    .example = "colizigctl render MODEL --jsonl <conversations.jsonl",
    .flags = flags,
    .min_operands = 0,
    .max_operands = 1,
    .run = render,
};
