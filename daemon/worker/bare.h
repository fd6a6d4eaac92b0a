/* bare: an answer written on a socket by ourselves, where libmicrohttpd cannot or must not.
 *
 * Nothing was written on that socket for this request before, and the connection ends after it.
 * Worker's thread. */
#ifndef DAEMON_BARE_H
#define DAEMON_BARE_H

#include <stdbool.h>

struct api_error;

enum { REQUEST_NAME = 40 };
/* "req_" and 32 random hexadecimal digits. */
void bare_name_request(char out[REQUEST_NAME]);
/* Best effort: a socket whose buffer is full gets nothing, and false comes back. */
bool bare_answer(int fd, const struct api_error *e, const char *request_id);

#endif
