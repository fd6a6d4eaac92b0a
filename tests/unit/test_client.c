/* client: who counts as one, by address. */
#include "daemon/worker/client.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static struct client at(const char *address)
{
    struct client c = { 0 };
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(5) };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(6) };

    if (inet_pton(AF_INET, address, &four.sin_addr) == 1) {
        memcpy(&c.address, &four, sizeof four);
    } else {
        assert_int_equal(inet_pton(AF_INET6, address, &six.sin6_addr), 1);
        memcpy(&c.address, &six, sizeof six);
    }
    return c;
}

static void an_ipv6_network_and_a_mapped_address_are_one_client_each(void **state)
{
    static const char *const names[][2] = {
        { "192.0.2.7", "192.0.2.7" },
        { "::ffff:192.0.2.7", "192.0.2.7" },
        { "2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64" },
        { "2001:db8:1:2::9", "2001:db8:1:2::/64" },
        { "2001:db8:1:3::9", "2001:db8:1:3::/64" },
        { "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff::/64" },
        { "fe80::1", "fe80::/64" },
        { "::1", "::1" },
        { "127.0.0.1", "127.0.0.1" },
        { "127.0.0.2", "127.0.0.2" },
    };
    enum { N = sizeof names / sizeof *names };
    char name[CLIENT_NAME];

    (void)state;
    for (size_t i = 0; i < N; i++) {
        struct client c = at(names[i][0]);
        assert_string_equal(client_name(name, &c), names[i][1]);
        for (size_t k = 0; k < N; k++) {
            struct client other = at(names[k][0]);
            assert_int_equal(client_key(&c) == client_key(&other),
                             strcmp(names[i][1], names[k][1]) == 0);
        }
    }
}

static void an_address_that_is_none_has_no_name(void **state)
{
    struct client c = { .address.ss_family = AF_UNIX };
    char name[CLIENT_NAME];

    (void)state;
    assert_string_equal(client_name(name, &c), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ipv6_network_and_a_mapped_address_are_one_client_each),
        cmocka_unit_test(an_address_that_is_none_has_no_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
