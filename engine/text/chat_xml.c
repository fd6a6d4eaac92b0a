#include "text/chat_xml.h"

const char chat_xml_how[] =
    "\n\nIf you choose to call a function ONLY reply in the following format with NO suffix:\n\n"
    "<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>\nvalue_1\n"
    "</parameter>\n<parameter=example_parameter_2>\nThis is the value for the second parameter\n"
    "that can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n<IMPORTANT>\n"
    "Reminder:\n- Function calls MUST follow the specified format: an inner "
    "<function=...></function> block must be nested within <tool_call></tool_call> XML tags\n"
    "- Required parameters MUST be specified\n- You may provide optional reasoning for your "
    "function call in natural language BEFORE the function call, but NOT after\n- If there is no "
    "function call available, answer the question like normal with your current knowledge and do "
    "not tell the user about function calls\n</IMPORTANT>";

static bool as_json(const struct jinja_value *v, enum chat_xml_spelling spelling)
{
    if (spelling == CHAT_XML_PYTHON)
        return v->type == JINJA_DICT || v->type == JINJA_LIST;
    return v->type != JINJA_STR;
}

int chat_put_xml_call(struct jinja_writer *w, const struct chat_turn_call *call,
                      enum chat_xml_spelling spelling, struct err *err)
{
    const struct jinja_map *map = call->arguments->map;

    chat_put(w, "<tool_call>\n<function=");
    chat_put_value(w, call->name);
    chat_put(w, ">\n");
    for (size_t i = 0; i < map->n; i++) {
        const struct jinja_value *v = map->entry[i].value;
        chat_put(w, "<parameter=");
        chat_put_value(w, map->entry[i].key);
        chat_put(w, ">\n");
        if ((as_json(v, spelling) ? chat_put_json(w, v, err) : chat_put_text(w, v, err)) < 0)
            return -1;
        chat_put(w, "\n</parameter>\n");
    }
    chat_put(w, "</function>\n</tool_call>");
    return 0;
}
