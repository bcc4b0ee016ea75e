/* A directory whose disk fails: what is done about it, and the tests that bring it back.
 *
 * health.c decides; here stand the lock around it, what follows from a change, and the thread that
 * tests. Nobody else may touch a disk that is not up: a system call on one that hangs does not
 * return.
 *
 * Invariants:
 *  1. disk.state is health.state as it was last decided; whoever begins an operation reads it, and
 *     needs no lock.
 *  2. Only the thread of a directory calls the system about it, but for operations that have
 *     deadlines of their own (keeper.c), the writer of the index, and the start. What it does
 *     beyond testing stands in return.c and absent.c.
 *  3. The lock is held for a few comparisons, never across I/O; no other lock is taken below it.
 *
 * Life: disk_init() with the directory, disk_start() when its index is written, disk_stop() when no
 * core runs any more.
 * Failure: a thread that hangs with its disk is left behind at the end. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "server/cache/start.h"

enum {
    PROBE_BYTES = 4 * KIB,
    SUSPECT_EVERY_MS = 100,
    PROBATION_EVERY_MS = 500,
    UP_EVERY_MS = 200,               /* while an index is written anew */
    FENCED_EVERY_MS = 1000,
    TIMEOUT_MS = 1000,               /* of a test, where operations have none */
    COMMIT_TIMES = 10,               /* so much longer may a commit take */
};

uint64_t disk_timeout_ms(const struct directory *d)
{
    uint64_t ms = d->cache->config->cache_disk_timeout;

    return ms > 0 ? ms : TIMEOUT_MS;
}

/* ---- how far writes are behind ---- */
enum { WRITE_PART = 8 };             /* so much of the average is the last one */

void disk_write_begun(struct directory *d, uint32_t bytes)
{
    atomic_fetch_add_explicit(&d->disk.writing_bytes, bytes, memory_order_relaxed);
}

void disk_write_ended(struct directory *d, uint32_t bytes)
{
    atomic_fetch_sub_explicit(&d->disk.writing_bytes, bytes, memory_order_relaxed);
}

void disk_write_took(struct directory *d, uint64_t us)
{
    uint64_t before = atomic_load_explicit(&d->disk.write_us, memory_order_relaxed);

    /* If two cores tell at once one of them is lost: it is an average. */
    atomic_store_explicit(&d->disk.write_us, before - before / WRITE_PART + us / WRITE_PART,
                          memory_order_relaxed);
}

static uint64_t writing_bytes(const struct directory *d)
{
    return atomic_load_explicit(&d->disk.writing_bytes, memory_order_relaxed);
}

/* With nothing under way what was slow is history, and one must be let in to know better. */
static bool writes_are_slow(const struct directory *d)
{
    uint64_t limit_ms = d->cache->config->cache_max_write_delay;

    return limit_ms > 0 && directory_is_up(d) && writing_bytes(d) > 0 &&
        atomic_load_explicit(&d->disk.write_us, memory_order_relaxed) >= limit_ms * 1000;
}

bool disk_is_behind(struct directory *d)
{
    struct cache *c = d->cache;
    unsigned up = 0;

    if (!writes_are_slow(d))
        return false;
    for (unsigned i = 0; i < c->dir_count; i++)
        up += directory_is_up(&c->dir[i]);
    struct pool *pool = cache_pool(c);
    uint64_t share = pool_share_bytes(pool, BUFFER_FILL), bytes = writing_bytes(d);
    bool used_up = pool_share_left(pool, BUFFER_FILL) < CHUNK_BYTES;
    return up == 1 ? used_up : bytes > share / (used_up ? 4 : 2);
}

bool cache_is_behind(struct cache *c)
{
    bool behind = false;

    for (unsigned i = 0; i < c->dir_count; i++)
        behind = behind || writes_are_slow(&c->dir[i]);
    return behind;
}

/* ---- words ---- */
static const struct {
    const char *why, *fix;
} words[] = {
    [DISK_SOUND] = {"", ""},
    [DISK_ERRORS] = {"operations on it failed again and again",
                     "look at the kernel's log for the device; it comes back by itself"},
    [DISK_FROZEN] = {"it does not answer",
                     "look at the kernel's log for the device; it comes back by itself"},
    [DISK_HOLDS] = {"what hangs on it keeps too much memory",
                    "look at the kernel's log for the device; it comes back by itself"},
    [DISK_COMMITS] = {"its index cannot be written",
                      "look at the kernel's log for the device; it comes back by itself"},
    [DISK_TEST] = {"a test read or write failed",
                   "look at the kernel's log for the device; it comes back by itself"},
    [DISK_READ_ONLY] = {"its file system is read-only",
                        "look at the kernel's log, repair it and mount it writable"},
    [DISK_REPLACED] = {"another directory, or none, stands at its path",
                       "mount the disk there again, it comes back by itself; to use another "
                       "one restart headpond"},
    [DISK_MISSING] = {"nothing is mounted where it was",
                      "mount the disk there, it comes in by itself; to use what stands there now "
                      "name another path"},
    [DISK_OTHER] = {"what it holds cannot be used beside what is in use",
                    "look at the log, it tells why; then restart headpond"},
    [DISK_OPERATOR] = {"fenced by hand", "headpond disk readmit DIR takes it back"},
};

const char *disk_why(enum disk_cause cause)
{
    return words[cause].why;
}

const char *disk_fix(enum disk_cause cause)
{
    return words[cause].fix;
}

/* ---- what follows from a change ---- */
static void tell(const struct directory *d, const struct health *now)
{
    struct span dir = span_of(d->path), why = span_of(words[now->cause].why);

    switch (now->state) {
    case DISK_UP: log_event(EVENT_DISK_UP, "disk=%s", log_value(dir)); break;
    case DISK_SUSPECT:
        log_event(EVENT_DISK_SUSPECT, "disk=%s why=%s", log_value(dir), log_value(why));
        break;
    case DISK_FENCED:
        log_event(EVENT_DISK_FENCED, "disk=%s why=%s fix=%s", log_value(dir), log_value(why),
                  log_value(span_of(words[now->cause].fix)));
        break;
    case DISK_PROBATION:
        log_event(EVENT_DISK_PROBATION, "disk=%s seconds=%llu", log_value(dir),
                  (unsigned long long)(health_probation_ms(now) / 1000));
        break;
    }
}

/* Behind a decision, under the lock, which it gives back. */
static void publish(struct directory *d, const struct health *before)
{
    struct health now = d->disk.health;
    bool moved = now.state != before->state;

    atomic_store(&d->disk.state, (uint8_t)now.state);
    if (moved) {
        d->disk.asked = true;
        pthread_cond_signal(&d->disk.wake);
    }
    pthread_mutex_unlock(&d->disk.lock);
    if (moved || now.cause != before->cause)
        tell(d, &now);
    if (moved && now.cause == DISK_FROZEN && d->journal)
        journal_give_up(d->journal);
}

static void decide(struct directory *d, void (*what)(struct health *h, uint64_t now_ms))
{
    pthread_mutex_lock(&d->disk.lock);
    struct health before = d->disk.health;
    what(&d->disk.health, clock_ms());
    publish(d, &before);
}

void disk_error(struct directory *d)
{
    decide(d, health_error);
}

void disk_late(struct directory *d)
{
    decide(d, health_late);
}

void disk_leave_out(struct directory *d, enum disk_cause cause)
{
    pthread_mutex_lock(&d->disk.lock);
    struct health before = d->disk.health;
    health_fence(&d->disk.health, cause, clock_ms());
    publish(d, &before);
}

static void fence_by_hand(struct health *h, uint64_t now_ms)
{
    health_fence(h, DISK_OPERATOR, now_ms);
}

static void fence_for_commits(struct health *h, uint64_t now_ms)
{
    health_fence(h, DISK_COMMITS, now_ms);
}

static void fence_for_memory(struct health *h, uint64_t now_ms)
{
    if (h->state == DISK_UP)
        health_fence(h, DISK_HOLDS, now_ms);
}

void disk_holds_much(struct directory *d)
{
    decide(d, fence_for_memory);
}

static struct directory *find(struct cache *c, const char *dir)
{
    for (unsigned i = 0; i < c->dir_count; i++)
        if (strcmp(c->dir[i].path, dir) == 0)
            return &c->dir[i];
    return NULL;
}

bool cache_disk_fence(struct cache *c, const char *dir)
{
    struct directory *d = find(c, dir);

    if (d)
        decide(d, fence_by_hand);
    return d != NULL;
}

bool cache_disk_readmit(struct cache *c, const char *dir)
{
    struct directory *d = find(c, dir);

    if (d)
        decide(d, health_readmit);
    return d != NULL;
}

void disk_ask(struct directory *d)
{
    pthread_mutex_lock(&d->disk.lock);
    d->disk.asked = true;
    pthread_cond_signal(&d->disk.wake);
    pthread_mutex_unlock(&d->disk.lock);
}

/* A commit may take seconds on a busy disk, a small read does not: that tells them apart. */
static void watch_commit(struct directory *d, uint64_t commit_ms)
{
    uint64_t limit_ms = disk_timeout_ms(d), began_ms = atomic_load(&d->disk.test_began_ms);

    if (commit_ms >= limit_ms * COMMIT_TIMES)
        decide(d, fence_for_commits);
    else if (commit_ms >= limit_ms / 2 && began_ms == 0)
        disk_ask(d);
    else if (began_ms > 0 && clock_ms() - began_ms >= limit_ms / 2)
        disk_late(d);
}

bool cache_watch(struct cache *c)
{
    bool closely = false;

    for (unsigned i = 0; i < c->dir_count; i++) {
        struct directory *d = &c->dir[i];
        uint64_t commit_ms = journal_busy_ms(d->journal);
        if (directory_is_up(d) && commit_ms > 0)
            watch_commit(d, commit_ms);
        if (!directory_is_up(d))
            decide(d, health_tick);
        if (!directory_is_up(d) && commit_ms >= disk_timeout_ms(d) / 2)
            journal_give_up(d->journal);
        closely = closely || commit_ms > 0 || !directory_is_up(d);
    }
    return closely;
}

void disk_returned(struct directory *d)
{
    pthread_mutex_lock(&d->disk.lock);
    d->disk.asked = d->disk.health.state != DISK_UP;
    pthread_cond_signal(&d->disk.wake);
    pthread_mutex_unlock(&d->disk.lock);
}

/* ---- a test ---- */
/* What an error means for the directory as a whole. */
enum disk_cause disk_cause_of(int error)
{
    switch (error) {
    case EROFS: return DISK_READ_ONLY;
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
    case ENOTCONN:
    case ESTALE: return DISK_REPLACED;
    default: return DISK_TEST;
    }
}

static enum disk_cause test_path(const struct directory *d)
{
    struct stat ours, there;
    int fd = open(d->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0)
        return disk_cause_of(errno);
    int rc = fstat(fd, &there);
    if (rc == 0)
        rc = fstat(d->fd, &ours);
    int error = errno;
    close(fd);
    if (rc != 0)
        return disk_cause_of(error);
    bool same = ours.st_dev == there.st_dev && ours.st_ino == there.st_ino && there.st_nlink > 0;
    return same ? DISK_SOUND : DISK_REPLACED;
}

/* A full file system is no reason: what it holds can be read, and the slab has its room. */
static enum disk_cause test_write(const struct directory *d, uint8_t *page)
{
    int fd = openat(d->fd, "probe", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool full = fd < 0 && (errno == ENOSPC || errno == EDQUOT);

    if (fd < 0)
        return full ? DISK_SOUND : disk_cause_of(errno);
    random_bytes(page, PROBE_BYTES);
    ssize_t n = pwrite(fd, page, PROBE_BYTES, 0);
    int error = n < 0 ? errno : n < PROBE_BYTES ? ENOSPC : 0;
    if (error == 0 && fdatasync(fd) != 0)
        error = errno;
    close(fd);
    return error == 0 || error == ENOSPC || error == EDQUOT ? DISK_SOUND : disk_cause_of(error);
}

/* A slab that was cut is as long as before again: what it lost does not verify, the rest serves. */
static enum disk_cause test_read(const struct directory *d, uint8_t *page)
{
    uint64_t at = random_u64() % (d->header.slab_bytes / PROBE_BYTES) * PROBE_BYTES;
    ssize_t n = pread(d->slab_fd, page, PROBE_BYTES, (off_t)at);

    if (n >= 0 && n < PROBE_BYTES)
        n = ftruncate(d->slab_fd, (off_t)d->header.slab_bytes) == 0 ? PROBE_BYTES : -1;
    return n == PROBE_BYTES ? DISK_SOUND : disk_cause_of(errno);
}

static enum disk_cause test(struct directory *d)
{
    _Alignas(PROBE_BYTES) uint8_t page[PROBE_BYTES];
    uint64_t began_ms = clock_ms();

    atomic_store(&d->disk.test_began_ms, began_ms);
    enum disk_cause found = test_path(d);
    if (found == DISK_SOUND)
        found = test_read(d, page);
    if (found == DISK_SOUND)
        found = test_write(d, page);
    atomic_store(&d->disk.test_began_ms, 0);
    bool slow = clock_ms() - began_ms >= disk_timeout_ms(d);
    return found == DISK_SOUND && slow ? DISK_FROZEN : found;
}

/* ---- the thread ---- */
static uint64_t pause_ms(const struct disk *s)
{
    switch (s->health.state) {
    case DISK_UP: break;
    case DISK_SUSPECT: return SUSPECT_EVERY_MS;
    case DISK_FENCED: return FENCED_EVERY_MS;
    case DISK_PROBATION: return PROBATION_EVERY_MS;
    }
    return s->busy ? UP_EVERY_MS : UINT64_MAX;
}

/* A test, and what it shows to be necessary. fenced: by what was found, not by hand. */
static enum disk_cause look_after(struct directory *d, bool fenced)
{
    enum disk_cause found;

    if (directory_is_absent(d)) {
        found = fenced ? directory_join(d) : DISK_MISSING;
        if (found != DISK_SOUND)
            return found;
    }
    found = d->away ? DISK_REPLACED : test(d);
    if (found == DISK_REPLACED && fenced && directory_return(d))
        found = test(d);
    d->disk.busy = found == DISK_SOUND && index_renew(d);
    return found;
}

/* Until a test is due, or asked for; lock held. Meanwhile what the start left behind is read. */
static void wait_for_turn(struct directory *d)
{
    struct disk *s = &d->disk;
    uint64_t began_ms = clock_ms();

    while (!s->stopping && !s->asked) {
        uint64_t ms = pause_ms(s), waited_ms = clock_ms() - began_ms;
        if (waited_ms >= ms)
            break;
        if (sums_wanted(d)) {
            pthread_mutex_unlock(&s->lock);
            sums_work(d);
            pthread_mutex_lock(&s->lock);
        } else if (ms == UINT64_MAX)
            pthread_cond_wait(&s->wake, &s->lock);
        else
            cache_wait(&s->wake, &s->lock, ms - waited_ms);
    }
    s->asked = false;
}

static void *tester(void *arg)
{
    struct directory *d = arg;
    struct disk *s = &d->disk;

    pthread_setname_np(pthread_self(), "disk");
    /* The child that read the index said its last word, but to unmap a large file takes it a while
     * (a quarter of a second for 5 GiB), which the first requests need not wait for (sums.c). */
    if (!d->sums.reader)
        recover_end(d);
    pthread_mutex_lock(&s->lock);
    for (;;) {
        wait_for_turn(d);
        if (s->stopping)
            break;
        bool fenced = s->health.state == DISK_FENCED && s->health.cause != DISK_OPERATOR;
        pthread_mutex_unlock(&s->lock);
        enum disk_cause found = look_after(d, fenced);
        bool hanging = atomic_load(&s->stuck_ops) > 0 ||
                       journal_busy_ms(d->journal) >= disk_timeout_ms(d);
        pthread_mutex_lock(&s->lock);
        struct health before = s->health;
        health_tick(&s->health, clock_ms());
        health_tested(&s->health, found, hanging, clock_ms());
        publish(d, &before);
        pthread_mutex_lock(&s->lock);
    }
    s->ended = true;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

void disk_init(struct directory *d)
{
    pthread_condattr_t attr;

    list_init(&d->sums.wants);
    pthread_mutex_init(&d->disk.lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d->disk.wake, &attr);
    pthread_condattr_destroy(&attr);
}

enum err disk_start(struct directory *d)
{
    if (pthread_create(&d->disk.thread, NULL, tester, d) != 0)
        return ERR_SYSTEM;
    d->disk.running = true;
    return OK;
}

bool disk_is_stopping(struct directory *d)
{
    pthread_mutex_lock(&d->disk.lock);
    bool stopping = d->disk.stopping;
    pthread_mutex_unlock(&d->disk.lock);
    return stopping;
}

bool disk_stop(struct directory *d)
{
    struct disk *s = &d->disk;

    if (!s->running)
        return true;
    pthread_mutex_lock(&s->lock);
    s->stopping = true;
    pthread_cond_broadcast(&s->wake);
    uint64_t until_ms = clock_ms() + disk_timeout_ms(d);
    while (!s->ended && clock_ms() < until_ms)
        cache_wait(&s->wake, &s->lock, until_ms - clock_ms());
    bool over = s->ended;
    pthread_mutex_unlock(&s->lock);
    if (!over)
        return false;
    pthread_join(s->thread, NULL);
    s->running = false;
    return true;
}
