/* What the parts share: the namespaces, the origin, objects, verdicts.
 *
 * Invariants:
 *  1. After world_begin() this process has a network and mounts of its own; only lo is up.
 *  2. The origin's script and standard output are used by one lane at a time.
 *
 * Life: world_begin(), the part, world_end(). Failure: begin says why and the run ends. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/crash/crash.h"

struct world world = {.lock = PTHREAD_MUTEX_INITIALIZER};

void tell(const char *format, ...)
{
    char text[900];
    va_list more;

    va_start(more, format);
    vsnprintf(text, sizeof text, format, more);
    va_end(more);
    size_t len = strlen(text);
    if (len > 0 && text[len - 1] == '\n')
        text[len - 1] = '\0';
    printf("%s\n", text);
    fflush(stdout);
}

void verdict(bool good, const char *format, ...)
{
    char text[700];
    va_list more;

    va_start(more, format);
    vsnprintf(text, sizeof text, format, more);
    va_end(more);
    pthread_mutex_lock(&world.lock);
    world.passed += good;
    world.failed += !good;
    pthread_mutex_unlock(&world.lock);
    if (!good)
        tell("FAILED (seed %llu) %s", (unsigned long long)world.seed, text);
}

/* ---- the origin ---- */
void origin_tell(const char *format, ...)
{
    char script[400], answer[400];
    struct text t;
    va_list more;

    va_start(more, format);
    vsnprintf(script, sizeof script, format, more);
    va_end(more);
    text_init(&t, answer, sizeof answer);
    pthread_mutex_lock(&world.lock);
    bool good = origin_script(world.origin, span_of(script), &t);
    pthread_mutex_unlock(&world.lock);
    if (!good)
        tell("origin: %s: %s", script, answer);
    must(good);
}

uint64_t origin_body_bytes(const char *bucket, const char *key)
{
    uint64_t requests, bytes = 0;

    pthread_mutex_lock(&world.lock);
    if (!origin_key_stats(world.origin, span_of(bucket), span_of(key), &requests, &bytes))
        bytes = 0;
    pthread_mutex_unlock(&world.lock);
    return bytes;
}

/* ---- objects ---- */
static uint64_t size_of_thing(unsigned n, uint64_t *state)
{
    static const uint64_t edges[] = {0, 1, 4095, 4097, 128 * KIB, 128 * KIB + 1, MIB, MIB + 1,
                                     8 * MIB, 8 * MIB + 1};
    uint64_t kind = dice(state, 100);

    if (n < ARRAY_COUNT(edges))
        return edges[n];
    return kind < 55   ? 1 + dice(state, 256 * KIB)
           : kind < 85 ? 1 + dice(state, 3 * MIB)
           : kind < 95 ? 1 + dice(state, 9 * MIB)
                       : 1 + dice(state, 20 * MIB);
}

void things_init(struct thing *t, unsigned count, uint64_t *state, uint64_t total_bytes)
{
    uint64_t sum = 0, scaled;

    for (unsigned i = 0; i < count; i++) {
        t[i].size = size_of_thing(i, state);
        sum += t[i].size;
    }
    for (unsigned i = 0; i < count; i++) {
        /* The edges keep their sizes. */
        scaled = (uint64_t)((double)t[i].size * (double)total_bytes / (double)sum);
        t[i].size = i < 10 ? t[i].size : scaled;
        t[i].version = 1;
        t[i].acked_ms = 0;
        pthread_mutex_init(&t[i].lock, NULL);
        snprintf(t[i].key, sizeof t[i].key, "o%03u@%llu", i, (unsigned long long)t[i].size);
    }
}

void thing_bump(struct thing *t, const char *bucket)
{
    pthread_mutex_lock(&t->lock);
    origin_tell("bump %s %s", bucket, t->key);
    t->bumped_ms[t->version % BUMPS_KEPT] = clock_ms();
    t->version++;
    t->acked_ms = 0;
    pthread_mutex_unlock(&t->lock);
}

/* ---- begin and end ---- */
static bool raise_lo(void)
{
    struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool good = fd >= 0 && ioctl(fd, SIOCSIFFLAGS, &lo) == 0;

    if (fd >= 0)
        close(fd);
    return good;
}

bool world_begin(void)
{
    char why[200] = "";
    const char *below = getenv("TMPDIR");
    struct origin_options options = {.quiet = true};

    if (unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 || !raise_lo() ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0) {
        tell("namespaces of its own are needed (root): %s", strerror(errno));
        return false;
    }
    snprintf(world.root, sizeof world.root, "%s/headpond-crash-XXXXXX",
             below && *below ? below : "/var/tmp");
    if (!mkdtemp(world.root)) {
        tell("%s: %s", world.root, strerror(errno));
        return false;
    }
    world.origin = origin_start(&options, why);
    if (!world.origin)
        tell("origin: %s", why);
    return world.origin != NULL;
}

void world_end(void)
{
    if (world.origin)
        origin_stop(world.origin);
    if (world.failed == 0)
        remove_tree(world.root);
    else
        tell("# kept %s", world.root);
}
