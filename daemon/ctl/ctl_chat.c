/* chat: talk to the model, over HTTP like any other client. */
#include "daemon/ctl/ctl_chat.h"

#include "daemon/ctl/ctl.h"
#include "daemon/ctl/ctl_chat_http.h"
#include "daemon/ctl/ctl_chat_private.h"
#include "daemon/ctl/ctl_talk.h"
#include "util/err.h"

#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_URL "http://127.0.0.1:8080"

/* ---- flags ---- */

static int check_flags(const struct ctl_args *args, struct err *err)
{
    static const char *const needs_prompt[] = { "--json" };
    static const char *const not_with_model[] = { "--url", "--socket", "--api-key" };
    const char *model = ctl_text(args, "--model");

    for (size_t i = 0; model && i < sizeof not_with_model / sizeof not_with_model[0]; i++)
        if (ctl_has(args, not_with_model[i]))
            return err_set(err, ERR_INPUT, "--model starts a daemon of its own, so %s has no "
                                           "meaning beside it", not_with_model[i]);
    for (size_t i = 0; !model && i < args->n_given; i++) {
        const struct ctl_flag *flag = args->given[i].flag;
        if (flag->key || strcmp(flag->name, "--set") == 0 ||
            strcmp(flag->name, "--expert-slots") == 0)
            return err_set(err, ERR_INPUT, "%s is for a daemon that chat starts: give --model DIR "
                                           "too, or set it in the running daemon", flag->name);
    }
    if (ctl_has(args, needs_prompt[0]) && !ctl_has(args, "--prompt"))
        return err_set(err, ERR_INPUT, "--json answers one question: give --prompt TEXT too");
    if (ctl_has(args, "--think") && ctl_has(args, "--no-think"))
        return err_set(err, ERR_INPUT, "--think and --no-think exclude each other");
    return 0;
}

static int read_sampling(struct chat_session *s, struct err *err)
{
    const struct ctl_args *args = s->args;
    struct chat_question *q = &s->sampling;

    q->has_temperature = ctl_has(args, "--temperature");
    q->has_top_p = ctl_has(args, "--top-p");
    q->has_seed = ctl_has(args, "--seed");
    q->thinking = ctl_has(args, "--think")      ? CHAT_THINK_ON
                  : ctl_has(args, "--no-think") ? CHAT_THINK_OFF
                                                : CHAT_THINK_DEFAULT;
    if (ctl_u32(args, "--max-tokens", &q->max_tokens, 1, UINT32_MAX, err) < 0 ||
        ctl_float(args, "--temperature", &q->temperature, 0.0, 2.0, err) < 0 ||
        ctl_float(args, "--top-p", &q->top_p, 0.0, 1.0, err) < 0 ||
        ctl_u64(args, "--seed", &q->seed, err) < 0)
        return -1;
    if (q->has_seed && q->seed > INT64_MAX)
        return err_set(err, ERR_INPUT, "--seed: at most %lld", (long long)INT64_MAX);
    return 0;
}

/* ---- the session ---- */

/* Lines are edited and widths are counted in UTF-8, whatever the environment forgot to say. */
static void choose_characters(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
        setlocale(LC_CTYPE, "C.UTF-8");
}

static int open_draw(struct chat_session *s, struct err *err)
{
    bool once = ctl_has(s->args, "--prompt"), json = ctl_has(s->args, "--json");
    bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    bool quiet = json || ctl_has(s->args, "--quiet");
    FILE *answers = json ? fopen("/dev/null", "we") : stdout;

    if (!answers)
        return err_errno(err, "/dev/null");
    chat_draw_init(&s->draw, answers, quiet                ? NULL
                                      : once || !terminal ? stderr
                                                          : stdout);
    s->draw.exact = once && !isatty(STDOUT_FILENO);
    return 0;
}

static int open_private(struct chat_session *s, struct err *err)
{
    const char *model = ctl_text(s->args, "--model");

    if (!model)
        return 0;
    if (access(model, R_OK | X_OK) < 0) {
        err_errno(err, "--model %.200s", model);
        err->kind = ERR_INPUT; /* as colizigd calls it */
        return -1;
    }
    return chat_private_open(&s->private, s->args, model, &s->signals.before, err);
}

static int open_session(struct chat_session *s, struct err *err)
{
    const char *url = ctl_text(s->args, "--url"), *system = ctl_text(s->args, "--system");

    if (check_flags(s->args, err) < 0 || read_sampling(s, err) < 0 ||
        chat_signals_open(&s->signals, err) < 0 || open_draw(s, err) < 0 ||
        open_private(s, err) < 0)
        return -1;
    s->messages = json_array();
    s->system = system ? strdup(system) : NULL;
    if (!s->messages || (system && !s->system))
        return err_set(err, ERR_NOMEM, "a conversation");
    if (s->private)
        url = chat_private_url(s->private);
    if (chat_http_open(&s->http, url ? url : DEFAULT_URL, ctl_text(s->args, "--api-key"),
                       s->signals.fd, err) < 0)
        return -1;
    /* The usual socket is of the daemon on this machine. */
    s->socket = s->private ? chat_private_socket(s->private) : ctl_text(s->args, "--socket");
    if (!s->socket && chat_http_is_local(s->http))
        s->socket = CTL_SOCKET;
    return 0;
}

static void close_session(struct chat_session *s)
{
    if (s->draw.answers)
        chat_draw_done(&s->draw);
    if (s->draw.answers && s->draw.answers != stdout)
        fclose(s->draw.answers);
    chat_http_close(s->http);
    chat_private_close(s->private);
    chat_signals_close(&s->signals);
    json_decref(s->messages);
    free(s->system);
    free(s->last);
}

static int run(const struct ctl_args *args)
{
    struct chat_session s = { .args = args, .signals = { .fd = -1 } };
    const char *prompt = ctl_text(args, "--prompt");
    struct err err = { 0 };
    int status;

    choose_characters();
    if (open_session(&s, &err) < 0)
        status = ctl_fail(args, &err);
    else
        status = prompt ? chat_once(&s, prompt) : chat_repl(&s);
    close_session(&s);
    return status;
}

static const struct ctl_flag flags[] = {
    { "--url", "URL", "the server (default " DEFAULT_URL ")", NULL },
    { "--api-key", "KEY", "sent as a bearer token", NULL },
    { "--socket", "PATH", "admin socket, for hit rates (default " CTL_SOCKET ")", NULL },
    { "--model", "DIR", "start a daemon with this model, for as long as the chat", NULL },
    { "--prompt", "TEXT", "one question; - reads it from standard input", NULL },
    { "--system", "TEXT", "system text", NULL },
    { "--max-tokens", "N", "of an answer", NULL },
    { "--temperature", "X", "0 to 2; 0 takes the likeliest", NULL },
    { "--top-p", "X", "0 to 1", NULL },
    { "--seed", "N", "the same answer again", NULL },
    { "--think", NULL, "let the model think first", NULL },
    { "--no-think", NULL, "let it answer at once", NULL },
    { "--quiet", NULL, "nothing but answers", NULL },
    { "--no-history", NULL, "keep no file of what was typed", NULL },
    { 0 },
};

const struct ctl_command ctl_chat = {
    .name = "chat",
    .operands = "",
    .summary = "talk to the model of a daemon",
    .example = "  colizigctl chat\n"
               "  colizigctl chat --prompt 'Name three rivers' --no-think\n"
               "  colizigctl chat --model /srv/models/Qwen3-30B-A3B-FP8 --ram 8GiB\n"
               "\n"
               "Settings (--ram, --context, ...) are of the daemon that --model starts.\n"
               "Exit status 5: no daemon answers.",
    .flags = flags,
    .settings = true,
    .run = run,
};
