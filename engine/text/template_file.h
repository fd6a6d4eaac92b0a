/* template_file: where a checkpoint keeps its chat template.
 *
 * chat_template.jinja, else "chat_template" of tokenizer_config.json: a text, or a list of named
 * ones, of which "default" is taken. tokenizer_config.json also names the tokens that templates may
 * ask for, and config.json the family. Reading and looking are two steps, for a process that gives
 * up its files before it looks at what strangers wrote. Any thread. */
#ifndef TEXT_TEMPLATE_FILE_H
#define TEXT_TEMPLATE_FILE_H

#include <stddef.h>

struct err;

struct template_bytes {
    char *at; /* owned; NULL: there is no such file */
    size_t size;
};

/* Zero it; template_files_done frees. */
struct template_files {
    struct template_bytes template;         /* the file that is one */
    struct template_bytes tokenizer_config; /* tokenizer_config.json */
    struct template_bytes config;           /* config.json */
};
/* What lies in dir, a missing file being none; file takes the place of the model's own template
 * and must be there (NULL: no). dir may be NULL with a file. */
int template_files_read(struct template_files *out, const char *dir, const char *file,
                        struct err *err);
void template_files_done(struct template_files *f);

struct template_text {
    char *template; /* owned; NULL: there is none */
    size_t size;
    char *bos_token, *eos_token; /* owned; NULL where they are not named */
    char family[64];             /* "model_type"; "" when it is not known */
};
/* ERR_FORMAT where a template should be and none is. */
int template_files_look(struct template_text *out, const struct template_files *f,
                        struct err *err);
void template_text_done(struct template_text *t);

#endif
