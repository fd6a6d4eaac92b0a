#include "daemon/ctl/ctl_chat_http.h"

#include "daemon/base/version.h"
#include "util/err.h"

#include <curl/curl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BODY = 1 << 20, MAX_KEY = 4096, CONNECT_MS = 10000 };

struct chat_http {
    char *base; /* owned */
    bool local;
    int watch; /* borrowed */
    CURL *easy;
    CURLM *multi;
    struct curl_slist *headers, *no_body_headers; /* owned */
    struct buf body;
    long status;
    const struct chat_http_events *events; /* of the request under way */
    struct err *err;
    bool failed; /* the caller's bytes function said so */
    char why[CURL_ERROR_SIZE];
};

/* ---- opening ---- */

static bool host_is_local(const char *host)
{
    return strcasecmp(host, "localhost") == 0 || strncmp(host, "127.", 4) == 0 ||
           strcmp(host, "[::1]") == 0;
}

static int check_url(struct chat_http *h, const char *url, struct err *err)
{
    CURLU *parts = curl_url();
    char *scheme = NULL, *host = NULL, *query = NULL;
    bool fine = parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
                curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
                (strcmp(scheme, "http") == 0 || strcmp(scheme, "https") == 0) &&
                curl_url_get(parts, CURLUPART_QUERY, &query, 0) == CURLUE_NO_QUERY;

    if (fine)
        h->local = host_is_local(host);
    curl_free(scheme);
    curl_free(host);
    curl_free(query);
    curl_url_cleanup(parts);
    return fine ? 0 : err_set(err, ERR_INPUT, "--url: '%.200s' is no address of a server; write "
                                              "http://127.0.0.1:8080", url);
}

static int take_base(struct chat_http *h, const char *url, struct err *err)
{
    if (check_url(h, url, err) < 0)
        return -1;
    h->base = strdup(url);
    if (!h->base)
        return err_set(err, ERR_NOMEM, "the server's address");
    size_t n = strlen(h->base);
    while (n > 0 && h->base[n - 1] == '/')
        n--;
    if (n > 3 && strncmp(h->base + n - 3, "/v1", 3) == 0)
        n -= 3;
    h->base[n] = '\0';
    return 0;
}

static int add_header(struct curl_slist **list, const char *line, struct err *err)
{
    struct curl_slist *more = curl_slist_append(*list, line);

    if (!more)
        return err_set(err, ERR_NOMEM, "headers");
    *list = more;
    return 0;
}

static int add_key(struct chat_http *h, const char *key, struct err *err)
{
    char line[MAX_KEY + 32];

    if (!key)
        return 0;
    for (const char *c = key; *c; c++)
        if (*c < 0x21 || *c > 0x7e)
            return err_set(err, ERR_INPUT, "--api-key: a key has printable ASCII alone");
    if (strlen(key) == 0 || strlen(key) > MAX_KEY)
        return err_set(err, ERR_INPUT, "--api-key: a key has 1 to %d characters", MAX_KEY);
    snprintf(line, sizeof line, "Authorization: Bearer %s", key);
    if (add_header(&h->headers, line, err) < 0)
        return -1;
    return add_header(&h->no_body_headers, line, err);
}

static size_t on_bytes(char *bytes, size_t one, size_t n, void *ctx)
{
    struct chat_http *h = ctx;
    size_t size = one * n;

    if (!h->status)
        curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &h->status);
    if (h->status == 200 && h->events && h->events->bytes) {
        h->failed = h->events->bytes(h->events->ctx, bytes, size, h->err) < 0;
        return h->failed ? 0 : size;
    }
    if (h->body.size < MAX_BODY)
        buf_put(&h->body, bytes, size < MAX_BODY - h->body.size ? size : MAX_BODY - h->body.size);
    return size;
}

static void set_options(struct chat_http *h)
{
    char agent[64];

    snprintf(agent, sizeof agent, "colizigctl/%s", version_number());
    curl_easy_setopt(h->easy, CURLOPT_USERAGENT, agent);
    curl_easy_setopt(h->easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(h->easy, CURLOPT_PROXY, "");
    curl_easy_setopt(h->easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(h->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(h->easy, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(h->easy, CURLOPT_ERRORBUFFER, h->why);
    curl_easy_setopt(h->easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(h->easy, CURLOPT_WRITEDATA, h);
}

int chat_http_open(struct chat_http **out, const char *url, const char *key, int watch,
                   struct err *err)
{
    struct chat_http *h = calloc(1, sizeof *h);

    if (!h)
        return err_set(err, ERR_NOMEM, "an HTTP client");
    h->watch = watch;
    buf_init(&h->body, NULL);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || take_base(h, url, err) < 0)
        goto fail;
    h->easy = curl_easy_init();
    h->multi = curl_multi_init();
    if (!h->easy || !h->multi) {
        err_set(err, ERR_NOMEM, "an HTTP client");
        goto fail;
    }
    set_options(h);
    if (add_header(&h->headers, "Content-Type: application/json", err) < 0 ||
        add_header(&h->headers, "Expect:", err) < 0 || add_key(h, key, err) < 0)
        goto fail;
    *out = h;
    return 0;

fail:
    chat_http_close(h);
    return -1;
}

void chat_http_close(struct chat_http *h)
{
    if (!h)
        return;
    curl_easy_cleanup(h->easy);
    curl_multi_cleanup(h->multi);
    curl_slist_free_all(h->headers);
    curl_slist_free_all(h->no_body_headers);
    curl_global_cleanup();
    buf_done(&h->body);
    free(h->base);
    free(h);
}

const char *chat_http_base(const struct chat_http *h)
{
    return h->base;
}

bool chat_http_is_local(const struct chat_http *h)
{
    return h->local;
}

/* ---- asking ---- */

static enum chat_http_end end_of(struct chat_http *h, CURLcode code)
{
    const char *why = h->why[0] ? h->why : curl_easy_strerror(code);

    if (h->failed)
        return CHAT_HTTP_FAILED;
    switch (code) {
    case CURLE_OK:
        return CHAT_HTTP_DONE;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_CONNECT:
        err_set(h->err, ERR_CLOSED, "nobody answers at %.200s (%s)", h->base, why);
        return CHAT_HTTP_NO_SERVER;
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_PARTIAL_FILE:
    case CURLE_GOT_NOTHING:
        err_set(h->err, ERR_CLOSED, "the connection to %.200s was lost (%s)", h->base, why);
        return CHAT_HTTP_LOST;
    case CURLE_OPERATION_TIMEDOUT:
        err_set(h->err, ERR_IO, "%.200s did not answer in time (%s)", h->base, why);
        return CHAT_HTTP_LOST;
    default:
        err_set(h->err, ERR_IO, "%.200s: %s", h->base, why);
        return CHAT_HTTP_FAILED;
    }
}

/* True once the transfer has ended. */
static bool ended(struct chat_http *h, CURLcode *code)
{
    int left;
    CURLMsg *message;

    while ((message = curl_multi_info_read(h->multi, &left))) {
        if (message->msg == CURLMSG_DONE) {
            *code = message->data.result;
            return true;
        }
    }
    return false;
}

static enum chat_http_end perform(struct chat_http *h)
{
    struct curl_waitfd watch = { .fd = h->watch, .events = CURL_WAIT_POLLIN };
    int tick_ms = h->events && h->events->tick_ms ? (int)h->events->tick_ms : 1000;
    int running = 0;
    CURLcode code;

    for (;;) {
        if (curl_multi_perform(h->multi, &running) != CURLM_OK ||
            curl_multi_poll(h->multi, &watch, h->watch >= 0 && running ? 1 : 0,
                            running ? tick_ms : 0, NULL) != CURLM_OK) {
            err_set(h->err, ERR_NOMEM, "the HTTP client");
            return CHAT_HTTP_FAILED;
        }
        if (ended(h, &code))
            return end_of(h, code);
        if (h->events && h->events->go_on && !h->events->go_on(h->events->ctx))
            return CHAT_HTTP_INTERRUPTED;
    }
}

enum chat_http_end chat_http_ask(struct chat_http *h, const char *path, const char *body,
                                 size_t size, uint32_t limit_ms,
                                 const struct chat_http_events *events, struct err *err)
{
    char url[2048];

    if ((size_t)snprintf(url, sizeof url, "%s%s", h->base, path) >= sizeof url) {
        err_set(err, ERR_INPUT, "--url: the address is too long");
        return CHAT_HTTP_FAILED;
    }
    h->events = events;
    h->err = err;
    h->status = 0;
    h->failed = false;
    h->why[0] = '\0';
    h->body.size = 0;
    curl_easy_setopt(h->easy, CURLOPT_URL, url);
    curl_easy_setopt(h->easy, CURLOPT_TIMEOUT_MS, (long)limit_ms);
    curl_easy_setopt(h->easy, CURLOPT_HTTPHEADER, body ? h->headers : h->no_body_headers);
    if (body) {
        curl_easy_setopt(h->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)size);
        curl_easy_setopt(h->easy, CURLOPT_POSTFIELDS, body);
        curl_easy_setopt(h->easy, CURLOPT_POST, 1L);
    } else {
        curl_easy_setopt(h->easy, CURLOPT_HTTPGET, 1L);
    }
    curl_multi_add_handle(h->multi, h->easy);
    enum chat_http_end end = perform(h);
    if (!h->status)
        curl_easy_getinfo(h->easy, CURLINFO_RESPONSE_CODE, &h->status);
    /* Of a transfer under way this closes the connection, which is how a server learns of it. */
    curl_multi_remove_handle(h->multi, h->easy);
    h->events = NULL;
    return end;
}

long chat_http_status(const struct chat_http *h)
{
    return h->status;
}

const struct buf *chat_http_body(const struct chat_http *h)
{
    return &h->body;
}
