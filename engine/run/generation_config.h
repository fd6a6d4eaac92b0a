/* generation_config: how a checkpoint wants to be sampled, and where it stops.
 *
 * generation_config.json gives the defaults of a request that says nothing; a missing
 * file or field means plain sampling (temperature 1, no cut), as other servers have it.
 * Any thread. */
#ifndef RUN_GENERATION_CONFIG_H
#define RUN_GENERATION_CONFIG_H

#include <stdint.h>

struct cz_sampling;
struct err;
struct json;

enum { GENERATION_STOP_IDS = 16 }; /* as many as cz_facts holds */

/* stop_ids [GENERATION_STOP_IDS]: eos_token_id of the generation config and of config,
 * each a number or a list, each id once. "do_sample": false makes temperature 0. */
int generation_config_read(struct cz_sampling *defaults, uint32_t *stop_ids, uint32_t *n,
                           const char *model_dir, const struct json *config, struct err *err);

#endif
