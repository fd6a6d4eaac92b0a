/* openai_fields: the parts of a request body, each read by one function. Private to
 * openai_in; split from it by subject. */
#ifndef DAEMON_OPENAI_FIELDS_H
#define DAEMON_OPENAI_FIELDS_H

#include "daemon/openai/openai_in.h"

/* model, stream, limits, sampling, stop, bias: what chat and completions share. */
int openai_read_common(struct openai_request *r, const struct openai_rules *rules,
                       struct api_error *e);
/* n, best_of, log probabilities, and how reasoning is told. */
int openai_read_answer(struct openai_request *r, struct api_error *e);
int openai_read_messages(struct openai_request *r, struct api_error *e);
/* Of message i: text, parts of text joined, reasoning that lies among the parts. */
int openai_read_content(struct openai_request *r, struct chat_message *m, const json_t *message,
                        size_t i, struct api_error *e);
/* Calls of an assistant and ids of results. r->calls has room for all of all messages. */
size_t openai_count_calls(const json_t *messages);
int openai_read_calls(struct openai_request *r, struct chat_message *m, const json_t *message,
                      size_t i, struct api_error *e);
/* Results go to the order of the calls that they answer: templates know no ids. */
int openai_order_results(struct openai_request *r, struct api_error *e);
/* How the chat template is to treat them; after the messages. */
int openai_read_template(struct openai_request *r, const struct openai_rules *rules,
                         struct api_error *e);
/* prompt, echo. */
int openai_read_prompts(struct openai_request *r, const struct openai_rules *rules,
                        struct api_error *e);

/* Takes bytes beside the JSON from the request's quota and adds them to *cost. what: the field they
 * are for, "messages" or "tools". 413 or 503. */
int openai_pay(struct openai_request *r, uint64_t *cost, uint64_t bytes, const char *what,
               struct api_error *e);
/* key was set and changes nothing: for x-ignored-params. */
void openai_note_ignored(struct openai_request *r, const char *key);

#endif
