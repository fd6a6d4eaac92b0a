/* check: whether settings and model go together, without reading a weight. */
#ifndef DAEMON_CHECK_H
#define DAEMON_CHECK_H

#include <stdint.h>

struct conf;
struct err;

enum check_output { CHECK_QUIET, CHECK_PRINT_PLAN };

/* Plans, and reads the tokenizer as a worker would; prints the plan to standard output when asked.
 * What it fails with is what opening the model would fail with. held: bytes that a running service
 * of ours would give back first; they count as available. */
int check_run(const struct conf *conf, enum check_output output, uint64_t held, struct err *err);

#endif
