/* pages: answers that need no engine: models, health, version, and the tokenizer's helpers.
 *
 * They come from what the worker knows already, so they are quick also while the model loads
 * or the engine is deep in a step. */
#ifndef DAEMON_PAGES_H
#define DAEMON_PAGES_H

#include <microhttpd.h>

struct exchange;

enum MHD_Result page_root(struct exchange *x);
enum MHD_Result page_version(struct exchange *x);
enum MHD_Result page_props(struct exchange *x);
enum MHD_Result page_slots(struct exchange *x);
enum MHD_Result page_live(struct exchange *x);
enum MHD_Result page_ready(struct exchange *x);
enum MHD_Result page_health(struct exchange *x);
enum MHD_Result page_models(struct exchange *x);
enum MHD_Result page_model(struct exchange *x); /* x->path is "/models/<id>" */
enum MHD_Result page_options(struct exchange *x);
enum MHD_Result page_unsupported(struct exchange *x); /* embeddings and their kind */
enum MHD_Result page_responses(struct exchange *x);   /* not built: 404 that says so */
enum MHD_Result page_tokenize(struct exchange *x);
enum MHD_Result page_detokenize(struct exchange *x);
enum MHD_Result page_input_tokens(struct exchange *x);
enum MHD_Result page_apply_template(struct exchange *x);

#endif
