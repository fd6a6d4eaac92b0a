/* openai_tools: the functions that a chat offers, and how free the model is to call them.
 *
 * Reads tools, tool_choice and parallel_tool_calls, and the older functions and function_call.
 * What the template renders stays JSON, as it came. What the reply is parsed by is a table of
 * names and types, made of the schemas here, which outlives the JSON. A schema may be anything:
 * what cannot be told apart is a string. Both are paid for by the request's quota. Worker's thread. */
#ifndef DAEMON_OPENAI_TOOLS_H
#define DAEMON_OPENAI_TOOLS_H

#include "text/reply.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct api_error;
struct openai_request;
struct quota;

enum { OPENAI_MAX_TOOL_NAME = 64 };

enum openai_tool_choice {
    OPENAI_TOOLS_NONE, /* none is offered, or none may be called */
    OPENAI_TOOLS_AUTO,
    OPENAI_TOOLS_REQUIRED, /* a call, whichever */
    OPENAI_TOOLS_NAMED,    /* a call of tools[named] */
};

/* Zeroed, it offers nothing. */
struct openai_tools {
    enum openai_tool_choice choice;
    size_t named;
    bool one_call; /* not several in one reply */
    bool legacy;   /* functions: the reply has function_call in place of tool_calls */
    const struct reply_tool *tools; /* owned, and all that it points to */
    size_t n;
    void *table; /* owned: the memory of that */
    struct quota *quota;
    uint64_t cost; /* taken from it for the table */
};

/* Fills r->tools and r->offer from r->root. */
int openai_read_tools(struct openai_request *r, struct api_error *e);
void openai_tools_done(struct openai_tools *t);

/* What values a JSON schema lets through: bits REPLY_MAY_...; never none. root resolves "#/...".
 * *steps bounds the work of all calls that share it; a schema that takes more is a string. */
unsigned openai_schema_types(const json_t *schema, const json_t *root, uint32_t *steps);

/* What a reference ("#/$defs/Room") means in root; NULL for one that leads elsewhere. */
const json_t *openai_schema_follow(const json_t *ref, const json_t *root);

#endif
