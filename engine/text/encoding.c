/* The text is read twice, by two readers. The first goes ahead to its shadow, from which the split
 * pattern tells how many characters the next piece has; the second follows with the bytes of that
 * piece. So a word of megabytes need not be held: the pattern must see its shadow as a whole,
 * but merging goes in windows. */
#include "text/encoding.h"

#include "text/long_word.h"
#include "text/pretokenize.h"
#include "text/reader.h"
#include "text/token_scan.h"
#include "text/tokenizer_tables.h"
#include "util/err.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* How much is read at once. */
    PORTION = 16 << 10,
    /* Normalising takes 8 bytes a mark, and a mark has 2 bytes at least; and the result. */
    NORMALISING = 6,
};

enum state {
    FILL,  /* more text is to come before pieces can be told */
    CUT,   /* the next piece is to be told */
    PIECE, /* its characters are to be merged */
    TOKEN, /* the text before an added token, or all, is done */
    DONE,
};

struct encoding {
    const struct tokenizer *t;
    const struct text_run *runs; /* [n_runs], borrowed */
    size_t n_runs, max_ids;
    enum state state;
    struct token_scan scan;
    struct reader ahead, behind;
    struct bytes text;     /* owned: a portion of what `ahead` reads */
    struct pieces *pieces; /* owned */
    bool ends;             /* `ahead` is at the end of what lies before the next added token */
    size_t wanted;         /* characters held before the next look for a piece */
    uint64_t ahead_share, behind_share; /* of tokens, of what each has read: see least.h */

    struct bytes bytes; /* owned: what `behind` reads */
    size_t used;        /* of it */
    size_t n_chars;     /* of the piece, still to be merged */
    bool windows;       /* the piece goes through `word` */
    struct long_word word;
    struct bpe_scratch scratch;
    uint64_t before; /* memory that is not counted: what out held before */
};

static int too_long(const struct encoding *e, struct err *err)
{
    return err_set(err, ERR_TOO_LONG, "the text has more than %zu tokens", e->max_ids);
}

int encoding_open(struct encoding **out, const struct tokenizer *t, const struct text_run *runs,
                  size_t n_runs, size_t max_ids, size_t n_before, struct err *err)
{
    struct encoding *e = calloc(1, sizeof *e);

    if (!e)
        return err_set(err, ERR_NOMEM, "a text to encode");
    *e = (struct encoding){ .t = t, .runs = runs, .n_runs = n_runs, .max_ids = max_ids,
                            .before = n_before * sizeof(uint32_t) };
    token_scan_init(&e->scan, runs, n_runs, &t->vocab.added);
    reader_init(&e->ahead, runs, n_runs, t->nfc);
    reader_init(&e->behind, runs, n_runs, t->nfc);
    if (max_ids && n_before + least_tokens(&t->least, runs, n_runs, t->nfc) > max_ids) {
        too_long(e, err);
        goto fail;
    }
    if (pieces_open(&e->pieces, t->pre, err) < 0)
        goto fail;
    *out = e;
    return 0;

fail:
    encoding_close(e);
    return -1;
}

void encoding_close(struct encoding *e)
{
    if (!e)
        return;
    token_scan_done(&e->scan);
    reader_done(&e->ahead);
    reader_done(&e->behind);
    bytes_done(&e->text);
    bytes_done(&e->bytes);
    pieces_close(e->pieces);
    long_word_done(&e->word);
    bpe_scratch_done(&e->scratch);
    free(e);
}

uint64_t encoding_memory(const struct encoding *e, const struct ids *out)
{
    return sizeof *e + e->scan.peek.cap + reader_memory(&e->ahead) + reader_memory(&e->behind) +
           e->text.cap + e->bytes.cap + pieces_memory(e->pieces) + long_word_memory(&e->word) +
           bpe_scratch_memory(&e->scratch) + out->n * sizeof *out->id - e->before;
}

/* Before `more` bytes are taken. */
static int check_room(const struct encoding *e, uint64_t more, uint64_t room,
                      const struct ids *out, struct err *err)
{
    if (!room || encoding_memory(e, out) + more <= room)
        return 0;
    return err_set(err, ERR_BUDGET, "tokenizing this text takes more than the %" PRIu64
                                    " bytes that are free", room);
}

/* What `ahead` has read and `behind` has not has tokens too. What it holds is one character and a
 * row of marks, of which NFC lets three at most vanish, 4 bytes each. */
static bool is_too_long(const struct encoding *e, const struct ids *out)
{
    uint64_t share = e->ahead_share - e->behind_share;

    if (e->ahead.held.size > 16)
        share += (e->ahead.held.size - 16) * e->t->least.beyond;
    return e->max_ids && out->n + share / LEAST_ONE > e->max_ids;
}

/* ---- ahead ---- */

static int fill(struct encoding *e, size_t *work, uint64_t room, const struct ids *out,
                struct err *err)
{
    bool more = true;

    /* The portion in each place it goes through, and a row of marks that is held. */
    if (check_room(e, 6 * PORTION + e->ahead.held.size * NORMALISING, room, out, err) < 0)
        return -1;
    if (!place_before(e->ahead.at, token_scan_limit(&e->scan)) && !token_scan_ends(&e->scan) &&
        token_scan_more(&e->scan, PORTION, err) < 0)
        return -1;
    e->text.size = 0;
    if (reader_next(&e->ahead, token_scan_limit(&e->scan), token_scan_ends(&e->scan), PORTION,
                    &e->text, &more, err) < 0 ||
        pieces_put(e->pieces, e->text.at, e->text.size, err) < 0)
        return -1;
    e->ahead_share += least_share(&e->t->least, e->text.at, e->text.size);
    if (is_too_long(e, out))
        return too_long(e, err);
    e->ends = token_scan_ends(&e->scan) && !more;
    if (e->ends)
        pieces_end(e->pieces);
    if (e->ends || pieces_held(e->pieces) >= e->wanted)
        e->state = CUT;
    *work += PORTION;
    return 0;
}

static int cut(struct encoding *e, struct err *err)
{
    int more = pieces_next(e->pieces, &e->n_chars, err);

    if (more < 0)
        return -1;
    e->windows = false;
    e->state = more ? PIECE : e->ends ? TOKEN : FILL;
    if (e->state != FILL)
        return 0;
    /* The whole piece is matched again, so what is there doubles each time. */
    e->wanted = pieces_held(e->pieces) * 2;
    return 0;
}

/* ---- behind ---- */

/* More bytes for the piece; as many as `ahead` has read are there. */
static int follow(struct encoding *e, struct err *err)
{
    size_t left = e->bytes.size - e->used;
    bool more = true;

    if (left)
        memmove(e->bytes.at, e->bytes.at + e->used, left);
    e->bytes.size = left;
    e->used = 0;
    while (more && e->bytes.size == left)
        if (reader_next(&e->behind, e->ahead.at, e->ends, PORTION, &e->bytes, &more, err) < 0)
            return -1;
    assert(e->bytes.size > left);
    e->behind_share += least_share(&e->t->least, e->bytes.at + left, e->bytes.size - left);
    return 0;
}

/* The first characters of what is there, of at most `most` bytes and the piece; *n of them. */
static size_t characters(const struct encoding *e, size_t most, size_t *n)
{
    size_t left = e->bytes.size - e->used, at = 0;

    *n = 0;
    if (left == 0)
        return 0; /* and there may be no memory to point into */
    const unsigned char *text = (const unsigned char *)e->bytes.at + e->used;
    while (at < left && *n < e->n_chars) {
        unsigned char c = text[at];
        size_t length = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
        if (at + length > most)
            break;
        at += length;
        ++*n;
    }
    return at;
}

static int merge_window(struct encoding *e, size_t *work, struct ids *out, struct err *err)
{
    size_t wants = long_word_wants(&e->word), n;

    while (wants && e->n_chars) {
        size_t size = characters(e, wants, &n);
        if (n == 0 && e->used < e->bytes.size)
            break; /* the next character is longer than what is wanted: good enough */
        if (n == 0) {
            if (follow(e, err) < 0)
                return -1;
            continue;
        }
        if (long_word_put(&e->word, e->bytes.at + e->used, size, err) < 0)
            return -1;
        e->used += size;
        e->n_chars -= n;
        wants -= size;
    }
    *work += LONG_WORD_WINDOW;
    int more = long_word_step(&e->word, &e->t->vocab, &e->scratch, e->n_chars == 0, out, err);
    if (more == 0)
        e->state = CUT;
    return more < 0 ? -1 : 0;
}

/* Most pieces are words of a few bytes. */
static int merge(struct encoding *e, size_t *work, struct ids *out, struct err *err)
{
    size_t n, size = characters(e, LONG_WORD_WINDOW, &n);

    if (n < e->n_chars && e->bytes.size - e->used < LONG_WORD_WINDOW) {
        if (follow(e, err) < 0)
            return -1;
        size = characters(e, LONG_WORD_WINDOW, &n);
    }
    *work += size;
    if (n < e->n_chars) {
        e->windows = e->bytes.size - e->used >= LONG_WORD_WINDOW;
        if (e->windows)
            long_word_begin(&e->word, out);
        return 0;
    }
    if (bpe_encode(&e->t->vocab.bpe, e->bytes.at + e->used, size, &e->scratch, out, err) < 0)
        return -1;
    e->used += size;
    e->state = CUT;
    return 0;
}

/* ---- the whole ---- */

static int pass_token(struct encoding *e, struct ids *out, struct err *err)
{
    assert(e->used == e->bytes.size);
    e->state = DONE;
    if (!e->scan.token)
        return 0;
    if (ids_put(out, e->scan.token->id, err) < 0)
        return -1;
    token_scan_pass(&e->scan);
    reader_move(&e->ahead, e->scan.at);
    reader_move(&e->behind, e->scan.at);
    pieces_restart(e->pieces);
    e->ends = false;
    e->wanted = 1;
    e->state = FILL;
    return 0;
}

int encoding_step(struct encoding *e, size_t work, uint64_t room, struct ids *out,
                  struct err *err)
{
    size_t done = 0;
    int rc = 0;

    while (rc == 0 && e->state != DONE && done < work) {
        /* The tokens of a long word are not sure until its end. */
        size_t slack = e->windows && e->state == PIECE ? LONG_WORD_WINDOW : 0;
        if (e->max_ids && out->n > e->max_ids + slack)
            return too_long(e, err);
        switch (e->state) {
        case FILL:
            rc = fill(e, &done, room, out, err);
            break;
        case CUT:
            rc = cut(e, err);
            break;
        case PIECE:
            rc = e->windows ? merge_window(e, &done, out, err) : merge(e, &done, out, err);
            break;
        case TOKEN:
            rc = pass_token(e, out, err);
            break;
        case DONE:
            break;
        }
    }
    if (rc < 0)
        return -1;
    if (e->state != DONE)
        return 1;
    return e->max_ids && out->n > e->max_ids ? too_long(e, err) : 0;
}
