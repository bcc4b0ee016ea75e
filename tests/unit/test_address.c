/* Addresses: the union of the latest answers, rests of failed ones, turns, families. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <netdb.h>

static int look_up(const char *host, const char *port, const struct addrinfo *hints,
                   struct addrinfo **out);
#define getaddrinfo look_up
#include "server/origin/address.c"
#undef getaddrinfo

#include <setjmp.h>

#include <cmocka.h>

/* ---- a resolver that may fall silent ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool silent, asked, left;        /* left: the question that was held is over */
    bool fails;
} resolver = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int look_up(const char *host, const char *port, const struct addrinfo *hints,
                   struct addrinfo **out)
{
    pthread_mutex_lock(&resolver.lock);
    bool held = resolver.silent;
    resolver.asked |= held;
    pthread_cond_broadcast(&resolver.changed);
    while (resolver.silent)
        pthread_cond_wait(&resolver.changed, &resolver.lock);
    resolver.left |= held;
    bool fails = resolver.fails;
    pthread_cond_broadcast(&resolver.changed);
    pthread_mutex_unlock(&resolver.lock);
    if (fails)
        return EAI_AGAIN;
    return getaddrinfo(host, port, hints, out);
}

static void resolver_be(bool silent)
{
    pthread_mutex_lock(&resolver.lock);
    resolver.silent = silent;
    pthread_cond_broadcast(&resolver.changed);
    pthread_mutex_unlock(&resolver.lock);
}

static void resolver_await(const bool *what)
{
    pthread_mutex_lock(&resolver.lock);
    while (!*what)
        pthread_cond_wait(&resolver.changed, &resolver.lock);
    pthread_mutex_unlock(&resolver.lock);
}

static struct addresses *open_literal(bool public_ok)
{
    struct endpoint p = {.host_is_address = true, .port = 9000, .host = "127.0.0.1"};
    struct addresses *a = NULL;
    bool refused = true;
    assert_int_equal(addresses_open(&p, public_ok, &a, &refused), OK);
    assert_false(refused);
    return a;
}

static bool add_text(struct addresses *a, const char *text)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(9000)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(9000)};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1)
        return addresses_add(a, (struct sockaddr *)&v4, sizeof(v4));
    assert_int_equal(inet_pton(AF_INET6, text, &v6.sin6_addr), 1);
    return addresses_add(a, (struct sockaddr *)&v6, sizeof(v6));
}

static void test_union_of_answers(void **state)
{
    char text[32];
    (void)state;
    struct addresses *a = open_literal(false);
    assert_int_equal(addresses_count(a), 1);
    assert_true(add_text(a, "127.0.0.1"));
    assert_int_equal(addresses_count(a), 1);
    assert_true(add_text(a, "10.0.0.1"));
    assert_true(add_text(a, "::1"));
    assert_false(add_text(a, "8.8.8.8")); /* plain HTTP, not insecure */
    assert_int_equal(addresses_count(a), 3);
    for (unsigned i = 0; i < 100; i++) {
        snprintf(text, sizeof(text), "10.1.0.%u", i);
        assert_true(add_text(a, text));
    }
    assert_int_equal(addresses_count(a), ORIGIN_ADDRESSES_MAX);
    addresses_close(a);
    a = open_literal(true);
    assert_true(add_text(a, "8.8.8.8"));
    addresses_close(a);
}

/* A store that moved in DNS: the old one may be up, or somebody else have its address. */
static void test_an_address_that_the_name_left_is_dropped(void **state)
{
    (void)state;
    struct addresses *a = open_literal(false); /* which the resolver knows, too */
    assert_true(add_text(a, "10.0.0.1"));
    assert_true(add_text(a, "10.0.0.2"));
    struct sockaddr_storage left = a->place[1].at, stays = a->place[0].at;
    uint32_t of_left = 0, of_stays = 0;
    uint64_t now_ms = clock_ms();
    a->place[1].seen_ms = now_ms - UNSEEN_MS;
    a->place[2].seen_ms = now_ms - UNSEEN_MS / 2; /* names rotate */
    resolver.fails = true;
    assert_false(resolve(a));
    assert_int_equal(addresses_count(a), 3);
    assert_true(addresses_has(a, &left, &of_left));
    resolver.fails = false;
    assert_true(resolve(a));
    assert_int_equal(addresses_count(a), 2);
    assert_int_equal(a->place[1].len, 0);
    assert_false(addresses_has(a, &left, &of_left));
    assert_true(addresses_has(a, &stays, &of_stays));
    assert_true(addresses_left(a, 1));
    assert_false(addresses_left(a, 1 | 1 << 2));
    addresses_close(a);
}

static void test_turns_go_round(void **state)
{
    unsigned hits[3] = {0};
    (void)state;
    struct addresses *a = open_literal(false);
    add_text(a, "10.0.0.1");
    add_text(a, "10.0.0.2");
    for (unsigned i = 0; i < 9; i++) {
        struct address to;
        uint32_t tried = 0;
        int place = addresses_pick(a, 1000, &tried, &to);
        assert_in_range(place, 0, 2);
        hits[place]++;
    }
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(hits[i], 3);
    addresses_close(a);
}

static void test_failed_ones_rest_longer_each_time(void **state)
{
    struct address to;
    (void)state;
    struct addresses *a = open_literal(false);
    add_text(a, "10.0.0.1");
    uint64_t now_ms = 1000;
    uint64_t rest_ms = REST_MS;
    for (unsigned n = 0; n < 6; n++) {
        addresses_judge(a, &a->place[0].at, false, now_ms);
        for (unsigned i = 0; i < 4; i++) {
            uint32_t tried = 0;
            assert_int_equal(addresses_pick(a, now_ms + rest_ms - 1, &tried, &to), 1);
        }
        bool both = false;
        for (unsigned i = 0; i < 2; i++) {
            uint32_t tried = 0;
            both = both || addresses_pick(a, now_ms + rest_ms, &tried, &to) == 0;
        }
        assert_true(both);
        now_ms += rest_ms;
        rest_ms = min_u64(rest_ms * 2, REST_MS_MAX);
    }
    addresses_judge(a, &a->place[0].at, true, now_ms);
    addresses_judge(a, &a->place[1].at, false, now_ms);
    uint32_t tried = 0;              /* all are tried before anyone gives up, resting ones last */
    assert_int_equal(addresses_pick(a, now_ms, &tried, &to), 0);
    assert_int_equal(addresses_pick(a, now_ms, &tried, &to), 1);
    assert_int_equal(addresses_pick(a, now_ms, &tried, &to), -1);
    addresses_close(a);
}

static void test_a_verdict_finds_its_address_and_no_other(void **state)
{
    char text[32];
    struct address to;
    uint32_t tried = 0;
    (void)state;
    struct addresses *a = open_literal(false);
    int place = addresses_pick(a, 1000, &tried, &to);
    for (unsigned i = 0; i < ORIGIN_ADDRESSES_MAX; i++) { /* newer ones take all places */
        snprintf(text, sizeof(text), "10.1.0.%u", i);
        assert_true(add_text(a, text));
        a->place[i].seen_ms = 2000 + i;
    }
    const struct address *other = &a->place[place];
    assert_false(same_address(&other->at, (struct sockaddr *)&to.at));
    addresses_judge(a, &to.at, false, 1000); /* the dial had begun before */
    assert_int_equal(other->rest_until_ms, 0);
    addresses_judge(a, &other->at, false, 1000);
    assert_true(other->rest_until_ms > 1000);
    addresses_close(a);
}

static void test_families_alternate_after_a_failure(void **state)
{
    struct address to;
    uint32_t tried = 0;
    (void)state;
    struct addresses *a = open_literal(false);
    add_text(a, "10.0.0.1");
    add_text(a, "fd00::1");
    add_text(a, "fd00::2");
    addresses_pick(a, 1000, &tried, &to);
    int first = to.at.ss_family;
    addresses_pick(a, 1000, &tried, &to);
    assert_int_not_equal(to.at.ss_family, first);
    addresses_pick(a, 1000, &tried, &to);
    assert_int_equal(to.at.ss_family, first);
    addresses_close(a);
}

static void test_name_is_resolved_by_the_thread(void **state)
{
    struct endpoint p = {.port = 9000, .host = "localhost"};
    struct addresses *a = NULL;
    bool refused = true;
    (void)state;
    assert_int_equal(addresses_open(&p, false, &a, &refused), OK);
    assert_false(refused);
    assert_true(addresses_count(a) >= 1);
    addresses_close(a);
}

static void test_an_end_does_not_wait_for_a_silent_resolver(void **state)
{
    struct endpoint p = {.port = 9000, .host = "localhost"};
    struct addresses *a = NULL;
    bool refused = false;
    (void)state;
    assert_int_equal(addresses_open(&p, false, &a, &refused), OK);
    assert_true(addresses_count(a) > 0);
    resolver_be(true);
    addresses_refresh(a);
    resolver_await(&resolver.asked);
    uint64_t from_ms = clock_ms();
    addresses_close(a);              /* for ever, if it waited */
    assert_true(clock_ms() - from_ms < 5000);
    resolver_be(false);
    resolver_await(&resolver.left);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_union_of_answers),
        cmocka_unit_test(test_an_address_that_the_name_left_is_dropped),
        cmocka_unit_test(test_turns_go_round),
        cmocka_unit_test(test_failed_ones_rest_longer_each_time),
        cmocka_unit_test(test_a_verdict_finds_its_address_and_no_other),
            cmocka_unit_test(test_families_alternate_after_a_failure),
        cmocka_unit_test(test_name_is_resolved_by_the_thread),
        cmocka_unit_test(test_an_end_does_not_wait_for_a_silent_resolver),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
