/* The content of a message: a text, or parts. */
#include "daemon/openai/openai_fields.h"

#include "daemon/openai/json_body.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum part_kind { PART_TEXT, PART_REASONING };

static const struct {
    const char *type, *key, *also; /* also: another key that some clients use */
    enum part_kind kind;
} part_types[] = {
    { "text", "text", NULL, PART_TEXT },
    { "refusal", "refusal", NULL, PART_TEXT },
    { "thinking", "thinking", "text", PART_REASONING },
    { "reasoning", "reasoning", "text", PART_REASONING },
};

/* A part that can be read as text; of an assistant also reasoning. Anything else this model cannot
 * read. */
static int read_part(struct openai_text *out, enum part_kind *kind, const json_t *part,
                     bool assistant, const char *where, size_t i, struct api_error *e)
{
    const json_t *type = json_object_get(part, "type");
    size_t k = 0, n = sizeof part_types / sizeof *part_types;
    char param[128];

    snprintf(param, sizeof param, "%s[%zu]", where, i);
    if (!json_is_object(part))
        return json_body_wants(e, param, "an object", part);
    snprintf(param, sizeof param, "%s[%zu].type", where, i);
    if (!type)
        return json_body_missing(e, param);
    if (!json_is_string(type))
        return json_body_wants(e, param, "a string", type);
    while (k < n && !json_body_is(type, part_types[k].type))
        k++;
    if (k == n || (part_types[k].kind == PART_REASONING && !assistant))
        return api_error_field(e, "unsupported_content_type", param,
                               "%s[%zu]: content type '%.60s' is not supported; this model "
                               "accepts text only.", where, i, json_string_value(type));
    const json_t *text = json_object_get(part, part_types[k].key);
    if (!text && part_types[k].also)
        text = json_object_get(part, part_types[k].also);
    snprintf(param, sizeof param, "%s[%zu].%s", where, i, part_types[k].key);
    if (!text)
        return json_body_missing(e, param);
    if (!json_is_string(text))
        return json_body_wants(e, param, "a string", text);
    *kind = part_types[k].kind;
    *out = (struct openai_text){ json_string_value(text), json_string_length(text) };
    return 0;
}

/* The parts of one kind as one text: the only one there is, or joined in memory of its own. */
static int join(struct openai_request *r, struct openai_text *out, enum part_kind kind,
                const json_t *parts, bool assistant, const char *where, struct api_error *e)
{
    struct openai_text text;
    size_t n = json_array_size(parts), total = 0, n_kind = 0;
    enum part_kind k;

    for (size_t i = 0; i < n; i++) {
        if (read_part(&text, &k, json_array_get(parts, i), assistant, where, i, e) < 0)
            return -1;
        if (k != kind)
            continue;
        *out = text;
        total += text.size;
        n_kind++;
    }
    if (n_kind <= 1)
        return 0;
    if (openai_pay(r, &r->cost, total + 1, "messages", e) < 0)
        return -1;
    char *joined = malloc(total + 1);
    if (!joined)
        return api_error_no_memory(e);
    r->joined[r->n_joined++] = joined;
    *out = (struct openai_text){ joined, total };
    for (size_t i = 0; i < n; i++) {
        if (read_part(&text, &k, json_array_get(parts, i), assistant, where, i, e) < 0)
            return -1;
        if (k != kind)
            continue;
        memcpy(joined, text.bytes, text.size);
        joined += text.size;
    }
    return 0;
}

static int read_parts(struct openai_request *r, struct chat_message *m, const json_t *parts,
                      const char *where, struct api_error *e)
{
    bool assistant = m->role == CHAT_ASSISTANT;
    struct openai_text text = { "", 0 }, reasoning = { NULL, 0 };

    if (join(r, &text, PART_TEXT, parts, assistant, where, e) < 0)
        return -1;
    if (assistant && join(r, &reasoning, PART_REASONING, parts, assistant, where, e) < 0)
        return -1;
    m->text = text.bytes;
    m->size = text.size;
    m->reasoning = reasoning.bytes;
    m->reasoning_size = reasoning.size;
    return 0;
}

int openai_read_content(struct openai_request *r, struct chat_message *m, const json_t *message,
                        size_t i, struct api_error *e)
{
    const json_t *v = json_body_get(message, "content");
    char where[64];

    snprintf(where, sizeof where, "messages[%zu].content", i);
    bool may_be_empty = m->role == CHAT_ASSISTANT;
    if (!v && !may_be_empty)
        return json_body_missing(e, where);
    if (v && !json_is_string(v) && !json_is_array(v))
        return api_error_field(e, "invalid_type", where,
                               "'%s' must be a string or an array of parts, not %s.", where,
                               json_body_type(v));
    if (json_is_array(v) && json_array_size(v) == 0 && !may_be_empty)
        return api_error_field(e, "empty_array", where, "'%s' must not be empty.", where);
    if (json_is_array(v))
        return read_parts(r, m, v, where, e);
    m->text = v ? json_string_value(v) : "";
    m->size = json_string_length(v);
    return 0;
}
