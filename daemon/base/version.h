/* version: what this build calls itself. Any thread. */
#ifndef DAEMON_VERSION_H
#define DAEMON_VERSION_H

const char *version_number(void); /* "0.1.0" */
const char *version_commit(void); /* "30e8ca1f02", "unknown" outside a checkout */

#endif
