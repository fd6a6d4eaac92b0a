#include "families/family.h"

#include "families/qwen3_moe.h"

#include <stddef.h>
#include <string.h>

static const struct family *const families[] = { &qwen3_moe_family };

const struct family *family_find(const char *model_type)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(families[i]->model_type, model_type) == 0)
            return families[i];
    return NULL;
}

const char *family_names(void)
{
    return "qwen3_moe";
}
