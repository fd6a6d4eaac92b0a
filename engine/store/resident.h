/* resident: what every token needs, loaded once and kept.
 *
 * All matrices and vectors of the catalog except experts and (unless tied) the token
 * embedding, and all block scales including the experts', in one huge-page region
 * whose size resident_size knows beforehand. Vectors, kernels of convolutions and
 * scales become F32; matrices stay as the checkpoint has them, or, with f8_dense,
 * become FP8 as they come (kernels/quantize.h): those of attention, recurrent layers,
 * residual mixing, n-gram projections, shared experts, dense MLPs and the head, and
 * neither routers nor a token embedding that the head is tied to. Loads in parallel
 * through io, checking FP8 for NaN codes on the way. Immutable once open; any thread. */
#ifndef STORE_RESIDENT_H
#define STORE_RESIDENT_H

#include "kernels/weights.h"
#include "store/catalog.h"

#include <stdbool.h>
#include <stdint.h>

struct err;
struct load_means;
struct resident;

/* Bytes by role as they will lie in RAM (alignment included); [ROLE_EXPERT] is the
 * experts' scales. Their sum, rounded up to 2 MiB, is what the region takes. */
uint64_t resident_size(uint64_t by_role[N_ROLES], const struct catalog *c, bool f8_dense);
/* What quantising takes beside it while loading; 0: nothing is quantised. */
uint64_t resident_strip_size(const struct catalog *c, bool f8_dense);

/* Whether f8_dense makes FP8 of it, as this dtype; and what that takes, scales included. */
bool resident_quantises(const struct tensor_want *want, enum dtype dtype);
uint64_t resident_f8_size(uint64_t rows, uint64_t cols);

/* Loads, as loader_run does with these means. */
int resident_open(struct resident **out, const struct catalog *c, bool f8_dense,
                  const struct load_means *means, struct err *err);
void resident_close(struct resident *r); /* NULL is fine */

/* By checkpoint name, O(1). ERR_FORMAT when the catalog has no such tensor. */
int resident_matrix(struct matrix *out, const struct resident *r, const char *name,
                    struct err *err);
int resident_vector(const float **out, const struct resident *r, const char *name,
                    uint64_t n, struct err *err);
/* Scales of all experts, F32, or NULL when experts carry none. For MoE ordinal m and
 * expert e they start at (m * n_experts + e) * resident_scales_per_expert, in the order
 * gate, up, down. */
const float *resident_expert_scales(const struct resident *r);
uint32_t resident_scales_per_expert(const struct resident *r);

#endif
