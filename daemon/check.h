/* check: whether settings and model go together, from headers alone. */
#ifndef DAEMON_CHECK_H
#define DAEMON_CHECK_H

struct conf;

enum check_output { CHECK_QUIET, CHECK_PRINT_PLAN };

/* Plans; prints the plan to standard output when asked. The exit status: 0, or what opening
 * the model would end with. */
int check_run(const struct conf *conf, enum check_output output);

#endif
