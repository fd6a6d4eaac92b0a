/* What the renderers that are built in share. */
#include "text/chat_turns.h"

#include "util/err.h"

#include <string.h>

void chat_put(struct jinja_writer *w, const char *markup)
{
    jinja_write(w, markup, strlen(markup), true);
}

void chat_put_value(struct jinja_writer *w, const struct jinja_value *text)
{
    if (text)
        jinja_write_str(w, text);
    else
        w->full = true;
}

static int put_made(struct jinja_writer *w, const struct jinja_value *text, const char *why,
                    struct err *err)
{
    if (!text && why)
        return err_set(err, ERR_INPUT, "the conversation holds %s", why);
    chat_put_value(w, text);
    return 0;
}

int chat_put_text(struct jinja_writer *w, const struct jinja_value *v, struct err *err)
{
    const char *why = NULL;

    return put_made(w, jinja_to_str(w->m, v, &why), why, err);
}

int chat_put_json(struct jinja_writer *w, const struct jinja_value *v, struct err *err)
{
    const struct jinja_dumps how = { .indent = -1 };
    const char *why = NULL;

    return put_made(w, jinja_to_json(w->m, v, &how, &why), why, err);
}

const struct jinja_value *chat_strip(struct jinja_writer *w, const struct jinja_value *s,
                                     bool left, bool right, const char *chars)
{
    const struct jinja_value *set = chars ? jinja_literal(w->m, chars, strlen(chars)) : NULL;
    const struct jinja_value *out = !s || (chars && !set)
                                        ? NULL
                                        : jinja_str_strip(w->m, s, left, right, set);

    if (!out)
        w->full = true;
    return out ? out : jinja_literal(w->m, "", 0);
}

static bool wrapped(struct jinja_writer *w, const struct jinja_value *s)
{
    static const char begin[] = "<tool_response>", end[] = "</tool_response>";
    const char *flat = jinja_str_flat(w->m, s);

    if (!flat)
        w->full = true;
    return flat && s->s.size >= sizeof end - 1 && memcmp(flat, begin, sizeof begin - 1) == 0 &&
           memcmp(flat + s->s.size - (sizeof end - 1), end, sizeof end - 1) == 0;
}

size_t chat_last_query(const struct chat_turns *turns, bool trimmed, struct jinja_writer *w)
{
    for (size_t i = turns->n; i-- > 0;) {
        const struct jinja_value *text = turns->turn[i].content;
        if (turns->turn[i].role != CHAT_USER)
            continue;
        if (!wrapped(w, trimmed ? chat_strip(w, text, true, true, NULL) : text))
            return i;
    }
    return turns->n;
}
