/* metrics_page: GET /metrics, for clients on this machine until there are keys.
 *
 * The engine's door has the numbers; the answer waits for them, a second at most. Without an
 * engine the page says that, and nothing that it does not know. Worker's thread. */
#ifndef DAEMON_METRICS_PAGE_H
#define DAEMON_METRICS_PAGE_H

#include <microhttpd.h>
#include <stdbool.h>
#include <sys/socket.h>

struct exchange;

/* Whether a client of this address is on this machine. A proxy here speaks for others. */
bool metrics_page_may(const struct sockaddr_storage *from);

enum MHD_Result page_metrics(struct exchange *x);

#endif
