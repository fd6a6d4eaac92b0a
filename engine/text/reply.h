/* reply: the tokens of an answer in; reasoning, content and tool calls out.
 *
 * One streaming state machine for what chat models write: thinking, text, then tool calls as a JSON
 * object (REPLY_JSON) or in the XML spelling of function and parameter (REPLY_XML) between
 * <tool_call> marks. Marks are known by token id, so a text that spells one is text. What cannot be
 * understood comes out as content, never as an error: what is delivered and what is structured is
 * all that was generated, but for what docs/tool-calls.md says is dropped. Every part is whole
 * UTF-8; the parts of a kind, joined, do not depend on how the bytes were cut into tokens.
 * Stop strings end content alone. Linear in the bytes put; memory is what must be held back.
 * Pure: no thread, no clock, no I/O. One thread at a time. Only lack of memory makes a call fail. */
#ifndef TEXT_REPLY_H
#define TEXT_REPLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct reply;
struct text_stop;
struct tokenizer;

enum reply_start { /* where the prompt leaves the model */
    REPLY_SNIFF,     /* the first token tells: the mark <think>, or content */
    REPLY_REASONING, /* the prompt ends inside thinking */
    REPLY_CONTENT,
};
enum reply_style { REPLY_NO_TOOLS, REPLY_JSON, REPLY_XML };

#define REPLY_NO_MARK UINT32_MAX

struct reply_marks { /* token ids; REPLY_NO_MARK where there is none */
    uint32_t think, think_end, call, call_end;
};
void reply_marks_find(struct reply_marks *out, const struct tokenizer *t);

enum { /* what the schema of a parameter allows, as bits; none of them: as if a string */
    REPLY_MAY_STRING = 1,
    REPLY_MAY_INTEGER = 2,
    REPLY_MAY_NUMBER = 4,
    REPLY_MAY_BOOLEAN = 8,
    REPLY_MAY_NULL = 16,
    REPLY_MAY_OBJECT = 32,
    REPLY_MAY_ARRAY = 64,
};
struct reply_parameter {
    const char *name;
    size_t size;
    unsigned types;
    bool required;
};
struct reply_tool {
    const char *name;
    size_t size;
    const struct reply_parameter *parameters; /* [n_parameters] */
    size_t n_parameters;
};

struct reply_options {
    enum reply_start start;
    enum reply_style style; /* with REPLY_NO_TOOLS the marks of calls are text */
    struct reply_marks marks;
    const struct reply_tool *tools; /* borrowed until reply_close */
    size_t n_tools;
    bool one_call;  /* the reply is over behind its first call */
    bool keep_tags; /* reasoning and its tags are content */
    const struct text_stop *stops; /* copied */
    size_t n_stops;
};
/* ERR_INPUT for stop strings that text_out_open refuses. */
int reply_open(struct reply **out, const struct reply_options *o, struct err *err);
void reply_close(struct reply *r); /* NULL is fine */

/* One token and its text, that of a mark included (it may have to be text); 0 bytes for other
 * special tokens. 1: the reply is over, stop generating, and further tokens are ignored; 0; -1. */
int reply_put(struct reply *r, uint32_t id, const char *bytes, size_t size, struct err *err);
/* No more tokens come; cut: because of the limit of tokens, so that a call is left unfinished
 * where otherwise it would be closed. What was held back comes out as parts. Twice is fine. */
int reply_finish(struct reply *r, bool cut, struct err *err);

enum reply_kind {
    REPLY_TEXT_REASONING,
    REPLY_TEXT_CONTENT,
    REPLY_CALL,      /* begins: text is the name */
    REPLY_ARGUMENTS, /* more of its arguments, JSON text */
    REPLY_CALL_END,  /* its arguments are complete; missing where it was cut */
};
struct reply_part {
    enum reply_kind kind;
    uint32_t call; /* 0, 1, ... of REPLY_CALL, REPLY_ARGUMENTS and REPLY_CALL_END */
    const char *text;
    size_t size;
};
/* The parts since the last put or finish, in order. Their text is valid until the next put, finish
 * or close. A call's parts lie between those of no other call. */
bool reply_next(struct reply *r, struct reply_part *part);

/* What the last token put belonged to, as far as was known when it came: REPLY_TEXT_REASONING,
 * REPLY_TEXT_CONTENT or REPLY_CALL. Marks belong to what they open or close. */
enum reply_kind reply_token_kind(const struct reply *r);

enum reply_repair {
    REPLY_OPENER_MISSING,  /* a call began without its <tool_call> */
    REPLY_THINKING_OPEN,   /* a call began inside thinking */
    REPLY_CLOSER_MISSING,  /* </parameter>, </function>, </tool_call>, a brace or a quote */
    REPLY_TAG_EXTRA,       /* a mark, a closing tag or a brace twice */
    REPLY_JSON_MENDED,     /* JSON that was none, made JSON: commas, quotes, Python's words, ... */
    REPLY_JSON_BROKEN,     /* arguments that are no JSON, handed over as they are */
    REPLY_BLOCK_AS_TEXT,   /* no call could be made of it: content */
    REPLY_OTHER_STYLE,     /* JSON where XML was due, or the reverse */
    REPLY_NAME_UNDECLARED, /* a call of a function that was not offered */
    REPLY_KEY_DROPPED,     /* a parameter given twice, or a key of the call that means nothing */
    REPLY_VALUE_AS_STRING, /* a value that its type does not allow */
    REPLY_TEXT_MOVED,      /* text inside a call where none may be: content behind the call */
    REPLY_TEXT_DROPPED,    /* text behind the last call */
    N_REPLY_REPAIRS
};
const char *reply_repair_name(enum reply_repair repair); /* "opener_missing", for labels */

struct reply_result {
    uint32_t n_calls;
    uint32_t n_reasoning_tokens, n_content_tokens, n_call_tokens;
    bool by_stop_string;  /* content ended before a stop string */
    bool unfinished_call; /* cut inside the last call */
    uint32_t repairs[N_REPLY_REPAIRS];
};
void reply_result(const struct reply *r, struct reply_result *out);
uint64_t reply_memory(const struct reply *r); /* bytes it holds now */

#endif
