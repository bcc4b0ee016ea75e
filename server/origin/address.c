/* The endpoint's addresses: who answers for the name, who is well, and the thread that asks the
 * resolver.
 *
 * Invariants:
 *  1. getaddrinfo() runs on the thread "headpond-dns" only; a literal address needs no thread.
 *  2. The table is the union of the answers of the last two minutes (an S3 name gives other
 *     addresses each time). What none of them had the store has left, and another may be there: it
 *     is dropped behind an answer that can be used. A resolver that fails takes nothing away. When
 *     the table is full, the address not seen for longest makes room.
 *  3. A failed address rests 10 s, then twice as long, at most 2 min; it is tried earlier only if
 *     nothing else is left.
 *  4. Plain HTTP reaches a public address only when the operator said so: others never enter the
 *     table.
 *  5. No name leads to a link-local address, whatever the resolver says. It is asked every 30 s;
 *     sooner, at most once a second, while it has no answer or none of its addresses answers.
 *
 * Life: made by origin_open(), ended by origin_close(); the thread holds no lock while it asks. An
 * end does not wait for a resolver that is silent: the thread is left alone then.
 * Failure: no answer is a log line; callers see an empty or an old table. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

#include "log.h"
#include "server/origin/inside.h"

enum {
    RESOLVE_EVERY_S = 30,
    RESOLVE_AGAIN_S = 1,
    /* Four answers: eight addresses each, as S3 gives them, fill the table. */
    UNSEEN_MS = 4 * RESOLVE_EVERY_S * 1000,
    FIRST_ANSWER_S = 3,
    LAST_ANSWER_S = 1,
    REST_MS = 10 * 1000,
    REST_MS_MAX = 120 * 1000,
};
_Static_assert(ORIGIN_ADDRESSES_MAX <= 32, "places tried are bits of a uint32_t");

struct addresses {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    char host[ORIGIN_HOST_BYTES], port[8];
    bool public_ok, refused;
    bool threaded, answered, stop, asked;  /* asked: for an answer before its time */
    bool over, left;                 /* the thread's; its owner's: who comes last frees */
    _Atomic uint32_t drops;          /* addresses dropped so far */
    /* of the last pick: the other one comes next in the same try */
    int last_family;
    unsigned turn;                   /* spreads picks over the healthy ones */
    struct address place[ORIGIN_ADDRESSES_MAX];
};

/* ---- the table ---- */

static bool same_address(const struct sockaddr_storage *a, const struct sockaddr *b)
{
    if (a->ss_family != b->sa_family)
        return false;
    if (a->ss_family == AF_INET) {
        const struct sockaddr_in *x = (const void *)a, *y = (const void *)b;
        return x->sin_addr.s_addr == y->sin_addr.s_addr && x->sin_port == y->sin_port;
    }
    const struct sockaddr_in6 *x = (const void *)a, *y = (const void *)b;
    return IN6_ARE_ADDR_EQUAL(&x->sin6_addr, &y->sin6_addr) && x->sin6_port == y->sin6_port &&
           x->sin6_scope_id == y->sin6_scope_id;
}

static struct address *place_for(struct addresses *a, const struct sockaddr *at)
{
    struct address *oldest = a->place;

    for (unsigned i = 0; i < ORIGIN_ADDRESSES_MAX; i++) {
        struct address *p = &a->place[i];
        if (p->len && same_address(&p->at, at))
            return p;
        if (oldest->len && (!p->len || p->seen_ms < oldest->seen_ms))
            oldest = p;
    }
    *oldest = (struct address){0};
    return oldest;
}

bool addresses_add(struct addresses *a, const struct sockaddr *at, socklen_t len)
{
    if ((at->sa_family != AF_INET && at->sa_family != AF_INET6) ||
        len > sizeof(struct sockaddr_storage))
        return false;
    pthread_mutex_lock(&a->lock);
    bool allowed = a->public_ok || address_is_private(at);
    if (allowed) {
        struct address *p = place_for(a, at);
        memcpy(&p->at, at, len);
        p->len = len;
        p->seen_ms = clock_ms();
    } else {
        a->refused = true;
    }
    pthread_mutex_unlock(&a->lock);
    return allowed;
}

void addresses_drop(struct addresses *a, uint64_t now_ms)
{
    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < ORIGIN_ADDRESSES_MAX; i++) {
        struct address *p = &a->place[i];
        if (!p->len || now_ms - min_u64(p->seen_ms, now_ms) < UNSEEN_MS)
            continue;
        *p = (struct address){0};
        atomic_fetch_add(&a->drops, 1);
    }
    pthread_mutex_unlock(&a->lock);
}

bool addresses_has(struct addresses *a, const struct sockaddr_storage *at, uint32_t *drops)
{
    uint32_t now = atomic_load(&a->drops);
    bool has = now == *drops;

    if (has)
        return true;
    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < ORIGIN_ADDRESSES_MAX; i++)
        has = has || (a->place[i].len &&
                      same_address(&a->place[i].at, (const struct sockaddr *)at));
    pthread_mutex_unlock(&a->lock);
    *drops = now;
    return has;
}

unsigned addresses_count(struct addresses *a)
{
    unsigned count = 0;

    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < ORIGIN_ADDRESSES_MAX; i++)
        count += a->place[i].len != 0;
    pthread_mutex_unlock(&a->lock);
    return count;
}

bool addresses_left(struct addresses *a, uint32_t tried)
{
    bool left = false;

    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < ORIGIN_ADDRESSES_MAX; i++)
        left = left || (a->place[i].len && !(tried >> i & 1));
    pthread_mutex_unlock(&a->lock);
    return left;
}

/* Smaller is better: resting (by when it ends), then the family: IPv6 first, then the other one
 * than the last. */
static uint64_t badness(const struct addresses *a, const struct address *p, uint64_t now_ms,
                        bool first)
{
    uint64_t rest = p->rest_until_ms > now_ms ? p->rest_until_ms - now_ms : 0;
    return rest * 2 + (p->at.ss_family == (first ? AF_INET : a->last_family));
}

int addresses_pick(struct addresses *a, uint64_t now_ms, uint32_t *tried, struct address *out)
{
    int best = -1;
    uint64_t best_badness = UINT64_MAX;

    pthread_mutex_lock(&a->lock);
    unsigned from = a->turn++;
    for (unsigned n = 0; n < ORIGIN_ADDRESSES_MAX; n++) {
        unsigned i = (from + n) % ORIGIN_ADDRESSES_MAX;
        if (!a->place[i].len || *tried >> i & 1)
            continue;
        uint64_t b = badness(a, &a->place[i], now_ms, *tried == 0);
        if (b < best_badness) {
            best_badness = b;
            best = (int)i;
        }
    }
    if (best >= 0) {
        *tried |= (uint32_t)1 << best;
        *out = a->place[best];
        a->last_family = out->at.ss_family;
        a->turn = (unsigned)best + 1;
    }
    pthread_mutex_unlock(&a->lock);
    return best;
}

static void judge_locked(struct address *p, bool good, uint64_t now_ms)
{
    if (good) {
        p->rest_ms = 0;
        p->rest_until_ms = 0;
        return;
    }
    p->rest_ms = p->rest_ms ? (uint32_t)min_u64((uint64_t)p->rest_ms * 2, REST_MS_MAX) : REST_MS;
    p->rest_until_ms = now_ms + p->rest_ms;
}

void addresses_judge(struct addresses *a, const struct sockaddr_storage *at, bool good,
                     uint64_t now_ms)
{
    pthread_mutex_lock(&a->lock);
    for (unsigned i = 0; i < ORIGIN_ADDRESSES_MAX; i++)
        if (a->place[i].len && same_address(&a->place[i].at, (const struct sockaddr *)at))
            judge_locked(&a->place[i], good, now_ms);
    pthread_mutex_unlock(&a->lock);
}

/* ---- the resolver's thread ---- */

/* False: nothing to be used came of it. */
static bool resolve(struct addresses *a)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
        .ai_protocol = IPPROTO_TCP,
                             .ai_flags = AI_NUMERICSERV};
    struct addrinfo *answer = NULL;

    int error = getaddrinfo(a->host, a->port, &hints, &answer);
    if (error != 0) {
        const char *text = error == EAI_SYSTEM ? strerrordesc_np(errno) : gai_strerror(error);
        log_event(EVENT_UPSTREAM_DNS, "host=%s error=%s", log_value(span_of(a->host)),
                  log_value(span_of(text)));
        return false;
    }
    unsigned used = 0, strange = 0;
    for (const struct addrinfo *i = answer; i; i = i->ai_next) {
        bool is_strange = address_is_strange(i->ai_addr);
        strange += is_strange;
        used += !is_strange && addresses_add(a, i->ai_addr, i->ai_addrlen);
    }
    freeaddrinfo(answer);
    if (used > 0)
        addresses_drop(a, clock_ms());
    else
        log_event(EVENT_UPSTREAM_DNS, "host=%s error=%s", log_value(span_of(a->host)),
                  log_value(span_of(strange ? "link-local or impossible addresses"
                                            : "only public addresses, and upstream.insecure is "
                                              "not set")));
    return used > 0;
}

static struct timespec in_seconds(unsigned s)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += s;
    return at;
}

/* Under the lock: until the time is over or the end; with early also until somebody asks. */
static void pause_for(struct addresses *a, unsigned s, bool early)
{
    struct timespec until = in_seconds(s);

    while (!a->stop && !(early && a->asked) &&
           pthread_cond_timedwait(&a->changed, &a->lock, &until) == 0)
        ;
}

static void free_addresses(struct addresses *a)
{
    pthread_cond_destroy(&a->changed);
    pthread_mutex_destroy(&a->lock);
    mem_give(a);
}

static void *resolve_main(void *arg)
{
    struct addresses *a = arg;

    pthread_setname_np(pthread_self(), "headpond-dns");
    pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        a->asked = false;
        pthread_mutex_unlock(&a->lock);
        bool good = resolve(a);
        pthread_mutex_lock(&a->lock);
        a->answered = true;
        pthread_cond_broadcast(&a->changed);
        pause_for(a, RESOLVE_AGAIN_S, false);
        if (good)
            pause_for(a, RESOLVE_EVERY_S - RESOLVE_AGAIN_S, true);
    }
    a->over = true;
    pthread_cond_broadcast(&a->changed);
    bool mine = a->left;
    pthread_mutex_unlock(&a->lock);
    if (mine)
        free_addresses(a);
    return NULL;
}

void addresses_refresh(struct addresses *a)
{
    pthread_mutex_lock(&a->lock);
    a->asked = a->threaded;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static enum err start_thread(struct addresses *a)
{
    sigset_t all, old;

    sigfillset(&all);                /* signals are main's */
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int error = pthread_create(&a->thread, NULL, resolve_main, a);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (error)
        return ERR_SYSTEM;
    a->threaded = true;
    struct timespec until = in_seconds(FIRST_ANSWER_S);
    pthread_mutex_lock(&a->lock);
    while (!a->answered && pthread_cond_timedwait(&a->changed, &a->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&a->lock);
    return OK;
}

static enum err add_literal(struct addresses *a, const struct endpoint *p)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
        .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *answer = NULL;

    if (getaddrinfo(p->host, a->port, &hints, &answer) != 0) /* asks nobody: both are numbers */
        return ERR_SYSTEM;
    addresses_add(a, answer->ai_addr, answer->ai_addrlen);
    freeaddrinfo(answer);
    return OK;
}

enum err addresses_open(const struct endpoint *p, bool public_ok, struct addresses **out,
                        bool *refused)
{
    struct addresses *a = mem_take(sizeof(*a));
    pthread_condattr_t monotonic;

    if (!a)
        return ERR_MEMORY;
    pthread_mutex_init(&a->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&a->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    memcpy(a->host, p->host, sizeof(a->host));
    snprintf(a->port, sizeof(a->port), "%u", (unsigned)p->port);
    a->public_ok = public_ok;
    enum err e = p->host_is_address ? add_literal(a, p) : start_thread(a);
    if (e != OK) {
        addresses_close(a);
        return e;
    }
    pthread_mutex_lock(&a->lock);
    *refused = a->refused;
    pthread_mutex_unlock(&a->lock);
    *out = a;
    return OK;
}

/* False: it still asks. Then it frees `a`, if the process lives to see that. */
static bool end_thread(struct addresses *a)
{
    struct timespec until = in_seconds(LAST_ANSWER_S);
    pthread_t thread = a->thread;

    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_broadcast(&a->changed);
    while (!a->over && pthread_cond_timedwait(&a->changed, &a->lock, &until) == 0)
        ;
    bool over = a->over;
    a->left = !over;
    pthread_mutex_unlock(&a->lock);
    if (over)
        pthread_join(thread, NULL);
    else
        pthread_detach(thread);
    return over;
}

void addresses_close(struct addresses *a)
{
    if (a && (!a->threaded || end_thread(a)))
        free_addresses(a);
}
