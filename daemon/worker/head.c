#include "daemon/worker/head.h"

#include "daemon/openai/api_error.h"

#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static int bad(struct api_error *e, int status, const char *code, const char *text)
{
    api_error_set(e, status, code, NULL, "%s", text);
    e->close = true;
    return -1;
}

static int malformed(struct api_error *e, const char *text)
{
    return bad(e, 400, "invalid_request", text);
}

/* RFC 9110, 5.6.2: what a method and a header's name are made of. */
static bool is_token(const char *text, size_t size)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";

    for (size_t i = 0; i < size; i++) {
        char c = text[i];
        bool fine = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                    (c && strchr(marks, c));
        if (!fine)
            return false;
    }
    return size > 0;
}

static bool is_number(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return size > 0;
}

/* ---- the fields that say where a request ends and whom it is for ---- */

enum {
    LENGTH_DIGITS = 18, /* a quintillion of bytes: no 64-bit number overflows */
    RECORD_SIZE = 64,   /* what libmicrohttpd 0.9.75 takes for a header, argument or cookie: 56 */
};

struct framing {
    uint32_t n_hosts, n_lengths, n_encodings;
    bool odd_name, odd_host, odd_length, long_length;
    uint64_t length;
    size_t n_records, cookie_size; /* of libmicrohttpd, which takes cookies and queries apart */
    char encoding[64]; /* the last one, cut short */
};

static size_t count_any(const char *text, size_t size, const char *marks)
{
    size_t n = 0;

    for (size_t i = 0; i < size; i++)
        n += text[i] && strchr(marks, text[i]);
    return n;
}

static void note_field(struct framing *f, const char *name, size_t name_size, const char *value,
                       size_t size)
{
    f->odd_name |= !is_token(name, name_size);
    f->n_records++;
    if (name_size == 4 && strncasecmp(name, "Host", 4) == 0) {
        f->n_hosts++;
        for (size_t i = 0; i < size; i++)
            f->odd_host |= (unsigned char)value[i] <= ' ' || strchr(",/@?#\\", value[i]);
    } else if (name_size == 14 && strncasecmp(name, "Content-Length", 14) == 0) {
        f->n_lengths++;
        f->odd_length |= !is_number(value, size);
        f->long_length |= size > LENGTH_DIGITS;
        for (size_t i = 0; i < size && !f->odd_length && !f->long_length; i++)
            f->length = 10 * f->length + (uint64_t)(value[i] - '0');
    } else if (name_size == 6 && strncasecmp(name, "Cookie", 6) == 0) {
        f->cookie_size += size;
        f->n_records += 1 + count_any(value, size, ";,");
    } else if (name_size == 17 && strncasecmp(name, "Transfer-Encoding", 17) == 0) {
        f->n_encodings++;
        snprintf(f->encoding, sizeof f->encoding, "%.*s", (int)(size < 60 ? size : 60), value);
    }
}

static int check_framing(const struct framing *f, bool http10, struct api_error *e)
{
    if (f->odd_name)
        return malformed(e, "A header's name holds a character that no name may hold.");
    if (f->n_hosts > 1)
        return malformed(e, "There is more than one Host header.");
    if (f->n_hosts == 0 && !http10)
        return malformed(e, "The Host header is missing.");
    if (f->odd_host)
        return malformed(e, "The Host header is no host name with a port.");
    if (f->n_lengths > 1 || f->n_encodings > 1)
        return malformed(e, "There is more than one Content-Length or Transfer-Encoding header.");
    if (f->n_lengths && f->n_encodings)
        return malformed(e, "Content-Length and Transfer-Encoding exclude each other.");
    if (f->odd_length)
        return malformed(e, "The Content-Length header is no number.");
    if (f->long_length)
        return bad(e, 413, "request_too_large", "The Content-Length is larger than any body.");
    if (f->n_encodings && http10)
        return malformed(e, "HTTP/1.0 has no Transfer-Encoding.");
    if (f->n_encodings && strcasecmp(f->encoding, "chunked") != 0) {
        api_error_set(e, 501, "unsupported_transfer_encoding", NULL,
                      "Transfer-Encoding '%.60s' is not supported; send the body chunked or with "
                      "a Content-Length.", f->encoding);
        e->close = e->hopeless = true;
        return -1;
    }
    return 0;
}

static enum MHD_Result each_field(void *ctx, enum MHD_ValueKind kind, const char *name,
                                  size_t name_size, const char *value, size_t size)
{
    (void)kind;
    note_field(ctx, name, name_size, value ? value : "", value ? size : 0);
    return MHD_YES;
}

bool head_check(struct MHD_Connection *connection, const char *version, struct api_error *e)
{
    struct framing f = { 0 };

    MHD_get_connection_values_n(connection, MHD_HEADER_KIND, each_field, &f);
    return check_framing(&f, strcmp(version, "HTTP/1.0") == 0, e) == 0;
}

/* ---- bytes ---- */

/* "GET /path HTTP/1.1": 1 for HTTP/1.0, 0 for a later one, -1. */
static int scan_request_line(struct framing *f, const char *line, size_t size, struct api_error *e)
{
    const char *first = memchr(line, ' ', size), *last = memrchr(line, ' ', size);

    if (!first || first == last || !is_token(line, (size_t)(first - line)))
        return malformed(e, "The request line is not a method, a URL and HTTP/1.1.");
    size_t version = size - (size_t)(last + 1 - line);
    if (version != 8 || strncmp(last + 1, "HTTP/", 5) != 0 || last[7] != '.' ||
        !is_number(last + 6, 1) || !is_number(last + 8, 1))
        return malformed(e, "The request line does not end with HTTP/1.1.");
    if (last[6] != '1')
        return bad(e, 505, "unsupported_http_version", "Only HTTP/1.0 and HTTP/1.1 are spoken.");
    if (last - first - 1 > HEAD_MAX_TARGET)
        return bad(e, 414, "url_too_long", "The URL is longer than 8192 bytes.");
    for (const char *p = first + 1; p < last; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7f)
            return malformed(e, "The URL holds a blank or a control character.");
    f->n_records += count_any(first, (size_t)(last - first), "?&");
    return last[8] == '0';
}

static int scan_field(struct framing *f, const char *line, size_t size, struct api_error *e)
{
    const char *colon = memchr(line, ':', size);

    if (line[0] == ' ' || line[0] == '\t')
        return malformed(e, "A header goes on in a second line; write it in one.");
    if (!colon)
        return malformed(e, "A header has no colon.");
    const char *value = colon + 1, *end = line + size;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    for (const char *p = value; p < end; p++)
        if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7f)
            return malformed(e, "A header holds a control character.");
    note_field(f, line, (size_t)(colon - line), value, (size_t)(end - value));
    return 0;
}

/* The line from *at on, without its end; false while that is not there. */
static bool next_line(const char *bytes, size_t size, size_t *at, size_t *line_size)
{
    const char *end = memchr(bytes + *at, '\n', size - *at);

    if (!end)
        return false;
    size_t from = *at, n = (size_t)(end - bytes) - from;
    *line_size = n > 0 && bytes[from + n - 1] == '\r' ? n - 1 : n;
    *at = from + n + 1;
    return true;
}

/* Blank lines before a request, which some clients send after a body, are skipped. A carriage
 * return alone is no line: libmicrohttpd would take it for a part of the method. */
size_t head_blank(const char *bytes, size_t size)
{
    size_t at = 0;

    while (at < size) {
        if (bytes[at] == '\n')
            at++;
        else if (bytes[at] == '\r' && at + 1 < size && bytes[at + 1] == '\n')
            at += 2;
        else
            break;
    }
    return at;
}

static int too_large(struct api_error *e)
{
    return bad(e, 431, "headers_too_large",
               "The request's headers have more than 16384 bytes, or are too many.");
}

/* What is not whole yet: whether it can become a request. */
static ssize_t scan_part(const char *bytes, size_t from, size_t size, bool has_line,
                         struct api_error *e)
{
    const char *blank = memchr(bytes + from, ' ', size - from);
    size_t method = blank ? (size_t)(blank - bytes) - from : size - from;

    bool may_be_blank = size - from == 1 && bytes[from] == '\r'; /* half a blank line */
    if (!has_line && size > from && !may_be_blank &&
        (method > 32 || !is_token(bytes + from, method)))
        return malformed(e, "This is no HTTP request.");
    if (size < HEAD_MAX)
        return 0;
    if (!has_line)
        return bad(e, 414, "url_too_long", "The URL is longer than 8192 bytes.");
    return too_large(e);
}

ssize_t head_scan(const char *bytes, size_t size, struct head_body *body, struct api_error *e)
{
    struct framing f = { 0 };
    size_t at = head_blank(bytes, size), from = at, n;
    int http10 = 0;

    if (!next_line(bytes, size, &at, &n))
        return scan_part(bytes, from, size, false, e);
    http10 = scan_request_line(&f, bytes + from, n, e);
    if (http10 < 0)
        return -1;
    for (from = at; next_line(bytes, size, &at, &n); from = at) {
        if (n == 0) {
            if (at > HEAD_MAX || at + f.n_records * RECORD_SIZE + f.cookie_size > HEAD_POOL_MAX)
                return too_large(e);
            if (check_framing(&f, http10 == 1, e) < 0)
                return -1;
            *body = (struct head_body){ .size = f.length, .chunked = f.n_encodings > 0 };
            return (ssize_t)at;
        }
        if (scan_field(&f, bytes + from, n, e) < 0)
            return -1;
    }
    return scan_part(bytes, 0, size, true, e);
}

const char *head_target(const char *target, const char **host, size_t *host_size)
{
    static const char *const schemes[] = { "http://", "https://" };

    *host = NULL;
    for (size_t i = 0; i < 2; i++) {
        size_t n = strlen(schemes[i]);
        if (strncasecmp(target, schemes[i], n) != 0)
            continue;
        *host = target + n;
        *host_size = strcspn(*host, "/?#");
        return (*host)[*host_size] == '/' ? *host + *host_size : "/";
    }
    return target;
}
