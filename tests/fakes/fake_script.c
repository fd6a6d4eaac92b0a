#include "tests/fakes/fake_script.h"

#include "util/err.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* ---- replies ---- */

static void add_text(struct fake_reply *r, const json_t *text)
{
    if (json_is_string(text) && r->n_texts < CZ_MAX_CHOICES)
        r->texts[r->n_texts++] = strdup(json_string_value(text));
}

static int read_reply(struct fake_reply *r, const json_t *o, struct err *err)
{
    const json_t *text = json_object_get(o, "text"), *one;
    const char *finish = json_string_value(json_object_get(o, "finish"));
    size_t i;

    r->on = string(o, "on");
    r->thinking = string(o, "thinking");
    r->cut = finish && strcmp(finish, "length") == 0;
    r->once = json_is_true(json_object_get(o, "once"));
    r->fail_after = (int64_t)number(o, "fail_after", -1);
    add_text(r, text);
    json_array_foreach (text, i, one)
        add_text(r, one);
    if (r->n_texts == 0)
        return err_set(err, ERR_FORMAT, "fake.json: a reply without a text");
    return 0;
}

static int read_replies(struct script *s, const json_t *list, struct err *err)
{
    const json_t *o;
    size_t i;

    if (json_array_size(list) == 0)
        return 0;
    s->replies = calloc(json_array_size(list), sizeof *s->replies);
    if (!s->replies)
        return err_set(err, ERR_NOMEM, "fake replies");
    s->n_replies = json_array_size(list);
    json_array_foreach (list, i, o)
        if (read_reply(&s->replies[i], o, err) < 0)
            return -1;
    return 0;
}

char *script_text(const struct tokenizer *t, const uint32_t *ids, uint32_t n, size_t *size)
{
    char *all = NULL;
    FILE *f = open_memstream(&all, size);

    if (!f)
        return NULL;
    for (uint32_t i = 0; i < n; i++) {
        size_t length;
        const char *piece = tokenizer_piece(t, ids[i], &length);
        fwrite(piece, 1, length, f);
    }
    fclose(f);
    return all;
}

/* What stands behind the last opening of a user's or a tool's turn; all of it where there is none. */
static const char *last_turn(const char *text, size_t size)
{
    static const char *const openings[] = { "<|im_start|>user", "<|im_start|>tool" };
    const char *last = text;

    for (size_t i = 0; i < 2; i++) {
        size_t length = strlen(openings[i]);
        const char *at = text;

        while ((at = memmem(at, size - (size_t)(at - text), openings[i], length))) {
            at += length;
            if (at > last)
                last = at;
        }
    }
    return last;
}

struct fake_reply *script_reply(struct script *s, const struct tokenizer *t,
                                const uint32_t *prompt, uint32_t n_prompt)
{
    struct fake_reply *found = NULL;
    size_t size = 0;

    if (s->n_replies == 0 || !t)
        return NULL;
    char *text = script_text(t, prompt, n_prompt, &size);
    if (!text)
        return NULL;
    const char *turn = last_turn(text, size);
    for (size_t i = 0; i < s->n_replies && !found; i++) {
        struct fake_reply *r = &s->replies[i];
        bool meant = !r->on || memmem(turn, size - (size_t)(turn - text), r->on, strlen(r->on));
        if (meant && !(r->once && r->used))
            found = r;
    }
    free(text);
    if (found)
        found->used = true;
    return found;
}

/* ---- all of it ---- */

static void read_lists(struct script *s, const json_t *root)
{
    static const char *const replies[] = { "varied", "echo", "text", "ids" };
    const json_t *stops = json_object_get(root, "stop_ids"), *v;
    const char *reply = json_string_value(json_object_get(root, "reply"));
    size_t i;

    json_array_foreach (stops, i, v)
        if (s->n_stop_ids < 16)
            s->stop_ids[s->n_stop_ids++] = (uint32_t)json_integer_value(v);
    s->stops_given = stops != NULL;
    for (i = 0; reply && i < sizeof replies / sizeof *replies; i++)
        if (strcmp(reply, replies[i]) == 0)
            s->reply = (enum reply)i;
}

int script_read(struct script *s, const char *dir, struct err *err)
{
    char path[4096];
    json_error_t why;
    const json_t *v;
    size_t i;

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
    read_lists(s, root);
    int rc = read_replies(s, json_object_get(root, "replies"), err);
    json_array_foreach (json_object_get(root, "ids"), i, v)
        if (rc == 0)
            rc = ids_put(&s->ids, (uint32_t)json_integer_value(v), err);
    json_decref(root);
    if (rc < 0)
        script_done(s);
    return rc;
}

void script_done(struct script *s)
{
    for (size_t i = 0; i < s->n_replies; i++) {
        free(s->replies[i].on);
        free(s->replies[i].thinking);
        for (uint32_t k = 0; k < s->replies[i].n_texts; k++)
            free(s->replies[i].texts[k]);
    }
    free(s->replies);
    free(s->open_error);
    free(s->adjust_error);
    free(s->text);
    free(s->fail_on_text);
    free(s->crash_on_text);
    free(s->hang_on_text);
    free(s->socket_on_text);
    ids_done(&s->ids);
    *s = (struct script){ 0 };
}

void script_settle_limits(struct script *s, const struct cz_options *o)
{
    s->context = s->context ? s->context : o->context ? o->context : 4096;
    s->sequences = s->sequences ? s->sequences : o->sequences ? o->sequences : 4;
    s->queue = s->queue != UINT32_MAX ? s->queue : o->queue;
}
