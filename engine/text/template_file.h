/* template_file: where a checkpoint keeps its chat template.
 *
 * chat_template.jinja, else "chat_template" of tokenizer_config.json: a text, or a list of named
 * ones, of which "default" is taken. Any thread. */
#ifndef TEXT_TEMPLATE_FILE_H
#define TEXT_TEMPLATE_FILE_H

#include <stddef.h>

struct err;

/* *source is malloc'd; NULL, and 0 returned, when dir has none. */
int template_file_find(char **source, size_t *size, const char *dir, struct err *err);
/* One file that is a template. */
int template_file_read(char **source, size_t *size, const char *path, struct err *err);

#endif
