/* generation_config: sampling defaults and end tokens of a checkpoint.
 *
 * generation_config.json where there is one, config.json's eos_token_id besides. Missing
 * fields mean temperature 1, top-p 1, no top-k, no penalties; "do_sample": false means greedy.
 * Any thread. */
#ifndef RUN_GENERATION_CONFIG_H
#define RUN_GENERATION_CONFIG_H

#include "colizig.h"

#include <stdint.h>

struct err;
struct json;

/* stop_ids has room for 16; the union of both files. ERR_FORMAT names file and key. */
int generation_config_read(struct cz_sampling *defaults, uint32_t *stop_ids, uint32_t *n_stop_ids,
                           const char *model_dir, const struct json *config, struct err *err);

#endif
