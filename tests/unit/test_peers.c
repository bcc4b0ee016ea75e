/* Connections of each address: the limit, who is one host, that places come back. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/net/peers.c"

#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <setjmp.h>

#include <cmocka.h>

static struct sockaddr_storage at(const char *text)
{
    struct sockaddr_storage a = {0};
    struct sockaddr_in *four = (struct sockaddr_in *)&a;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&a;
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        a.ss_family = AF_INET;
        return a;
    }
    a = (struct sockaddr_storage){.ss_family = AF_INET6};
    assert_int_equal(inet_pton(AF_INET6, text, &six->sin6_addr), 1);
    return a;
}

static bool enter(struct peers *p, const char *text, uint32_t *place)
{
    struct sockaddr_storage a = at(text);
    return peers_enter(p, (const struct sockaddr *)&a, place);
}

static void an_address_has_its_limit_and_others_have_theirs(void **state)
{
    (void)state;
    struct peers *p = peers_make(100, 2);
    uint32_t place[4], none;
    assert_true(enter(p, "10.0.0.1", &place[0]));
    assert_true(enter(p, "10.0.0.1", &place[1]));
    assert_false(enter(p, "10.0.0.1", &none));
    peers_leave(p, none);                        /* a refused one has nothing to give back */
    assert_true(enter(p, "10.0.0.2", &place[2]));
    peers_leave(p, place[0]);
    assert_true(enter(p, "10.0.0.1", &place[3]));
    assert_false(enter(p, "10.0.0.1", &none));
    peers_free(p);
}

static void a_host_of_ipv6_is_its_64_bit_prefix_and_mapped_addresses_are_ipv4(void **state)
{
    (void)state;
    static const struct {
        const char *x, *y;
        bool same;
    } row[] = {
        {"2001:db8:1:2::1", "2001:db8:1:2:ffff::9", true},
        {"2001:db8:1:2::1", "2001:db8:1:3::1", false},
        {"::ffff:10.0.0.1", "10.0.0.1", true},
        {"::ffff:10.0.0.1", "10.0.0.2", false},
        {"::1", "0.0.0.1", false},
        {"::1", "::2", true},
    };
    for (size_t i = 0; i < ARRAY_COUNT(row); i++) {
        struct peers *p = peers_make(100, 1);
        uint32_t place;
        assert_true(enter(p, row[i].x, &place));
        assert_int_equal(enter(p, row[i].y, &place), !row[i].same);
        peers_free(p);
    }
}

static void places_come_back_in_any_order(void **state)
{
    (void)state;
    enum { PLACES = 500, ROUNDS = 20000 };
    struct peers *p = peers_make(PLACES, 3);
    uint32_t place[PLACES], count = 0, place_of_one;
    char text[32];
    for (unsigned n = 0; n < ROUNDS; n++) {
        uint64_t r = random_u64();
        if (count == PLACES || (count > 0 && r % 2)) {
            uint32_t i = (uint32_t)(r >> 8) % count;
            peers_leave(p, place[i]);
            place[i] = place[--count];
            continue;
        }
        snprintf(text, sizeof text, "10.0.%u.%u", (unsigned)(r >> 8) % 4,
                 (unsigned)(r >> 16) % 256);
        count += enter(p, text, &place[count]);
    }
    while (count > 0)
        peers_leave(p, place[--count]);
    for (uint64_t b = 0; b <= p->mask; b++)
        assert_int_equal(p->bucket[b], NONE);
    for (unsigned n = 0; n < PLACES; n++) {      /* all of them are to be had again */
        snprintf(text, sizeof text, "10.1.%u.%u", n / 256, n % 256);
        assert_true(enter(p, text, &place_of_one));
    }
    assert_false(enter(p, "10.2.0.1", &place_of_one));
    peers_free(p);
}

static void without_a_limit_nobody_is_counted(void **state)
{
    (void)state;
    struct peers *p = peers_make(1, 0);
    uint32_t place;
    for (unsigned n = 0; n < 1000; n++) {
        assert_true(enter(p, "10.0.0.1", &place));
        peers_leave(p, place);
    }
    peers_free(p);
}

static unsigned longest(const struct peers *p)
{
    unsigned most = 0;
    for (uint64_t i = 0; i <= p->mask; i++) {
        unsigned n = 0;
        for (uint32_t at = p->bucket[i]; at != NONE; at = p->peer[at].next)
            n++;
        most = n > most ? n : most;
    }
    return most;
}

/* Whoever has one of them has all the prefixes below it, in any of these bits. */
static void the_prefixes_of_one_network_do_not_meet_in_one_bucket(void **state)
{
    (void)state;
    for (unsigned shift = 0; shift <= 52; shift++) {
        struct peers *p = peers_make(8192, 4);
        assert_non_null(p);
        for (uint64_t i = 0; i < 4096; i++) {
            struct sockaddr_in6 a = {.sin6_family = AF_INET6};
            uint64_t prefix = htobe64((uint64_t)0x2001 << 48 ^ i << shift);
            uint32_t place;
            memcpy(&a.sin6_addr, &prefix, sizeof(prefix));
            assert_true(peers_enter(p, (const struct sockaddr *)&a, &place));
        }
        assert_in_range(longest(p), 1, 16); /* by chance it is 6 or 7 */
        peers_free(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_address_has_its_limit_and_others_have_theirs),
        cmocka_unit_test(a_host_of_ipv6_is_its_64_bit_prefix_and_mapped_addresses_are_ipv4),
        cmocka_unit_test(places_come_back_in_any_order),
        cmocka_unit_test(without_a_limit_nobody_is_counted),
        cmocka_unit_test(the_prefixes_of_one_network_do_not_meet_in_one_bucket),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
