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
 *   n_tokens         stop after so many (0: echo, text and ids stop at their end, varied never)
 *   cached           how many prompt tokens usage calls cached                  0
 *   adjust_error     a new memory.ram is refused with this text (ERR_BUDGET)
 *   fail_after       the request fails after so many tokens
 *   fail_on_text crash_on_text hang_on_text     only requests whose prompt holds this text
 *                    fail (after fail_after or 0 tokens), kill the process or freeze it
 *   crash_after      tokens before a crash                                      0
 *   socket_on_text   a prompt that holds this text makes the engine ask for a socket
 *
 * A token with a bias of 50 or more is always chosen; one at -100 never is. Time passes for all
 * running sequences alike, as if batching cost nothing. */
#include "colizig.h"

#include "text/tokenizer.h"
#include "util/clock.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum reply { REPLY_VARIED, REPLY_ECHO, REPLY_TEXT, REPLY_IDS };

struct script {
    uint32_t load_ms, layer_ms;
    double token_ms, prefill_ms;
    uint32_t context, sequences, queue, vocab;
    uint32_t stop_ids[16], n_stop_ids;
    bool stops_given;
    struct cz_sampling defaults;
    enum reply reply;
    uint32_t n_tokens, cached;
    int64_t fail_after, crash_after; /* -1: never */
    char *open_error, *adjust_error, *text;                                      /* owned */
    char *fail_on_text, *crash_on_text, *hang_on_text, *socket_on_text;            /* owned */
    struct ids ids;                                                        /* owned */
};

struct seq {
    struct seq *next;
    struct cz_request request; /* prompt, stop_ids and bias owned */
    uint64_t turn; /* among those that wait: lower ones first, then older ones */
    bool running, will_fail, will_crash, will_hang, will_connect;
    uint64_t hash;
    uint64_t submitted_ns, started_ns, prefilled_ns, due_ns, told_ns;
    bool prefilled;
    uint32_t n_generated, n_words;
    struct ids pending; /* ids of the word under way */
    size_t pending_at;
};

struct cz_engine {
    struct script script;
    struct cz_watch watch;
    struct tokenizer *tokenizer; /* owned; NULL when the directory has none */
    struct cz_plan plan;
    struct cz_stats stats;
    struct seq *seqs; /* owned; oldest first */
    uint64_t turn;    /* of the last one admitted */
};

/* ---- the script ---- */

static double number(const json_t *root, const char *key, double absent)
{
    const json_t *v = json_object_get(root, key);

    return json_is_number(v) ? json_number_value(v) : absent;
}

static uint32_t count(const json_t *root, const char *key, uint32_t absent)
{
    return (uint32_t)number(root, key, absent);
}

static char *string(const json_t *root, const char *key)
{
    const char *s = json_string_value(json_object_get(root, key));

    return s ? strdup(s) : NULL;
}

static int read_script(struct script *s, const char *dir, struct err *err)
{
    static const char *const replies[] = { "varied", "echo", "text", "ids" };
    char path[4096];
    json_error_t why;

    snprintf(path, sizeof path, "%s/fake.json", dir);
    json_t *root = access(path, F_OK) == 0 ? json_load_file(path, 0, &why) : json_object();
    if (!root)
        return err_set(err, ERR_FORMAT, "%s:%d: %s", path, why.line, why.text);

    *s = (struct script){
        .load_ms = count(root, "load_ms", 0),
        .layer_ms = count(root, "layer_ms", 0),
        .token_ms = number(root, "token_ms", 2),
        .prefill_ms = number(root, "prefill_ms", 0.02),
        .context = count(root, "context", 0),
        .sequences = count(root, "sequences", 0),
        .queue = count(root, "queue", UINT32_MAX),
        .vocab = count(root, "vocab", 0),
        .defaults = { .temperature = (float)number(root, "temperature", 0),
                      .top_k = count(root, "top_k", 0),
                      .top_p = (float)number(root, "top_p", 1),
                      .min_p = (float)number(root, "min_p", 0),
                      .repetition_penalty = (float)number(root, "repetition_penalty", 1) },
        .n_tokens = count(root, "n_tokens", 0),
        .cached = count(root, "cached", 0),
        .fail_after = (int64_t)number(root, "fail_after", -1),
        .crash_after = (int64_t)number(root, "crash_after", 0),
        .open_error = string(root, "open_error"),
        .adjust_error = string(root, "adjust_error"),
        .text = string(root, "text"),
        .fail_on_text = string(root, "fail_on_text"),
        .crash_on_text = string(root, "crash_on_text"),
        .hang_on_text = string(root, "hang_on_text"),
        .socket_on_text = string(root, "socket_on_text"),
    };
    const json_t *stops = json_object_get(root, "stop_ids"), *v;
    size_t i;
    json_array_foreach (stops, i, v)
        if (s->n_stop_ids < 16)
            s->stop_ids[s->n_stop_ids++] = (uint32_t)json_integer_value(v);
    s->stops_given = stops != NULL;
    int rc = 0;
    json_array_foreach (json_object_get(root, "ids"), i, v)
        rc |= ids_put(&s->ids, (uint32_t)json_integer_value(v), err);
    const char *reply = json_string_value(json_object_get(root, "reply"));
    for (i = 0; reply && i < sizeof replies / sizeof *replies; i++)
        if (strcmp(reply, replies[i]) == 0)
            s->reply = (enum reply)i;
    json_decref(root);
    return rc;
}

static void script_done(struct script *s)
{
    free(s->open_error);
    free(s->adjust_error);
    free(s->text);
    free(s->fail_on_text);
    free(s->crash_on_text);
    free(s->hang_on_text);
    free(s->socket_on_text);
    ids_done(&s->ids);
}

/* Options stand where the script is silent. */
static void settle_limits(struct script *s, const struct cz_options *o)
{
    s->context = s->context ? s->context : o->context ? o->context : 4096;
    s->sequences = s->sequences ? s->sequences : o->sequences ? o->sequences : 4;
    s->queue = s->queue != UINT32_MAX ? s->queue : o->queue;
}

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
    if (read_script(&s, opt->model_dir, err) < 0)
        return -1;
    settle_limits(&s, opt);
    *out = (struct cz_plan){ .ram = opt->ram ? opt->ram : 1u << 30, .minimum = 96u << 20,
                             .available = 1u << 30, .threads = 1, .context = s.context,
                             .sequences = s.sequences, .prefill_rows = 1 };
    snprintf(out->ram_source, sizeof out->ram_source, "%s", opt->ram ? "config" : "machine");
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
    if (read_script(&e->script, opt->model_dir, err) < 0)
        goto fail;
    settle_limits(&e->script, opt);
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

static void seq_free(struct seq *s)
{
    free((void *)(uintptr_t)s->request.prompt);
    free((void *)(uintptr_t)s->request.stop_ids);
    free((void *)(uintptr_t)s->request.bias);
    ids_done(&s->pending);
    free(s);
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

static void *copy(const void *from, size_t size)
{
    void *to = malloc(size ? size : 1);

    if (to && size)
        memcpy(to, from, size);
    return to;
}

static bool prompt_holds(const struct cz_engine *e, const struct cz_request *r, const char *text)
{
    char *all = NULL;
    size_t size = 0;

    if (!text || !e->tokenizer)
        return false;
    FILE *f = open_memstream(&all, &size);
    if (!f)
        return false;
    for (uint32_t i = 0; i < r->n_prompt; i++) {
        size_t n;
        const char *piece = tokenizer_piece(e->tokenizer, r->prompt[i], &n);
        fwrite(piece, 1, n, f);
    }
    fclose(f);
    bool found = memmem(all, size, text, strlen(text)) != NULL;
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
    if (r->n_choices > 1 || r->logprobs || r->thinking.inside || r->thinking.may_open || r->n_forced)
        return err_set(err, ERR_UNSUPPORTED, "several choices, logprobs, and rules for thinking");
    count_seqs(e, &running, &waiting);
    if (running + waiting >= e->script.sequences + e->script.queue)
        return err_set(err, ERR_BUSY, "%u requests run and %u wait", running, waiting);
    return 0;
}

void cz_next(struct cz_engine *e, uint64_t id, uint32_t choice)
{
    (void)e; /* one choice each, which goes on to its end */
    (void)id;
    (void)choice;
}

int cz_submit(struct cz_engine *e, const struct cz_request *r, struct err *err)
{
    if (check_request(e, r, err) < 0)
        return -1;
    struct seq *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, ERR_NOMEM, "fake sequence");
    s->request = *r;
    s->request.prompt = copy(r->prompt, r->n_prompt * sizeof *r->prompt);
    s->request.stop_ids = copy(r->stop_ids, r->n_stop_ids * sizeof *r->stop_ids);
    s->request.bias = copy(r->bias, r->n_bias * sizeof *r->bias);
    if (!s->request.prompt || !s->request.stop_ids || !s->request.bias) {
        seq_free(s);
        return err_set(err, ERR_NOMEM, "fake sequence");
    }
    s->hash = 14695981039346656037u;
    for (uint32_t i = 0; i < r->n_prompt; i++)
        s->hash = (s->hash ^ r->prompt[i]) * 1099511628211u;
    if (r->sampling.temperature > 0)
        s->hash ^= (r->sampling.seed + 1) * 0x9e3779b97f4a7c15u;
    s->will_fail = e->script.fail_on_text ? prompt_holds(e, r, e->script.fail_on_text)
                                          : e->script.fail_after >= 0;
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

/* ---- what is said ---- */

/* Short, so that a character that spans tokens comes early whatever the tokenizer. */
static const char *const words[] = {
    " a",  " I",  " we", " to", " of", " in", " at",  " on",  " it", " is", " so", " or",
    " no", " up", " he", " me", "x",   "y",   "b",    "k",    "-",   ",",   ".",   ";",
    " tree", " stone", " light", "1", "7", "!",
    "\xc3\xa9",         " \xf0\x9f\xa6\xa4", "\xe6\xa3\xae", "\xf0\x9f\x8c\xb2",
    "\xf0\xa0\xae\xb7", "\xe9\xbe\x98",
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static bool banned(const struct seq *s, uint32_t token)
{
    for (uint32_t i = 0; i < s->request.n_bias; i++)
        if (s->request.bias[i].token == token && s->request.bias[i].value <= -100)
            return true;
    return false;
}

static uint32_t varied_token(const struct cz_engine *e, struct seq *s)
{
    if (!e->tokenizer)
        return (uint32_t)(mix(s->hash + s->n_generated) % e->script.vocab);
    while (s->pending_at >= s->pending.n) {
        const char *w = words[mix(s->hash + s->n_words) % (sizeof words / sizeof *words)];
        if (s->n_words++ == 0 && *w == ' ')
            w++;
        s->pending.n = s->pending_at = 0;
        struct text_run run = { w, strlen(w), false };
        if (tokenizer_encode(e->tokenizer, &run, 1, 0, &s->pending, NULL) < 0)
            return 0;
    }
    return s->pending.id[s->pending_at++];
}

static uint32_t scripted_token(const struct cz_engine *e, struct seq *s)
{
    const struct ids *list = &e->script.ids;

    if (e->script.reply == REPLY_ECHO)
        return s->request.prompt[s->n_generated % s->request.n_prompt];
    if (e->script.reply == REPLY_VARIED || list->n == 0)
        return varied_token(e, s);
    return list->id[s->n_generated % list->n];
}

static uint32_t next_token(const struct cz_engine *e, struct seq *s)
{
    for (uint32_t i = 0; i < s->request.n_bias; i++)
        if (s->request.bias[i].value >= 50)
            return s->request.bias[i].token;
    for (int tries = 0; tries < 64; tries++) {
        uint32_t token = scripted_token(e, s);
        if (!banned(s, token))
            return token;
    }
    return 0;
}

/* How many tokens are said before the stop id comes, UINT32_MAX for no end. */
static uint32_t reply_length(const struct cz_engine *e, const struct seq *s)
{
    if (s->request.n_stop_ids == 0)
        return UINT32_MAX;
    if (e->script.n_tokens)
        return e->script.n_tokens;
    if (e->script.reply == REPLY_ECHO)
        return s->request.n_prompt;
    if (e->script.reply == REPLY_VARIED)
        return UINT32_MAX;
    return (uint32_t)e->script.ids.n;
}

/* ---- steps ---- */

static void fill_usage(const struct cz_engine *e, const struct seq *s, struct cz_usage *u)
{
    uint32_t most = s->request.n_prompt - 1;

    *u = (struct cz_usage){ .n_prompt = s->request.n_prompt,
                            .n_cached = e->script.cached < most ? e->script.cached : most,
                            .n_generated = s->n_generated,
                            .queue_ns = s->started_ns - s->submitted_ns };
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

/* One token, or the end. */
static void say(struct cz_engine *e, struct seq *s, struct cz_event *out)
{
    uint32_t room = e->script.context - s->request.n_prompt;
    uint32_t most = s->request.max_tokens && s->request.max_tokens < room ? s->request.max_tokens
                                                                          : room;
    misbehave(e, s);
    if (s->will_fail && s->n_generated >= (uint64_t)(e->script.fail_after < 0
                                                         ? 0 : e->script.fail_after)) {
        *out = event_of(s, CZ_EVENT_FAILED);
        err_set(&out->err, ERR_IO, "expert read failed, as the script wants");
    } else if (s->n_generated >= most) {
        *out = event_of(s, CZ_EVENT_FINISHED);
        out->finish = CZ_FINISH_LENGTH;
    } else if (s->n_generated >= reply_length(e, s) && s->n_generated >= s->request.min_tokens) {
        s->n_generated++;
        *out = event_of(s, CZ_EVENT_FINISHED);
        out->finish = CZ_FINISH_STOP;
    } else {
        *out = event_of(s, CZ_EVENT_TOKEN);
        out->token = next_token(e, s);
        s->n_generated++;
        s->due_ns += s->n_generated >= most ? 0 : (uint64_t)(e->script.token_ms * 1e6);
        e->stats.generated_tokens++;
        return;
    }
    fill_usage(e, s, &out->usage);
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
    if (!s->prefilled) {
        if (now < s->prefilled_ns)
            return tell_progress(e, s, now, out);
        s->prefilled = true;
        e->stats.prompt_tokens += s->request.n_prompt;
    }
    if (now < s->due_ns)
        return false;
    say(e, s, out);
    *end = out->type != CZ_EVENT_TOKEN;
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
