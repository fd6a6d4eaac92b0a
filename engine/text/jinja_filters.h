/* jinja_filters: what both files of filters share. */
#ifndef TEXT_JINJA_FILTERS_H
#define TEXT_JINJA_FILTERS_H

#include "text/jinja_tables.h"

#define FILTER_ARGS struct jinja_run *r, const struct jinja_value *v, const struct jinja_args *args

const struct jinja_filter *jinja_sequence_filter(const char *name);

/* *out keeps its value when the argument was not given. */
int jinja_whole(struct jinja_run *r, const struct jinja_args *args, size_t i, const char *name,
                int64_t *out);
bool jinja_flag(const struct jinja_args *args, size_t i, const char *name);

#endif
