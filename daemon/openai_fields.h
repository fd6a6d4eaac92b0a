/* openai_fields: the parts of a request body, each read by one function. Private to
 * openai_in; split from it by subject. */
#ifndef DAEMON_OPENAI_FIELDS_H
#define DAEMON_OPENAI_FIELDS_H

#include "daemon/openai_in.h"

/* model, stream, limits, sampling, stop, bias: what chat and completions share. */
int openai_read_common(struct openai_request *r, const struct openai_rules *rules,
                       struct api_error *e);
/* n, best_of, log probabilities, and how reasoning is told. */
int openai_read_answer(struct openai_request *r, struct api_error *e);
int openai_read_messages(struct openai_request *r, struct api_error *e);
/* How the chat template is to treat them; after the messages. */
int openai_read_template(struct openai_request *r, struct api_error *e);
/* prompt, echo. */
int openai_read_prompts(struct openai_request *r, const struct openai_rules *rules,
                        struct api_error *e);

/* key was set and changes nothing: for x-ignored-params. */
void openai_note_ignored(struct openai_request *r, const char *key);

#endif
