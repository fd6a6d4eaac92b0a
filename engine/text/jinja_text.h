/* jinja_text: work on strings that methods and filters share. NULL with the run's error set. */
#ifndef TEXT_JINJA_TEXT_H
#define TEXT_JINJA_TEXT_H

#include "text/jinja_tables.h"

enum jinja_case { CASE_UPPER, CASE_LOWER, CASE_TITLE, CASE_FIRST };
enum jinja_class { CLASS_DIGIT, CLASS_ALPHA, CLASS_ALNUM, CLASS_SPACE };

/* by NULL: at runs of white space. most < 0: all. Gives a list. */
const struct jinja_value *jinja_text_split(struct jinja_run *r, const struct jinja_value *s,
                                           const struct jinja_value *by, int64_t most,
                                           bool from_right);
const struct jinja_value *jinja_text_lines(struct jinja_run *r, const struct jinja_value *s,
                                           bool keep_ends);
const struct jinja_value *jinja_text_replace(struct jinja_run *r, const struct jinja_value *s,
                                             const struct jinja_value *from,
                                             const struct jinja_value *to, int64_t most);
const struct jinja_value *jinja_text_join(struct jinja_run *r, const struct jinja_items *items,
                                          const struct jinja_value *between); /* all strings */
const struct jinja_value *jinja_text_case(struct jinja_run *r, const struct jinja_value *s,
                                          enum jinja_case as);
/* In characters; -1: not there. */
int64_t jinja_text_find(struct jinja_run *r, const struct jinja_value *s,
                        const struct jinja_value *what, bool last);
bool jinja_text_all(struct jinja_run *r, const struct jinja_value *s, enum jinja_class of);

#endif
