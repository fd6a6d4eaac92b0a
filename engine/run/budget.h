/* budget: the plan while the engine runs: a new one on demand, and the one there is against
 * reality.
 *
 * Only the number of expert slots ever changes. A change of budget plans again and resizes the
 * store. Under pressure (pressure.h) slots are given back for a while. Both happen where no order
 * of experts is open: between steps and between layers. Files of /proc and the control groups are
 * opened once. Engine thread. */
#ifndef RUN_BUDGET_H
#define RUN_BUDGET_H

#include "colizig.h"

struct budget;
struct err;
struct expert_store;
struct model_headers;

/* All borrowed; *plan is changed when the budget is. experts may be NULL. */
int budget_open(struct budget **out, const struct model_headers *headers,
                const struct cz_options *opt, struct cz_plan *plan, struct expert_store *experts,
                struct err *err);
void budget_close(struct budget *b); /* NULL is fine */

/* As cz_adjust; the queue is the caller's to set afterwards. */
int budget_adjust(struct budget *b, const struct cz_limits *limits, struct err *err);
/* As cz_tend; at most once a second, whoever calls. */
void budget_tend(struct budget *b);
void budget_stats(const struct budget *b, struct cz_stats *out); /* its own fields only */

#endif
