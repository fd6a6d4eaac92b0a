/* What sequences leave behind, and what others begin from (store/prefix_cache.h). */
#include "run/sched_state.h"

#include "blocks/kv_seq.h"
#include "families/family.h"
#include "store/kv_pool.h"
#include "store/prefix_cache.h"
#include "util/err.h"
#include "util/size.h"

/* A point at a prompt's end costs a step of one row: it is kept where more rows than these were
 * run before it. One where prompts part is kept where it would have saved so many. */
enum { POINT_WORTH = 16 };

static void give_back(void *ctx, struct prefix_place place)
{
    struct sched *s = ctx;

    s->o.family->seq_reset(place.owner);
    s->states[s->n_states++] = place.owner;
}

/* Places that nobody runs in are where states are kept: they cost nothing, and go when wanted. */
int sched_open_prefix(struct sched *s, struct err *err)
{
    const struct prefix_options o = { .kv = s->o.kv,
                                      .give_back = give_back,
                                      .ctx = s,
                                      .n_places = s->o.family->seq_spare ? s->o.sequences : 0 };

    return prefix_cache_open(&s->prefix, &o, err);
}

int sched_reserve(struct sched *s, struct seq_state *state, uint32_t n)
{
    while (!s->o.family->seq_reserve(state, n))
        if (!prefix_cache_evict(s->prefix))
            return 0;
    return 1;
}

static bool is_apart(const struct sched *s, const struct seq *seq)
{
    return seq->uncached || s->o.no_prefix_cache;
}

/* Its choices to come begin at the end of the prompt. */
static bool wants_again(const struct seq *seq)
{
    return seq->choice + 1 < seq->n_choices;
}

/* ---- beginning ---- */

/* Whether its tokens can have pages, besides those it has found. */
static bool has_pages(const struct sched *s, const struct seq *seq, const struct prefix_hit *hit)
{
    uint32_t want = (uint32_t)size_div_up(seq->n_tokens, KV_PAGE_TOKENS);
    uint32_t free = kv_pool_free(s->o.kv), found = hit->n_tokens / KV_PAGE_TOKENS;

    if (want - found <= free)
        return true;
    free += kv_pool_idle(s->o.kv);
    for (uint32_t i = 0; i < hit->n_pages; i++)
        free -= kv_pool_count(s->o.kv, hit->page_ids[i]) == 1;
    return want - found <= free;
}

/* A hit that takes fewer pages: a page used in part is there twice, and what is not begun from can
 * be given up. */
static void lessen(struct prefix_hit *hit)
{
    uint32_t n_full = hit->n_tokens / KV_PAGE_TOKENS;

    hit->n_tokens = hit->place.owner || n_full == hit->n_pages ? 0 : n_full * KV_PAGE_TOKENS;
    hit->n_pages = hit->n_tokens ? n_full : 0;
    hit->place.owner = NULL;
}

static uint32_t n_spare(const struct sched *s)
{
    struct prefix_stats stats;

    prefix_cache_stats(s->prefix, &stats);
    return stats.n_spare;
}

/* A free place, or one that can be spared, or that of the hit itself if it is one conversation's
 * that goes on, or that of the state used longest ago. So as many conversations find their ends as
 * there are places. */
static struct seq_state *take_place(struct sched *s, const struct prefix_hit *hit)
{
    bool goes_on = hit->place.owner && prefix_cache_use_state(s->prefix, hit->place.owner);

    if (s->n_states > 0)
        return s->states[--s->n_states];
    struct prefix_place place = prefix_cache_take_state(
        s->prefix, goes_on && n_spare(s) == 0 ? hit->place.owner : NULL);
    if (place.owner && place.owner != hit->place.owner)
        s->o.family->seq_reset(place.owner);
    return place.owner;
}

/* The tokens that need not be run. */
static uint32_t begin_from(struct sched *s, struct seq_state *state, const struct prefix_hit *hit)
{
    struct kv_seq *kv = s->o.family->seq_kv(state);
    struct err err;

    if (!hit->n_tokens)
        return 0;
    kv_seq_adopt(kv, hit->page_ids, hit->n_pages, hit->n_tokens);
    if (hit->place.owner && s->o.family->seq_load(state, hit->place.saved, &err) < 0)
        goto fail;
    while (!kv_seq_own_last(kv))
        if (!prefix_cache_evict(s->prefix))
            goto fail;
    return hit->n_tokens;

fail:
    s->o.family->seq_reset(state);
    return 0;
}

bool sched_begin(struct sched *s, struct seq *seq)
{
    uint32_t most = seq->n_tokens - 1; /* the last one's logits are wanted */
    struct prefix_hit hit;

    /* Other choices will be cut back to the prompt, and full pages are not its own to write in. */
    if (wants_again(seq) && seq->n_prompt - 1 < most)
        most = seq->n_prompt - 1;
    if (seq->take_logits && seq->logits_from < most)
        most = seq->logits_from;
    prefix_cache_find(s->prefix, &hit, seq->tokens, is_apart(s, seq) ? 0 : most);
    while (!has_pages(s, seq, &hit)) {
        if (!hit.n_tokens)
            return false;
        lessen(&hit);
    }
    struct seq_state *state = take_place(s, &hit);
    if (!state)
        return false;
    uint32_t n = begin_from(s, state, &hit);
    if (!sched_reserve(s, state, seq->n_tokens)) {
        s->o.family->seq_reset(state);
        s->states[s->n_states++] = state;
        return false;
    }
    seq->state = state;
    seq->n_seen = n;
    seq->parts_at = hit.n_known > n + POINT_WORTH && hit.n_known + 1 < seq->n_prompt ? hit.n_known
                                                                                     : 0;
    if (!seq->admitted_ns) {
        seq->n_cached = seq->n_counted = n < seq->n_prompt ? n : seq->n_prompt;
        s->stats.prefix_lookups += !is_apart(s, seq);
        s->stats.prefix_tokens += seq->n_cached;
    }
    return true;
}

/* ---- leaving behind ---- */

static bool retire(struct sched *s, struct seq *seq, uint32_t n)
{
    struct prefix_place place = { .owner = seq->state };

    if (!s->o.family->seq_retire || n == 0 || !(place.saved = s->o.family->seq_retire(seq->state)))
        return false;
    return prefix_cache_keep_state(s->prefix, seq->tokens, n, place);
}

void sched_leave_place(struct sched *s, struct seq *seq, bool keep)
{
    const struct kv_seq *kv = s->o.family->seq_kv(seq->state);
    uint32_t n = kv->n_tokens;

    keep = keep && !is_apart(s, seq);
    if (keep)
        prefix_cache_keep(s->prefix, seq->tokens, n, kv->page_ids);
    if (!keep || !retire(s, seq, n))
        give_back(s, (struct prefix_place){ .owner = seq->state });
    seq->state = NULL;
}

/* A place that nobody waits for; for a guess none where a better state is in use. */
static bool has_place(const struct sched *s, bool guess)
{
    struct prefix_stats stats;

    prefix_cache_stats(s->prefix, &stats);
    return s->n_states > 0 ||
           ((guess ? stats.n_spare : stats.n_states) > 0 && s->waiting.n == 0);
}

/* Tokens, not fewer than it has seen, after which its state is to be kept; 0: there are none.
 * Two that begin alike and then part tell that more may come that do so. */
static uint32_t next_point(const struct sched *s, const struct seq *seq)
{
    bool again = wants_again(seq);
    bool worth = again || seq->n_prompt > seq->n_cached + POINT_WORTH;

    if (!s->o.family->seq_spare || seq->kept || is_apart(s, seq))
        return 0;
    if (seq->parts_at && seq->n_seen <= seq->parts_at && has_place(s, false))
        return seq->parts_at;
    return worth && seq->n_seen < seq->n_prompt && has_place(s, !again) ? seq->n_prompt - 1 : 0;
}

uint32_t sched_rows_to_point(const struct sched *s, const struct seq *seq, uint32_t n)
{
    uint32_t point = next_point(s, seq);

    return seq->n_seen < point && n > point - seq->n_seen ? point - seq->n_seen : n;
}

static void keep_point(struct sched *s, struct seq *seq)
{
    struct prefix_place place = { 0 };

    if (s->n_states == 0)
        s->o.family->seq_reset((place = prefix_cache_take_state(s->prefix, NULL)).owner);
    else
        place.owner = s->states[--s->n_states];
    place.saved = s->o.family->seq_spare(place.owner);
    place.kind = seq->n_seen == seq->parts_at || wants_again(seq) ? PREFIX_SHARED : PREFIX_GUESS;
    if (place.saved) {
        s->o.family->seq_save(seq->state, place.saved);
        if (prefix_cache_keep_state(s->prefix, seq->tokens, seq->n_seen, place)) {
            s->stats.points_kept++;
            return;
        }
    }
    give_back(s, place);
}

/* What it runs on with are the pages that are kept. */
static void keep_tokens(struct sched *s, struct seq *seq, uint32_t n)
{
    struct kv_seq *kv = s->o.family->seq_kv(seq->state);

    kv_seq_share(kv, prefix_cache_keep(s->prefix, seq->tokens, n, kv->page_ids),
                 n / KV_PAGE_TOKENS);
}

void sched_keep_prompt(struct sched *s, struct seq *seq)
{
    if (seq->kept || seq->n_seen == 0 || is_apart(s, seq))
        return;
    if (s->o.family->seq_spare) {
        if (seq->n_seen != next_point(s, seq))
            return;
        keep_tokens(s, seq, seq->n_seen);
        keep_point(s, seq);
        seq->kept = seq->n_seen != seq->parts_at;
        seq->parts_at = 0;
    } else if (seq->n_seen >= seq->n_prompt) {
        keep_tokens(s, seq, seq->n_prompt);
        seq->kept = true;
    }
}

void sched_cut_back(struct sched *s, struct seq *seq)
{
    uint32_t keep = seq->n_prompt - 1;
    struct prefix_hit hit = { 0 };
    struct err err;

    if (seq->n_seen <= keep)
        return;
    if (s->o.family->seq_spare)
        prefix_cache_find(s->prefix, &hit, seq->tokens, keep);
    if (hit.place.owner && hit.n_tokens == keep &&
        s->o.family->seq_load(seq->state, hit.place.saved, &err) == 0) {
        seq->n_seen = keep;
        s->stats.points_used++;
    } else {
        seq->n_seen = s->o.family->seq_rewind(seq->state, keep);
        seq->kept = false;
    }
}
