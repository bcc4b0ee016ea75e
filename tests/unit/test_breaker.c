/* The breaker between cores: an answer on one core while another one trips it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>

#include "metric.h"

static void note_gauge(enum metric id, unsigned label, int64_t value);
#define metric_gauge_set(id, label, value) note_gauge(id, label, value)
#include "server/origin/breaker.c"
#undef metric_gauge_set

#include "tests/lib/scripted.h"

/* ---- what another core does while the first one tells that upstream is down ---- */

static struct core *tripping;
static bool owed;

static void answer(struct core *c)
{
    origin_answered(server.origin[0], c,
                    &(struct answer_seen){.status = 200, .sent_us = c->now_us});
}

/* Before the value is set: its core can only come between where the lock is free. */
static void note_gauge(enum metric id, unsigned label, int64_t value)
{
    struct core *c = tripping;
    if (c && id == METRIC_UPSTREAM_UP && value == 0) {
        tripping = NULL;
        owed = pthread_mutex_trylock(&server.origin[0]->lock) != 0;
        if (!owed) {
            pthread_mutex_unlock(&server.origin[0]->lock);
            answer(c);
        }
    }
    metric_gauge_set(id, label, value);
}

static struct message trip_msg;
static bool tripped;

static void trip(struct core *c, struct message *msg)
{
    struct ask ask = {.method = HTTP_HEAD, .bucket = span_of("bkt"), .key = span_of("k")};
    (void)msg;
    tripping = c;
    for (unsigned i = 0; i < BREAKER_FAILURES; i++)
        origin_failed(server.origin[0], c, &ask, ERR_UPSTREAM_CONNECT);
    if (owed)
        answer(c);
    pthread_mutex_lock(&lock);
    tripped = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void the_gauge_says_up_when_an_answer_overtakes_the_fall(void **state)
{
    (void)state;
    const struct line lines[] = {{OK_ANSWER, CLOSE, false}};
    struct origin_status status;
    BEGIN(lines, FAST);
    trip_msg.deliver = trip;
    core_send(core, &trip_msg);
    pthread_mutex_lock(&lock);
    while (!tripped)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    assert_null(tripping);
    origin_status(server.origin[0], &status);
    assert_true(status.up);
    assert_int_equal(metric_read_sum(METRIC_UPSTREAM_UP), 1);
    assert_string_equal(get("a")->body, "hello");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLAIN(the_gauge_says_up_when_an_answer_overtakes_the_fall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
