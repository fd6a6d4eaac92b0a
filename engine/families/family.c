#include "families/family.h"

#include "families/qwen3_moe.h"
#include "families/qwen4_exp.h"

#include <stddef.h>
#include <string.h>

static const struct family *const families[] = { &qwen3_moe_family, &qwen4_exp_family };

const struct family *family_find(const char *model_type)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        const struct family *f = families[i];
        if (strcmp(f->model_type, model_type) == 0 ||
            (f->text_type && strcmp(f->text_type, model_type) == 0))
            return f;
    }
    return NULL;
}

const char *family_names(void)
{
    return "qwen3_moe, qwen4_exp";
}
