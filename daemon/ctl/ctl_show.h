/* ctl_show: what a daemon answered, for eyes. Texts in it are the daemon's and its clients', so
 * none reaches the terminal unchecked. One thread. */
#ifndef DAEMON_CTL_SHOW_H
#define DAEMON_CTL_SHOW_H

#include <jansson.h>
#include <stdint.h>

/* A field of an answer; 0 and "" where it is not. Texts are made plain. */
uint64_t ctl_count(const json_t *object, const char *key);
double ctl_number(const json_t *object, const char *key);
const char *ctl_word(char *buf, size_t cap, const json_t *object, const char *key);
const char *ctl_span(char buf[24], uint64_t ms); /* "3:12:45", "0:07" */

void ctl_show_status(const json_t *data);
void ctl_show_stats(const json_t *data);
void ctl_show_experts(const json_t *data);
void ctl_show_requests(const json_t *data);
void ctl_show_plan(const json_t *data);
void ctl_show_model(const json_t *data);

#endif
