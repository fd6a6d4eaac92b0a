/* The loop of a person: a line, an answer, a line. */
#include "daemon/ctl/ctl_chat.h"

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_chat_admin.h"
#include "daemon/ctl/ctl_chat_http.h"
#include "daemon/ctl/ctl_chat_line.h"
#include "daemon/ctl/ctl_chat_past.h"
#include "util/err.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct repl {
    struct chat_session *s;
    struct chat_line *line; /* owned */
    bool terminal, leave;
    int status; /* of the last turn that failed, for those who do not look */
};

/* ---- commands ---- */

static void show_help(struct repl *r, const char *rest);

static void ask(struct repl *r, const char *question)
{
    struct chat_session *s = r->s;
    struct chat_turn turn;
    char *copy = strdup(question);

    if (!copy) {
        chat_draw_fault(&s->draw, "no memory for the question");
        return;
    }
    free(s->last);
    s->last = copy;
    chat_line_quiet(r->line, true);
    chat_turn_ask(s, copy, &turn);
    chat_line_quiet(r->line, false);
    chat_turn_tell(s, &turn);
    if (chat_turn_status(&turn) != EXIT_FINE)
        r->status = chat_turn_status(&turn);
    chat_turn_done(&turn);
}

static void set_thinking(struct repl *r, enum chat_thinking thinking)
{
    r->s->sampling.thinking = thinking;
    chat_draw_note(&r->s->draw, "thinking is %s from the next question on",
                   thinking == CHAT_THINK_ON ? "on" : "off");
}

static void do_think(struct repl *r, const char *rest)
{
    (void)rest;
    set_thinking(r, CHAT_THINK_ON);
}

static void do_no_think(struct repl *r, const char *rest)
{
    (void)rest;
    set_thinking(r, CHAT_THINK_OFF);
}

static void do_system(struct repl *r, const char *rest)
{
    struct chat_session *s = r->s;
    char *copy = *rest ? strdup(rest) : NULL;

    if (*rest && !copy) {
        chat_draw_fault(&s->draw, "no memory for the text");
        return;
    }
    chat_draw_note(&s->draw, copy         ? "the system text holds from the next question on"
                             : s->system ? "the system text is taken away"
                                         : "there is no system text; /system TEXT sets one");
    free(s->system);
    s->system = copy;
}

static void do_reset(struct repl *r, const char *rest)
{
    (void)rest;
    chat_forget_all(r->s);
    chat_draw_note(&r->s->draw, "the conversation is forgotten%s",
                   r->s->system ? "; the system text stays" : "");
}

static void do_forget(struct repl *r, const char *rest)
{
    char *end;
    unsigned long n = *rest ? strtoul(rest, &end, 10) : 1;

    if (*rest && (*rest < '0' || *rest > '9' || *end || n == 0)) {
        chat_draw_fault(&r->s->draw, "/forget: '%.40s' is no number of turns", rest);
        return;
    }
    size_t dropped = chat_forget_oldest(r->s, n);
    chat_draw_note(&r->s->draw, "%zu of the oldest turns forgotten, %zu left", dropped,
                   json_array_size(r->s->messages) / 2);
}

static void do_retry(struct repl *r, const char *rest)
{
    char *question = r->s->last ? strdup(r->s->last) : NULL;

    (void)rest;
    if (question) {
        chat_forget_last(r->s);
        ask(r, question);
    } else {
        chat_draw_fault(&r->s->draw, "nothing was asked yet");
    }
    free(question);
}

static uint64_t stat_of(const json_t *stats, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(stats, key));

    return n > 0 ? (uint64_t)n : 0;
}

static void show_engine(struct chat_session *s)
{
    json_t *stats = chat_admin_stats(s->socket);
    uint64_t hits = stat_of(stats, "expert_hits"), misses = stat_of(stats, "expert_misses");

    if (!stats) {
        chat_draw_note(&s->draw, "engine        not known: no admin socket that may be asked "
                                 "(--socket)");
        return;
    }
    chat_draw_note(&s->draw, "engine        %" PRIu64 " running, %" PRIu64 " waiting",
                   stat_of(stats, "running"), stat_of(stats, "waiting"));
    if (hits + misses)
        chat_draw_note(&s->draw, "experts       %.1f %% in memory since its start; %" PRIu64
                       " of %" PRIu64 " slots in use",
                       100.0 * (double)hits / (double)(hits + misses),
                       stat_of(stats, "expert_slots_used"), stat_of(stats, "expert_slots"));
    chat_draw_note(&s->draw, "KV pages      %" PRIu64 " of %" PRIu64 " in use",
                   stat_of(stats, "kv_pages_used"), stat_of(stats, "kv_pages"));
    json_decref(stats);
}

static void do_stats(struct repl *r, const char *rest)
{
    struct chat_session *s = r->s;
    char tokens[CTL_BYTES_TEXT], context[CTL_BYTES_TEXT];

    (void)rest;
    chat_draw_note(&s->draw, "model         %s, context %s, at %s", s->model,
                   s->context ? ctl_grouped(context, s->context) : "not known",
                   chat_http_base(s->http));
    chat_draw_note(&s->draw, "conversation  %zu turns; %s tokens came in this session",
                   json_array_size(s->messages) / 2, ctl_grouped(tokens, s->n_generated));
    if (s->generating_s > 0.0)
        chat_draw_note(&s->draw, "speed         %.1f tokens/s on average",
                       (double)s->n_generated / s->generating_s);
    show_engine(s);
}

static void do_exit(struct repl *r, const char *rest)
{
    (void)rest;
    r->leave = true;
}

static const struct command {
    const char *name, *operand, *help; /* help NULL: another name of one above */
    void (*run)(struct repl *r, const char *rest);
} commands[] = {
    { "/think", "", "let the model think before it answers", do_think },
    { "/nothink", "", "let it answer at once", do_no_think },
    { "/no_think", "", NULL, do_no_think },
    { "/system", "TEXT", "set the system text; without TEXT take it away", do_system },
    { "/reset", "", "forget the conversation", do_reset },
    { "/forget", "N", "forget the oldest N turns (1)", do_forget },
    { "/retry", "", "ask the last question again", do_retry },
    { "/stats", "", "figures of the session and of the engine", do_stats },
    { "/help", "", "this list", show_help },
    { "/exit", "", "leave; so do Ctrl-D, and Ctrl-C twice", do_exit },
    { "/quit", "", NULL, do_exit },
    { "/bye", "", NULL, do_exit },
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void show_help(struct repl *r, const char *rest)
{
    struct chat_draw *d = &r->s->draw;

    (void)rest;
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (commands[i].help)
            chat_draw_note(d, "  %-8s %-5s %s", commands[i].name, commands[i].operand,
                           commands[i].help);
    chat_draw_note(d, "A \\ at the end of a line, or \"\"\" around several, makes one message of "
                      "them; a message that begins with / begins with a blank.");
    chat_draw_note(d, "Ctrl-C stops an answer; arrows and Ctrl-R find earlier messages.");
}

/* By how the names begin: enough to catch a slip. */
static const char *nearest(const char *name, size_t size)
{
    const char *best = NULL;
    size_t best_shared = 1; /* all share the slash */

    for (size_t i = 0; i < N_COMMANDS; i++) {
        size_t n = 0;
        while (n < size && commands[i].name[n] == name[n])
            n++;
        if (n > best_shared) {
            best_shared = n;
            best = commands[i].name;
        }
    }
    return best;
}

static void run_command(struct repl *r, const char *text)
{
    size_t size = strcspn(text, " \t\n");
    const char *rest = text + size + strspn(text + size, " \t\n");

    for (size_t i = 0; i < N_COMMANDS; i++) {
        if (strlen(commands[i].name) == size && strncmp(commands[i].name, text, size) == 0) {
            commands[i].run(r, rest);
            return;
        }
    }
    const char *near = nearest(text, size);
    chat_draw_fault(&r->s->draw, "unknown command %.*s%s%s; /help lists them",
                    size > 40 ? 40 : (int)size, text, near ? "; did you mean " : "",
                    near ? near : "");
}

/* "/usr/bin is full" is a sentence. */
static bool is_command(const char *text)
{
    size_t size = strcspn(text, " \t\n");

    return text[0] == '/' && !memchr(text + 1, '/', size > 0 ? size - 1 : 0);
}

/* ---- messages ---- */

static bool ends_with(const struct buf *b, size_t from, const char *end)
{
    size_t n = strlen(end);

    return b->size >= from + n && memcmp(b->data + b->size - n, end, n) == 0;
}

/* Lines between """ and """, with their line breaks. The opening ones are in text already. */
static enum chat_line_end read_block(struct repl *r, struct buf *text)
{
    enum chat_line_end end;

    buf_drop(text, 3);
    while (!ends_with(text, 0, "\"\"\"")) {
        if (text->size > 0)
            buf_put(text, "\n", 1);
        end = chat_line_read(r->line, "...", text);
        if (end == CHAT_LINE_EOF)
            return CHAT_LINE_TEXT; /* a file need not close what it opened */
        if (end != CHAT_LINE_TEXT)
            return end;
        if (text->size > CHAT_LINE_MAX)
            return CHAT_LINE_FAILED;
    }
    text->size -= 3;
    if (ends_with(text, 0, "\n"))
        text->size--;
    return CHAT_LINE_TEXT;
}

/* Whole, with a zero byte behind it. */
static enum chat_line_end read_message(struct repl *r, struct buf *text, bool *is_block)
{
    enum chat_line_end end = chat_line_read(r->line, ">>>", text);

    *is_block = end == CHAT_LINE_TEXT && text->size >= 3 && memcmp(text->data, "\"\"\"", 3) == 0;
    if (*is_block)
        end = read_block(r, text);
    while (end == CHAT_LINE_TEXT && !*is_block && ends_with(text, 0, "\\")) {
        text->data[text->size - 1] = '\n';
        end = chat_line_read(r->line, "...", text);
        if (end == CHAT_LINE_EOF)
            end = CHAT_LINE_TEXT;
        if (text->size > CHAT_LINE_MAX)
            end = CHAT_LINE_FAILED;
        if (ends_with(text, 0, "\n"))
            break; /* an empty line after it ends it, too */
    }
    buf_put(text, "", 1);
    return text->failed ? CHAT_LINE_FAILED : end;
}

static bool is_blank(const char *text)
{
    return text[strspn(text, " \t\n")] == '\0';
}

/* ---- the loop ---- */

static void banner(const struct repl *r)
{
    struct chat_session *s = r->s;
    char context[CTL_BYTES_TEXT];

    chat_draw_note(&s->draw, "%s%s%s%s at %s", s->model, s->context ? ", context " : "",
                   s->context ? ctl_grouped(context, s->context) : "",
                   s->context ? " tokens," : "", chat_http_base(s->http));
    if (r->terminal)
        chat_draw_note(&s->draw, "Type a message. /help lists commands, Ctrl-D leaves.");
}

/* Twice in a row leaves; a pipe has nobody who could press it again. */
static void cancelled(struct repl *r, int *times)
{
    r->s->signals.interrupt = false;
    r->leave = !r->terminal || ++*times >= 2;
    if (!r->terminal)
        r->status = EXIT_FAILED;
    else if (!r->leave)
        chat_draw_note(&r->s->draw, "(Ctrl-C again or Ctrl-D leaves)");
}

static void take_message(struct repl *r, const char *text, bool is_block)
{
    if (is_blank(text))
        return;
    if (strlen(text) < CHAT_LINE_MAX)
        chat_line_remember(r->line, text);
    if (!is_block && is_command(text))
        run_command(r, text);
    else
        ask(r, text);
}

static void loop(struct repl *r)
{
    int cancels = 0;
    struct buf text;
    bool is_block;

    buf_init(&text, NULL);
    while (!r->leave && chat_draw_flush(&r->s->draw)) {
        text.size = 0;
        switch (read_message(r, &text, &is_block)) {
        case CHAT_LINE_TEXT:
            cancels = 0;
            take_message(r, text.data, is_block);
            break;
        case CHAT_LINE_CANCEL:
            cancelled(r, &cancels);
            break;
        case CHAT_LINE_FAILED:
            chat_draw_fault(&r->s->draw, "a message of more than %d MiB is not taken",
                            CHAT_LINE_MAX >> 20);
            r->status = EXIT_FAILED;
            r->leave = true;
            break;
        case CHAT_LINE_EOF:
        case CHAT_LINE_LEAVE:
            r->leave = true;
            break;
        }
    }
    if (!chat_draw_all_written(&r->s->draw))
        r->status = EXIT_FAILED;
    buf_done(&text);
}

int chat_repl(struct chat_session *s)
{
    struct repl r = { .s = s, .status = EXIT_FINE,
                      .terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) };
    char path[PATH_MAX];
    bool keep = r.terminal && !ctl_has(s->args, "--no-history") &&
                chat_past_path(path, sizeof path);
    struct err err = { 0 }, note = { 0 };
    int status = chat_connect(s, &err);

    if (status != EXIT_FINE) {
        ctl_fail(s->args, &err);
        return status;
    }
    if (chat_line_open(&r.line, &s->signals, r.terminal, s->draw.colour, keep ? path : NULL, &note,
                       &err) < 0)
        return ctl_fail(s->args, &err);
    banner(&r);
    if (note.kind != ERR_NONE)
        chat_draw_note(&s->draw, "(%s)", note.text);
    loop(&r);
    chat_line_close(r.line);
    if (s->signals.leave)
        return EXIT_FAILED; /* whoever sent SIGTERM or SIGHUP, it was not the end */
    /* A person saw what went wrong; a script has the status alone. */
    return r.terminal ? EXIT_FINE : r.status;
}
