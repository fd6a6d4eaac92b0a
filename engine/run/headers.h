/* headers: all that can be known of a checkpoint without reading a weight.
 *
 * Config, shape, shards, catalog and expert map, checked against each other; planning
 * and opening both start from here, so they cannot disagree. The parts point at each
 * other and into the struct itself: it must not move between open and close. Immutable
 * once open; any thread. */
#ifndef RUN_HEADERS_H
#define RUN_HEADERS_H

#include "colizig.h"
#include "families/family.h"
#include "formats/json.h"
#include "store/shape.h"

#include <stdint.h>

struct catalog;
struct err;
struct expert_map;
struct shards;

struct model_headers {
    struct json config;
    const struct family *family;
    struct model_shape shape;
    struct config_warnings warnings;
    struct shards *shards;    /* owned */
    struct catalog *catalog;  /* owned */
    struct expert_map *map;   /* owned; NULL when no layer is routed */
    uint64_t tokenizer;       /* its fingerprint; 0 as below */
    uint64_t tokenizer_bytes; /* one copy in memory; 0 when there is no tokenizer.json */
    const struct tensor *embedding; /* borrowed; read by row unless the head is tied to it */
};

/* ERR_FORMAT or ERR_UNSUPPORTED name the file, key or tensor. On failure nothing is held. */
int headers_open(struct model_headers *out, const char *model_dir, struct err *err);
/* Only config, family, shape and warnings, into a zeroed struct; headers_close also after
 * a failure. */
int headers_read_config(struct model_headers *out, const char *model_dir, struct err *err);
/* For a plan: as headers_open, but where there are no shards yet config.json is enough; then
 * shards, catalog, map and embedding stay NULL and sizes are derived. */
int headers_open_to_plan(struct model_headers *out, const char *model_dir, struct err *err);
void headers_close(struct model_headers *h); /* also on a zeroed struct */

/* plan_refit with the same sizes; available as the machine is now. Opens no file. */
int plan_again(struct cz_plan *out, const struct model_headers *h, const struct cz_options *opt,
               const struct cz_plan *now, uint64_t ram, uint32_t most_slots, uint64_t available,
               struct err *err);

/* plan_make with these sizes, this machine's memory and its cores. */
int plan_for(struct cz_plan *out, const struct model_headers *h, const struct cz_options *opt,
             struct err *err);

#endif
