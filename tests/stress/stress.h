/* Stress: many random clients against the real server over the scripted origin, with faults, a tiny
 * pool and a tiny disk. Every byte, every range and every version is checked.
 *
 * One run is a seed; what the seed decides is listed by its first lines of output.
 *
 * Invariants:
 *  1. A body is right only if it is that of the version its ETag names, byte by byte; an answer
 *     that ends early must end by a cut, never cleanly.
 *  2. A version that was replaced longer ago than the time to live is never served, unless the
 *     answer says that it is stale.
 *  3. While the origin is bent an error of upstream's kind is fair; in the calm at the end nothing
 *     but whole, right answers is. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_STRESS_H
#define HEADPOND_TESTS_STRESS_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "tests/lib/bytes.h"
#include "tests/lib/origin.h"

enum {
    CLIENTS = 32, THINGS = 240, BUMPS_KEPT = 16, PATH_BYTES = 200, KEY_BYTES = 64,
    ANSWER_HEAD_BYTES = 32 * KIB, READ_BYTES = 128 * KIB, REQUEST_MS = 60000,
};
#define STRESS_BUCKET "stress"

/* An object of the origin and when it became which version. */
struct thing {
    char key[KEY_BYTES];
    uint64_t size;
    pthread_mutex_t lock;
    uint64_t version;
    struct {
        uint64_t at_ms, version;
    } bump[BUMPS_KEPT];
    unsigned bumps;
};

enum outcome { OUT_WHOLE, OUT_ERROR, OUT_CUT, OUT_LEFT, OUT_REFUSED, OUT_WRONG, OUT_COUNT };

struct stress {
    uint64_t seed, seconds;
    bool kills;
    const char *program;
    struct origin *origin;
    pid_t pid;
    uint16_t port, admin_port;
    uint64_t ttl_ms, memory_mib, disk_mib;
    char dir[PATH_BYTES], log[PATH_BYTES + 32], config[PATH_BYTES + 32];
    struct thing thing[THINGS];
    _Atomic bool over;               /* clients end */
    _Atomic uint64_t calm_ms;        /* since when every answer must be right; 0 = not */
    _Atomic uint64_t gone_ms;        /* the server was last known to be away */
    _Atomic unsigned wrongs;
    _Atomic uint64_t outcome[OUT_COUNT], bytes, requests;
    struct {
        pthread_t thread;
        uint64_t random;
        _Atomic uint64_t began_ms;   /* of the running request; 0 = none */
        _Atomic uint64_t got;        /* body bytes of it */
        char what[160];
    } client[CLIENTS];
};
extern struct stress stress;

/* client.c */
void *client_main(void *number);
/* A mistake of the server's: told once, counted. */
void stress_wrong(const char *format, ...) printf_like(1, 2);
/* GET of a small body on a connection of its own: status, or 0. */
unsigned stress_fetch(uint16_t port, const char *target, char *out, size_t cap);

/* xorshift: a run's random numbers depend on its seed only */
static inline uint64_t dice(uint64_t *state, uint64_t sides)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return sides ? (*state * 0x2545f4914f6cdd1dULL >> 16) % sides : 0;
}

#endif
