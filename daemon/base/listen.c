#include "daemon/base/listen.h"

#include "util/err.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool parse_port(uint16_t *port, const char *text)
{
    uint32_t n = 0;

    if (*text == '\0' || strlen(text) > 5)
        return false;
    for (; *text; text++) {
        if (*text < '0' || *text > '9')
            return false;
        n = n * 10 + (uint32_t)(*text - '0');
    }
    if (n > 65535)
        return false;
    *port = (uint16_t)n;
    return true;
}

static bool parse_ipv6(struct listen_address *out, const char *host, uint16_t port)
{
    struct sockaddr_in6 in6 = { .sin6_family = AF_INET6, .sin6_port = htons(port) };

    if (inet_pton(AF_INET6, host, &in6.sin6_addr) != 1)
        return false;
    memcpy(&out->address, &in6, sizeof in6);
    out->size = sizeof in6;
    return true;
}

static bool parse_ipv4(struct listen_address *out, const char *host, uint16_t port)
{
    struct sockaddr_in in = { .sin_family = AF_INET, .sin_port = htons(port) };

    if (host[0] == '\0' || strcmp(host, "*") == 0)
        host = "0.0.0.0";
    else if (strcmp(host, "localhost") == 0)
        host = "127.0.0.1";
    if (inet_pton(AF_INET, host, &in.sin_addr) != 1)
        return false;
    memcpy(&out->address, &in, sizeof in);
    out->size = sizeof in;
    return true;
}

int listen_parse(struct listen_address *out, const char *text, struct err *err)
{
    const char *colon = strrchr(text, ':');
    struct listen_address found = { 0 };
    char host[64] = "";
    uint16_t port;
    bool fine;

    if (!colon || !parse_port(&port, colon + 1) || (size_t)(colon - text) >= sizeof host)
        goto wrong;
    memcpy(host, text, (size_t)(colon - text));

    size_t size = strlen(host);
    if (size > 2 && host[0] == '[' && host[size - 1] == ']') {
        host[size - 1] = '\0';
        fine = parse_ipv6(&found, host + 1, port);
    } else {
        fine = parse_ipv4(&found, host, port);
    }
    if (!fine)
        goto wrong;
    *out = found;
    return 0;

wrong:
    return err_set(err, ERR_INPUT,
                   "'%.80s' is no address to listen on; write 127.0.0.1:8080 or [::1]:8080", text);
}

bool listen_is_loopback(const struct listen_address *a)
{
    if (a->address.ss_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, &a->address, sizeof in);
        return ntohl(in.sin_addr.s_addr) >> 24 == 127;
    }
    struct sockaddr_in6 in6;
    memcpy(&in6, &a->address, sizeof in6);
    return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

int listen_open(int *out, const struct listen_address *a, struct err *err)
{
    int yes = 1;
    int fd = socket(a->address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return err_errno(err, "making a listening socket");
    /* A restart must not wait for connections of the last life to fade. */
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) < 0)
        goto fail;
    if (a->address.ss_family == AF_INET6 &&
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes) < 0)
        goto fail;
    if (bind(fd, (const struct sockaddr *)&a->address, a->size) < 0) {
        if (errno != EADDRINUSE)
            goto fail;
        close(fd);
        return err_set(err, ERR_IO, "cannot listen: another program has this port; choose another "
                                    "with http.listen or --listen");
    }
    if (listen(fd, 512) < 0)
        goto fail;
    *out = fd;
    return 0;

fail:
    err_errno(err, "cannot listen");
    close(fd);
    return -1;
}

const char *listen_name(char *buf, size_t cap, int fd)
{
    struct sockaddr_storage address = { 0 };
    socklen_t size = sizeof address;
    char host[INET6_ADDRSTRLEN] = "?";

    snprintf(buf, cap, "?");
    if (getsockname(fd, (struct sockaddr *)&address, &size) < 0)
        return buf;
    if (address.ss_family == AF_INET) {
        struct sockaddr_in in;
        memcpy(&in, &address, sizeof in);
        inet_ntop(AF_INET, &in.sin_addr, host, sizeof host);
        snprintf(buf, cap, "%s:%u", host, ntohs(in.sin_port));
    } else if (address.ss_family == AF_INET6) {
        struct sockaddr_in6 in6;
        memcpy(&in6, &address, sizeof in6);
        inet_ntop(AF_INET6, &in6.sin6_addr, host, sizeof host);
        snprintf(buf, cap, "[%s]:%u", host, ntohs(in6.sin6_port));
    } else if (address.ss_family == AF_UNIX) {
        snprintf(buf, cap, "unix socket");
    }
    return buf;
}
