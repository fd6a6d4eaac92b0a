#include "daemon/worker/bare.h"

#include "daemon/base/buf.h"
#include "daemon/base/version.h"
#include "daemon/openai/api_error.h"

#include <errno.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/socket.h>

void bare_name_request(char out[REQUEST_NAME])
{
    uint64_t bits[2] = { 0, 0 };

    while (getrandom(bits, sizeof bits, 0) < 0 && errno == EINTR)
        ;
    snprintf(out, REQUEST_NAME, "req_%016" PRIx64 "%016" PRIx64, bits[0], bits[1]);
}

bool bare_answer(int fd, const struct api_error *e, const char *request_id)
{
    struct buf body, text;
    bool sent;

    buf_init(&body, NULL);
    buf_init(&text, NULL);
    api_error_write(&body, e);
    buf_printf(&text, "HTTP/1.1 %d %s\r\nContent-Type: application/json; charset=utf-8\r\n"
               "x-request-id: %s\r\nServer: colizig/%s\r\n", e->status,
               MHD_get_reason_phrase_for((unsigned)e->status), request_id, version_number());
    if (e->hopeless)
        buf_text(&text, "x-should-retry: false\r\n");
    if (e->retry_after_s)
        buf_printf(&text, "Retry-After: %" PRIu32 "\r\n", e->retry_after_s);
    buf_printf(&text, "Content-Length: %zu\r\nConnection: close\r\n\r\n", body.size);
    buf_put(&text, body.data, body.size);
    sent = !text.failed && !body.failed &&
           send(fd, text.data, text.size, MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
    buf_done(&body);
    buf_done(&text);
    return sent;
}
