/* state_dir: the folder that state.dir names, there before the engine is closed in. */
#ifndef DAEMON_STATE_DIR_H
#define DAEMON_STATE_DIR_H

struct conf;
struct err;

/* Makes the folder that was chosen, when only it is missing. 1: it is there and can be written; 0:
 * not so, but nobody chose it, and *err says why; -1: it was chosen. */
int state_dir_open(const struct conf *conf, struct err *err);
/* The same answer, and nothing is made. */
int state_dir_check(const struct conf *conf, struct err *err);

#endif
