/* A chat of a request as text. */
#include "daemon/openai/openai_in.h"

#include "daemon/openai/template_values.h"

/* What templates get as values, made where the rendering lives. */
static int take_values(struct chat *chat, const struct openai_request *r, struct jinja_mem *m,
                       struct err *err)
{
    if (json_array_size(r->tools) && !(chat->tools = template_value(m, r->root, r->tools, err)))
        return -1;
    if (r->kwargs && !(chat->kwargs = template_value(m, r->root, r->kwargs, err)))
        return -1;
    for (size_t i = 0; i < r->n_calls; i++)
        if (r->call_objects[i] &&
            !(r->calls[i].object = template_value(m, r->root, r->call_objects[i], err)))
            return -1;
    return 0;
}

int openai_render(struct chat_rendered *out, const struct openai_request *r,
                  const struct chat_format *f, struct jinja_mem *m, struct err *err)
{
    struct chat chat = r->chat;

    return take_values(&chat, r, m, err) < 0 ? -1 : chat_render(out, f, &chat, m, err);
}
