#include "daemon/openai/api_error.h"

#include "daemon/base/buf.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int fill(struct api_error *e, int status, const char *code, const char *param,
                const char *fmt, va_list args) __attribute__((format(printf, 5, 0)));

static int fill(struct api_error *e, int status, const char *code, const char *param,
                const char *fmt, va_list args)
{
    *e = (struct api_error){ .status = status, .code = code, .hopeless = status < 500 };
    if (param)
        snprintf(e->param, sizeof e->param, "%s", param);
    vsnprintf(e->message, sizeof e->message, fmt, args);
    return -1;
}

int api_error_set(struct api_error *e, int status, const char *code, const char *param,
                  const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    fill(e, status, code, param, fmt, args);
    va_end(args);
    return -1;
}

int api_error_field(struct api_error *e, const char *code, const char *param, const char *fmt,
                    ...)
{
    va_list args;

    va_start(args, fmt);
    fill(e, 400, code, param, fmt, args);
    va_end(args);
    return -1;
}

static int unavailable(struct api_error *e, const char *code, uint32_t retry_after_s,
                       const char *text)
{
    api_error_set(e, 503, code, NULL, "%s", text);
    e->retry_after_s = retry_after_s;
    return -1;
}

int api_error_full(struct api_error *e)
{
    return unavailable(e, "server_overloaded", 1,
                       "The server's buffers are full. Please try again later.");
}

int api_error_no_memory(struct api_error *e)
{
    return api_error_set(e, 500, "internal_error", NULL, "Out of memory.");
}

int api_error_loading(struct api_error *e)
{
    return unavailable(e, "model_loading", 5, "The model is still loading.");
}

int api_error_draining(struct api_error *e)
{
    return unavailable(e, "draining", 10, "The server is shutting down.");
}

int api_error_engine(struct api_error *e, enum err_kind kind, uint32_t retry_after_s,
                     const char *text)
{
    switch (kind) {
    case ERR_BUSY:
        api_error_set(e, 503, "server_overloaded", NULL,
                      "The server is busy: %s. Please try again later.", text);
        e->retry_after_s = retry_after_s ? retry_after_s : 1;
        return -1;
    case ERR_CLOSED:
        api_error_set(e, 503, "engine_unavailable", NULL,
                      "The engine stopped while it worked on this request: %s", text);
        e->retry_after_s = retry_after_s ? retry_after_s : 5;
        return -1;
    case ERR_INPUT:
        return api_error_set(e, 400, "invalid_value", NULL, "%s", text);
    case ERR_UNSUPPORTED:
        return api_error_set(e, 400, "unsupported_parameter", NULL, "%s", text);
    case ERR_TOO_LONG:
        return api_error_set(e, 400, "context_length_exceeded", "messages", "%s", text);
    case ERR_CANCELLED:
        /* Somebody wanted it gone; a client must not send it again by itself. */
        api_error_set(e, 500, "request_cancelled", NULL, "%s", text);
        e->hopeless = true;
        return -1;
    case ERR_NUMERIC:
        /* The same weights and the same rows give the same infinity again. */
        api_error_set(e, 500, "engine_error", NULL, "The model's numbers broke: %s", text);
        e->hopeless = true;
        return -1;
    default:
        return api_error_set(e, 500, "engine_error", NULL, "The engine failed: %s", text);
    }
}

int api_error_too_long(struct api_error *e, uint64_t n_prompt, bool at_least, uint32_t n_ctx,
                       const char *param)
{
    api_error_field(e, "context_length_exceeded", param,
                    "This model's maximum context length is %" PRIu32 " tokens. However, your %s "
                    "resulted in %s%" PRIu64 " tokens. Please reduce the length of the %s.",
                    n_ctx, param, at_least ? "at least " : "", n_prompt, param);
    e->n_prompt = n_prompt > UINT32_MAX ? UINT32_MAX : (uint32_t)n_prompt;
    e->n_ctx = n_ctx;
    return -1;
}

void api_error_write(struct buf *to, const struct api_error *e)
{
    buf_text(to, "{\"error\":{\"message\":");
    buf_json_text(to, e->message);
    buf_printf(to, ",\"type\":\"%s\",\"param\":",
               e->status >= 500 ? "server_error" : "invalid_request_error");
    buf_json_text(to, e->param[0] ? e->param : NULL);
    buf_text(to, ",\"code\":");
    buf_json_text(to, e->code);
    if (e->n_ctx)
        buf_printf(to, ",\"n_prompt_tokens\":%" PRIu32 ",\"n_ctx\":%" PRIu32, e->n_prompt,
                   e->n_ctx);
    buf_text(to, "}}");
}
