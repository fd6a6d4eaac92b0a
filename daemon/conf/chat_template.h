/* chat_template: the format that model.chat_template and the checkpoint settle on.
 *
 * Files are read first and looked at later, inside the sandbox. A template of the checkpoint that
 * cannot be run stops whoever opens it; a checkpoint without one gets the renderer that its family
 * is known to want. Before requests are served. */
#ifndef DAEMON_CHAT_TEMPLATE_H
#define DAEMON_CHAT_TEMPLATE_H

#include "text/template_file.h"

#include <stddef.h>

struct chat_format;
struct err;
struct tokenizer;

/* What was chosen, for the log: "the checkpoint's template", "builtin:qwen3 (the checkpoint has no
 * chat template)". */
enum { CHAT_TEMPLATE_NAME = 160 };

/* choice: "" for the checkpoint's, "builtin:NAME", or a file's path. */
const char *chat_template_file(const char *choice); /* the path; NULL: it is none */
int chat_template_read(struct template_files *out, const char *dir, const char *choice,
                       struct err *err);
int chat_template_open(struct chat_format **out, const struct template_files *files,
                       const char *choice, const struct tokenizer *t,
                       char name[CHAT_TEMPLATE_NAME], struct err *err);

#endif
