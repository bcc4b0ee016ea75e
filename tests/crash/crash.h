/* Crash: real servers that are killed, lose power, find their files damaged or full; after each
 * start every byte is compared with what the origin holds.
 *
 * A run is a part, a number of rounds and a seed; lanes (a server with its directories, its objects
 * and its dice) work side by side, so a seed reproduces what the dice decide, not the kernel's
 * timing.
 *
 * Invariants:
 *  1. What a server holds is learnt from outside only: bodies, x-headpond-cached, metrics, and what
 *     the origin was asked for.
 *  2. An answer that ends cleanly carries the bytes of the version that its ETag names. An answer
 *     may be an honest error, or break, only while the server or its disk is being hurt.
 *  3. All this happens in network and mount namespaces of the process itself: ports cannot collide,
 *     and mounts go with it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_CRASH_H
#define HEADPOND_TESTS_CRASH_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "tests/lib/bytes.h"
#include "tests/lib/origin.h"

enum {
    LANES_MAX = 8, DIRS_MAX = 2, THINGS_MAX = 4096, PATH_BYTES = 200, NAME_BYTES = 64,
    BUMPS_KEPT = 8, PAGE_BYTES = 256 * KIB, READY_MS = 30000, ASK_MS = 30000, HEAD_BYTES = 16 * KIB,
    READ_BYTES = 256 * KIB,
};

/* ---- dice: what a seed decides ---- */
static inline uint64_t dice(uint64_t *state, uint64_t sides)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return sides ? (*state * 0x2545f4914f6cdd1dULL >> 16) % sides : 0;
}
static inline uint64_t dice_of(uint64_t seed, uint64_t number)
{
    return bytes_mix(seed * 0x9e3779b97f4a7c15u + number + 1) | 1;
}

/* ---- objects ---- */
struct thing {
    char key[NAME_BYTES];            /* "...@SIZE": the origin knows it by that */
    uint64_t size;
    pthread_mutex_t lock;            /* of what follows */
    uint64_t version;                /* the origin's */
    uint64_t bumped_ms[BUMPS_KEPT];  /* when version n became n + 1, at n % BUMPS_KEPT */
    uint64_t acked_ms;               /* since when its current version was read whole; 0 = not */
    uint64_t acked_bytes;            /* what the origin had sent of it by then */
};

/* ---- daemon.c: a server process, its files, its metrics ---- */
struct daemon {
    unsigned number;
    char home[PATH_BYTES], config[PATH_BYTES + 32], log[PATH_BYTES + 32];
    char dir[DIRS_MAX][PATH_BYTES + 32];
    unsigned dirs, workers;
    uint64_t slab_mib, memory_mib, ttl_ms, min_free_mib;
    uint16_t port, admin_port;
    pid_t pid;                       /* 0 = none */
    off_t log_from;                  /* of this start */
    const char *under;               /* strace's injection, or NULL */
};
enum start { START_READY, START_REFUSED, START_DIED, START_LATE };

/* Directories and configuration below home, which is made. */
must_check bool daemon_make(struct daemon *d, const char *home);
must_check bool daemon_configure(const struct daemon *d);
void daemon_launch(struct daemon *d);
enum start daemon_wait_ready(struct daemon *d);
enum start daemon_start(struct daemon *d);
/* false: it ended before by itself, told by daemon_ending */
bool daemon_end(struct daemon *d, int with);
bool daemon_alive(struct daemon *d);
const char *daemon_ending(void);     /* how the last one ended, of this thread */
/* GET on the admin port; owned, mem_give(); NULL: none came */
char *daemon_page(struct daemon *d, const char *target);
/* One metric's sum now; negative: no page came. */
double daemon_metric(struct daemon *d, const char *name, const char *label);
/* Waits until all that was fetched is written and its index committed; false: not within a minute,
 * or the server is gone. A write under way is in no batch of the index yet: both are asked. */
bool daemon_settles(struct daemon *d);
/* sum over the series whose line holds the label text ("" = all); 0 when there is none */
double metric_sum(const char *page, const char *name, const char *label);
/* lines of the log since the last start that hold the text */
unsigned daemon_logged(const struct daemon *d, const char *text);
void daemon_show_log(const struct daemon *d);

/* ---- reader.c: asks and compares ---- */
struct ask {
    struct thing *thing;
    const char *bucket;
    bool head, ranged;
    uint64_t from, to;               /* inclusive */
    uint64_t ttl_ms;                 /* older versions may be served for so long; 0 = not judged */
};
struct got {
    unsigned status;
    uint64_t version, cached;        /* cached: of x-headpond-cached */
    uint64_t length, from, to;
    bool has_length, has_range, close;
    char etag[BYTES_ETAG_MAX + 8], xcache[24], date[40];
};
enum outcome { OUT_WHOLE, OUT_ERROR, OUT_CUT, OUT_REFUSED, OUT_LATE, OUT_WRONG, OUT_COUNT };
struct reader {
    uint16_t port;
    int fd;                          /* -1 = not connected */
    char *buffer;
    size_t at, len;
    uint64_t asked_ms;
    char why[300];                   /* of OUT_WRONG and OUT_LATE */
};
must_check bool reader_make(struct reader *r, uint16_t port);
void reader_end(struct reader *r);
void reader_hang_up(struct reader *r);
enum outcome reader_ask(struct reader *r, const struct ask *a, struct got *got);
unsigned fetch_page(uint16_t port, const char *target, char *out, size_t cap);

/* ---- world.c: origin, namespaces, files, verdicts ---- */
struct world {
    const char *program;
    uint64_t seed;
    unsigned rounds;
    char root[PATH_BYTES];           /* of everything that is written */
    struct origin *origin;
    pthread_mutex_t lock;            /* of the origin's script, and of telling */
    unsigned passed, failed;
    _Atomic uint64_t bytes, asks;    /* read and compared */
};
extern struct world world;

must_check bool world_begin(void);
void world_end(void);
void tell(const char *format, ...) printf_like(1, 2);
/* counts; a failure is told with its round */
void verdict(bool good, const char *format, ...) printf_like(2, 3);
void origin_tell(const char *format, ...) printf_like(1, 2);
uint64_t origin_body_bytes(const char *bucket, const char *key);
void things_init(struct thing *t, unsigned count, uint64_t *dice_state, uint64_t total_bytes);
void thing_bump(struct thing *t, const char *bucket);

bool run_program(const char *const argument[]);        /* waits; true: exit 0 */
bool copy_file(const char *from, const char *to);
bool copy_tree(const char *from, const char *to);      /* files and one level of directories */
void remove_tree(const char *path);
/* A loop device over an ext4 image; the mount and the device go together. */
struct volume {
    char image[PATH_BYTES + 32], at[PATH_BYTES + 32];
    bool mounted;
};
must_check bool volume_make(struct volume *v, const char *home, uint64_t mib, const char *feature);
must_check bool volume_mount(struct volume *v);
/* as a power cut: nothing that was not on disk gets there */
bool volume_cut(struct volume *v, bool with_journal);
bool volume_unmount(struct volume *v);

/* ---- the parts ---- */
void part_kill(void);
void part_power(void);
void part_damage(void);
void part_start(void);
void part_full(void);

#endif
