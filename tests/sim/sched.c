/* Who runs, and when: threads that pass a baton, a clock that jumps, chance from a seed.
 *
 * Invariants:
 *  1. Exactly one fiber has the baton; all others wait for their own semaphore. So the shared state
 *     of the simulation needs no lock.
 *  2. A choice depends on the seed and on what happened before, never on the machine's clock or
 *     scheduler.
 *
 * Life: sim_start() makes the calling thread a fiber; each thread made after that is one from
 * pthread_create() to pthread_join().
 * Failure: when nobody can ever run again, or nothing but running happens, the run is over with a
 * report. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/sim/sim.h"

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *),
                          void *argument);
int __real_pthread_join(pthread_t thread, void **result);
int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *),
                          void *argument);
int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex);
int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until);
int __wrap_pthread_cond_signal(pthread_cond_t *cond);
int __wrap_pthread_cond_broadcast(pthread_cond_t *cond);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
ssize_t __wrap_getrandom(void *out, size_t len, unsigned flags);

enum { WALL_S = 1767312000 /* 2026-01-02 */, STEPS_MAX = 4000000 };

struct world world;
static struct thread {
    struct fiber fiber;
    sem_t baton;
    pthread_t thread;
    void *(*main)(void *);
    void *argument, *result;
} threads[FIBERS_MAX];
static unsigned thread_count;
static _Thread_local struct thread *self;

struct fiber *sim_self(void)
{
    return self ? &self->fiber : NULL;
}

void sim_enter(void)
{
    if (self)
        self->fiber.inside++;
}

void sim_leave(void)
{
    if (self)
        self->fiber.inside--;
}

/* ---- chance ---- */

uint64_t sim_random(void)            /* splitmix64 */
{
    uint64_t z = world.chance += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

void sim_reseed(uint64_t seed)
{
    world.seed = world.chance = seed;
    world.steps = 0;
    world.fine = sim_one_in(4);
}

ssize_t __wrap_getrandom(void *out, size_t len, unsigned flags)
{
    uint8_t *at = out;

    (void)flags;
    for (size_t i = 0; i < len; i++)
        at[i] = (uint8_t)sim_random();
    return (ssize_t)len;
}

/* ---- the clock ---- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    bool wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (!world.active || (!wall && clock != CLOCK_MONOTONIC && clock != CLOCK_MONOTONIC_COARSE))
        return __real_clock_gettime(clock, out);
    uint64_t us = world.now_us + (wall ? world.wall_us : 0);
    *out = (struct timespec){(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};
    return 0;
}

/* ---- who is next ---- */

void sim_fail(const char *what)
{
    world.active = false;
    fprintf(stderr, "simulation: %s (seed %llu, at %llu us, by %s)\n", what,
            (unsigned long long)world.seed, (unsigned long long)world.now_us,
            self ? self->fiber.name : "?");
    for (unsigned i = 0; i < thread_count; i++) {
        const struct fiber *f = &threads[i].fiber;
        if (f->used && !f->over)
            fprintf(stderr, "  %-10s %s, until %lld us\n", f->name,
                    !f->ready ? "may run" : f->cond ? "waits for a signal" : "waits",
                    (long long)f->until_us);
    }
    panic(__FILE__, __LINE__, what);
}

static bool can_run(const struct fiber *f)
{
    return f->used && !f->over &&
           (!f->ready || f->until_us <= world.now_us || f->ready(f->argument));
}

static struct thread *pick(void)
{
    struct thread *found[FIBERS_MAX];
    unsigned count = 0;
    bool mine = false;

    for (unsigned i = 0; i < thread_count; i++)
        if (can_run(&threads[i].fiber)) {
            found[count++] = &threads[i];
            mine = mine || &threads[i] == self;
        }
    if (count == 0)
        return NULL;
    return mine && !sim_one_in(3) ? self : found[sim_below(count)];
}

static uint64_t next_moment(void)
{
    uint64_t next = wire_next_us();

    for (unsigned i = 0; i < thread_count; i++) {
        const struct fiber *f = &threads[i].fiber;
        if (f->used && !f->over)
            next = min_u64(next, f->until_us);
    }
    return next;
}

static struct thread *choose(void)
{
    for (;;) {
        if (++world.steps > world.steps_max)
            sim_fail("much happens and nothing comes of it");
        struct thread *next = pick();
        if (next)
            return next;
        uint64_t then = next_moment();
        if (then == UINT64_MAX)
            sim_fail("nobody can run any more");
        must(then > world.now_us);
        world.now_us = then;
    }
}

static void pass_to(struct thread *next)
{
    struct thread *me = self;

    if (next == me)
        return;
    must(sem_post(&next->baton) == 0);
    while (sem_wait(&me->baton) != 0)
        must(errno == EINTR);
}

static bool never(void *argument)
{
    (void)argument;
    return false;
}

void sim_block(bool (*ready)(void *), void *argument, uint64_t until_us)
{
    struct fiber *f = &self->fiber;

    f->ready = ready ? ready : never;
    f->argument = argument;
    f->until_us = until_us;
    pass_to(choose());
    f->ready = NULL;
    f->until_us = UINT64_MAX;
}

void sim_wait_ms(uint64_t ms)
{
    sim_block(NULL, NULL, world.now_us + ms * 1000);
}

/* ---- threads ---- */

static struct thread *new_thread(const char *name)
{
    unsigned i = 0;

    while (i < thread_count && threads[i].fiber.used)
        i++;
    if (i == FIBERS_MAX)
        sim_fail("too many threads");
    thread_count += i == thread_count;
    struct thread *t = &threads[i];
    *t = (struct thread){.fiber = {.name = name, .used = true, .until_us = UINT64_MAX}};
    must(sem_init(&t->baton, 0, 0) == 0);
    return t;
}

void sim_start(uint64_t seed)
{
    must(!self);
    self = new_thread("main");
    self->thread = pthread_self();
    world = (struct world){.wall_us = (uint64_t)WALL_S * 1000000, .now_us = 1000000,
                           .steps_max = STEPS_MAX, .active = true,
                           .verbose = getenv("VERBOSE") != NULL};
    sim_reseed(seed);
}

static void *thread_main(void *argument)
{
    self = argument;
    while (sem_wait(&self->baton) != 0)
        must(errno == EINTR);
    self->result = self->main(self->argument);
    self->fiber.over = true;
    must(sem_post(&choose()->baton) == 0);
    return NULL;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*main)(void *),
                          void *argument)
{
    if (!world.active)
        return __real_pthread_create(thread, attr, main, argument);
    sim_enter();
    struct thread *t = new_thread(world.birth ? "server" : "outside");
    t->fiber.server = world.birth;
    t->main = main;
    t->argument = argument;
    int error = __real_pthread_create(&t->thread, attr, thread_main, t);
    must(error == 0);
    *thread = t->thread;
    sim_leave();
    return 0;
}

static bool is_over(void *argument)
{
    return ((struct thread *)argument)->fiber.over;
}

int __wrap_pthread_join(pthread_t thread, void **result)
{
    struct thread *t = NULL;

    for (unsigned i = 0; i < thread_count; i++)
        if (threads[i].fiber.used && pthread_equal(threads[i].thread, thread))
            t = &threads[i];
    if (!world.active || !t)
        return __real_pthread_join(thread, result);
    if (!t->fiber.over)
        sim_block(is_over, t, UINT64_MAX);
    int error = __real_pthread_join(thread, NULL);
    if (result)
        *result = t->result;
    sem_destroy(&t->baton);
    t->fiber.used = false;
    return error;
}

/* ---- conditions ---- */

static bool was_signaled(void *argument)
{
    return ((struct fiber *)argument)->signaled;
}

static int wait_for(pthread_cond_t *cond, pthread_mutex_t *mutex, uint64_t until_us)
{
    struct fiber *f = &self->fiber;

    f->cond = cond;
    f->signaled = false;
    pthread_mutex_unlock(mutex);
    sim_block(was_signaled, f, until_us);
    f->cond = NULL;
    pthread_mutex_lock(mutex);
    return f->signaled ? 0 : ETIMEDOUT;
}

int __wrap_pthread_cond_wait(pthread_cond_t *cond, pthread_mutex_t *mutex)
{
    return wait_for(cond, mutex, UINT64_MAX);
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex,
                                  const struct timespec *until)
{
    return wait_for(cond, mutex,
                    (uint64_t)until->tv_sec * 1000000 + (uint64_t)until->tv_nsec / 1000 + 1);
}

static int signal_some(pthread_cond_t *cond, bool all)
{
    unsigned from = (unsigned)sim_below(thread_count);

    for (unsigned n = 0; n < thread_count; n++) {
        struct fiber *f = &threads[(from + n) % thread_count].fiber;
        if (!f->used || f->cond != cond || f->signaled)
            continue;
        f->signaled = true;
        if (!all)
            break;
    }
    return 0;
}

int __wrap_pthread_cond_signal(pthread_cond_t *cond)
{
    return signal_some(cond, false);
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *cond)
{
    return signal_some(cond, true);
}
