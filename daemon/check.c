#include "daemon/check.h"

#include "daemon/conf.h"
#include "daemon/log.h"
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

int check_run(const struct conf *conf, enum check_output output)
{
    struct cz_plan plan = { 0 };
    char total[24], available[24];
    struct err why;
    int rc = cz_plan(&plan, &conf->engine, false, &why);

    if (output == CHECK_PRINT_PLAN && (rc == 0 || why.kind == ERR_BUDGET)) {
        print_plan(&plan);
        fflush(stdout);
    }
    if (rc == 0 && plan.derived)
        rc = err_set(&why, ERR_FORMAT, "'%s' holds a config but no weights (*.safetensors): sizes "
                     "were derived; download the checkpoint", conf->engine.model_dir);
    if (rc == 0 && plan.total > plan.available)
        rc = err_set(&why, ERR_BUDGET, "the plan takes %s, but only %s of memory are available now",
                     size_text(total, sizeof total, plan.total),
                     size_text(available, sizeof available, plan.available));
    if (rc == 0)
        return EXIT_FINE;
    log_line(LOG_LEVEL_ERR, "%s", why.text);
    return err_exit_status(why.kind);
}
