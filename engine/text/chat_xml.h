/* chat_xml: what the two formats that write calls as XML have in common. For the chat*.c files. */
#ifndef TEXT_CHAT_XML_H
#define TEXT_CHAT_XML_H

#include "text/chat_turns.h"

/* How to call, behind the list of tools. */
extern const char chat_xml_how[];

enum chat_xml_spelling {
    CHAT_XML_PYTHON, /* True, None, 1.0; containers as JSON */
    CHAT_XML_JSON,   /* true, null; text as it is */
};

/* "<tool_call>\n<function=...>\n ... </function>\n</tool_call>" */
int chat_put_xml_call(struct jinja_writer *w, const struct chat_turn_call *call,
                      enum chat_xml_spelling spelling, struct err *err);

#endif
