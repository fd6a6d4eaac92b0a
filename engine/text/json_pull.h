/* json_pull: walks through a JSON text without building it.
 *
 * For the two long parts of tokenizer.json: a tree of them takes ten times their size. Reads
 * memory that the caller owns; errors name the byte. One thread at a time. */
#ifndef TEXT_JSON_PULL_H
#define TEXT_JSON_PULL_H

#include <stddef.h>
#include <stdint.h>

struct bytes;
struct err;

struct json_pull {
    const char *text, *at, *end;
};

static inline struct json_pull json_pull_over(const char *text, size_t size)
{
    return (struct json_pull){ .text = text, .at = text, .end = text + size };
}

/* Steps into '{' or '['. */
int json_pull_enter(struct json_pull *p, char bracket, struct err *err);
/* Before each member: 1 when one follows, 0 when the bracket closed, -1. *n_seen starts at 0
 * and counts members, so that commas are where they must be. */
int json_pull_more(struct json_pull *p, char bracket, size_t *n_seen, struct err *err);
/* A string, unescaped, into out (emptied first). Its UTF-8 is checked. */
int json_pull_string(struct json_pull *p, struct bytes *out, struct err *err);
int json_pull_colon(struct json_pull *p, struct err *err);
int json_pull_u32(struct json_pull *p, uint32_t *out, struct err *err);
/* Steps over one value of any type; *begin is its first byte, p->at the byte behind it. Only
 * brackets and strings are checked. */
int json_pull_skip(struct json_pull *p, const char **begin, struct err *err);
/* The next byte that is no white space, without taking it; 0 at the end. */
char json_pull_peek(struct json_pull *p);

#endif
