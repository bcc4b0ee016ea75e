/* Unit tests of server/wishes.c: who asks for a reload is told of one that began after he asked. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/wishes.c"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { LONG_MS = 60000 };

static struct server server;

struct asker {
    pthread_t thread;
    uint64_t timeout_ms;
    enum err err;
    struct reload_outcome *outcome;
};

static void *ask(void *asker)
{
    struct asker *a = asker;
    a->err = server_ask_reload(&server, a->timeout_ms, a->outcome);
    return NULL;
}

static void ask_begin(struct asker *a)
{
    a->timeout_ms = LONG_MS;
    a->outcome = mem_take(sizeof *a->outcome);
    assert_non_null(a->outcome);
    assert_int_equal(pthread_create(&a->thread, NULL, ask, a), 0);
}

static void ask_end(struct asker *a)
{
    pthread_join(a->thread, NULL);
    mem_give(a->outcome);
}

static uint64_t asked(void)
{
    pthread_mutex_lock(&server.wishes.lock);
    uint64_t n = server.wishes.asked;
    pthread_mutex_unlock(&server.wishes.lock);
    return n;
}

/* As main does: the signal says that someone has asked. */
static void wait_for_hangup(void)
{
    sigset_t set;
    int sig = 0;

    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    assert_int_equal(sigwait(&set, &sig), 0);
    assert_int_equal(sig, SIGHUP);
}

static int forget(void **state)
{
    static const struct timespec now = {0};
    sigset_t set;

    (void)state;
    memset(&server, 0, sizeof server);
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    while (sigtimedwait(&set, NULL, &now) > 0)
        continue;
    return 0;
}

static void the_outcome_is_told(void **state)
{
    static const struct conf_mistakes mistakes = {.count = 1, .item = {{"f:1:1: wrong"}}};
    struct asker a = {0};

    (void)state;
    ask_begin(&a);
    wait_for_hangup();
    wishes_begin(&server);
    wishes_refused(&server, ERR_CONFIG, &mistakes);
    wishes_end(&server);
    pthread_join(a.thread, NULL);
    assert_int_equal(a.err, OK);
    assert_int_equal(a.outcome->result, ERR_CONFIG);
    assert_string_equal(a.outcome->mistakes.item[0].text, "f:1:1: wrong");
    mem_give(a.outcome);
}

static void a_reload_that_began_before_is_no_answer(void **state)
{
    struct asker first = {0}, second = {0};

    (void)state;
    ask_begin(&first);
    wait_for_hangup();
    wishes_begin(&server);
    ask_begin(&second);
    wait_for_hangup();
    assert_int_equal(asked(), 2);
    wishes_keep(&server, span_of("cache.size"));
    wishes_end(&server);
    pthread_join(first.thread, NULL);
    assert_int_equal(first.err, OK);
    assert_int_equal(server.wishes.done, 1);
    wishes_begin(&server);
    wishes_end(&server);
    pthread_join(second.thread, NULL);
    assert_int_equal(second.err, OK);
    assert_string_equal(second.outcome->restart, "");
    assert_true(first.outcome->restart[0] == '\0' ||
                strcmp(first.outcome->restart, "cache.size") == 0);
    mem_give(first.outcome);
    mem_give(second.outcome);
}

static void one_reload_answers_all_who_asked_before_it(void **state)
{
    struct asker a[4] = {0};

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(a); i++) {
        ask_begin(&a[i]);
        wait_for_hangup();
    }
    wishes_begin(&server);
    wishes_end(&server);
    for (unsigned i = 0; i < ARRAY_COUNT(a); i++) {
        ask_end(&a[i]);
        assert_int_equal(a[i].err, OK);
    }
}

static void nobody_waits_for_a_server_that_ends(void **state)
{
    struct asker a = {0}, late = {0};

    (void)state;
    ask_begin(&a);
    wait_for_hangup();
    wishes_over(&server);
    ask_end(&a);
    assert_int_equal(a.err, ERR_CANCELLED);
    ask_begin(&late);
    ask_end(&late);
    assert_int_equal(late.err, ERR_CANCELLED);
}

static void nobody_waits_for_ever(void **state)
{
    struct reload_outcome *outcome = mem_take(sizeof *outcome);

    (void)state;
    assert_int_equal(server_ask_reload(&server, 0, outcome), ERR_TIMEOUT);
    mem_give(outcome);
}

static void the_end_is_asked_for_by_a_signal(void **state)
{
    sigset_t set;
    int sig = 0;

    (void)state;
    server_ask_end(&server);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    assert_int_equal(sigwait(&set, &sig), 0);
    assert_int_equal(sig, SIGTERM);
}

/* The second one would cut what runs. */
static void an_end_that_is_asked_for_again_is_the_same_end(void **state)
{
    static const struct timespec now;
    sigset_t set;

    (void)state;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    server_ask_end(&server);
    assert_int_equal(sigtimedwait(&set, NULL, &now), SIGTERM);
    server_ask_end(&server);
    assert_int_equal(sigtimedwait(&set, NULL, &now), -1);
    wishes_over(&server);
    assert_true(wishes_same_end(&server));
    assert_false(wishes_same_end(&server));
    server_ask_end(&server);
    assert_int_equal(sigtimedwait(&set, NULL, &now), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(the_outcome_is_told, forget),
        cmocka_unit_test_setup(a_reload_that_began_before_is_no_answer, forget),
        cmocka_unit_test_setup(one_reload_answers_all_who_asked_before_it, forget),
        cmocka_unit_test_setup(nobody_waits_for_a_server_that_ends, forget),
        cmocka_unit_test_setup(nobody_waits_for_ever, forget),
        cmocka_unit_test_setup(the_end_is_asked_for_by_a_signal, forget),
        cmocka_unit_test_setup(an_end_that_is_asked_for_again_is_the_same_end, forget),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
