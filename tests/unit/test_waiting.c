/* Whose turn it is: clients go round, and a place told is a place kept. */
#include "run/waiting.h"

#include "run/seq.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { MANY = 64 };

static struct seq seqs[MANY];

/* "aab": requests of clients a, a and b, numbered from 1 in this order. */
static void come(struct waiting *w, const char *clients)
{
    for (; *clients; clients++) {
        assert_true(w->n < MANY);
        struct seq *seq = seqs;
        while (seq->id)
            seq++;
        *seq = (struct seq){ .id = (uint64_t)(seq - seqs) + 1, .client = (uint64_t)*clients };
        waiting_add(w, seq);
    }
}

/* Admits all, and says in which order: "a1 b3 a2". */
static const char *drain(struct waiting *w)
{
    static char order[8 * MANY];
    size_t used = 0;

    order[0] = '\0';
    for (struct seq *s; (s = waiting_first(w));) {
        waiting_take_first(w);
        used += (size_t)snprintf(order + used, sizeof order - used, "%s%c%d", used ? " " : "",
                                 (char)s->client, (int)s->id);
    }
    assert_int_equal(w->n, 0);
    return order;
}

static int clear(void **state)
{
    (void)state;
    memset(seqs, 0, sizeof seqs);
    return 0;
}

static void one_client_is_served_in_the_order_in_which_it_came(void **state)
{
    struct waiting w = { 0 };

    (void)state;
    come(&w, "aaaa");
    assert_string_equal(drain(&w), "a1 a2 a3 a4");
}

static void clients_take_turns_whoever_came_in_numbers(void **state)
{
    struct waiting w = { 0 };

    (void)state;
    come(&w, "aaaaaabbc");
    assert_string_equal(drain(&w), "a1 b7 c9 a2 b8 a3 a4 a5 a6");
}

static void a_client_that_comes_again_stands_behind_those_who_wait(void **state)
{
    struct waiting w = { 0 };

    (void)state;
    come(&w, "aaab");
    waiting_take_first(&w); /* a1 */
    waiting_take_first(&w); /* b4 */
    come(&w, "b");
    assert_string_equal(drain(&w), "a2 b5 a3");
}

static void what_was_sent_back_goes_on_before_all_others(void **state)
{
    struct waiting w = { 0 };

    (void)state;
    come(&w, "aabb");
    struct seq *first = waiting_first(&w);
    waiting_take_first(&w);
    struct seq *second = waiting_first(&w);
    waiting_take_first(&w);
    waiting_send_back(&w, second); /* the one admitted last is sent back first */
    waiting_send_back(&w, first);
    assert_int_equal(waiting_place(&w, first), 0);
    assert_int_equal(waiting_place(&w, second), 1);
    assert_string_equal(drain(&w), "a1 b3 a2 b4");
}

static void the_greediest_is_named_only_to_one_with_two_fewer(void **state)
{
    struct waiting w = { 0 };

    (void)state;
    assert_null(waiting_greediest(&w, 'a'));
    come(&w, "a");
    assert_null(waiting_greediest(&w, 'b'));
    come(&w, "ab");
    assert_null(waiting_greediest(&w, 'a'));
    assert_null(waiting_greediest(&w, 'b'));
    assert_int_equal(waiting_greediest(&w, 'c')->id, 2);
    come(&w, "a");
    assert_int_equal(waiting_greediest(&w, 'b')->id, 4);
    assert_null(waiting_greediest(&w, 'a'));
}

static uint32_t random_below(uint64_t *seed, uint32_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

/* Places are those of admission, whatever came, left and was sent back before. */
static void a_place_is_how_many_are_admitted_before(void **state)
{
    uint64_t seed = 3;

    (void)state;
    for (int round = 0; round < 400; round++) {
        struct waiting w = { 0 };
        struct seq *running[MANY];
        uint32_t n_running = 0, places[MANY + 1], n = 0;

        memset(seqs, 0, sizeof seqs);
        for (int i = 0; i < 60; i++) {
            char client[2] = { (char)('a' + random_below(&seed, 4)), '\0' };
            uint32_t what = random_below(&seed, 8);

            if (what < 5 && w.n + n_running < MANY - 1) {
                come(&w, client);
            } else if (what == 5 && w.n > 0) {
                running[n_running++] = waiting_first(&w);
                waiting_take_first(&w);
            } else if (what == 6 && n_running > 0) {
                waiting_send_back(&w, running[--n_running]);
            } else if (what == 7 && w.n > 0) {
                struct seq *gone = waiting_find(&w, 1 + random_below(&seed, MANY));
                if (gone)
                    waiting_remove(&w, gone);
            }
        }
        uint32_t waiting = w.n;
        for (uint32_t i = 0; i < MANY; i++) {
            const struct seq *s = waiting_find(&w, i + 1);
            places[i] = s ? waiting_place(&w, s) : UINT32_MAX;
        }
        for (struct seq *s; (s = waiting_first(&w)); n++) {
            assert_int_equal(places[s->id - 1], n);
            waiting_take_first(&w);
        }
        assert_int_equal(n, waiting);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(one_client_is_served_in_the_order_in_which_it_came, clear),
        cmocka_unit_test_setup(clients_take_turns_whoever_came_in_numbers, clear),
        cmocka_unit_test_setup(a_client_that_comes_again_stands_behind_those_who_wait, clear),
        cmocka_unit_test_setup(what_was_sent_back_goes_on_before_all_others, clear),
        cmocka_unit_test_setup(the_greediest_is_named_only_to_one_with_two_fewer, clear),
        cmocka_unit_test_setup(a_place_is_how_many_are_admitted_before, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
