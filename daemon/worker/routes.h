/* routes: a request's head to who serves it, or to why nobody does.
 *
 * Paths are taken with and without /v1, with doubled slashes and one at the end, and in a whole
 * URL. Host is checked where we listen on loopback, and where http.hosts names some (a web page
 * could reach us by a name of its own otherwise), Origin for the answer's CORS headers. */
#ifndef DAEMON_ROUTES_H
#define DAEMON_ROUTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conf;
struct exchange;

/* Every route has a number below WIRE_MAX_ROUTES, one for all unknown paths among them. A label
 * is the pattern that stands in the log, never what a client wrote. */
const char *routes_label(uint32_t index); /* "other" for a number that is none */
uint32_t routes_other(void);
bool routes_generates(uint32_t index); /* chat and completions */

/* Sets serve, route and path of x, or its refusal. */
void routes_find(struct exchange *x, const char *target, const char *method);

/* Percent-decodes, folds "//", drops a trailing slash and up to two leading "/v1". "" is the
 * root. NULL when the path holds an encoded NUL or a broken escape, or there is no memory; the
 * caller frees. */
char *routes_path(const char *url);
/* Is host ("localhost:8080", "[::1]", "127.0.0.1") a name of this machine to itself? */
bool routes_host_is_loopback(const char *host);
bool routes_origin_is_loopback(const char *origin);
/* May a request name this host? on_loopback: it came to a listener on a loopback address. */
bool routes_host_is_served(const struct conf *conf, bool on_loopback, const char *host);

#endif
