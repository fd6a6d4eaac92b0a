/* engine_json: the engine's numbers as JSON objects, for the admin socket and tools.
 *
 * Keys are the field names of colizig.h; bytes are plain integers. Any thread. */
#ifndef DAEMON_ENGINE_JSON_H
#define DAEMON_ENGINE_JSON_H

#include "colizig.h"

#include <jansson.h>

/* A new reference, NULL without memory. */
json_t *engine_json_stats(const struct cz_stats *s);
json_t *engine_json_plan(const struct cz_plan *p);
/* What a new budget or queue has made of it. */
json_t *engine_json_adjusted(const struct cz_plan *p, uint32_t queue);
json_t *engine_json_info(const struct cz_model_info *m);
json_t *engine_json_parts(const struct cz_model_parts *m);
json_t *engine_json_experts(const struct cz_expert_layer *layers, uint32_t n_layers,
                            const struct cz_expert_heat *hottest, uint32_t n_hottest);

#endif
