#include "daemon/conf/check.h"

#include "daemon/conf/chat_template.h"
#include "daemon/conf/conf.h"
#include "text/chat.h"
#include "text/tokenizer.h"
#include "util/err.h"
#include "util/size.h"

#include <stdio.h>

static void print_plan(const struct cz_plan *p)
{
    char bytes[24], ram[24], minimum[24];

    for (uint32_t i = 0; i < p->n_lines && i < CZ_PLAN_LINES; i++)
        printf("%-28s %12s  %s\n", p->lines[i].name,
               size_text(bytes, sizeof bytes, p->lines[i].bytes), p->lines[i].detail);
    printf("%-28s %12s  of %s (%s); the least is %s\n", "total",
           size_text(bytes, sizeof bytes, p->total), size_text(ram, sizeof ram, p->ram),
           p->ram_source, size_text(minimum, sizeof minimum, p->minimum));
}

static int check_template(const struct conf *conf, const struct tokenizer *t, struct err *err)
{
    struct template_files files;
    struct chat_format *format = NULL;
    char name[CHAT_TEMPLATE_NAME];

    if (chat_template_read(&files, conf->model_dir, conf->chat_template, err) < 0)
        return -1;
    int rc = chat_template_open(&format, &files, conf->chat_template, t, name, err);
    template_files_done(&files);
    chat_format_close(format);
    return rc < 0 ? err_within(err, "model.chat_template") : 0;
}

static int check_text(const struct conf *conf, struct err *err)
{
    struct tokenizer *t = NULL;
    char path[4096];

    if ((size_t)snprintf(path, sizeof path, "%s/tokenizer.json", conf->model_dir) >= sizeof path)
        return err_set(err, ERR_INPUT, "model.dir is too long");
    if (tokenizer_open(&t, path, err) < 0)
        return -1;
    int rc = check_template(conf, t, err);
    tokenizer_close(t);
    return rc;
}

int check_run(const struct conf *conf, enum check_output output, uint64_t held, struct err *err)
{
    struct cz_options options = conf->engine;
    struct cz_plan plan = { 0 };
    char total[24], available[24];

    options.held = held;
    int rc = cz_plan(&plan, &options, false, err);
    if (output == CHECK_PRINT_PLAN && (rc == 0 || err->kind == ERR_BUDGET)) {
        print_plan(&plan);
        fflush(stdout);
    }
    if (rc < 0)
        return -1;
    if (plan.derived)
        return err_set(err, ERR_FORMAT, "'%s' holds a config but no weights (*.safetensors): sizes "
                       "were derived; download the checkpoint", conf->engine.model_dir);
    if (plan.total > plan.available)
        return err_set(err, ERR_BUDGET,
                       "the plan takes %s, but only %s of memory are available now",
                       size_text(total, sizeof total, plan.total),
                       size_text(available, sizeof available, plan.available));
    return check_text(conf, err);
}
