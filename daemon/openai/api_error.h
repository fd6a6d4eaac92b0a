/* api_error: a refusal in the words of the OpenAI API.
 *
 * A value on the caller's stack, filled where the fault is known, written as
 * {"error":{"message","type","param","code"}} by whoever answers. Any thread. */
#ifndef DAEMON_API_ERROR_H
#define DAEMON_API_ERROR_H

#include "util/err.h"

#include <stdbool.h>
#include <stdint.h>

struct buf;

struct api_error {
    int status;
    const char *code;    /* a literal, or NULL */
    const char *allow;   /* 405: the Allow header */
    char param[128];     /* "" is null */
    char message[512];
    uint32_t retry_after_s;    /* 0: no such header */
    bool hopeless;             /* the same request would fail again: x-should-retry: false */
    bool close;                /* the connection ends with this answer */
    uint32_t n_prompt, n_ctx;  /* of context_length_exceeded */
};

/* Fill *e and return -1. param may be NULL. */
int api_error_set(struct api_error *e, int status, const char *code, const char *param,
                  const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* 400s of a field: the usual case. */
int api_error_field(struct api_error *e, const char *code, const char *param, const char *fmt,
                    ...) __attribute__((format(printf, 4, 5)));
/* What any request may meet. */
int api_error_full(struct api_error *e); /* http.buffer is, now */
int api_error_no_memory(struct api_error *e);
int api_error_loading(struct api_error *e);
int api_error_draining(struct api_error *e);
/* What the engine or the link answered. n_prompt and n_ctx serve ERR_TOO_LONG. */
int api_error_engine(struct api_error *e, enum err_kind kind, uint32_t retry_after_s,
                     const char *text);
int api_error_too_long(struct api_error *e, uint64_t n_prompt, bool at_least, uint32_t n_ctx,
                       const char *param);
/* The object, on one line. */
void api_error_write(struct buf *to, const struct api_error *e);

#endif
