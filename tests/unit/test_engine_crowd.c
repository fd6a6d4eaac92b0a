/* Requests that come, go and come again at random moments, with less room than they want: whatever
 * happens to those beside them, tokens and log probabilities are those of a run alone. */
#include "engine_fixture.h"

enum { N_KINDS = 6, MAX_LIVE = 6, MAX_NEW = 14, MAX_EACH = 3, N_MOVES = 180, CONTEXT = 128 };

struct kind {
    uint32_t n_prompt, n_new, n_choices, which;
    float temperature;
    struct cz_logprob want[MAX_EACH][MAX_NEW]; /* of a run alone */
};

static struct kind kinds[N_KINDS] = {
    { 1, 14, 2, 0, 0.9f, { { { 0 } } } },  { 19, 6, 3, 1, 0.8f, { { { 0 } } } },
    { 55, 14, 2, 2, 1.0f, { { { 0 } } } }, { 61, 12, 1, 3, 0.0f, { { { 0 } } } },
    { 62, 14, 3, 0, 0.7f, { { { 0 } } } }, { 113, 9, 1, 1, 0.0f, { { { 0 } } } },
};

struct live {
    uint64_t id; /* 0: free */
    struct kind *kind;
    uint32_t n_seen; /* of the choice under way */
};

struct crowd {
    struct cz_engine *e;
    struct live live[MAX_LIVE];
    uint64_t last_id, seed;
    uint32_t n_finished;
    bool alone; /* what comes is what is wanted from then on */
};

static uint32_t draw(struct crowd *c, uint32_t n)
{
    c->seed = c->seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(c->seed >> 33) % n;
}

static void begin(struct crowd *c, struct live *l, struct kind *kind)
{
    struct err err;

    *l = (struct live){ .id = ++c->last_id, .kind = kind };
    const struct cz_request r = {
        .id = l->id, .prompt = prompt[kind->which], .n_prompt = kind->n_prompt,
        .max_tokens = kind->n_new, .n_choices = kind->n_choices, .logprobs = true,
        .sampling = { .temperature = kind->temperature, .top_p = 1.0f, .seed = kind->n_prompt,
                      .repetition_penalty = 1.0f },
    };
    if (cz_submit(c->e, &r, &err) < 0)
        fail_msg("%s", err.text);
}

static void note(struct crowd *c, const struct cz_event *event)
{
    struct live *l = c->live;

    while (l < c->live + MAX_LIVE && l->id != event->id)
        l++;
    assert_true(l < c->live + MAX_LIVE); /* nothing is told of who was cancelled */
    if (event->type == CZ_EVENT_FAILED)
        fail_msg("%s", event->err.text);
    if (event->type == CZ_EVENT_TOKEN) {
        assert_true(event->choice < MAX_EACH && l->n_seen < MAX_NEW && event->has_logprobs);
        struct cz_logprob *want = &l->kind->want[event->choice][l->n_seen++];
        if (c->alone)
            *want = event->logprobs.own;
        if (memcmp(want, &event->logprobs.own, sizeof *want) != 0)
            fail_msg("prompt of %u, choice %u: token %u is another", l->kind->n_prompt,
                     event->choice, l->n_seen - 1);
    } else if (event->type == CZ_EVENT_FINISHED) {
        assert_int_equal(l->n_seen, l->kind->n_new);
        l->n_seen = 0;
        c->n_finished += !event->more;
        l->id = event->more ? l->id : 0;
    }
}

static void step(struct crowd *c)
{
    struct cz_event events[16];
    struct err err;
    int n = cz_step(c->e, events, 16, &err);

    assert_true(n >= 0);
    for (int i = 0; i < n; i++)
        note(c, &events[i]);
}

static void finish_all(struct crowd *c)
{
    for (int guard = 0; !cz_idle(c->e); guard++) {
        assert_true(guard < 10000);
        step(c);
    }
}

static void run_alone(const char *model)
{
    struct crowd c = { .alone = true };
    struct cz_options opt;

    defaults(&opt);
    opt.model_dir = model;
    opt.context = CONTEXT;
    c.e = open_engine(&opt);
    for (uint32_t i = 0; i < N_KINDS; i++) {
        begin(&c, &c.live[0], &kinds[i]);
        finish_all(&c);
    }
    cz_close(c.e);
}

/* A request comes, or one is cancelled, mostly to come again at once; then some steps. */
static void move(struct crowd *c)
{
    struct live *l = &c->live[draw(c, MAX_LIVE)];

    if (l->id) {
        cz_cancel(c->e, l->id);
        if (draw(c, 4))
            begin(c, l, l->kind);
        else
            l->id = 0;
    } else {
        begin(c, l, &kinds[draw(c, N_KINDS)]);
    }
    for (uint32_t n = draw(c, 12); n > 0; n--)
        step(c);
}

/* points: the state cannot be cut back, so further choices begin from a saved point. */
static void crowd_on(const char *model, bool points)
{
    struct crowd c = { .seed = 5 };
    struct cz_options opt;
    struct cz_stats stats;

    run_alone(model);
    defaults(&opt);
    opt.model_dir = model;
    opt.context = CONTEXT;
    opt.threads = 2;
    opt.sequences = 3;
    opt.prefill_rows = 16;
    opt.expert_slots = 8;
    opt.token_gap_ms = 0;
    opt.kv = kv_of_one_context(&opt);
    c.e = open_engine(&opt);
    for (uint32_t i = 0; i < N_MOVES; i++)
        move(&c);
    finish_all(&c);
    cz_stats(c.e, &stats);
    cz_close(c.e);
    assert_int_equal(stats.kv_pages_used, 0);
    assert_true(stats.n_cancelled > 50 && stats.n_preempted > 1 && stats.put_downs > 20);
    assert_true(stats.expert_evictions > 0 && c.n_finished > 10);
    assert_int_equal(stats.n_finished, c.n_finished);
    assert_true(!points == !stats.points_used);
}

static void who_comes_and_goes_changes_nobodys_bits(void **state)
{
    (void)state;
    crowd_on("build/models/tiny-fp8", false);
}

static void nor_with_states_that_cannot_be_cut_back(void **state)
{
    (void)state;
    crowd_on("build/models/tiny4-fp8", true);
    crowd_on("build/models/tiny4-odd", true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_comes_and_goes_changes_nobodys_bits),
        cmocka_unit_test(nor_with_states_that_cannot_be_cut_back),
    };
#ifdef __SANITIZE_ADDRESS__
    cmocka_set_test_filter("who*"); /* instrumented, the others take long */
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
