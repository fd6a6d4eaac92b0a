/* Where calls begin and end: what content holds back until it is known to be content, the marks,
 * and what stands between calls. */
#include "text/reply_state.h"

#include "util/ascii.h"
#include "util/err.h"

#include <string.h>

#define NO_OPENER SIZE_MAX
#define FUNCTION "<function="
#define FUNCTION_SIZE (sizeof FUNCTION - 1)
#define NAME_SLACK 16 /* blanks and quotes around a declared name that are held back */

void reply_trim(const char **text, size_t *size)
{
    static const char around[] = " \t\r\"'";

    while (*size && memchr(around, **text, sizeof around - 1)) {
        ++*text;
        --*size;
    }
    while (*size && memchr(around, (*text)[*size - 1], sizeof around - 1))
        --*size;
}

const struct reply_tool *reply_tool_named(const struct reply *r, const char *name, size_t size)
{
    for (size_t i = 0; i < r->options.n_tools; i++) {
        const struct reply_tool *tool = &r->options.tools[i];
        if (tool->size == size && memcmp(tool->name, name, size) == 0)
            return tool;
    }
    return NULL;
}

/* ---- content ---- */

/* What was held back is content after all. */
static int give_held(struct reply *r, struct err *err)
{
    int rc = reply_content(r, r->held.at, r->held.size, err);

    reply_forget(&r->held);
    r->opener = NO_OPENER;
    return rc;
}

/* What may become "<function=NAME>": 1 it did, and *name is the name, 0 it still may, -1 it
 * cannot. */
static int match_function(const char **name, size_t *name_size, const char *text, size_t size,
                          size_t longest)
{
    size_t known = size < FUNCTION_SIZE ? size : FUNCTION_SIZE;

    if (memcmp(text, FUNCTION, known) != 0)
        return -1;
    if (size <= FUNCTION_SIZE)
        return 0;
    *name = text + FUNCTION_SIZE;
    *name_size = size - FUNCTION_SIZE;
    char last = text[size - 1];
    if (last == '\n' || *name_size - 1 > longest)
        return -1;
    if (last != '>')
        return 0;
    --*name_size;
    reply_trim(name, name_size);
    return *name_size ? 1 : -1;
}

/* One more character behind "<" at the beginning of a line; it was put into held. */
static int opener_grew(struct reply *r, size_t n, struct err *err)
{
    const char *name;
    size_t size;
    int is = match_function(&name, &size, r->held.at + r->opener, r->held.size - r->opener,
                            r->longest_name + NAME_SLACK);

    if (is > 0 && reply_tool_named(r, name, size)) {
        reply_count(r, REPLY_OPENER_MISSING);
        return reply_xml_begin(r, name, size, err);
    }
    if (is == 0)
        return 0;

    /* Its last character was none of it, and may be white space to hold back. */
    char last[4];
    memcpy(last, r->held.at + r->held.size - n, n);
    if (is < 0) {
        r->held.size -= n;
        if (give_held(r, err) < 0)
            return -1;
        return reply_content_put(r, last, n, err);
    }
    return give_held(r, err);
}

int reply_content_put(struct reply *r, const char *c, size_t n, struct err *err)
{
    bool was_line_begin = r->line_begin;

    if (r->phase == PHASE_OVER)
        return 0;
    if (r->leading && *c == '\n')
        return 0;
    r->leading = false;
    r->line_begin = *c == '\n';
    if (r->options.style == REPLY_NO_TOOLS)
        return reply_content(r, c, n, err);

    bool opens = *c == '<' && was_line_begin && r->phase == PHASE_CONTENT &&
                 r->options.style == REPLY_XML;
    if (r->opener == NO_OPENER && !ascii_json_space(*c) && !opens) {
        if (give_held(r, err) < 0)
            return -1;
        return reply_content(r, c, n, err);
    }
    if (bytes_put(&r->held, c, n, err) < 0)
        return -1;
    if (opens && r->opener == NO_OPENER)
        r->opener = r->held.size - n;
    return r->opener == NO_OPENER ? 0 : opener_grew(r, n, err);
}

/* ---- blocks ---- */

/* Behind <tool_call>, whether mark or text. */
static int open_block(struct reply *r, const char *text, size_t size, struct err *err)
{
    if (r->phase == PHASE_REASONING) {
        reply_count(r, REPLY_THINKING_OPEN);
        r->newlines = 0;
        r->leading = false;
    }
    if (r->opener != NO_OPENER && give_held(r, err) < 0)
        return -1;
    if (reply_content_release(r, err) < 0)
        return -1;
    if (r->phase == PHASE_OVER)
        return 0;
    r->phase = PHASE_BLOCK;
    return bytes_put(&r->raw, text, size, err);
}

int reply_block_is_text(struct reply *r, struct err *err)
{
    r->phase = PHASE_CONTENT;
    r->leading = false;
    reply_count(r, REPLY_BLOCK_AS_TEXT);
    if (give_held(r, err) < 0 || reply_content(r, r->raw.at, r->raw.size, err) < 0)
        return -1;
    r->line_begin = r->raw.size && r->raw.at[r->raw.size - 1] == '\n';
    reply_forget(&r->raw);
    return 0;
}

/* Behind <tool_call> there is white space, then the object or the function; which style it is says
 * its first character. */
int reply_block_put(struct reply *r, const char *c, size_t n, struct err *err)
{
    const char *name;
    size_t size;

    if (*c == '{' && r->opener == NO_OPENER) {
        if (r->options.style != REPLY_JSON)
            reply_count(r, REPLY_OTHER_STYLE);
        reply_json_begin(r);
        return reply_json_put(r, c, n, err);
    }
    if (r->opener == NO_OPENER && *c != '<' && !ascii_json_space(*c)) {
        if (reply_block_is_text(r, err) < 0)
            return -1;
        return reply_content_put(r, c, n, err);
    }
    if (r->opener == NO_OPENER && *c == '<')
        r->opener = r->raw.size;
    if (bytes_put(&r->raw, c, n, err) < 0)
        return -1;
    if (r->opener == NO_OPENER)
        return 0;

    int is = match_function(&name, &size, r->raw.at + r->opener, r->raw.size - r->opener, SIZE_MAX);
    if (is == 0)
        return 0;
    r->opener = NO_OPENER;
    if (is > 0) {
        if (r->options.style != REPLY_XML)
            reply_count(r, REPLY_OTHER_STYLE);
        return reply_xml_begin(r, name, size, err);
    }
    return reply_block_is_text(r, err);
}

/* ---- calls ---- */

/* Text that stood inside the call where none may be. */
static int give_stray(struct reply *r, struct err *err)
{
    if (r->stray.size == 0)
        return 0;
    reply_count(r, REPLY_TEXT_MOVED);
    int rc = reply_content(r, r->stray.at, r->stray.size, err);
    reply_forget(&r->stray);
    if (rc < 0)
        return -1;
    return reply_content_release(r, err);
}

int reply_call_begin(struct reply *r, const char *name, size_t size, struct err *err)
{
    if (reply_content_release(r, err) < 0)
        return -1;
    if (r->phase == PHASE_OVER)
        return 0;
    if (!reply_tool_named(r, name, size))
        reply_count(r, REPLY_NAME_UNDECLARED);
    r->result.n_calls++;
    r->in_call = true;
    if (reply_add(r, REPLY_CALL, name, size, err) < 0)
        return -1;
    reply_forget(&r->held);
    r->opener = NO_OPENER;
    return 0;
}

int reply_call_end(struct reply *r, struct err *err)
{
    r->in_call = false;
    r->want_closer = true;
    r->call_was_json = r->phase == PHASE_JSON;
    r->phase = PHASE_BETWEEN;
    reply_forget(&r->raw);
    if (reply_add(r, REPLY_CALL_END, NULL, 0, err) < 0)
        return -1;
    return give_stray(r, err);
}

int reply_call_leave(struct reply *r, struct err *err)
{
    r->result.unfinished_call = true;
    return give_stray(r, err);
}

/* ---- between calls ---- */

static void drop_text(struct reply *r)
{
    reply_count(r, REPLY_TEXT_DROPPED);
    reply_forget(&r->held);
    r->opener = NO_OPENER;
    r->phase = PHASE_OVER;
}

/* Another call is about to begin. False when there must be no other. */
static bool may_go_on(struct reply *r)
{
    if (r->result.n_calls == 0)
        return true;
    if (r->options.one_call) {
        drop_text(r);
        return false;
    }
    if (r->want_closer)
        reply_count(r, REPLY_CLOSER_MISSING);
    r->want_closer = false;
    return true;
}

static int close_call(struct reply *r)
{
    if (!r->want_closer)
        reply_count(r, REPLY_TAG_EXTRA);
    r->want_closer = false;
    if (r->options.one_call)
        r->phase = PHASE_OVER;
    return 1;
}

/* A tag between calls grew by a character. Marks that are spelled out count here, where any text
 * would end the reply. */
static int between_tag_grew(struct reply *r, struct err *err)
{
    const char *tag = r->held.at + r->opener, *name;
    size_t size = r->held.size - r->opener, name_size;

    for (int closes = 0; closes < 2; closes++) {
        const char *mark = closes ? "</tool_call>" : "<tool_call>";
        if (size > strlen(mark) || memcmp(tag, mark, size) != 0)
            continue;
        if (size < strlen(mark))
            return 0;
        r->held.size = r->opener;
        r->opener = NO_OPENER;
        if (closes)
            return close_call(r);
        return may_go_on(r) ? open_block(r, mark, size, err) : 0;
    }

    int is = match_function(&name, &name_size, tag, size, SIZE_MAX);
    if (is == 0)
        return 0;
    if (is < 0) {
        drop_text(r);
        return 0;
    }
    if (!may_go_on(r))
        return 0;
    reply_count(r, REPLY_OPENER_MISSING);
    return reply_xml_begin(r, name, name_size, err);
}

int reply_between_put(struct reply *r, const char *c, size_t n, struct err *err)
{
    bool behind_object = r->want_closer && r->call_was_json && r->opener == NO_OPENER;

    if (behind_object && *c == '}') {
        reply_count(r, REPLY_TAG_EXTRA);
        return 0;
    }
    if (behind_object && *c == '{') {
        if (!may_go_on(r))
            return 0;
        reply_count(r, REPLY_OPENER_MISSING);
        reply_json_begin(r);
        return reply_json_put(r, c, n, err);
    }
    if (r->opener == NO_OPENER && *c != '<' && !ascii_json_space(*c)) {
        drop_text(r);
        return 0;
    }
    if (r->opener == NO_OPENER && *c == '<')
        r->opener = r->held.size;
    if (bytes_put(&r->held, c, n, err) < 0)
        return -1;
    return r->opener == NO_OPENER ? 0 : between_tag_grew(r, err);
}

/* ---- marks ---- */

int reply_mark_call(struct reply *r, const char *text, size_t size, struct err *err)
{
    switch (r->phase) {
    case PHASE_XML:
        if (!reply_xml_may_end(r))
            return 0;
        if (reply_xml_end(r, false, false, err) < 0)
            return -1;
        break;
    case PHASE_BLOCK:
        if (r->opener != NO_OPENER)
            return 0;
        reply_count(r, REPLY_TAG_EXTRA);
        return bytes_put(&r->raw, text, size, err) < 0 ? -1 : 1;
    case PHASE_BETWEEN:
        if (r->opener != NO_OPENER) {
            drop_text(r);
            return 1;
        }
        break;
    case PHASE_JSON:
        return 0;
    default:
        return open_block(r, text, size, err) < 0 ? -1 : 1;
    }
    if (r->phase != PHASE_OVER && may_go_on(r) && open_block(r, text, size, err) < 0)
        return -1;
    return 1;
}

int reply_mark_call_end(struct reply *r, const char *text, size_t size, struct err *err)
{
    switch (r->phase) {
    case PHASE_JSON:
        if (reply_json_end(r, false, err) < 0)
            return -1;
        break;
    case PHASE_XML:
        if (reply_xml_end(r, true, false, err) < 0)
            return -1;
        break;
    case PHASE_BLOCK:
        r->opener = NO_OPENER;
        if (reply_block_is_text(r, err) < 0)
            return -1;
        break;
    case PHASE_BETWEEN:
        if (r->opener != NO_OPENER)
            drop_text(r);
        break;
    default:
        break;
    }
    if (r->phase == PHASE_BETWEEN)
        return close_call(r);
    if (r->phase == PHASE_OVER)
        return 1;
    if (r->phase != PHASE_CONTENT || !r->result.n_calls)
        return 0;

    /* The end of a block that became content, behind calls. */
    if (give_held(r, err) < 0 || reply_content(r, text, size, err) < 0)
        return -1;
    if (r->phase == PHASE_CONTENT)
        r->phase = PHASE_BETWEEN;
    r->want_closer = false;
    return 1;
}

int reply_end(struct reply *r, bool cut, struct err *err)
{
    switch (r->phase) {
    case PHASE_BLOCK:
        r->opener = NO_OPENER;
        return reply_block_is_text(r, err);
    case PHASE_JSON:
        return reply_json_end(r, cut, err);
    case PHASE_XML:
        return reply_xml_end(r, false, cut, err);
    case PHASE_BETWEEN:
        if (r->opener != NO_OPENER)
            reply_count(r, REPLY_TEXT_DROPPED);
        else if (r->want_closer && !cut)
            reply_count(r, REPLY_CLOSER_MISSING);
        return 0;
    default:
        return give_held(r, err);
    }
}
