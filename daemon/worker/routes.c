#include "daemon/worker/routes.h"

#include "daemon/conf/conf.h"
#include "daemon/wire/wire.h"
#include "daemon/worker/client.h"
#include "daemon/worker/exchange.h"
#include "daemon/worker/head.h"
#include "daemon/worker/listener.h"
#include "daemon/worker/metrics_page.h"
#include "daemon/worker/pages.h"
#include "daemon/worker/stream.h"
#include "daemon/worker/worker_state.h"
#include "util/ascii.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum methods { GET = 1, POST = 2 };

struct route {
    const char *path; /* one ending in '/' serves all below it */
    enum methods methods;
    exchange_serve serve;
    bool light; /* served also to one connection too many */
    bool poll;  /* asked for every few seconds by machines: not worth a line */
};

static const struct route routes[] = {
    { "/chat/completions", POST, stream_chat, false, false },
    { "/completions", POST, stream_completion, false, false },
    { "/chat/completions/input_tokens", POST, page_input_tokens, false, false },
    { "/models", GET, page_models, true, false },
    { "/models/", GET, page_model, true, false },
    { "/health", GET, page_health, true, true },
    { "/livez", GET, page_live, true, true },
    { "/readyz", GET, page_ready, true, true },
    { "/version", GET, page_version, true, false },
    { "/metrics", GET, page_metrics, true, true },
    { "/props", GET, page_props, true, false },
    { "/slots", GET, page_slots, true, false },
    { "", GET, page_root, true, false },
    { "/tokenize", POST, page_tokenize, false, false },
    { "/detokenize", POST, page_detokenize, false, false },
    { "/apply-template", POST, page_apply_template, false, false },
    /* What a text-generation model cannot do, said so rather than "no such URL". */
    { "/embeddings", POST, page_unsupported, false, false },
    { "/audio/", POST, page_unsupported, false, false },
    { "/images/", POST, page_unsupported, false, false },
    { "/moderations", POST, page_unsupported, false, false },
    { "/files", GET | POST, page_unsupported, false, false },
    { "/files/", GET | POST, page_unsupported, false, false },
    { "/batches", GET | POST, page_unsupported, false, false },
    { "/batches/", GET | POST, page_unsupported, false, false },
    { "/fine_tuning/", GET | POST, page_unsupported, false, false },
    { "/assistants", GET | POST, page_unsupported, false, false },
    { "/assistants/", GET | POST, page_unsupported, false, false },
    { "/threads", GET | POST, page_unsupported, false, false },
    { "/threads/", GET | POST, page_unsupported, false, false },
    { "/rerank", POST, page_unsupported, false, false },
    /* The one a text-generation model could do. */
    { "/responses", GET | POST, page_responses, false, false },
    { "/responses/", GET | POST, page_responses, false, false },
};

/* Behind the table: what is no route, and OPTIONS of any. */
enum { N_ROUTES = sizeof routes / sizeof *routes, ROUTE_OTHER = N_ROUTES, ROUTE_ANY };
_Static_assert((int)ROUTE_ANY < (int)WIRE_MAX_ROUTES, "raise WIRE_MAX_ROUTES");

static const char *label_of(const struct route *route)
{
    return route->path[0] ? route->path : "/";
}

const char *routes_label(uint32_t index)
{
    return index < N_ROUTES ? label_of(&routes[index]) : index == ROUTE_ANY ? "*" : "other";
}

uint32_t routes_other(void)
{
    return ROUTE_OTHER;
}

bool routes_generates(uint32_t index)
{
    return index < N_ROUTES &&
           (routes[index].serve == stream_chat || routes[index].serve == stream_completion);
}

/* ---- paths ---- */

/* In place; false for a broken escape or an encoded NUL. */
static bool decode(char *path)
{
    char *to = path;

    for (const char *from = path; *from; from++) {
        if (*from != '%') {
            *to++ = *from;
            continue;
        }
        int high = ascii_hex_digit(from[1]), low = high < 0 ? -1 : ascii_hex_digit(from[2]);
        if (low < 0 || (high == 0 && low == 0))
            return false;
        *to++ = (char)(high * 16 + low);
        from += 2;
    }
    *to = '\0';
    return true;
}

static void fold_slashes(char *path)
{
    char *to = path;

    for (const char *from = path; *from; from++)
        if (*from != '/' || to == path || to[-1] != '/')
            *to++ = *from;
    while (to > path && to[-1] == '/')
        to--;
    *to = '\0';
}

char *routes_path(const char *url)
{
    char *path = strdup(url);

    if (!path || !decode(path)) {
        free(path);
        return NULL;
    }
    fold_slashes(path);
    for (int i = 0; i < 2; i++)
        if (strncmp(path, "/v1", 3) == 0 && (path[3] == '/' || path[3] == '\0'))
            memmove(path, path + 3, strlen(path + 3) + 1);
    return path;
}

static const struct route *find_route(const char *path)
{
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        size_t n = strlen(routes[i].path);
        bool below = n > 0 && routes[i].path[n - 1] == '/';
        if (below ? strncmp(path, routes[i].path, n) == 0 : strcmp(path, routes[i].path) == 0)
            return &routes[i];
    }
    return NULL;
}

/* ---- who asks ---- */

bool routes_host_is_loopback(const char *host)
{
    char name[64];
    struct in_addr v4;
    size_t n = host[0] == '[' ? strcspn(host, "]") + 1 : strcspn(host, ":");

    if (n >= sizeof name || n > strlen(host) || (host[n] && host[n] != ':'))
        return false;
    if (host[n] && strspn(host + n + 1, "0123456789") != strlen(host + n + 1))
        return false;
    memcpy(name, host, n);
    name[n] = '\0';
    if (strcasecmp(name, "localhost") == 0 || strcmp(name, "[::1]") == 0)
        return true;
    return inet_pton(AF_INET, name, &v4) == 1 && (ntohl(v4.s_addr) >> 24) == 127;
}

/* "name" or "name:port", where the port is a number or nothing. */
static bool host_is(const char *host, const char *name)
{
    size_t n = strlen(name);

    if (strncasecmp(host, name, n) != 0)
        return false;
    return !host[n] || (host[n] == ':' && strspn(host + n + 1, "0123456789") == strlen(host + n + 1));
}

static bool host_is_number(const char *host)
{
    char name[64];
    struct in6_addr six;
    struct in_addr four;
    bool bracket = host[0] == '[';
    size_t n = bracket ? strcspn(++host, "]") : strcspn(host, ":");

    if (n >= sizeof name || (bracket && host[n] != ']'))
        return false;
    memcpy(name, host, n);
    name[n] = '\0';
    return bracket ? inet_pton(AF_INET6, name, &six) == 1 : inet_pton(AF_INET, name, &four) == 1;
}

/* A page of somebody else's can make its own name point here, but neither a number nor a name that
 * its owner does not own. Where others can reach us, names are only checked when some are given. */
bool routes_host_is_served(const struct conf *conf, bool on_loopback, const char *host)
{
    if (!on_loopback && (conf->n_hosts == 0 || host_is_number(host)))
        return true;
    if (routes_host_is_loopback(host))
        return true;
    for (uint32_t i = 0; i < conf->n_hosts; i++)
        if (host_is(host, conf->hosts[i]))
            return true;
    return false;
}

bool routes_origin_is_loopback(const char *origin)
{
    static const char *const schemes[] = { "http://", "https://" };

    for (size_t i = 0; i < 2; i++)
        if (strncasecmp(origin, schemes[i], strlen(schemes[i])) == 0)
            return routes_host_is_loopback(origin + strlen(schemes[i]));
    return false;
}

static void refuse(struct exchange *x)
{
    x->refused = true;
}

/* A whole URL as the request's target names its host itself (RFC 9112, 3.2.2). */
static bool check_host(struct exchange *x, const char *in_target, size_t size)
{
    const char *host = exchange_header(x, "Host");
    char name[256];

    if (in_target) {
        snprintf(name, sizeof name, "%.*s", (int)(size < sizeof name ? size : 0), in_target);
        host = name;
    }
    /* HTTP/1.0 needs none, and no page speaks it. */
    if (!host || routes_host_is_served(x->worker->conf, x->listener->loopback, host))
        return true;
    api_error_set(&x->refusal, 403, "host_not_allowed", NULL,
                  "The Host '%.100s' is not served here; http.hosts may name it.", host);
    refuse(x);
    return false;
}

static bool origin_is_allowed(const struct conf *conf, const char *origin)
{
    if (routes_origin_is_loopback(origin))
        return true;
    for (uint32_t i = 0; i < conf->n_cors; i++)
        if (strcasecmp(origin, conf->cors[i]) == 0)
            return true;
    return false;
}

static bool check_room(struct exchange *x, const struct route *route)
{
    if ((route && route->light) || client_has_room(x->client))
        return true;
    api_error_set(&x->refusal, 503, "server_overloaded", NULL,
                  "Too many connections from this address (http.per_address is %" PRIu32 ").",
                  x->worker->conf->per_address);
    x->refusal.retry_after_s = 1;
    x->refusal.close = true;
    refuse(x);
    return false;
}

/* ---- what is sent ---- */

static bool check_media(struct exchange *x)
{
    const char *type = exchange_header(x, "Content-Type");
    const char *encoding = exchange_header(x, "Content-Encoding");

    if (encoding && strcasecmp(encoding, "identity") != 0) {
        api_error_set(&x->refusal, 415, "unsupported_media_type", NULL,
                      "Content-Encoding '%.60s' is not supported; send the body as it is.",
                      encoding);
        refuse(x);
    } else if (type && strncasecmp(type, "multipart/", 10) == 0) {
        api_error_set(&x->refusal, 415, "unsupported_media_type", NULL,
                      "Content-Type '%.60s' is not supported; send application/json.", type);
        refuse(x);
    }
    return !x->refused;
}

static void check_method(struct exchange *x, const struct route *route, const char *method,
                         const char *url)
{
    bool get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    bool post = strcmp(method, "POST") == 0;

    if ((get && route->methods & GET) || (post && route->methods & POST && check_media(x))) {
        x->serve = route->serve;
        return;
    }
    if (x->refused)
        return;
    api_error_set(&x->refusal, 405, "method_not_supported", NULL,
                  "Not allowed to %.20s on %.200s.", method, url);
    x->refusal.allow = route->methods == GET    ? "GET, HEAD, OPTIONS"
                       : route->methods == POST ? "POST, OPTIONS"
                                                : "GET, HEAD, POST, OPTIONS";
    refuse(x);
}

/* As a literal, for the log: what a client calls a method is not ours to print. */
static const char *known_method(const char *method)
{
    static const char *const names[] = { "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS",
                                         "TRACE", "CONNECT" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(method, names[i]) == 0)
            return names[i];
    return "?";
}

void routes_find(struct exchange *x, const char *target, const char *method)
{
    const char *origin = exchange_header(x, "Origin"), *host;
    size_t host_size = 0;
    const char *url = head_target(target, &host, &host_size);

    x->method = known_method(method);
    if (origin && origin_is_allowed(x->worker->conf, origin))
        x->origin = origin;
    if (!check_host(x, host, host_size))
        return;
    if (strcmp(method, "OPTIONS") == 0) {
        x->route = "*";
        x->route_index = ROUTE_ANY;
        x->serve = page_options;
        return;
    }
    x->path = routes_path(url);
    const struct route *route = x->path ? find_route(x->path) : NULL;
    if (!check_room(x, route))
        return;
    if (!route) {
        api_error_set(&x->refusal, 404, "unknown_url", NULL, "Invalid URL (%.20s %.200s)", method,
                      url);
        refuse(x);
        return;
    }
    x->route = label_of(route);
    x->route_index = (uint32_t)(route - routes);
    x->poll = route->poll;
    check_method(x, route, method, url);
}
