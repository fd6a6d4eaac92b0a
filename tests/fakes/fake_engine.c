/* fake_engine: every cz_* function of the front door, played from a script.
 *
 * Linked in place of engine/run into colizigd-fake, so that daemon tests see real processes,
 * channels and HTTP but choose what the engine does. <model_dir>/fake.json says it; every key
 * is optional, and the file too:
 *
 *   load_ms          how long cz_open takes                                     0
 *   open_error       cz_open fails with this text (ERR_FORMAT)
 *   token_ms         time between tokens                                        2
 *   prefill_ms       time per prompt token                                      0.02
 *   layer_ms         a step's one layer takes at least so long                  0
 *   context sequences queue vocab   override the options                        4096 4 32 from
 *                                                                               the tokenizer
 *   stop_ids         of the checkpoint              <|im_end|> and <|endoftext|> if there
 *   temperature top_k top_p ...     sampling defaults of the checkpoint         0 = greedy
 *   reply            "varied" words that depend on prompt and seed; "echo" the prompt's
 *                    tokens; "text" the string under text; "ids" the list under ids   varied
 *   replies          a list, of which the first one that is meant answers a prompt; see below
 *   n_tokens         stop after so many (0: echo, text and ids stop at their end, varied never)
 *   cached           how many prompt tokens usage calls cached                  0
 *   adjust_error     a new memory.ram is refused with this text (ERR_BUDGET)
 *   fail_after       the request fails after so many tokens
 *   fail_on_text crash_on_text hang_on_text     only requests whose prompt holds this text
 *                    fail (after fail_after or 0 tokens), kill the process or freeze it
 *   crash_after      tokens before a crash                                      0
 *   socket_on_text   a prompt that holds this text makes the engine ask for a socket
 *
 * An entry of replies, which goes before reply; without one that is meant reply stands:
 *
 *   on           meant when the prompt's last turn of user or tool holds this text (all behind the
 *                last <|im_start|>user or <|im_start|>tool; without such a turn, the whole prompt);
 *                null or absent: always
 *   text         what is said, marks of the tokenizer recognised: "<tool_call>", "</think>",
 *                "<|im_end|>" (a stop id in it is sampled as one). A list: one for each choice, the
 *                last one for those that follow
 *   thinking     said before it where the request lets the model think, with the marks that are
 *                missing there: "<think>\n" unless the prompt left it inside, "\n</think>\n\n"
 *   finish       "length": at its end as if max_tokens were reached; else a stop id comes     stop
 *   fail_after   the request fails after so many tokens
 *   once         true: used up by one request
 *
 * What a request forces (thinking's budget and closing, forced, forced_behind) is followed as the
 * engine does, by the same code. After a closing that was forced the script goes on behind its own
 * next </think>, if there is one; forced tokens are said in addition to it. Logprobs are made up, a
 * function of the reply's own tokens: the chosen one leads the top list, each next is 1 below.
 * A banned token is passed over. prefill_ms and token_ms are what HELLO says, once they passed.
 *
 * A token with a bias of 50 or more is always chosen; one at -100 never is. Time passes for all
 * running sequences alike, as if batching cost nothing. */
#include "colizig.h"

#include "tests/fakes/fake_script.h"
#include "tests/fakes/fake_seq.h"
#include "text/tokenizer.h"
#include "util/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct cz_engine {
    struct script script;
    struct cz_watch watch;
    struct tokenizer *tokenizer; /* owned; NULL when the directory has none */
    struct cz_plan plan;
    struct cz_stats stats;
    struct seq *seqs; /* owned; oldest first */
    uint64_t turn;    /* of the last one admitted */
};

/* ---- before opening ---- */

void cz_options_init(struct cz_options *o)
{
    *o = (struct cz_options){ .direct_io = true, .sequences = 4, .queue = 32,
                              .token_gap_ms = 2000, .stall_timeout_ms = 300000,
                              .workers = 2, .http_buffer = 64u << 20 };
}

int cz_inspect(struct cz_model_info *out, const char *model_dir, struct err *err)
{
    if (access(model_dir, R_OK | X_OK) < 0)
        return err_errno(err, "%s", model_dir);
    *out = (struct cz_model_info){ .model_type = "fake", .architecture = "FakeForCausalLM",
                                   .derived = true, .vocab = 151936, .n_layers = 3, .n_moe_layers = 2,
                                   .max_positions = 4096, .n_params = 1 };
    return 0;
}

static void plan_line(struct cz_plan *p, const char *name, const char *detail, uint64_t bytes)
{
    struct cz_plan_line *line = &p->lines[p->n_lines++];

    snprintf(line->name, sizeof line->name, "%s", name);
    snprintf(line->detail, sizeof line->detail, "%s", detail);
    line->bytes = bytes;
    p->total += bytes;
}

int cz_plan(struct cz_plan *out, const struct cz_options *opt, bool probe, struct err *err)
{
    struct script s;

    (void)probe;
    if (script_read(&s, opt->model_dir, err) < 0)
        return -1;
    script_settle_limits(&s, opt);
    *out = (struct cz_plan){ .ram = opt->ram ? opt->ram : 1u << 30, .minimum = 96u << 20,
                             .available = 1u << 30, .threads = 1, .context = s.context,
                             .sequences = s.sequences, .prefill_rows = 1 };
    snprintf(out->ram_source, sizeof out->ram_source, "%s", opt->ram ? "config" : "machine");
    out->reasoning_bytes = opt->reasoning_memory == CZ_MEMORY_AUTO ? 4u << 20
                                                                   : opt->reasoning_memory;
    plan_line(out, "the fake", "a script and a tokenizer", 64u << 20);
    plan_line(out, "workers", "as configured", 32u << 20);
    script_done(&s);
    if (out->ram < out->minimum)
        return err_set(err, ERR_BUDGET, "the fake needs at least 96 MiB");
    return 0;
}

/* ---- opening ---- */

static void find_stop_ids(struct cz_engine *e)
{
    static const char *const names[] = { "<|im_end|>", "<|endoftext|>" };
    struct script *s = &e->script;

    for (size_t i = 0; i < 2 && !s->stops_given; i++)
        if (tokenizer_find(e->tokenizer, names[i], &s->stop_ids[s->n_stop_ids]))
            s->n_stop_ids++;
}

static int open_tokenizer(struct cz_engine *e, const char *dir, struct err *err)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    if (access(path, F_OK) < 0)
        return 0;
    if (tokenizer_open(&e->tokenizer, path, err) < 0)
        return -1;
    find_stop_ids(e);
    if (!e->script.vocab)
        e->script.vocab = tokenizer_vocab(e->tokenizer);
    if (e->script.reply != REPLY_TEXT || !e->script.text)
        return 0;
    struct text_run run = { e->script.text, strlen(e->script.text), true };
    return tokenizer_encode(e->tokenizer, &run, 1, 0, &e->script.ids, err);
}

int cz_open(struct cz_engine **out, const struct cz_options *opt, const struct cz_watch *w,
            struct err *err)
{
    struct cz_engine *e = calloc(1, sizeof *e);

    if (!e)
        return err_set(err, ERR_NOMEM, "fake engine");
    if (w)
        e->watch = *w;
    if (script_read(&e->script, opt->model_dir, err) < 0)
        goto fail;
    script_settle_limits(&e->script, opt);
    if (cz_plan(&e->plan, opt, false, err) < 0 || open_tokenizer(e, opt->model_dir, err) < 0)
        goto fail;
    if (!e->script.vocab)
        e->script.vocab = 151936;
    for (uint32_t ms = 0; ms <= e->script.load_ms; ms += 10) {
        if (e->watch.loading && !e->watch.loading(e->watch.ctx, ms, e->script.load_ms + 1)) {
            err_set(err, ERR_CANCELLED, "loading was given up");
            goto fail;
        }
        if (e->script.load_ms)
            usleep(10000);
    }
    if (e->script.open_error) {
        err_set(err, ERR_FORMAT, "%s", e->script.open_error);
        goto fail;
    }
    *out = e;
    return 0;

fail:
    cz_close(e);
    return -1;
}

void cz_close(struct cz_engine *e)
{
    if (!e)
        return;
    for (struct seq *s = e->seqs, *next; s; s = next) {
        next = s->next;
        seq_free(s);
    }
    tokenizer_close(e->tokenizer);
    script_done(&e->script);
    free(e);
}

void cz_facts(const struct cz_engine *e, struct cz_facts *out)
{
    *out = (struct cz_facts){ .vocab = e->script.vocab, .context = e->script.context,
                              .n_stop_ids = e->script.n_stop_ids,
                              .defaults = e->script.defaults,
                              .tokenizer = e->tokenizer ? tokenizer_fingerprint(e->tokenizer) : 0,
                              .fingerprint = 0xfa4ee1191e000001u };
    memcpy(out->stop_ids, e->script.stop_ids, sizeof out->stop_ids);
}

/* ---- requests ---- */

static bool prompt_holds(const struct cz_engine *e, const struct cz_request *r, const char *text)
{
    size_t size = 0;

    if (!text || !e->tokenizer)
        return false;
    char *all = script_text(e->tokenizer, r->prompt, r->n_prompt, &size);
    bool found = all && memmem(all, size, text, strlen(text)) != NULL;
    free(all);
    return found;
}

static void count_seqs(const struct cz_engine *e, uint32_t *running, uint32_t *waiting)
{
    *running = *waiting = 0;
    for (const struct seq *s = e->seqs; s; s = s->next)
        ++*(s->running ? running : waiting);
}

static int check_request(const struct cz_engine *e, const struct cz_request *r, struct err *err)
{
    uint32_t running, waiting;

    if (r->n_prompt == 0)
        return err_set(err, ERR_INPUT, "a request without a prompt");
    for (uint32_t i = 0; i < r->n_prompt; i++)
        if (r->prompt[i] >= e->script.vocab)
            return err_set(err, ERR_INPUT, "token id %u of a vocabulary of %u", r->prompt[i],
                           e->script.vocab);
    if (r->n_prompt >= e->script.context)
        return err_set(err, ERR_TOO_LONG, "%u prompt tokens and one more do not fit %u",
                       r->n_prompt, e->script.context);
    count_seqs(e, &running, &waiting);
    if (running + waiting >= e->script.sequences + e->script.queue)
        return err_set(err, ERR_BUSY, "%u requests run and %u wait", running, waiting);
    return 0;
}

int cz_submit(struct cz_engine *e, const struct cz_request *r, struct err *err)
{
    if (check_request(e, r, err) < 0)
        return -1;
    struct seq *s;
    if (seq_open(&s, r, e->script.vocab, err) < 0)
        return -1;
    s->reply = script_reply(&e->script, e->tokenizer, r->prompt, r->n_prompt);
    if (!seq_begin_choice(s, &e->script, e->tokenizer, 0)) {
        seq_free(s);
        return err_set(err, ERR_NOMEM, "fake sequence");
    }
    s->fail_after = e->script.fail_after < 0 ? 0 : e->script.fail_after;
    s->will_fail = e->script.fail_on_text ? prompt_holds(e, r, e->script.fail_on_text)
                                          : e->script.fail_after >= 0;
    if (s->reply && s->reply->fail_after >= 0) {
        s->will_fail = true;
        s->fail_after = s->reply->fail_after;
    }
    s->will_crash = prompt_holds(e, r, e->script.crash_on_text);
    s->will_hang = prompt_holds(e, r, e->script.hang_on_text);
    s->will_connect = prompt_holds(e, r, e->script.socket_on_text);
    s->submitted_ns = clock_ns();
    struct seq **end = &e->seqs;
    s->turn = e->turn + 1; /* clients take turns, each with one request */
    for (; *end; end = &(*end)->next)
        if (!(*end)->running && (*end)->request.client == r->client && (*end)->turn >= s->turn)
            s->turn = (*end)->turn + 1;
    *end = s;
    e->stats.n_submitted++;
    return 0;
}

uint32_t cz_place(const struct cz_engine *e, uint64_t id)
{
    const struct seq *own = e->seqs;
    uint32_t running, waiting, nth = 1;
    bool older = true;

    while (own && own->request.id != id)
        own = own->next;
    if (!own || own->running)
        return 0;
    for (const struct seq *s = e->seqs; s; s = s->next) {
        older = older && s != own;
        nth += !s->running && (s->turn < own->turn || (s->turn == own->turn && older));
    }
    count_seqs(e, &running, &waiting);
    return nth > e->script.sequences - running ? nth - (e->script.sequences - running) : 0;
}

void cz_cancel(struct cz_engine *e, uint64_t id)
{
    for (struct seq **at = &e->seqs; *at; at = &(*at)->next) {
        struct seq *s = *at;
        if (s->request.id != id)
            continue;
        *at = s->next;
        seq_free(s);
        e->stats.n_cancelled++;
        return;
    }
}

void cz_next(struct cz_engine *e, uint64_t id, uint32_t choice)
{
    for (struct seq *s = e->seqs; s; s = s->next)
        if (s->request.id == id && s->choice == choice)
            s->enough = true;
}

/* ---- steps ---- */

static void fill_usage(const struct cz_engine *e, const struct seq *s, struct cz_usage *u)
{
    uint32_t most = s->request.n_prompt - 1;

    *u = (struct cz_usage){ .n_generated = s->n_generated };
    if (s->choice > 0) { /* what came before is the first one's */
        u->decode_ns = clock_ns() - s->choice_ns;
        return;
    }
    u->n_prompt = s->request.n_prompt;
    u->n_cached = e->script.cached < most ? e->script.cached : most;
    u->queue_ns = s->started_ns - s->submitted_ns;
    if (s->prefilled) {
        u->prefill_ns = s->prefilled_ns - s->started_ns;
        u->decode_ns = clock_ns() - s->prefilled_ns;
    }
}

static struct cz_event event_of(const struct seq *s, enum cz_event_type type)
{
    return (struct cz_event){ .id = s->request.id, .type = type };
}

static bool tell_progress(const struct cz_engine *e, struct seq *s, uint64_t now,
                          struct cz_event *out)
{
    double per_token_ns = e->script.prefill_ms * 1e6;

    if (now < s->told_ns + 100000000u)
        return false;
    s->told_ns = now;
    *out = event_of(s, CZ_EVENT_PROGRESS);
    out->n_total = s->request.n_prompt;
    out->n_done = (uint32_t)((double)(now - s->started_ns) / per_token_ns);
    if (out->n_done > out->n_total)
        out->n_done = out->n_total;
    return true;
}

static void misbehave(const struct cz_engine *e, const struct seq *s)
{
    if (s->will_crash && s->n_generated >= (uint64_t)e->script.crash_after)
        abort();
    if (s->will_connect)
        close(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    while (s->will_hang)
        pause();
}

static void fail(struct cz_engine *e, struct seq *s, struct cz_event *out, enum err_kind kind,
                 const char *text)
{
    *out = event_of(s, CZ_EVENT_FAILED);
    err_set(&out->err, kind, "%s", text);
    fill_usage(e, s, &out->usage);
}

/* The end of a choice, and the beginning of the next. */
static void finish(struct cz_engine *e, struct seq *s, struct cz_event *out, enum cz_finish why)
{
    *out = event_of(s, CZ_EVENT_FINISHED);
    out->choice = s->choice;
    out->finish = why;
    fill_usage(e, s, &out->usage);
    out->more = s->choice + 1 < s->request.n_choices;
    s->choice_ns = clock_ns();
    if (out->more && !seq_begin_choice(s, &e->script, e->tokenizer, s->choice + 1))
        fail(e, s, out, ERR_NOMEM, "fake sequence");
}

/* One token, or the end. */
static void say(struct cz_engine *e, struct seq *s, struct cz_event *out)
{
    uint32_t room = e->script.context - s->request.n_prompt;
    uint32_t most = s->request.max_tokens && s->request.max_tokens < room ? s->request.max_tokens
                                                                          : room;
    misbehave(e, s);
    if (s->will_fail && s->n_generated >= s->fail_after) {
        fail(e, s, out, ERR_IO, "expert read failed, as the script wants");
        return;
    }
    switch (seq_say(s, &e->script, e->tokenizer, most, out)) {
    case SAID_TOKEN:
        if (!out->forced)
            s->due_ns += s->n_generated >= most ? 0 : (uint64_t)(e->script.token_ms * 1e6);
        e->stats.generated_tokens++;
        break;
    case SAID_STOP:
        finish(e, s, out, CZ_FINISH_STOP);
        break;
    case SAID_LENGTH:
        finish(e, s, out, CZ_FINISH_LENGTH);
        break;
    }
}

static struct seq *next_waiting(const struct cz_engine *e)
{
    struct seq *next = NULL;

    for (struct seq *s = e->seqs; s; s = s->next)
        if (!s->running && (!next || s->turn < next->turn))
            next = s;
    return next;
}

static void admit(struct cz_engine *e, uint64_t now)
{
    uint32_t running, waiting;

    count_seqs(e, &running, &waiting);
    for (; waiting > 0 && running < e->script.sequences; running++, waiting--) {
        struct seq *s = next_waiting(e);

        s->running = true;
        s->started_ns = s->told_ns = now;
        s->prefilled_ns = now + (uint64_t)(s->request.n_prompt * e->script.prefill_ms * 1e6);
        s->due_ns = s->prefilled_ns + (uint64_t)(e->script.token_ms * 1e6);
        e->turn = s->turn;
    }
}

/* One event of a sequence if one is due; *end when it was the last. */
static bool advance(struct cz_engine *e, struct seq *s, uint64_t now, struct cz_event *out,
                    bool *end)
{
    *end = false;
    if (!s->prefilled && !s->enough) {
        if (now < s->prefilled_ns)
            return tell_progress(e, s, now, out);
        s->prefilled = true;
        e->stats.prompt_tokens += s->request.n_prompt;
        e->stats.prefill_ns_per_token = (uint64_t)(e->script.prefill_ms * 1e6);
    }
    if (now < s->due_ns && !s->enough)
        return false;
    say(e, s, out);
    if (out->type == CZ_EVENT_TOKEN)
        e->stats.decode_ns_per_token = (uint64_t)(e->script.token_ms * 1e6);
    *end = out->type != CZ_EVENT_TOKEN && !out->more;
    return true;
}

int cz_step(struct cz_engine *e, struct cz_event *events, size_t cap, struct err *err)
{
    size_t n = 0;

    (void)err;
    if (e->watch.between_layers)
        e->watch.between_layers(e->watch.ctx);
    if (!e->seqs)
        return 0;
    if (e->script.layer_ms)
        usleep(e->script.layer_ms * 1000);
    uint64_t now = clock_ns();
    admit(e, now);
    for (struct seq **at = &e->seqs; *at && n < cap;) {
        struct seq *s = *at;
        bool end;

        if (!s->running) {
            at = &s->next;
            continue;
        }
        if (advance(e, s, now, &events[n], &end))
            n++;
        if (!end) {
            at = &s->next;
            continue;
        }
        ++*(events[n - 1].type == CZ_EVENT_FAILED ? &e->stats.n_failed : &e->stats.n_finished);
        *at = s->next;
        seq_free(s);
    }
    e->stats.steps++;
    e->stats.layers++;
    if (n == 0)
        usleep(500);
    return (int)n;
}

void cz_tend(struct cz_engine *e)
{
    (void)e;
}

bool cz_idle(const struct cz_engine *e)
{
    return e->seqs == NULL;
}

const struct err *cz_fault(const struct cz_engine *e)
{
    (void)e;
    return NULL;
}

void cz_stats(const struct cz_engine *e, struct cz_stats *out)
{
    *out = e->stats;
    count_seqs(e, &out->running, &out->waiting);
    out->threads = 1;
    snprintf(out->kernels, sizeof out->kernels, "fake");
    snprintf(out->io, sizeof out->io, "fake");
}

/* Two layers of four, whatever ran: lists that look like lists. */
uint32_t cz_expert_layers(const struct cz_engine *e, struct cz_expert_layer *out, uint32_t cap)
{
    uint32_t n = cap < 2 ? cap : 2;

    for (uint32_t i = 0; i < n; i++)
        out[i] = (struct cz_expert_layer){ .layer = i + 1, .n_experts = 4, .n_resident = 3 - i,
                                           .hits = 10 * e->stats.steps, .misses = e->stats.steps,
                                           .evictions = i * e->stats.steps };
    return n;
}

uint32_t cz_expert_hottest(const struct cz_engine *e, struct cz_expert_heat *out, uint32_t cap)
{
    uint32_t n = cap < 8 ? cap : 8;

    (void)e;
    for (uint32_t i = 0; i < n; i++)
        out[i] = (struct cz_expert_heat){ .layer = (uint16_t)(i % 2 + 1),
                                          .expert = (uint16_t)(i / 2),
                                          .heat = 0.5f - 0.05f * (float)i, .resident = i < 5 };
    return n;
}

const struct cz_plan *cz_engine_plan(const struct cz_engine *e)
{
    return &e->plan;
}

int cz_adjust(struct cz_engine *e, const struct cz_limits *limits, struct err *err)
{
    if (limits->ram && e->script.adjust_error)
        return err_set(err, ERR_BUDGET, "%s", e->script.adjust_error);
    if (limits->ram && limits->ram < e->plan.minimum)
        return err_set(err, ERR_BUDGET, "memory.ram: the fake needs at least 96 MiB");
    e->script.queue = limits->queue;
    if (limits->ram) {
        e->plan.ram = limits->ram;
        snprintf(e->plan.ram_source, sizeof e->plan.ram_source, "config");
    }
    return 0;
}
