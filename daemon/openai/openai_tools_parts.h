/* openai_tools_parts: what the files of openai_tools share. Private to them. */
#ifndef DAEMON_OPENAI_TOOLS_PARTS_H
#define DAEMON_OPENAI_TOOLS_PARTS_H

#include "daemon/openai/openai_tools.h"

#include "daemon/openai/openai_in.h"

/* The functions by name, while a request is read. */
struct tool_name {
    const json_t *name;
    size_t index;
};

struct tool_names {
    struct tool_name *sorted; /* owned: [n] */
    size_t n;
    uint64_t cost; /* taken from the request's quota */
};

/* As memcmp does, the shorter first. */
int openai_tools_compare(const json_t *a, const json_t *b);
/* The function in an entry of r->tools. */
json_t *openai_tools_function(const json_t *tool);

/* tool_choice and function_call, once r->tools is there: r->offer.choice, and fewer tools where
 * only some are allowed. */
int openai_read_tool_choice(struct openai_request *r, const struct tool_names *names,
                            struct api_error *e);
/* The table of r->offer from r->tools. */
int openai_make_tool_table(struct openai_request *r, struct api_error *e);

#endif
