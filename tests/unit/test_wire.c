/* Frames as structs: every field is checked before it is used. */
#include "daemon/wire/wire.h"
#include "util/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Exactly as many bytes as the message has, so that a read past them is seen by ASan. */
static int check(uint16_t type, uint16_t flags, const void *body, size_t size)
{
    struct wire_head head = { .size = (uint32_t)(sizeof head + size), .type = type,
                              .flags = flags };
    struct err err;
    void *exact = malloc(size ? size : 1);

    assert_non_null(exact);
    if (size)
        memcpy(exact, body, size);
    int rc = wire_check(&head, exact, size, &err);
    if (rc < 0)
        assert_int_equal(err.kind, ERR_FORMAT);
    free(exact);
    return rc;
}

/* Two keys, two calls, three ids. */
struct reply {
    struct wire_remember head;
    struct sip_sum keys[2];
    struct wire_reply_call calls[2];
    uint32_t ids[3];
    char text[16];
};

static const struct reply good_reply = {
    .head = { .n_keys = 2, .n_calls = 2, .n_ids = 3, .tail_size = 4, .reasoning_size = 3,
              .text_size = 16 },
    .calls = { { 1, 2 }, { 2, 4 } },
    .ids = { 1, 2, 3 },
    .text = "tailHm.a{}bc\xc3\xa9{}",
};
/* Without what the compiler adds at the end. */
enum { REPLY_SIZE = offsetof(struct reply, text) + 16 };

struct sample {
    uint16_t type, flags;
    size_t size;
    _Alignas(8) char body[1024];
};

static void put(struct sample *s, const void *bytes, size_t size)
{
    memcpy(s->body + s->size, bytes, size);
    s->size += size;
}

/* One good message of every type. */
static void make(struct sample *s, uint16_t type)
{
    static const uint32_t ids[15] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };
    static const struct cz_bias bias[2] = { { 1, 2.0f }, { 3, -100.0f } };
    static const struct cz_logprobs logprobs[3] = { { .n_top = CZ_MAX_TOP }, { .n_top = 1 } };

    *s = (struct sample){ .type = type, .flags = type == WIRE_PEER ? WIRE_FLAG_FD : 0 };
    switch (type) {
    case WIRE_HELLO:
        put(s, &(struct wire_hello){ .n_stop_ids = 16, .state = ENGINE_READY, .percent = 100 },
            sizeof(struct wire_hello));
        break;
    case WIRE_SUBMIT:
        put(s, &(struct wire_submit){ .n_prompt = 5, .n_stop_ids = 2, .n_bias = 2,
                                      .n_choices = CZ_MAX_CHOICES, .logprobs = 1,
                                      .n_top = CZ_MAX_TOP, .think_inside = 1, .think_may_open = 1,
                                      .think_call_closes = 1,
                                      .n_closing = 4, .n_forced = 2, .n_forced_behind = 2 },
            sizeof(struct wire_submit));
        put(s, ids, 15 * sizeof *ids);
        put(s, bias, sizeof bias);
        break;
    case WIRE_ACCEPTED:
        put(s, &(struct wire_accepted){ 3 }, sizeof(struct wire_accepted));
        break;
    case WIRE_REFUSED:
        put(s, &(struct wire_refused){ .kind = ERR_BUSY, .text_size = 4 },
            sizeof(struct wire_refused));
        put(s, "full", 4);
        break;
    case WIRE_PROGRESS:
        put(s, &(struct wire_progress){ 4, 4, 2 }, sizeof(struct wire_progress));
        break;
    case WIRE_TOKENS:
        put(s, &(struct wire_tokens){ .n = 3, .choice = CZ_MAX_CHOICES - 1, .logprobs = 1 },
            sizeof(struct wire_tokens));
        put(s, ids, 3 * sizeof *ids);
        put(s, logprobs, sizeof logprobs);
        break;
    case WIRE_FINISHED:
        put(s, &(struct wire_finished){ .reason = CZ_FINISH_LENGTH, .choice = CZ_MAX_CHOICES - 2,
                                        .more = 1 },
            sizeof(struct wire_finished));
        break;
    case WIRE_NEXT:
        put(s, &(struct wire_next){ CZ_MAX_CHOICES - 1 }, sizeof(struct wire_next));
        break;
    case WIRE_FAILED:
        put(s, &(struct wire_failed){ .kind = ERR_IO, .text_size = 2 }, sizeof(struct wire_failed));
        put(s, "no", 2);
        break;
    case WIRE_STATUS:
    case WIRE_ASK:
    case WIRE_METRICS_TEXT:
        put(s, &(struct wire_text){ 5 }, sizeof(struct wire_text));
        put(s, "stats", 5);
        break;
    case WIRE_ANSWER:
        put(s, &(struct wire_answer){ .kind = ERR_BUSY, .text_size = 5 },
            sizeof(struct wire_answer));
        put(s, "later", 5);
        break;
    case WIRE_PULSE:
        put(s, &(struct wire_pulse){ 0 }, sizeof(struct wire_pulse));
        break;
    case WIRE_PEER:
    case WIRE_LOST:
        put(s, &(struct wire_peer){ 1, 2 }, sizeof(struct wire_peer));
        break;
    case WIRE_DRAIN:
        put(s, &(struct wire_drain){ 5, DRAIN_REPLACE }, sizeof(struct wire_drain));
        break;
    case WIRE_ADJUST:
        put(s, &(struct wire_adjust){ .queue = 8, .log_level = 6 }, sizeof(struct wire_adjust));
        break;
    case WIRE_COUNT:
        put(s, &(struct wire_count){ .kind = COUNT_TOKENS, .route = WIRE_MAX_ROUTES - 1,
                                     .method = METHOD_OPTIONS, .status = 999,
                                     .reject = REJECT_UNAVAILABLE, .end = END_ERROR,
                                     .phase = PHASE_DECODE, .own = 1, .style = REPLY_XML },
            sizeof(struct wire_count));
        break;
    case WIRE_READY:
        put(s, &(struct wire_ready){ 7, 1 }, sizeof(struct wire_ready));
        break;
    case WIRE_REMEMBER:
        put(s, &good_reply, REPLY_SIZE);
        break;
    case WIRE_RECALL:
        put(s, &(struct wire_recall){ .n = 2, .room = 100 }, sizeof(struct wire_recall));
        put(s, (struct wire_wanted[2]){ { .message = 1 }, { .message = 3 } },
            2 * sizeof(struct wire_wanted));
        break;
    case WIRE_RECALLED:
        put(s, &(struct wire_recalled){ .n_looked = 2, .n = 2 }, sizeof(struct wire_recalled));
        for (uint32_t i = 0; i < 2; i++) {
            put(s, &(struct wire_recalled_reply){ .message = i, .size = REPLY_SIZE },
                sizeof(struct wire_recalled_reply));
            put(s, &good_reply, REPLY_SIZE);
            s->size = wire_reply_padded(s->size);
        }
        break;
    case WIRE_CANCEL:
    case WIRE_METRICS:
        break;
    default:
        fail_msg("no sample for type %u", type);
    }
}

static void every_type_is_accepted_as_it_is_made(void **state)
{
    struct sample s;

    (void)state;
    for (uint16_t type = 1; type < WIRE_N_TYPES; type++) {
        make(&s, type);
        assert_int_equal(check(s.type, s.flags, s.body, s.size), 0);
    }
}

static void every_other_size_is_refused(void **state)
{
    struct sample s;

    (void)state;
    for (uint16_t type = 1; type < WIRE_N_TYPES; type++) {
        make(&s, type);
        for (size_t size = 0; size < s.size + 9; size++)
            if (size != s.size)
                assert_int_equal(check(s.type, s.flags, s.body, size), -1);
    }
}

static void a_frame_whose_head_and_size_differ_is_refused(void **state)
{
    struct wire_head head = { .size = sizeof head + 4, .type = WIRE_ACCEPTED };
    struct err err;
    uint32_t body[4] = { 0 };

    (void)state;
    assert_int_equal(wire_check(&head, body, 4, &err), 0);
    assert_int_equal(wire_check(&head, body, 8, &err), -1);
    head.size = 3;
    assert_int_equal(wire_check(&head, body, 4, &err), -1);
    head.size = WIRE_MAX_FRAME + 1;
    assert_int_equal(wire_check_head(&head, &err), -1);
    head.size = sizeof head;
    head.type = 0;
    assert_int_equal(wire_check_head(&head, &err), -1);
    head.type = WIRE_N_TYPES;
    assert_int_equal(wire_check_head(&head, &err), -1);
}

static void counts_that_do_not_match_the_bytes_are_refused(void **state)
{
    static const uint32_t lies[] = { 0,          1,          3,          6,          65,
                                     1025,       1u << 30,   0x3fffffff, 0x40000001, 0x7fffffff,
                                     0x80000000, 0xfffffffe, 0xffffffff };
    struct sample s;

    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct wire_submit *m;

        make(&s, WIRE_SUBMIT);
        m = (struct wire_submit *)s.body;
        m->n_prompt = lies[i];
        assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
        m->n_prompt = 5;
        m->n_stop_ids = lies[i];
        assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
        m->n_stop_ids = 2;
        m->n_bias = lies[i];
        assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
        m->n_bias = 2;
        m->n_closing = lies[i];
        assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
        m->n_closing = 4;
        m->n_forced = lies[i];
        assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
        m->n_forced = 2;
        m->n_forced_behind = lies[i];
        assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);

        make(&s, WIRE_TOKENS);
        ((struct wire_tokens *)s.body)->n = lies[i] == 3 ? 2 : lies[i];
        assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
        make(&s, WIRE_STATUS);
        ((struct wire_text *)s.body)->size = lies[i];
        assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
        make(&s, WIRE_REFUSED);
        ((struct wire_refused *)s.body)->text_size = lies[i];
        assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
        make(&s, WIRE_FAILED);
        ((struct wire_failed *)s.body)->text_size = lies[i];
        assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    }
}

static void enums_and_limits_out_of_range_are_refused(void **state)
{
    struct sample s;

    (void)state;
    make(&s, WIRE_HELLO);
    ((struct wire_hello *)s.body)->n_stop_ids = 17;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    make(&s, WIRE_HELLO);
    ((struct wire_hello *)s.body)->state = ENGINE_FAILED + 1;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    make(&s, WIRE_REFUSED);
    ((struct wire_refused *)s.body)->kind = ERR_NONE;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    make(&s, WIRE_FAILED);
    ((struct wire_failed *)s.body)->kind = 1000;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    make(&s, WIRE_FINISHED);
    ((struct wire_finished *)s.body)->reason = 2;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    make(&s, WIRE_PROGRESS);
    ((struct wire_progress *)s.body)->n_cached = 5;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    make(&s, WIRE_PROGRESS);
    ((struct wire_progress *)s.body)->n_done = 5;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    make(&s, WIRE_ADJUST);
    ((struct wire_adjust *)s.body)->log_level = -1;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    make(&s, WIRE_DRAIN);
    ((struct wire_drain *)s.body)->mode = DRAIN_REPLACE + 1;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    make(&s, WIRE_PULSE);
    ((struct wire_pulse *)s.body)->state = ENGINE_FAILED + 1;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    make(&s, WIRE_STATUS);
    s.body[sizeof(struct wire_text) + 2] = '\0';
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
}

/* Each number at the most that may be is good, and one more is not; so is a list that is longer,
 * with all its bytes. */
static void a_request_or_a_word_about_one_past_its_bounds_is_refused(void **state)
{
    static char body[sizeof(struct wire_submit) + (CZ_MAX_FORCED + 8) * sizeof(uint32_t)];
    struct sample s;

    (void)state;
    make(&s, WIRE_SUBMIT);
    struct wire_submit *m = (struct wire_submit *)s.body;
    uint32_t *const numbers[] = { &m->n_choices, &m->logprobs, &m->n_top, &m->think_inside,
                                  &m->think_may_open, &m->think_call_closes };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        uint32_t most = (*numbers[i])++;
        assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
        *numbers[i] = most;
        assert_int_equal(check(s.type, s.flags, s.body, s.size), 0);
    }
    for (int list = 0; list < 3; list++) {
        for (uint32_t past = 0; past < 2; past++) {
            struct wire_submit *long_one = (struct wire_submit *)body;
            uint32_t n = CZ_MAX_FORCED + past;
            *long_one = (struct wire_submit){ .n_prompt = 1 };
            *(list == 0 ? &long_one->n_closing : list == 1 ? &long_one->n_forced
                                               : &long_one->n_forced_behind) = n;
            assert_int_equal(check(WIRE_SUBMIT, 0, body, sizeof *long_one + (n + 1) * sizeof n),
                             past ? -1 : 0);
        }
    }

    make(&s, WIRE_TOKENS);
    struct wire_tokens *tokens = (struct wire_tokens *)s.body;
    tokens->logprobs = 0; /* and yet they are there */
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    tokens->logprobs = 2;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    tokens->logprobs = 1;
    tokens->choice = CZ_MAX_CHOICES;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    tokens->choice = 0;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), 0);
    struct cz_logprobs *last =
        (struct cz_logprobs *)(s.body + s.size - sizeof(struct cz_logprobs));
    last->n_top = CZ_MAX_TOP + 1;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);

    make(&s, WIRE_FINISHED);
    struct wire_finished *finished = (struct wire_finished *)s.body;
    finished->choice = CZ_MAX_CHOICES - 1; /* the last one, and another follows */
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    finished->more = 0;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), 0);
    finished->choice = CZ_MAX_CHOICES;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    finished->choice = 0;
    finished->more = 2;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    make(&s, WIRE_NEXT);
    ((struct wire_next *)s.body)->choice = CZ_MAX_CHOICES;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
}

/* m: the reply inside s. */
static void refuse_replies(struct sample *s, struct wire_remember *m)
{
    uint32_t *const numbers[] = { &m->n_keys, &m->n_calls, &m->n_ids, &m->tail_size,
                                  &m->reasoning_size, &m->text_size };
    static const uint32_t lies[] = { 0, 1, 5, 129, 1025, 1u << 28, 0x40000001, 0x7fffffff,
                                     0xfffffffe, 0xffffffff };

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (size_t k = 0; k < sizeof lies / sizeof *lies; k++) {
            uint32_t was = *numbers[i];
            *numbers[i] = lies[k];
            assert_int_equal(check(s->type, s->flags, s->body, s->size), -1);
            *numbers[i] = was;
        }
    struct reply *r = (struct reply *)(void *)m;
    uint32_t *const sizes[] = { &r->calls[0].name_size, &r->calls[1].arguments_size };
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 2; k < sizeof lies / sizeof *lies; k++) {
            uint32_t was = *sizes[i];
            *sizes[i] = lies[k];
            assert_int_equal(check(s->type, s->flags, s->body, s->size), -1);
            *sizes[i] = was;
        }
    for (size_t i = 0; i < sizeof r->text; i++) { /* wherever a part is no text */
        char was = r->text[i];
        r->text[i] = '\xff';
        assert_int_equal(check(s->type, s->flags, s->body, s->size), -1);
        r->text[i] = was;
    }
    r->calls[1] = (struct wire_reply_call){ 3, 3 }; /* a name that ends in mid-character */
    assert_int_equal(check(s->type, s->flags, s->body, s->size), -1);
    r->calls[1] = (struct wire_reply_call){ 2, 4 };
    assert_int_equal(check(s->type, s->flags, s->body, s->size), 0);
}

static void a_reply_whose_parts_are_not_the_whole_is_refused(void **state)
{
    struct sample s;

    (void)state;
    make(&s, WIRE_REMEMBER);
    refuse_replies(&s, (struct wire_remember *)(void *)s.body);
    make(&s, WIRE_RECALLED);
    struct wire_recalled *m = (struct wire_recalled *)(void *)s.body;
    struct wire_recalled_reply *first = (struct wire_recalled_reply *)(m + 1);
    struct wire_recalled_reply *second =
        (struct wire_recalled_reply *)(void *)((char *)(first + 1) + wire_reply_padded(first->size));
    assert_ptr_equal(wire_recalled_next(m, NULL), first);
    assert_ptr_equal(wire_recalled_next(m, first), second);
    refuse_replies(&s, (struct wire_remember *)(first + 1));
    refuse_replies(&s, (struct wire_remember *)(second + 1));
    static const uint32_t lies[] = { 0, 1, 8, 1000, 0xfffffff0, 0xffffffff };
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        uint32_t was = first->size;
        first->size = lies[i];
        assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
        first->size = was;
        was = second->size;
        second->size = lies[i];
        assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
        second->size = was;
        m->n = lies[i];
        assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
        m->n = 2;
    }
    m->n_looked = 1;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    m->n_looked = WIRE_MAX_WANTED + 1;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    m->n_looked = WIRE_MAX_WANTED;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), 0);
    make(&s, WIRE_RECALL);
    ((struct wire_recall *)(void *)s.body)->n = WIRE_MAX_WANTED + 1;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
    ((struct wire_recall *)(void *)s.body)->n = 0;
    assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
}

static void a_reply_is_seen_in_its_parts(void **state)
{
    struct wire_reply_view v;

    (void)state;
    wire_reply_view(&v, &good_reply.head);
    assert_ptr_equal(v.keys, good_reply.keys);
    assert_ptr_equal(v.calls, good_reply.calls);
    assert_ptr_equal(v.ids, good_reply.ids);
    assert_memory_equal(v.tail, "tail", 4);
    assert_memory_equal(v.reasoning, "Hm.", 3);
    assert_memory_equal(v.call_text, "a{}", 3);
}

/* They are places in tables. */
static void a_count_of_what_is_not_there_is_refused(void **state)
{
    struct sample s;

    (void)state;
    make(&s, WIRE_COUNT);
    struct wire_count *m = (struct wire_count *)s.body;
    uint32_t *const numbers[] = { &m->kind, &m->route, &m->method, &m->status,
                                  &m->reject, &m->end, &m->phase, &m->own, &m->style };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        uint32_t most = *numbers[i];
        *numbers[i] = most + 1;
        assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
        *numbers[i] = UINT32_MAX;
        assert_int_equal(check(s.type, s.flags, s.body, s.size), -1);
        *numbers[i] = most;
        assert_int_equal(check(s.type, s.flags, s.body, s.size), 0);
    }
}

static void only_peer_comes_with_a_descriptor_and_always_does(void **state)
{
    struct sample s;

    (void)state;
    for (uint16_t type = 1; type < WIRE_N_TYPES; type++) {
        make(&s, type);
        assert_int_equal(check(s.type, s.flags ^ WIRE_FLAG_FD, s.body, s.size), -1);
        assert_int_equal(check(s.type, s.flags | 2, s.body, s.size), -1);
    }
}

/* A count that was believed would read past the exact allocation. */
static void random_bytes_never_read_past_their_end(void **state)
{
    uint64_t seed = 88172645463325252u;
    _Alignas(8) unsigned char body[256];

    (void)state;
    for (int round = 0; round < 200000; round++) {
        for (size_t i = 0; i < sizeof body; i += 8) {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            uint64_t word = round % 2 ? seed & 0x0700000007u : seed; /* small counts too */
            memcpy(body + i, &word, 8);
        }
        uint16_t type = (uint16_t)(seed % WIRE_N_TYPES);
        size_t size = (seed >> 20) % sizeof body;
        int rc = check(type, type == WIRE_PEER, body, size);
        assert_true(rc == 0 || rc == -1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_is_accepted_as_it_is_made),
        cmocka_unit_test(every_other_size_is_refused),
        cmocka_unit_test(a_frame_whose_head_and_size_differ_is_refused),
        cmocka_unit_test(counts_that_do_not_match_the_bytes_are_refused),
        cmocka_unit_test(enums_and_limits_out_of_range_are_refused),
        cmocka_unit_test(a_request_or_a_word_about_one_past_its_bounds_is_refused),
        cmocka_unit_test(a_reply_whose_parts_are_not_the_whole_is_refused),
        cmocka_unit_test(a_reply_is_seen_in_its_parts),
        cmocka_unit_test(a_count_of_what_is_not_there_is_refused),
        cmocka_unit_test(only_peer_comes_with_a_descriptor_and_always_does),
        cmocka_unit_test(random_bytes_never_read_past_their_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
