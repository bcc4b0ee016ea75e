/* The cache as a whole: birth, death, status, and the metrics that are counted across threads.
 *
 * Invariants:
 *  1. All directories share one secret; a new one adopts it, one with another is refused.
 *  2. Order of birth: locks and headers of all directories, then their slabs and indexes, the
 *     freshest directory first, then the writer threads, then the pool. Nothing forks once a thread
 *     exists. Death is mirrored: all writers stop before any of their parts goes.
 *  3. The session's number is higher than any found, and in every directory that can be written
 *     before the first request.
 *  4. What may kill us or fail because of what stands in a directory runs between
 *     directory_risk_begin() and _end(): starts that fail again and again end by themselves.
 *
 * Life: cache_open() by main before the cores, cache_close() after them.
 * Failure: cache_open() tells in words and leaves nothing behind but what it made on disk. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <unistd.h>

#include "log.h"
#include "server/cache/start.h"

/* Of a small object, with its ghosts: bounds how many chunks there can be. */
enum { INDEX_BYTES_PER_CHUNK = 1280 };

enum { WHY_BYTES = 512 };

/* ---- secret and directories ---- */
static void init_directory(struct cache *c, unsigned number)
{
    struct directory *d = &c->dir[number];

    *d = (struct directory){.cache = c, .number = number,
                            .path = c->config->cache_dirs.item[number]};
    d->fd = d->lock_fd = d->slab_fd = d->starts_fd = -1;
    pthread_mutex_init(&d->starts_lock, NULL);
    disk_init(d);
    d->metric = metric_name_label(NAMED_DISK, d->path);
    c->dir_count = number + 1;
}

static enum err open_one(struct directory *d, const struct directory **known, char why[WHY_BYTES])
{
    TRY(directory_open(d, why));
    if (d->fresh)
        return OK;
    if (*known && memcmp((*known)->header.secret, d->header.secret, sizeof d->header.secret) != 0) {
        snprintf(why, WHY_BYTES,
                 "%s belongs to another cache than %s: "
                 "name directories of one cache, or empty one of them",
                 d->path, (*known)->path);
        return ERR_FOREIGN;
    }
    directory_read_mounts(d);
    *known = d;
    return OK;
}

/* Those with a header first: they know where the others are mounted. */
static enum err open_some(struct cache *c, bool old, const struct directory **known,
                          char why[WHY_BYTES])
{
    for (unsigned i = 0; i < c->dir_count; i++) {
        struct directory *d = &c->dir[i];
        if (directory_is_absent(d) || d->fd >= 0 || (old && !directory_has_header(d)))
            continue;
        if (!old && directory_is_unmounted(d)) {
            directory_leave_out(d, DISK_MISSING);
            continue;
        }
        enum err err = open_one(d, known, why);
        if (err != OK && !directory_disk_failed(d, err))
            return err;
        if (err != OK)
            directory_leave_out(d, disk_cause_of(d->failed));
    }
    return OK;
}

static enum err open_directories(struct cache *c, char why[WHY_BYTES])
{
    const struct conf_list *dirs = &c->config->cache_dirs;
    const struct directory *known = NULL;

    if (dirs->count > CACHE_DIRS_MAX) {
        snprintf(why, WHY_BYTES, "cache.dirs names %u directories: at most %d are possible",
                 dirs->count, CACHE_DIRS_MAX);
        return ERR_CONFIG;
    }
    for (unsigned i = 0; i < dirs->count; i++)
        init_directory(c, i);
    directory_probe_all(c);
    TRY(open_some(c, true, &known, why));
    TRY(open_some(c, false, &known, why));
    if (known)
        memcpy(c->secret, known->header.secret, sizeof c->secret);
    else
        random_bytes(c->secret, sizeof c->secret);
    return OK;
}

static enum err move_aside(struct directory *d, const char *cause, char why[WHY_BYTES])
{
    if (directory_move_index(d, cause) == OK)
        return OK;
    snprintf(why, WHY_BYTES, "%s: the index is damaged and cannot be moved aside: remove %s/index",
             d->path, d->path);
    return ERR_DISK;
}

/* A child begins to read its index. */
static enum err begin_directory(struct directory *d, char why[WHY_BYTES])
{
    if (directory_is_absent(d))
        return OK;
    if (directory_start_failed_often(d))
        TRY(move_aside(d, "starts", why));
    return recover_begin(d, why);
}

/* What a load fills, empty. Of an absent one only what others need to pass it by. */
static enum err prepare_directory(struct directory *d)
{
    bool absent = directory_is_absent(d);

    d->space = absent ? NULL : space_make(d->header.slab_bytes, d->number);
    d->journal = journal_make(d);
    if ((!d->space && !absent) || !d->journal)
        return ERR_MEMORY;
    if (absent)
        return residents_make(&d->residents, 0);
    return residents_make(&d->residents, (uint32_t)(d->header.slab_bytes / SPACE_PAGE_BYTES));
}


/* Do the directories that were in use when this one was written last stand among those of now? If
 * not, another one may have gone on without it. Some subset of those of now must give their sum. */
static bool is_among(const struct cache *c, const struct directory *d)
{
    uint64_t sum = 0;

    if (d->members == 0)
        return true;                 /* written by a version that did not tell */
    for (uint32_t set = 1; set < 1U << c->dir_count; set++) {
        /* subsets in the order of a Gray code */
        sum ^= directory_member(&c->dir[__builtin_ctz(set)]);
        if (sum == d->members)
            return true;
    }
    return false;
}

/* What each child found in `state`. Again: an index was moved aside. */
static enum err read_facts(struct cache *c, bool *again, char why[WHY_BYTES])
{
    for (unsigned i = 0; i < c->dir_count && !*again; i++) {
        if (directory_is_absent(&c->dir[i]))
            continue;
        enum err err = recover_facts(&c->dir[i], why);
        *again = err == ERR_RECORD || err == ERR_OLDER;
        if (err != OK && !*again)
            return err;
        if (*again)
            TRY(move_aside(&c->dir[i], err == ERR_OLDER ? "format" : "structure", why));
    }
    return OK;
}

static enum err load_one(struct directory *d, uint64_t newest, bool *again, char why[WHY_BYTES])
{
    directory_risk_begin(d);
    bool behind = d->doubt_all || d->session < newest || !is_among(d->cache, d);
    enum err err = load_directory(d, behind);
    if (err != OK && err != ERR_RECORD) {
        snprintf(why, WHY_BYTES, "%s: the index cannot be read: %s", d->path, err_text(err));
        return err;
    }
    directory_risk_end(d);
    *again = err == ERR_RECORD;
    return *again ? move_aside(d, "structure", why) : OK;
}

/* The freshest first: at an object found twice the first one read is right. */
static enum err load_directories(struct cache *c, bool *again, char why[WHY_BYTES])
{
    uint64_t newest = 0;
    bool loaded[CACHE_DIRS_MAX] = {false};
    unsigned left = 0;

    TRY(read_facts(c, again, why));
    for (unsigned i = 0; i < c->dir_count; i++) {
        newest = max_u64(newest, c->dir[i].session);
        loaded[i] = directory_is_absent(&c->dir[i]);
        left += !loaded[i];
    }
    atomic_store(&c->session, newest);
    for (; left > 0 && !*again; left--) {
        unsigned at = c->dir_count;
        for (unsigned i = 0; i < c->dir_count; i++)
            if (!loaded[i] && (at == c->dir_count || c->dir[i].session > c->dir[at].session))
                at = i;
        must(at < c->dir_count);     /* one more is loaded in each round */
        loaded[at] = true;
        TRY(load_one(&c->dir[at], newest, again, why));
    }
    return OK;
}

static enum err open_index(struct directory *d, char why[WHY_BYTES])
{
    TRY(journal_open(d->journal, why));
    enum err err = recover_finish(d);
    if (err != OK)
        snprintf(why, WHY_BYTES, "%s: the index cannot be read: %s", d->path, err_text(err));
    return err;
}

/* All indexes are sound, and their records are in RAM. */
static enum err finish_directories(struct cache *c, char why[WHY_BYTES])
{
    for (unsigned i = 0; i < c->dir_count; i++) {
        struct directory *d = &c->dir[i];
        if (directory_is_absent(d))
            continue;
        directory_risk_begin(d);
        enum err err = open_index(d, why);
        if (err != ERR_DISK)
            directory_risk_end(d);
        TRY(err);
        directory_trim_slab(d);
    }
    index_sweep_objects(c);
    state_loaded(c);
    /* By the clock: two that were in use without each other must not have the same number. */
    atomic_store(&c->session, max_u64(atomic_load(&c->session) + 1, clock_wall_ms()));
    return OK;
}

static enum err start_journals(struct cache *c, char why[WHY_BYTES])
{
    for (unsigned i = 0; i < c->dir_count; i++) {
        bool absent = directory_is_absent(&c->dir[i]);
        if (!absent)
            directory_risk_begin(&c->dir[i]);
        enum err err = journal_start(c->dir[i].journal);
        if (err == OK && !absent)
            directory_risk_end(&c->dir[i]);
        if (err != OK) {
            snprintf(why, WHY_BYTES, "%s: the index cannot be written: %s", c->dir[i].path,
                     err_text(err));
            return err;
        }
    }
    return OK;
}

/* ---- what a load fills ---- */
static void make_locks(struct cache *c)
{
    index_locks(c);
    state_init(c);
    rules_init(c);
}

static enum err make_tables(struct cache *c, char why[WHY_BYTES])
{
    static const char *const policies[] = {"ehd", "lru"}; /* as the option names them */
    uint64_t slab_bytes = SPACE_PAGE_BYTES;

    if (!index_make(c))
        return ERR_MEMORY;
    /* All of them first: what is made later would be copied when it is written. */
    for (unsigned i = 0; i < c->dir_count; i++)
        TRY(begin_directory(&c->dir[i], why));
    for (unsigned i = 0; i < c->dir_count; i++) {
        TRY(prepare_directory(&c->dir[i]));
        slab_bytes += directory_is_absent(&c->dir[i]) ? 0 : c->dir[i].header.slab_bytes;
    }
    c->policy = policy_make(policies[min_u64(c->config->cache_policy, ARRAY_COUNT(policies) - 1)],
                            slab_bytes / CHUNK_BYTES,
                            max_u64(slab_bytes / CHUNK_BYTES,
                                    c->index_limit_bytes / INDEX_BYTES_PER_CHUNK));
    return c->policy ? rules_open(c) : ERR_MEMORY;
}

/* The locks as well. */
static void drop_tables(struct cache *c)
{
    for (unsigned i = c->dir_count; i-- > 0;) {
        struct directory *d = &c->dir[i];
        recover_end(d);
        load_fini(&d->load);
        sums_end(d);
        journal_close(d->journal);
        if (d->residents.place)
            residents_fini(&d->residents);
        space_free(d->space);
        d->journal = NULL;
        d->space = NULL;
    }
    state_fini(c);
    rules_fini(c);
    index_fini(c);
    if (c->policy)
        policy_free(c->policy);
    c->policy = NULL;
}

/* Nothing was loaded yet. */
static void forget_counts(struct cache *c)
{
    atomic_store(&c->object_count, 0);
    atomic_store(&c->chunk_count, 0);
    atomic_store(&c->packing.packed, 0);
    atomic_store(&c->sequence, 0);
    for (unsigned i = 0; i < c->dir_count; i++) {
        atomic_store(&c->dir[i].pinned_bytes, 0);
        atomic_store(&c->dir[i].unpinned_bytes, 0);
        atomic_store(&c->dir[i].limbo_bytes, 0);
    }
}

/* An index that turns out to be damaged when much of it was loaded already is moved aside, and all
 * begins anew without it: at most once for each. */
static enum err load_tables(struct cache *c, char why[WHY_BYTES])
{
    bool again = true;

    for (unsigned tries = 0; again && tries <= CACHE_DIRS_MAX; tries++) {
        if (tries > 0) {
            drop_tables(c);
            forget_counts(c);
            make_locks(c);
        }
        TRY(make_tables(c, why));
        again = false;
        TRY(load_directories(c, &again, why));
    }
    return again ? ERR_DISK : finish_directories(c, why);
}

/* ---- birth ---- */
/* Also now a disk may show that it fails. */
static enum err prepare_files(struct directory *d, char why[WHY_BYTES])
{
    enum err err = directory_is_absent(d) ? OK : directory_prepare(d, why);

    if (err == OK || !directory_disk_failed(d, err))
        return err;
    directory_leave_out(d, disk_cause_of(d->failed));
    return OK;
}

static enum err open_parts(struct cache *c, char why[WHY_BYTES])
{
    TRY(open_directories(c, why));
    for (unsigned i = 0; i < c->dir_count; i++) {
        struct directory *d = &c->dir[i];
        TRY(prepare_files(d, why));
        if (directory_is_absent(d))
            continue;
        atomic_fetch_xor(&c->members, directory_member(d));
    }
    TRY(load_tables(c, why));
    c->metrics = metric_set_make();
    if (!c->metrics)
        return ERR_MEMORY;
    rules_loaded(c);
    TRY(start_journals(c, why));
    for (unsigned i = 0; i < c->dir_count; i++)
        if (!directory_is_absent(&c->dir[i]))
            directory_started(&c->dir[i]);
    directory_write_mounts(c);
    uint64_t halves = halves_open(c);
    for (unsigned i = 0; i < c->dir_count; i++)
        TRY(disk_start(&c->dir[i]));
    c->pool = pool_make(c->config->cache_memory - halves);
    if (!c->pool)
        return ERR_MEMORY;
    pool_ready_begin(c->pool);
    return learner_open(c);
}

enum err cache_open(struct server *s, char why[WHY_BYTES], struct cache **out)
{
    struct cache *c = mem_take_aligned(sizeof *c, 64);

    why[0] = '\0';
    if (!c)
        return ERR_MEMORY;
    c->server = s;
    c->config = s->config;
    make_locks(c);
    uploads_init(c);
    listings_init(c);
    fault_setup();
    enum err err = open_parts(c, why);
    if (err != OK) {
        if (why[0] == '\0')
            snprintf(why, WHY_BYTES, "the cache cannot be opened: %s", err_text(err));
        cache_close(c);
        return err;
    }
    struct cache_status status;
    cache_status(c, &status);
    *out = c;
    return OK;
}

/* Is anything still at work that a disk keeps? */
static bool stop_threads(struct cache *c)
{
    bool over = true;

    for (unsigned i = 0; i < c->dir_count; i++) {
        struct directory *d = &c->dir[i];
        bool tests_over = disk_stop(d);
        bool writes_over = journal_stop(d->journal);
        bool back = atomic_load(&d->disk.stuck_ops) == 0;
        over = over && tests_over && writes_over && back;
    }
    return over;
}

bool cache_close(struct cache *c)
{
    learner_close(c);
    bool over = stop_threads(c);

    if (c->metrics)
        cache_tell(c);
    if (!over)
        return false;
    sizer_close(c);
    listings_fini(c);
    uploads_fini(c);
    drop_tables(c);
    for (unsigned i = c->dir_count; i-- > 0;)
        directory_close(&c->dir[i]);
    pool_close(c->pool);
    halves_close(c);
    explicit_bzero(c->secret, sizeof c->secret);
    mem_give(c);
    return true;
}

void cache_pool_memory(const struct cache *c, void **at, size_t *bytes)
{
    pool_memory(c->pool, at, bytes);
}

struct pool *cache_pool(struct cache *c)
{
    return c->pool;
}

/* ---- counters and gauges ---- */
/* What came to *now since it was told last. */
static uint64_t since(_Atomic uint64_t *now, _Atomic uint64_t *told)
{
    uint64_t n = atomic_load(now);

    return n - atomic_exchange(told, n);
}

struct room {
    uint64_t capacity_bytes, used_bytes, lost_bytes;
    uint64_t pages_bytes;            /* also those in use in part */
};

static struct room room_of(const struct directory *d)
{
    struct room room = {0};

    if (directory_is_absent(d))
        return room;
    room.capacity_bytes = space_capacity_bytes(d->space);
    room.used_bytes = space_used_bytes(d->space);
    room.lost_bytes = space_lost_bytes(d->space);
    uint64_t free_bytes = space_free_pages(d->space) * (uint64_t)SPACE_PAGE_BYTES;
    room.pages_bytes = room.capacity_bytes - free_bytes;
    return room;
}

static void tell_directory(struct directory *d, struct metric_set *metrics)
{
    metric_add3(metrics, METRIC_DISK_ERRORS_TOTAL, d->metric, DISKOP_READ, 0,
                since(&d->read_errors, &d->told[0]));
    metric_add3(metrics, METRIC_DISK_ERRORS_TOTAL, d->metric, DISKOP_WRITE, 0,
                since(&d->write_errors, &d->told[1]));
    metric_add3(metrics, METRIC_DISK_ERRORS_TOTAL, d->metric, DISKOP_SYNC, 0,
                since(&d->sync_errors, &d->told[2]));
    metric_add(metrics, METRIC_CHECKSUM_FAILURES_TOTAL, d->metric,
               since(&d->checksum_failures, &d->told[3]));
    metric_add(metrics, METRIC_INDEX_ERRORS_TOTAL, d->metric,
               since(&d->index_errors, &d->told[4]));
    metric_add(metrics, METRIC_INDEX_DROPPED_TOTAL, d->metric,
               since(&d->index_dropped, &d->told[5]));
    metric_add(metrics, METRIC_INDEX_MOVED_TOTAL, d->metric,
               since(&d->index_moved, &d->told[6]));
    struct room room = room_of(d);
    metric_gauge_set(METRIC_CACHE_CAPACITY_BYTES, d->metric, (int64_t)room.capacity_bytes);
    metric_gauge_set(METRIC_CACHE_USED_BYTES, d->metric, (int64_t)room.used_bytes);
    metric_gauge_set(METRIC_CACHE_PAGES_BYTES, d->metric, (int64_t)room.pages_bytes);
    struct disk *s = &d->disk;
    pthread_mutex_lock(&s->lock);
    uint64_t fences = s->health.fences;
    pthread_mutex_unlock(&s->lock);
    metric_add(metrics, METRIC_DISK_FENCED_TOTAL, d->metric, fences - d->told[8]);
    atomic_store(&d->told[8], fences);
    metric_add(metrics, METRIC_DISK_SLOW_TOTAL, d->metric, since(&s->late_ops, &d->told[7]));
    metric_gauge_set(METRIC_INDEX_UNREAD_CHUNKS, d->metric, (int64_t)atomic_load(&d->sums.left));
    metric_gauge_set(METRIC_DISK_UP, d->metric, directory_is_up(d));
    metric_gauge_set(METRIC_DISK_STUCK_OPS, d->metric, atomic_load(&s->stuck_ops));
    metric_gauge_set(METRIC_DISK_QUARANTINED_BYTES, d->metric,
                     (int64_t)atomic_load(&s->quarantined_bytes));
}

/* count_lock is held. */
static void tell_growth(struct cache *c, enum metric metric, unsigned label,
                        const _Atomic uint64_t *count, uint64_t *told)
{
    uint64_t n = atomic_load(count);

    if (n > *told)
        metric_add(c->metrics, metric, label, n - *told);
    *told = n;
}

void cache_tell(struct cache *c)
{
    uint64_t dirty = 0;

    pthread_mutex_lock(&c->count_lock);
    for (unsigned i = 0; i < LABEL_evict_COUNT; i++)
        tell_growth(c, METRIC_CACHE_EVICTED_BYTES_TOTAL, i, &c->evicted_bytes[i],
                    &c->told_evicted[i]);
    tell_growth(c, METRIC_CACHE_REFUSED_BYTES_TOTAL, REFUSE_FULL, &c->refused_bytes,
                &c->told_refused);
    tell_growth(c, METRIC_PREFETCH_USED_BYTES_TOTAL, 0, &c->ahead_read, &c->told_ahead_read);
    tell_growth(c, METRIC_PREFETCH_WASTED_BYTES_TOTAL, 0, &c->ahead_lost, &c->told_ahead_lost);
    for (unsigned i = 0; i < c->dir_count; i++) {
        if (!c->dir[i].journal)
            continue;
        tell_directory(&c->dir[i], c->metrics);
        dirty += journal_dirty(c->dir[i].journal);
    }
    metric_gauge_set(METRIC_CACHE_CHUNKS, 0, (int64_t)atomic_load(&c->chunk_count));
    metric_gauge_set(METRIC_CACHE_GROUPS, 0, (int64_t)policy_groups(c->policy));
    metric_gauge_set(METRIC_CACHE_OBJECTS, 0, (int64_t)atomic_load(&c->object_count));
    metric_gauge_set(METRIC_INDEX_MEMORY_BYTES, 0, (int64_t)atomic_load(&c->index_bytes));
    metric_gauge_set(METRIC_INDEX_MEMORY_LIMIT_BYTES, 0, (int64_t)c->index_limit_bytes);
    metric_gauge_set(METRIC_INDEX_PACKED_OBJECTS, 0, (int64_t)atomic_load(&c->packing.packed));
    metric_gauge_set(METRIC_INDEX_DIRTY_ENTRIES, 0, (int64_t)dirty);
    quota_tell(c);
    sizer_tell(c);
    pthread_mutex_unlock(&c->count_lock);
}

void cache_status(struct cache *c, struct cache_status *out)
{
    struct pool_status pool;

    cache_tell(c);
    pool_status(c->pool, &pool);
    metric_gauge_set(METRIC_BUFFERS_USED_BYTES, 0, (int64_t)pool.used_bytes);
    metric_gauge_set(METRIC_BUFFERS_HELD_BYTES, 0, (int64_t)pool.held_bytes);
    metric_gauge_set(METRIC_BUFFERS_LIMIT_BYTES, 0, (int64_t)pool.limit_bytes);
    metric_gauge_set(METRIC_BUFFERS_READY_BYTES, 0, (int64_t)pool.ready_bytes);
    *out = (struct cache_status){
        .objects = atomic_load(&c->object_count),
        .chunks = atomic_load(&c->chunk_count),
        .pool_bytes = pool.limit_bytes,
        .pool_used_bytes = pool.used_bytes,
        .index_bytes = atomic_load(&c->index_bytes),
        .disk_count = c->dir_count,
    };
    for (unsigned i = 0; i < c->dir_count; i++) {
        struct directory *d = &c->dir[i];
        uint64_t errors = atomic_load(&d->read_errors) + atomic_load(&d->write_errors);
        errors += atomic_load(&d->sync_errors) + atomic_load(&d->checksum_failures);
        pthread_mutex_lock(&d->disk.lock);
        struct health health = d->disk.health;
        pthread_mutex_unlock(&d->disk.lock);
        struct room room = room_of(d);
        out->disk[i] = (struct cache_disk_status){
            .dir = d->path,
            .state = health.state,
            .why = disk_why(health.cause),
            .fix = disk_fix(health.cause),
            .since_ms = health.since_ms > 0 ? clock_ms() - health.since_ms : 0,
            .stuck_ops = atomic_load(&d->disk.stuck_ops),
            .quarantined_bytes = atomic_load(&d->disk.quarantined_bytes),
            .late_ops = atomic_load(&d->disk.late_ops),
            .unread_chunks = atomic_load(&d->sums.left),
            .capacity_bytes = room.capacity_bytes,
            .used_bytes = room.used_bytes,
            .lost_bytes = room.lost_bytes,
            .errors = errors,
        };
        out->capacity_bytes += out->disk[i].capacity_bytes;
        out->used_bytes += out->disk[i].used_bytes;
        out->lost_bytes += out->disk[i].lost_bytes;
        out->dirty_entries += journal_dirty(d->journal);
    }
    quota_status(c, out);
}
