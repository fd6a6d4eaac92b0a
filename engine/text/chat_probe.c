/* Small conversations through a template, and what became of them. */
#include "text/chat_format.h"

#include "util/err.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_TURNS = 5, PROBE_STEPS = 100000, PROBE_MEMORY = 8 << 20 };

/* Words that a template does not write by itself. */
#define ASKED "zaskedz"
#define ANSWERED "zansweredz"
#define REASONED "zreasonedz"
#define RULED "zruledz"
#define RULED_TOO "zruledtooz"
#define TOOL "ztoolz"

struct line {
    enum chat_role role;
    const char *text, *reasoning;
    bool calls;
};

struct probe {
    struct line line[MOST_TURNS];
    size_t n;
    struct chat chat;
    const char *effort;
    bool tools;
    bool markup; /* only what is trusted is shown */
};

static const struct jinja_value *text_of(struct jinja_mem *m, const char *text)
{
    return text ? jinja_text(m, text, strlen(text)) : NULL;
}

static int make_turn(struct chat_turn *t, const struct line *l, struct jinja_mem *m)
{
    struct jinja_value *arguments = jinja_dict(m);
    struct chat_turn_call *call = jinja_take(m, sizeof *call);

    *t = (struct chat_turn){ .role = l->role, .content = text_of(m, l->text),
                             .reasoning = text_of(m, l->reasoning) };
    if (!arguments || !call || jinja_dict_set(m, arguments, "key", text_of(m, "value")) < 0)
        return -1;
    *call = (struct chat_turn_call){ .name = text_of(m, TOOL), .arguments = arguments };
    t->calls = call;
    t->n_calls = l->calls;
    return t->content && (t->reasoning || !l->reasoning) && call->name ? 0 : -1;
}

static char *flat(const struct jinja_output *text, bool markup)
{
    char *out = malloc(text->size + 1);
    size_t size = 0;

    for (size_t i = 0; out && i < text->n; i++) {
        if (markup && !text->run[i].trusted)
            continue;
        memcpy(out + size, text->run[i].bytes, text->run[i].size);
        size += text->run[i].size;
    }
    /* Nothing here looks behind a NUL. */
    if (out)
        out[size] = '\0';
    return out;
}

/* The text, malloc'd; NULL with *err. caught: what the template raised first. */
static char *shown(const struct chat_format *f, const struct probe *p, char *caught,
                   struct err *err)
{
    static const char tool[] = "[{\"type\":\"function\",\"function\":{\"name\":\"" TOOL
                               "\",\"description\":\"d\",\"parameters\":{\"type\":\"object\","
                               "\"properties\":{\"key\":{\"type\":\"string\"}}}}}]";
    const struct jinja_limits limits = { .steps = PROBE_STEPS, .memory = PROBE_MEMORY };
    struct jinja_mem *m = jinja_mem_open(&limits);
    struct chat_turn turn[MOST_TURNS];
    struct chat chat = p->chat;
    const struct chat_turns turns = { .turn = turn, .n = p->n, .chat = &chat,
                                      .effort = p->effort };
    struct jinja_output text;
    char *out = NULL;

    err_set(err, ERR_NOMEM, "chat template");
    if (!m)
        return NULL;
    for (size_t i = 0; i < p->n; i++)
        if (make_turn(&turn[i], &p->line[i], m) < 0)
            goto done;
    if (p->tools && !(chat.tools = jinja_json(m, tool, sizeof tool - 1, err)))
        goto done;
    if (chat_print(&text, f, &turns, m, caught, err) == 0 && !(out = flat(&text, p->markup)))
        err_set(err, ERR_NOMEM, "chat template");

done:
    jinja_mem_close(m);
    return out;
}

/* Whether the words appear, in this order; with none, whether it can be rendered at all. */
static bool shows(const struct chat_format *f, const struct probe *p, const char *first,
                  const char *second)
{
    struct err why;
    char *text = shown(f, p, NULL, &why);
    const char *at = text;

    if (at && first)
        at = strstr(at, first);
    if (at && second)
        at = strstr(at + strlen(first), second);
    free(text);
    return at != NULL;
}

static bool same(const struct chat_format *f, const struct probe *a, const struct probe *b)
{
    struct err why;
    char *text = shown(f, a, NULL, &why), *other = shown(f, b, NULL, &why);
    bool equal = text && other && strcmp(text, other) == 0;

    free(text);
    free(other);
    return equal;
}

/* ---- each ability ---- */

/* By the difference it makes: a template may change the words. */
static void probe_question(struct chat_format *f, const struct probe *plain)
{
    struct probe other = *plain;

    other.line[0].text = RULED;
    f->can.question = !same(f, plain, &other);
}

static void probe_tools(struct chat_format *f)
{
    struct probe offered = { .line = { { .role = CHAT_USER, .text = ASKED } }, .n = 1,
                             .tools = true };
    struct probe called = { .line = { { .role = CHAT_USER, .text = ASKED },
                                      { .role = CHAT_ASSISTANT, .text = "", .calls = true } },
                            .n = 2, .markup = true };

    f->can.tools = shows(f, &offered, TOOL, NULL);
    f->can.style = REPLY_NO_TOOLS;
    for (int i = 0; i < 2 && f->can.style == REPLY_NO_TOOLS; i++) {
        called.tools = i == 1; /* some print calls only where tools are offered */
        if (shows(f, &called, "<function=", NULL))
            f->can.style = REPLY_XML;
        else if (shows(f, &called, "\"name\"", NULL))
            f->can.style = REPLY_JSON;
    }
}

static void probe_late_system(struct chat_format *f)
{
    struct probe late = { .line = { { .role = CHAT_SYSTEM, .text = RULED },
                                    { .role = CHAT_USER, .text = "q" },
                                    { .role = CHAT_ASSISTANT, .text = ANSWERED },
                                    { .role = CHAT_SYSTEM, .text = RULED_TOO },
                                    { .role = CHAT_USER, .text = ASKED } },
                          .n = 5 };
    static const char turn[] = "<|im_start|>system\n" RULED_TOO "<|im_end|>\n";
    char caught[CHAT_LATE_TEXT] = "";
    struct err why;

    char *text = shown(f, &late, caught, &why);
    bool fails = !text;
    f->can.late_system = text && strstr(text, RULED_TOO) ? LATE_SHOWN : LATE_LOST;
    free(text);
    if (!fails || !caught[0])
        return;
    /* With the complaint replaced by the turn, it must stand between the others. */
    memcpy(f->late_text, caught, sizeof caught);
    f->can.late_system = LATE_RAISED;
    if (!shows(f, &late, ANSWERED, turn) || !shows(f, &late, turn, ASKED)) {
        f->can.late_system = LATE_LOST;
        f->late_text[0] = '\0';
    }
}

static void probe_systems(struct chat_format *f)
{
    const struct probe two = { .line = { { .role = CHAT_SYSTEM, .text = RULED },
                                         { .role = CHAT_SYSTEM, .text = RULED_TOO },
                                         { .role = CHAT_USER, .text = ASKED } },
                               .n = 3 };
    const struct probe alone = { .line = { { .role = CHAT_SYSTEM, .text = RULED } }, .n = 1 };

    f->can.one_system = !shows(f, &two, RULED, RULED_TOO);
    f->can.needs_user = !shows(f, &alone, RULED, NULL);
    probe_late_system(f);
}

static void probe_reasoning(struct chat_format *f)
{
    static const struct line asked = { .role = CHAT_USER, .text = ASKED };
    static const struct line apart = { .role = CHAT_ASSISTANT, .text = ANSWERED,
                                       .reasoning = REASONED };
    static const struct line within = { .role = CHAT_ASSISTANT,
                                        .text = "<think>\n" REASONED "\n</think>\n\n" ANSWERED };
    const struct probe last = { .line = { asked, apart }, .n = 2 };
    const struct probe earlier = { .line = { asked, apart, asked }, .n = 3 };
    const struct probe joined = { .line = { asked, within }, .n = 2 };
    const struct probe joined_earlier = { .line = { asked, within, asked }, .n = 3 };
    struct probe open = { .line = { asked }, .n = 1, .chat = { .add_generation_prompt = true } };
    struct probe off = open;

    off.chat.thinking = THINKING_OFF;
    f->can.reasoning = shows(f, &last, REASONED, NULL);
    f->can.keeps_reasoning = shows(f, &earlier, REASONED, NULL);
    f->can.splits_reasoning = f->can.reasoning && same(f, &last, &joined) &&
                              same(f, &earlier, &joined_earlier);
    f->can.switches_thinking = !same(f, &open, &off);
}

static void probe_efforts(struct chat_format *f)
{
    struct probe p = { .line = { { .role = CHAT_USER, .text = ASKED } }, .n = 1,
                       .chat = { .add_generation_prompt = true } };
    const struct probe unsaid = p;

    f->can.efforts = 0;
    for (enum chat_effort e = EFFORT_MINIMAL; e < N_CHAT_EFFORTS; e++) {
        p.effort = chat_effort_name(e);
        if (!shows(f, &p, NULL, NULL))
            continue;
        f->can.efforts |= 1u << e;
        f->can.knows_effort |= !same(f, &p, &unsaid);
    }
}

int chat_probe(struct chat_format *f, struct err *err)
{
    const struct probe plain = { .line = { { .role = CHAT_USER, .text = ASKED } }, .n = 1,
                                 .chat = { .add_generation_prompt = true } };
    char *text = shown(f, &plain, NULL, err);

    if (!text) {
        if (err->kind == ERR_INPUT || err->kind == ERR_BUDGET)
            err->kind = ERR_FORMAT;
        return err_within(err, "a single question cannot be rendered");
    }
    free(text);
    probe_question(f, &plain);
    probe_tools(f);
    probe_systems(f);
    probe_reasoning(f);
    probe_efforts(f);
    return 0;
}
