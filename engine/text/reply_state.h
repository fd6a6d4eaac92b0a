/* reply_state: what an open reply consists of, for the reply*.c alone.
 *
 * reply.c walks through the phases, reply_out.c keeps parts and content, reply_call.c begins and
 * ends calls, reply_json.c and reply_xml.c read them, reply_keys.c knows keys that come again,
 * reply_values.c types what XML says and json_mend.c makes JSON of what nearly is. Characters come one at a time and whole. */
#ifndef TEXT_REPLY_STATE_H
#define TEXT_REPLY_STATE_H

#include "text/bytes.h"
#include "text/json_mend.h"
#include "text/json_text.h"
#include "text/reply.h"
#include "text/stop.h"

struct err;
struct text_out;

enum reply_phase {
    PHASE_SNIFF,
    PHASE_REASONING,
    PHASE_CONTENT,
    PHASE_BLOCK,   /* behind <tool_call>: which style it is is not known yet */
    PHASE_JSON,
    PHASE_XML,
    PHASE_BETWEEN, /* behind a call */
    PHASE_OVER,
};

/* A part of the parts to give out; its text lies in reply.text. */
struct reply_span {
    enum reply_kind kind;
    uint32_t call;
    size_t begin, end;
};

/* The call's object, {"name": ..., "arguments": ...}, and where it is in it. */
struct reply_json {
    enum {
        JSON_OPEN, /* its bracket */
        JSON_KEY_OR_END,
        JSON_KEY,
        JSON_KEY_TEXT,
        JSON_COLON,
        JSON_VALUE,
        JSON_AFTER,
        JSON_LOST, /* it is no object; what comes is kept for behind the call */
    } at;
    enum { MEMBER_NAME, MEMBER_ARGUMENTS, MEMBER_OTHER } member;
    struct json_mend mend; /* of a key, or of a value that is no arguments */
    struct bytes scratch;  /* owned: that key or value */
    uint32_t n_dropped, n_mended; /* keys that mean nothing, and mistakes outside arguments */
    bool have_arguments;
    size_t arguments_begin, arguments_end; /* in reply.raw, where they came before the name */

    bool begun; /* the arguments' first character was seen, which told their shape */
    enum { ARGUMENTS_OBJECT, ARGUMENTS_CODED, ARGUMENTS_OTHER } shape;
    struct json_mend inner; /* the arguments themselves */
    struct json_text coded; /* they are a string that says them */
    char coded_quote;
};

/* Keys, each once; the slots are a table of them. Zero it. */
struct reply_keys {
    struct bytes text;       /* owned: all of them */
    struct reply_key *slots; /* owned: [n_slots], a power of two */
    uint32_t n_slots, n;
};

/* The call's <function=...>, and where it is in it. */
struct reply_xml {
    enum { XML_BODY, XML_BODY_TAG, XML_KEY, XML_VALUE_BEGIN, XML_VALUE } at;
    struct bytes pending; /* owned: a tag or a key that is not complete, or what may end a value */
    enum {
        PENDING_NOTHING,
        PENDING_NEWLINE,    /* "\n" */
        PENDING_TAG,        /* the beginning of a tag, with or without "\n" before */
        PENDING_KEY,        /* "<parameter=" at the beginning of a line */
        PENDING_CLOSED,     /* </parameter> and white space, perhaps several times */
        PENDING_CLOSED_TAG, /* and the beginning of a tag */
        PENDING_ENDED,      /* </function> and white space */
    } hold;
    size_t tag_begin;   /* in pending */
    uint32_t n_closers; /* </parameter> in pending */
    bool line_begin;    /* the value's next character begins a line */

    const struct reply_tool *tool; /* NULL: not declared */
    struct reply_keys keys;        /* so far */
    unsigned types;
    enum { VALUE_UNDECIDED, VALUE_STRING, VALUE_OTHER, VALUE_DROPPED } value_kind;
    struct bytes value; /* owned: what is not given out before it is complete */
};

struct reply {
    struct reply_options options; /* its stops are in content */
    enum reply_phase phase;
    char cut[4]; /* the beginning of a character */
    size_t n_cut;

    struct bytes text; /* owned: of the parts */
    struct reply_span *spans; /* owned: [n_spans] */
    uint32_t n_spans, spans_cap, span; /* the next one to give out */

    bool leading;       /* newlines are dropped: behind <think> one, behind </think> all */
    uint64_t newlines;  /* held back at the end of reasoning */
    struct text_out *content; /* owned */
    /* White space that may turn out to stand before a call, and behind it what may become
     * "<function=NAME>", from `opener` on. */
    struct bytes held; /* owned */
    size_t opener;     /* SIZE_MAX: there is none */
    bool line_begin;   /* the next character of content begins a line */

    struct bytes raw; /* owned: a block that no call has begun of yet */
    struct bytes stray; /* owned: text inside a call that belongs behind it */
    size_t longest_name;
    bool in_call;     /* begun, and not ended */
    bool want_closer; /* behind a call: its </tool_call> did not come yet */
    bool call_was_json;
    struct reply_json json;
    struct reply_xml xml;

    enum reply_kind token_kind;
    bool finished;
    struct reply_result result;
};

/* ---- reply_out.c ---- */

int reply_add(struct reply *r, enum reply_kind kind, const char *text, size_t size,
              struct err *err);
/* The same for what was put at the end of reply.text, which had `before` bytes. */
int reply_added(struct reply *r, enum reply_kind kind, size_t before, struct err *err);
/* Surely content; the reply may be over behind it. */
int reply_content(struct reply *r, const char *text, size_t size, struct err *err);
/* What stop strings hold back is content: a call begins, or the reply ends. */
int reply_content_release(struct reply *r, struct err *err);
void reply_count(struct reply *r, enum reply_repair repair);
/* Empties it, and gives back what one large text made it take. */
void reply_forget(struct bytes *b);

/* ---- reply_call.c: one whole character each, in PHASE_CONTENT (or thinking that is content),
 * PHASE_BLOCK and PHASE_BETWEEN ---- */

int reply_content_put(struct reply *r, const char *c, size_t n, struct err *err);
int reply_block_put(struct reply *r, const char *c, size_t n, struct err *err);
int reply_between_put(struct reply *r, const char *c, size_t n, struct err *err);
/* As put_mark: 1 when the mark was one, 0 when it is text here, -1. */
int reply_mark_call(struct reply *r, const char *text, size_t size, struct err *err);
int reply_mark_call_end(struct reply *r, const char *text, size_t size, struct err *err);
/* No more characters come. */
int reply_end(struct reply *r, bool cut, struct err *err);

/* Its name is known, and what was held back was markup. The reply may be over instead, at a stop
 * string before it. */
int reply_call_begin(struct reply *r, const char *name, size_t size, struct err *err);
int reply_call_end(struct reply *r, struct err *err);
/* It is cut, and stays open. */
int reply_call_leave(struct reply *r, struct err *err);
/* No call can be made of the block: it is content, and so is what follows. */
int reply_block_is_text(struct reply *r, struct err *err);
const struct reply_tool *reply_tool_named(const struct reply *r, const char *name, size_t size);
/* Without the blanks and quotes around it. */
void reply_trim(const char **text, size_t *size);

/* ---- reply_json.c, reply_xml.c ---- */

void reply_json_begin(struct reply *r);
int reply_json_put(struct reply *r, const char *c, size_t n, struct err *err);
/* The call ends here, by </tool_call> or for lack of more; cut: it is left as it is. */
int reply_json_end(struct reply *r, bool cut, struct err *err);
int reply_xml_begin(struct reply *r, const char *name, size_t size, struct err *err);
int reply_xml_put(struct reply *r, const char *c, size_t n, struct err *err);
/* Between parameters, where nothing of the call is open but itself. */
bool reply_xml_may_end(const struct reply *r);
int reply_xml_end(struct reply *r, bool by_mark, bool cut, struct err *err);

/* ---- reply_keys.c, reply_values.c ---- */

/* 1 it was added, 0 it is there already, -1. */
int reply_keys_add(struct reply_keys *keys, const char *key, size_t size, struct err *err);
uint64_t reply_keys_memory(const struct reply_keys *keys);
void reply_keys_done(struct reply_keys *keys);

/* A value that is not streamed as a string, as its types say. */
int reply_put_value(struct reply *r, struct bytes *out, const char *text, size_t size,
                    unsigned types, struct err *err);

#endif
