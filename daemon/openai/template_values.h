/* template_values: JSON of a request as values of a chat template.
 *
 * Texts are borrowed from the JSON, nothing is trusted, keys stay in their order, and integers have
 * all their digits. Worker's thread. */
#ifndef DAEMON_TEMPLATE_VALUES_H
#define DAEMON_TEMPLATE_VALUES_H

#include <jansson.h>

struct err;
struct jinja_mem;
struct jinja_value;

/* root: where v is from, for its digits (json_read.h). NULL with ERR_BUDGET at the memory's limit,
 * with ERR_INPUT for what nests deeper than templates go. */
const struct jinja_value *template_value(struct jinja_mem *m, const json_t *root, const json_t *v,
                                         struct err *err);

#endif
