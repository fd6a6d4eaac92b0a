/* Turns are found by their marks, in trusted bytes only: nothing that a message says can begin or
 * end one. The n-th turn of an assistant is its n-th message, which the number of turns must bear
 * out. */
#include "text/replay.h"

#include "util/err.h"

#include <stdlib.h>
#include <string.h>

#define TURN_BEGIN "<|im_start|>"
#define TURN_END "<|im_end|>"
#define THINK_BEGIN "<think>"
#define THINK_END "</think>"

enum { RUNS_A_TURN = 2, PARTS_A_TURN = 2 }; /* more than there were */

struct chat_text {
    const struct text_run *runs; /* borrowed */
    size_t n;
};

struct place { /* a byte of the text; run == n: its end */
    size_t run, at;
};

struct slice {
    const char *at;
    size_t size;
};

/* ---- walking over the text ---- */

/* Off the end of a run, and over empty ones. */
static bool settle(const struct chat_text *t, struct place *p)
{
    while (p->run < t->n && p->at >= t->runs[p->run].size) {
        p->run++;
        p->at = 0;
    }
    return p->run < t->n;
}

static bool is_before(struct place a, struct place b)
{
    return a.run < b.run || (a.run == b.run && a.at < b.at);
}

enum trust { TRUSTED, ANY };

/* Whether text stands at p; then p is behind it. */
static bool match(const struct chat_text *t, struct place *p, const char *text, size_t size,
                  enum trust trust)
{
    struct place q = *p;

    while (size > 0) {
        if (!settle(t, &q))
            return false;
        const struct text_run *r = &t->runs[q.run];
        size_t n = r->size - q.at < size ? r->size - q.at : size;
        if ((trust == TRUSTED && !r->trusted) || memcmp(r->bytes + q.at, text, n) != 0)
            return false;
        q.at += n;
        text += n;
        size -= n;
    }
    *p = q;
    return true;
}

static bool match_mark(const struct chat_text *t, struct place *p, const char *mark)
{
    return match(t, p, mark, strlen(mark), TRUSTED);
}

/* The next trusted mark at or behind *p; then *p is where it begins. */
static bool find_mark(const struct chat_text *t, struct place *p, const char *mark)
{
    for (struct place q = *p; settle(t, &q);) {
        const struct text_run *r = &t->runs[q.run];
        const char *found = r->trusted ? memchr(r->bytes + q.at, mark[0], r->size - q.at) : NULL;
        if (!found) {
            q.at = r->size;
            continue;
        }
        q.at = (size_t)(found - r->bytes);
        struct place behind = q;
        if (match_mark(t, &behind, mark)) {
            *p = q;
            return true;
        }
        q.at++;
    }
    return false;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static void skip_space(const struct chat_text *t, struct place *p)
{
    while (settle(t, p) && is_space(t->runs[p->run].bytes[p->at]))
        p->at++;
}

static struct slice trimmed(const char *at, size_t size)
{
    while (size && is_space(*at)) {
        at++;
        size--;
    }
    while (size && is_space(at[size - 1]))
        size--;
    return (struct slice){ at, size };
}

/* The next turn of an assistant at or behind *p; then *p is where it begins. */
static bool find_turn(const struct chat_text *t, struct place *p)
{
    while (find_mark(t, p, TURN_BEGIN)) {
        struct place behind = *p;
        match_mark(t, &behind, TURN_BEGIN);
        /* The role may be a word of the message, which is one of a few. */
        if (match(t, &behind, "assistant", strlen("assistant"), ANY))
            return true;
        *p = behind;
    }
    return false;
}

static size_t count_turns(const struct chat_text *t)
{
    size_t n = 0;

    for (struct place p = { 0 }; find_turn(t, &p); p.at++)
        n++;
    return n;
}

/* ---- what is sent, as a hash ---- */

enum kind { KIND_NONE, KIND_TEXT, KIND_TRUSTED, KIND_IDS };

/* Stretches of one kind, each followed by kind and size, so that no two rows of stretches are the
 * same bytes. How a stretch is cut into runs does not matter: it makes no other tokens. */
struct sent {
    struct sip sip;
    enum kind kind;
    uint64_t size;
};

static void end_stretch(struct sent *s)
{
    if (s->kind == KIND_NONE)
        return;
    sip_put_number(&s->sip, s->size);
    sip_put_number(&s->sip, s->kind);
    s->size = 0;
}

static void send(struct sent *s, enum kind kind, const void *bytes, size_t size)
{
    if (size == 0)
        return;
    if (kind != s->kind)
        end_stretch(s);
    s->kind = kind;
    sip_put(&s->sip, bytes, size);
    s->size += size;
}

static void send_text(struct sent *s, const struct chat_text *t, struct place from, struct place to)
{
    for (struct place p = from; is_before(p, to); p.run++, p.at = 0) {
        if (p.run == t->n)
            return;
        const struct text_run *r = &t->runs[p.run];
        size_t end = p.run == to.run ? to.at : r->size;
        if (end > p.at)
            send(s, r->trusted ? KIND_TRUSTED : KIND_TEXT, r->bytes + p.at, end - p.at);
    }
}

static struct sip_sum sent_sum(struct sent s)
{
    end_stretch(&s);
    return sip_sum(&s.sip);
}

/* ---- conditions ---- */

/* Of a tail that ends with a block of thinking without thoughts, what lies before the block. */
static size_t without_block(const char *tail, size_t size)
{
    struct slice rest = trimmed(tail, size);
    size_t end = strlen(THINK_END), begin = strlen(THINK_BEGIN);

    if (rest.at != tail || rest.size < end || memcmp(tail + rest.size - end, THINK_END, end) != 0)
        return size;
    rest = trimmed(tail, rest.size - end);
    if (rest.size < begin || memcmp(tail + rest.size - begin, THINK_BEGIN, begin) != 0)
        return size;
    return rest.size - begin;
}

/* p: where the turn begins; then it is behind the tail. */
static bool goes_on(const struct chat_text *t, struct place *p, const struct replay_record *r)
{
    size_t bare = without_block(r->tail, r->tail_size);

    return match(t, p, r->tail, r->tail_size, ANY) ||
           (bare < r->tail_size && match(t, p, r->tail, bare, ANY));
}

static bool shows(const struct chat_text *t, struct place p, struct place end,
                  const struct replay_turn *turn)
{
    const struct replay_record *r = turn->record;
    struct slice reasoning = trimmed(r->reasoning, r->reasoning_size);
    struct slice content = trimmed(turn->content, turn->content_size);

    skip_space(t, &p);
    match_mark(t, &p, THINK_BEGIN);
    skip_space(t, &p);
    if (!match(t, &p, reasoning.at, reasoning.size, ANY))
        return false;
    skip_space(t, &p);
    match_mark(t, &p, THINK_END);
    skip_space(t, &p);
    return match(t, &p, content.at, content.size, ANY) && !is_before(end, p);
}

/* ---- putting together ---- */

struct splice {
    struct chat_text text;
    struct replay *out;
    size_t most; /* replays */
    struct place from;   /* text up to here is in a part */
    struct sent sent;    /* up to `hashed` */
    struct place hashed;
};

static int make_room(struct splice *s, struct err *err)
{
    struct replay *out = s->out;

    if (out->parts)
        return 0;
    out->runs = calloc(s->text.n + s->most * RUNS_A_TURN + 1, sizeof *out->runs);
    out->parts = calloc(s->most * PARTS_A_TURN + 1, sizeof *out->parts);
    return out->runs && out->parts ? 0 : err_set(err, ERR_NOMEM, "a chat with replies in it");
}

static void put_run(struct replay *out, struct text_part *to, const char *bytes, size_t size,
                    bool trusted)
{
    if (size == 0)
        return;
    out->runs[out->n_runs++] = (struct text_run){ bytes, size, trusted };
    to->n_runs++;
}

/* The text from s->from to `to`, and what is put in the place of what follows. */
static void put_part(struct splice *s, struct place to, const char *tail, size_t tail_size)
{
    struct replay *out = s->out;
    struct text_part part = { .runs = &out->runs[out->n_runs] };

    for (struct place p = s->from; p.run < s->text.n && is_before(p, to); p.run++, p.at = 0) {
        const struct text_run *r = &s->text.runs[p.run];
        size_t end = p.run == to.run ? to.at : r->size;
        put_run(out, &part, r->bytes + p.at, end - p.at, r->trusted);
    }
    put_run(out, &part, tail, tail_size, true);
    if (part.n_runs)
        out->parts[out->n_parts++] = part;
}

/* The turn that begins at `begin`, if all conditions hold: 1, 0 or -1. */
static int replay_turn(struct splice *s, struct place begin, const struct replay_turn *turn,
                       struct err *err)
{
    const struct replay_record *r = turn->record;
    struct place body = begin, end, next;

    send_text(&s->sent, &s->text, s->hashed, begin);
    s->hashed = begin;
    struct sent with = s->sent;
    send(&with, KIND_TRUSTED, r->tail, r->tail_size);
    if (!sip_same(sent_sum(with), r->after) || !goes_on(&s->text, &body, r))
        return 0;
    end = next = body;
    if (!find_mark(&s->text, &end, TURN_END) || !shows(&s->text, body, end, turn))
        return 0;
    if (find_mark(&s->text, &next, TURN_BEGIN) && is_before(next, end))
        return 0;
    if (make_room(s, err) < 0)
        return -1;

    put_part(s, begin, r->tail, r->tail_size);
    s->out->parts[s->out->n_parts++] = (struct text_part){ .ids = r->ids, .n_ids = r->n_ids };
    s->out->n_replayed++;
    send(&with, KIND_IDS, r->ids, r->n_ids * sizeof *r->ids);
    s->sent = with;
    s->from = s->hashed = end;
    return 1;
}

static int replay_turns(struct splice *s, const struct replay_turn *turns, size_t n_turns,
                        struct err *err)
{
    struct place p = { 0 };

    for (size_t i = 0; i < n_turns && find_turn(&s->text, &p); i++) {
        const struct replay_turn *turn = &turns[i];
        if (turn->record && turn->record->n_ids && turn->record->tail_size) {
            int rc = replay_turn(s, p, turn, err);
            if (rc < 0)
                return -1;
            if (rc > 0) {
                p = s->from;
                continue;
            }
        }
        p.at++;
    }
    return 0;
}

/* ---- the turn to come ---- */

static int keep_tail(struct splice *s, struct err *err)
{
    struct replay *out = s->out;
    struct place at = { .run = s->text.n }, p = { 0 };
    size_t size = 0;

    while (find_turn(&s->text, &p)) {
        at = p;
        p.at++;
    }
    p = at;
    if (at.run == s->text.n || find_mark(&s->text, &p, TURN_END))
        return 0;
    for (p = at; settle(&s->text, &p); p.run++, p.at = 0) {
        if (!s->text.runs[p.run].trusted)
            return 0;
        size += s->text.runs[p.run].size - p.at;
    }
    if (size > REPLAY_MAX_TAIL)
        return 0;
    out->tail = malloc(size);
    if (!out->tail)
        return err_set(err, ERR_NOMEM, "the beginning of a turn");
    for (p = at; settle(&s->text, &p); p.run++, p.at = 0) {
        const struct text_run *r = &s->text.runs[p.run];
        memcpy(out->tail + out->tail_size, r->bytes + p.at, r->size - p.at);
        out->tail_size += r->size - p.at;
    }
    return 0;
}

int replay_splice(struct replay *out, const struct text_run *runs, size_t n_runs,
                  const struct replay_turn *turns, size_t n_turns, bool prompted,
                  const struct sip_sum *key, struct err *err)
{
    struct splice s = { .text = { runs, n_runs }, .out = out, .most = n_turns };
    struct place end = { .run = n_runs };

    *out = (struct replay){ 0 };
    sip_init(&s.sent.sip, key);
    /* A template that prints turns of its own, or none for a message: whose is whose? */
    if (count_turns(&s.text) == n_turns + prompted &&
        replay_turns(&s, turns, n_turns, err) < 0)
        return -1;
    send_text(&s.sent, &s.text, s.hashed, end);
    out->after = sent_sum(s.sent);
    if (prompted && keep_tail(&s, err) < 0)
        return -1;
    if (out->n_replayed) {
        put_part(&s, end, NULL, 0);
        return 0;
    }
    out->parts = calloc(1, sizeof *out->parts);
    if (!out->parts)
        return err_set(err, ERR_NOMEM, "a chat");
    out->parts[0] = (struct text_part){ .runs = runs, .n_runs = n_runs };
    out->n_parts = 1;
    return 0;
}

void replay_done(struct replay *r)
{
    free(r->parts);
    free(r->runs);
    free(r->tail);
    *r = (struct replay){ 0 };
}

uint64_t replay_memory(size_t n_runs, size_t n_turns)
{
    return (n_runs + n_turns * RUNS_A_TURN + 1) * sizeof(struct text_run) +
           (n_turns * PARTS_A_TURN + 1) * sizeof(struct text_part) + REPLAY_MAX_TAIL;
}
