/* One question of a script: the answer on standard output, and nothing else there. */
#include "daemon/ctl/ctl_chat.h"

#include "daemon/ctl/ctl.h"
#include "util/err.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_PROMPT = 32 << 20 };

static int read_stdin(struct chat_session *s, char **out, struct err *err)
{
    struct pollfd wait[2] = { { .fd = STDIN_FILENO, .events = POLLIN },
                              { .fd = s->signals.fd, .events = POLLIN } };
    size_t size = 0, cap = 0;
    char *text = NULL;

    for (;;) {
        if (size + 1 >= cap) {
            cap = cap ? cap * 2 : 65536;
            char *more = cap <= 2 * (size_t)MAX_PROMPT ? realloc(text, cap) : NULL;
            if (!more) {
                free(text);
                return err_set(err, ERR_INPUT, "--prompt -: standard input is larger than %d MiB",
                               MAX_PROMPT >> 20);
            }
            text = more;
        }
        if (poll(wait, 2, -1) > 0 && wait[1].revents && chat_signals_take(&s->signals)) {
            free(text);
            return err_set(err, ERR_CANCELLED, "interrupted while reading standard input");
        }
        if (!wait[0].revents)
            continue;
        ssize_t n = read(STDIN_FILENO, text + size, cap - size - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            free(text);
            return err_errno(err, "--prompt -: standard input");
        }
        if (n == 0)
            break;
        size += (size_t)n;
    }
    text[size] = '\0';
    if (memchr(text, '\0', size)) {
        free(text);
        return err_set(err, ERR_INPUT, "--prompt -: standard input holds a zero byte");
    }
    *out = text;
    return 0;
}

static json_t *text_of(const struct buf *b)
{
    return json_stringn(b->size ? b->data : "", b->size);
}

static void put_figures(json_t *o, const struct chat_turn *turn)
{
    const struct chat_answer *a = &turn->answer;

    if (a->has_usage)
        json_object_set_new(o, "usage",
                            json_pack("{s:I, s:I, s:I}", "prompt_tokens", (json_int_t)a->n_prompt,
                                      "completion_tokens", (json_int_t)a->n_generated,
                                      "cached_tokens", (json_int_t)a->n_cached));
    if (a->first_s > 0.0)
        json_object_set_new(o, "first_token_s", json_real(a->first_s));
    if (a->tokens_per_s > 0.0)
        json_object_set_new(o, "tokens_per_s", json_real(a->tokens_per_s));
    if (turn->hit_rate >= 0.0)
        json_object_set_new(o, "expert_hit_rate", json_real(turn->hit_rate));
}

static void print_json(const struct chat_session *s, const struct chat_turn *turn)
{
    const struct chat_answer *a = &turn->answer;
    json_t *o = json_pack("{s:s}", "model", s->model);

    json_object_set_new(o, "content", text_of(&a->content));
    if (a->thought.size)
        json_object_set_new(o, "reasoning_content", text_of(&a->thought));
    if (a->finish[0])
        json_object_set_new(o, "finish_reason", json_string(a->finish));
    put_figures(o, turn);
    if (a->outcome != CHAT_ANSWERED)
        json_object_set_new(o, "error",
                            json_pack("{s:i, s:s, s:s}", "status", (int)a->status, "code", a->code,
                                      "message",
                                      a->outcome == CHAT_STOPPED ? "interrupted" : a->message));
    ctl_print_json(o);
}

int chat_once(struct chat_session *s, const char *prompt)
{
    bool json = ctl_has(s->args, "--json");
    struct chat_turn turn;
    struct err err = { 0 };
    char *input = NULL;
    int status;

    /* Before the server is asked for anything: it may not come. */
    if (strcmp(prompt, "-") == 0 && read_stdin(s, &input, &err) < 0)
        return ctl_fail(s->args, &err);
    status = chat_connect(s, &err);
    if (status != EXIT_FINE) {
        ctl_fail(s->args, &err);
        free(input);
        return status;
    }
    chat_turn_ask(s, input ? input : prompt, &turn);
    if (json)
        print_json(s, &turn);
    chat_turn_tell(s, &turn);
    status = chat_turn_status(&turn);
    if (!chat_draw_all_written(&s->draw))
        status = EXIT_FAILED;
    chat_turn_done(&turn);
    free(input);
    return status;
}
