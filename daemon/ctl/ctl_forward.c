/* forward: token ids through a model, with the logits of every row if wanted, and the experts. */
#include "daemon/ctl/ctl.h"

#include "daemon/ctl/ctl_trace.h"
#include "daemon/host/engine_json.h"
#include "util/clock.h"
#include "util/err.h"
#include "util/size.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct forward {
    const struct ctl_args *args;
    struct ctl_progress progress;
    uint32_t *prompt; /* owned */
    size_t n_prompt;
    uint32_t steps;
    uint32_t *tokens; /* owned; [steps]; what was generated */
    uint32_t n_tokens;
    bool wants_logprobs;
    uint32_t n_top;
    json_t *logprobs; /* owned; of each token; NULL: nobody asks */
    struct cz_sampling sampling;
    /* Logits: a row per position, each at its own place in the file, so that rows that are
     * computed again (a sequence that started over) land where they were. */
    int logits_fd; /* owned; -1: none */
    const char *logits_path;
    uint32_t vocab, n_rows;
    struct ctl_trace trace;
    struct err write_fault; /* of the callback; kind ERR_NONE: none */
    struct cz_usage usage;
    struct cz_stats stats;
    uint64_t open_ns;
};

/* ---- logits ---- */

static void take_logits(void *ctx, uint32_t position, const float *logits)
{
    struct forward *f = ctx;
    size_t size = (size_t)f->vocab * sizeof *logits, done = 0;
    off_t at = (off_t)position * (off_t)size;

    if (position >= f->n_rows)
        f->n_rows = position + 1;
    while (f->logits_fd >= 0 && done < size && f->write_fault.kind == ERR_NONE) {
        ssize_t n = pwrite(f->logits_fd, (const char *)logits + done, size - done,
                           at + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            err_errno(&f->write_fault, "write %s", f->logits_path);
        else
            done += (size_t)n;
    }
}

static int open_logits(struct forward *f, struct err *err)
{
    f->logits_path = ctl_text(f->args, "--logits");
    if (!f->logits_path)
        return 0;
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
    return err_set(err, ERR_UNSUPPORTED, "--logits on a big-endian machine");
#endif
    f->logits_fd = open(f->logits_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return f->logits_fd < 0 ? err_errno(err, "open %s", f->logits_path) : 0;
}

/* ---- the trace of experts ---- */

static int open_trace(struct forward *f, struct err *err)
{
    const char *path = ctl_text(f->args, "--trace-experts");

    return path ? ctl_trace_open(&f->trace, path, err) : 0;
}

static bool loading(void *ctx, uint64_t done, uint64_t total)
{
    struct forward *f = ctx;

    return ctl_progress_loading(&f->progress, done, total);
}

static void ordering(void *ctx, const struct cz_expert_order *o)
{
    struct forward *f = ctx;

    ctl_trace_order(&f->trace, o);
}

static int note_logprobs(struct forward *f, const struct cz_logprobs *l, struct err *err)
{
    json_t *top = json_array();
    int rc = 0;

    for (uint32_t i = 0; i < l->n_top; i++)
        rc |= json_array_append_new(top, json_pack("[I, f]", (json_int_t)l->top[i].token,
                                                   (double)l->top[i].logprob));
    rc |= json_array_append_new(f->logprobs, json_pack("{s:f, s:o}", "logprob",
                                                       (double)l->own.logprob, "top", top));
    return rc < 0 ? err_set(err, ERR_NOMEM, "log probabilities") : 0;
}

/* ---- flags ---- */

static int read_sampling(struct forward *f, struct err *err)
{
    struct cz_sampling *s = &f->sampling;

    *s = (struct cz_sampling){ .top_p = 1.0f, .repetition_penalty = 1.0f };
    if (ctl_float(f->args, "--temperature", &s->temperature, 0.0, 100.0, err) < 0 ||
        ctl_u32(f->args, "--top-k", &s->top_k, 0, UINT32_MAX, err) < 0 ||
        ctl_float(f->args, "--top-p", &s->top_p, 0.0, 1.0, err) < 0 ||
        ctl_float(f->args, "--min-p", &s->min_p, 0.0, 1.0, err) < 0 ||
        ctl_float(f->args, "--presence-penalty", &s->presence_penalty, -2.0, 2.0, err) < 0 ||
        ctl_float(f->args, "--frequency-penalty", &s->frequency_penalty, -2.0, 2.0, err) < 0 ||
        ctl_float(f->args, "--repetition-penalty", &s->repetition_penalty, 0.01, 100.0, err) < 0 ||
        ctl_u64(f->args, "--seed", &s->seed, err) < 0)
        return -1;
    return 0;
}

static int read_flags(struct forward *f, struct err *err)
{
    const char *tokens = ctl_text(f->args, "--tokens");

    f->steps = 1;
    if (!tokens)
        return err_set(err, ERR_INPUT, "--tokens is missing: --tokens 9707,1052");
    if (ctl_ids(tokens, &f->prompt, &f->n_prompt, err) < 0)
        return err_within(err, "--tokens");
    if (f->n_prompt == 0 || f->n_prompt > UINT32_MAX / 2)
        return err_set(err, ERR_INPUT, "--tokens: no token ids in it");
    if (ctl_u32(f->args, "--steps", &f->steps, 0, 1u << 24, err) < 0 ||
        ctl_u32(f->args, "--logprobs", &f->n_top, 0, CZ_MAX_TOP, err) < 0 ||
        read_sampling(f, err) < 0)
        return -1;
    f->wants_logprobs = ctl_has(f->args, "--logprobs");
    if (f->wants_logprobs && !ctl_has(f->args, "--json"))
        return err_set(err, ERR_INPUT, "--logprobs: they are shown with --json");
    f->logprobs = f->wants_logprobs ? json_array() : NULL;
    f->tokens = malloc(((size_t)f->steps + 1) * sizeof *f->tokens);
    return f->tokens ? 0 : err_set(err, ERR_NOMEM, "%u tokens", f->steps);
}

/* One sequence, nobody waiting, no other process. */
static int read_options(struct forward *f, struct conf *conf, struct err *err)
{
    struct cz_options *o = &conf->engine;

    if (ctl_conf(f->args, f->args->operands[0], conf, err) < 0)
        return -1;
    if (!ctl_has(f->args, "--sequences"))
        o->sequences = 1;
    o->queue = 1;
    o->workers = 0;
    o->http_buffer = 0;
    return ctl_expert_slots(f->args, o, err);
}

/* ---- running ---- */

static int take_events(struct forward *f, const struct cz_event *events, int n, bool *ended,
                       struct err *err)
{
    for (int i = 0; i < n; i++) {
        switch (events[i].type) {
        case CZ_EVENT_TOKEN:
            if (f->n_tokens == f->steps)
                break;
            f->tokens[f->n_tokens++] = events[i].token;
            if (events[i].has_logprobs && note_logprobs(f, &events[i].logprobs, err) < 0)
                return -1;
            break;
        case CZ_EVENT_FINISHED:
            f->usage = events[i].usage;
            *ended = true;
            break;
        case CZ_EVENT_FAILED:
            *err = events[i].err;
            return -1;
        case CZ_EVENT_PROGRESS:
            break;
        }
    }
    return 0;
}

static int run_sequence(struct forward *f, struct cz_engine *engine, struct err *err)
{
    struct cz_event events[16];
    bool ended = false;
    /* Without a step the prompt still wants its rows; the token that follows is dropped. */
    struct cz_request request = {
        .id = 1,
        .prompt = f->prompt,
        .n_prompt = (uint32_t)f->n_prompt,
        .max_tokens = f->steps ? f->steps : 1,
        .sampling = f->sampling,
        .logprobs = f->wants_logprobs,
        .n_top = f->n_top,
        .take_logits = f->logits_fd >= 0 ? take_logits : NULL,
        .logits_ctx = f,
    };

    if (cz_submit(engine, &request, err) < 0)
        return -1;
    while (!ended) {
        int n = cz_step(engine, events, sizeof events / sizeof events[0], err);
        if (n < 0 || take_events(f, events, n, &ended, err) < 0)
            return -1;
        if (f->write_fault.kind != ERR_NONE) {
            *err = f->write_fault;
            return -1;
        }
        if (ctl_trace_check(&f->trace, err) < 0)
            return -1;
        if (n == 0 && !ended && cz_idle(engine))
            return err_set(err, ERR_CLOSED, "the engine stopped without a last word");
    }
    if (f->steps && f->n_tokens < f->steps)
        return err_set(err, ERR_TOO_LONG,
                       "%u of %u tokens came: prompt and steps fill the context; raise --context",
                       f->n_tokens, f->steps);
    return 0;
}

static int open_and_run(struct forward *f, struct err *err)
{
    bool traced = f->trace.file != NULL;
    struct cz_watch watch = { .ctx = f, .loading = loading, .ordering = traced ? ordering : NULL };
    struct cz_engine *engine = NULL;
    struct cz_facts facts;
    struct conf conf;
    int rc = -1;

    if (read_options(f, &conf, err) < 0)
        goto done;
    conf.engine.reads_in_turn = traced;
    uint64_t start = clock_ns();
    rc = cz_open(&engine, &conf.engine, &watch, err);
    ctl_progress_end(&f->progress);
    if (rc < 0)
        goto done;
    f->open_ns = clock_ns() - start;
    cz_facts(engine, &facts);
    f->vocab = facts.vocab;
    rc = -1;
    if (traced &&
        ctl_trace_begin(&f->trace, conf.engine.model_dir, cz_engine_plan(engine), err) < 0)
        goto done;
    rc = run_sequence(f, engine, err);
    cz_stats(engine, &f->stats);
    if (rc == 0 && traced)
        rc = ctl_trace_end(&f->trace, &f->stats, err);
done:
    cz_close(engine);
    conf_done(&conf);
    return rc;
}

/* ---- the answer ---- */

static double rate(uint64_t n, uint64_t ns)
{
    return ns ? (double)n * 1e9 / (double)ns : 0.0;
}

static void print_json(const struct forward *f)
{
    json_t *tokens = json_array();

    for (uint32_t i = 0; i < f->n_tokens; i++)
        json_array_append_new(tokens, json_integer(f->tokens[i]));
    ctl_print_json(json_pack("{s:o, s:O*, s:I, s:I, s:I, s:I, s:I, s:o}", "tokens", tokens,
                             "logprobs", f->logprobs, "rows", (json_int_t)f->n_rows, "vocab",
                             (json_int_t)f->vocab, "open_ns", (json_int_t)f->open_ns,
                             "prefill_ns", (json_int_t)f->usage.prefill_ns, "decode_ns",
                             (json_int_t)f->usage.decode_ns, "stats",
                             engine_json_stats(&f->stats)));
}

static void print_plain(const struct forward *f)
{
    const struct cz_stats *s = &f->stats;
    uint64_t picks = s->expert_hits + s->expert_misses;
    char bytes[16];

    for (uint32_t i = 0; i < f->n_tokens; i++)
        printf("%s%" PRIu32, i ? "," : "", f->tokens[i]);
    putchar('\n');
    fflush(stdout);
    fprintf(stderr, "prefill   %zu tokens, %.2f tokens/s\n", f->n_prompt,
            rate(f->n_prompt, f->usage.prefill_ns));
    if (f->n_tokens > 1)
        fprintf(stderr, "decode    %u tokens, %.2f tokens/s\n", f->n_tokens,
                rate(f->n_tokens - 1, f->usage.decode_ns));
    fprintf(stderr, "experts   %.1f %% hits in %u slots, %s read\n",
            picks ? 100.0 * (double)s->expert_hits / (double)picks : 0.0, s->expert_slots,
            size_text(bytes, sizeof bytes, s->expert_read_bytes));
    fprintf(stderr, "with      %s kernels, %u threads, %s%s\n", s->kernels, s->threads, s->io,
            s->direct_io ? ", direct" : ", buffered");
    if (f->trace.path)
        fprintf(stderr, "trace     %" PRIu64 " orders, in %s\n", f->trace.n_orders, f->trace.path);
    if (f->logits_path)
        fprintf(stderr, "logits    %u rows x %u, float32, in %s\n", f->n_rows, f->vocab,
                f->logits_path);
}

static int run(const struct ctl_args *args)
{
    struct forward f = { .args = args, .logits_fd = -1 };
    struct err err = { 0 };
    int status = EXIT_FINE;

    if (read_flags(&f, &err) < 0 || open_logits(&f, &err) < 0 || open_trace(&f, &err) < 0 ||
        open_and_run(&f, &err) < 0 || ctl_trace_close(&f.trace, &err) < 0)
        status = ctl_fail(args, &err);
    else if (ctl_has(args, "--json"))
        print_json(&f);
    else
        print_plain(&f);
    if (f.logits_fd >= 0 && close(f.logits_fd) < 0 && status == EXIT_FINE) {
        err_errno(&err, "close %s", f.logits_path);
        status = ctl_fail(args, &err);
    }
    ctl_trace_close(&f.trace, &err);
    json_decref(f.logprobs);
    free(f.prompt);
    free(f.tokens);
    return status;
}

static const struct ctl_flag flags[] = {
    { "--tokens", "CSV", "the prompt's token ids", NULL },
    { "--steps", "N", "tokens to generate; stop ids are ignored (default 1)", NULL },
    { "--logits", "FILE", "float32 little-endian [rows, vocab]: prompt, then generated", NULL },
    { "--trace-experts", "FILE", "JSON lines: which experts each layer ordered", NULL },
    { "--logprobs", "N", "log probabilities of tokens, and the N likeliest; with --json", NULL },
    { "--temperature", "T", "0: greedy (default)", NULL },
    { "--top-k", "K", "0: off", NULL },
    { "--top-p", "P", "1: off", NULL },
    { "--min-p", "P", "0: off", NULL },
    { "--presence-penalty", "X", "-2 to 2", NULL },
    { "--frequency-penalty", "X", "-2 to 2", NULL },
    { "--repetition-penalty", "X", "1: off", NULL },
    { "--seed", "N", "same seed, same tokens", NULL },
    { 0 },
};

const struct ctl_command ctl_forward = {
    .name = "forward",
    .operands = "DIR",
    .summary = "ids through a model: tokens, logits, experts",
    .flags = flags,
    .settings = true,
    .min_operands = 1,
    .max_operands = 1,
    .run = run,
};
