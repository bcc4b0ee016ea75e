/* Start: the records that the child hands over become the index in RAM.
 *
 * Invariants:
 *  1. Several threads load, each a segment at a time; objects before chunks (handover.c). A record
 *     of an object is met once, so that one thread alone makes or follows it.
 *  2. A record that does not verify, does not fit, or claims a slot that is taken is doomed: it
 *     will be deleted before the slot can be used.
 *  3. The directory of the highest session number is loaded first; one that is behind may have
 *     missed a removal, so its objects are doubtful, now and after further restarts, until upstream
 *     confirmed them.
 *  4. Nothing is evicted while directories are loaded: what does not fit is doomed.
 *
 * Life: load_directory() between recover_facts() and recover_finish(); the threads end with it.
 * Failure: ERR_RECORD if the child's last word does not come, ERR_MEMORY: then all that was loaded
 * has to go. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>

#include "server/cache/start.h"

enum {
    LOAD_THREADS = 8,
    RECORDS_PER_THREAD = 20000,      /* fewer are loaded before another thread has begun */
    KEY_BYTES_OBJECT = 16,
};

struct loading {                     /* one directory, by all its threads */
    struct directory *d;
    pthread_mutex_t lock;            /* of what follows, and of d->load */
    enum err err;
};

/* ---- what is not loaded ---- */
static enum err doom(struct doomed *x, struct span key)
{
    if (x->count == x->cap) {
        uint32_t cap = x->cap ? x->cap * 2 : 1024;
        uint8_t *grown = mem_grow(x->key, (size_t)cap * CHANGE_KEY_BYTES);
        if (!grown)
            return ERR_MEMORY;
        x->key = grown;
        x->cap = cap;
    }
    uint8_t *at = x->key + (size_t)x->count++ * CHANGE_KEY_BYTES;
    memset(at, 0, CHANGE_KEY_BYTES);
    memcpy(at, key.at, min_u64(key.len, CHANGE_KEY_BYTES));
    return OK;
}

static void doom_failed(struct loading *l, struct doomed *x, const struct handed *r,
                        const enum err *err, unsigned count)
{
    pthread_mutex_lock(&l->lock);
    for (unsigned i = 0; i < count && l->err == OK; i++) {
        if (err[i] == OK)
            continue;
        l->d->load.dropped++;
        l->d->load.no_room += err[i] == ERR_MEMORY;
        l->err = doom(x, r[i].key);
    }
    pthread_mutex_unlock(&l->lock);
}

/* ---- objects ---- */
static enum err load_object(struct directory *d, const struct handed *h, uint64_t *sequence)
{
    struct object_record r;

    if (h->key.len != KEY_BYTES_OBJECT)
        return ERR_RECORD;
    TRY(record_object_read(h->value, &r));
    *sequence = max_u64(*sequence, r.commit + 1);
    bool doubt = d->load.behind || r.commit < atomic_load(&d->doubt_below);
    return index_load_object(d, key_id(h->key.at), &r, doubt);
}

static void prefetch_objects(struct cache *c, const struct handed *r, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct id id = r[i].key.len == KEY_BYTES_OBJECT ? key_id(r[i].key.at) : (struct id){0};
        index_prefetch(index_shard(c->object, id), index_hash(id));
    }
}

static void load_objects(struct loading *l, const struct handed *r, unsigned count)
{
    enum err err[INDEX_LOADS];
    uint64_t sequence = 0;
    unsigned loaded = 0;

    prefetch_objects(l->d->cache, r, count);
    for (unsigned i = 0; i < count; i++) {
        err[i] = load_object(l->d, &r[i], &sequence);
        loaded += err[i] == OK;
    }
    if (loaded < count)
        doom_failed(l, &l->d->load.objects_doomed, r, err, count);
    pthread_mutex_lock(&l->lock);
    l->d->load.objects += loaded;
    l->d->load.sequence = max_u64(l->d->load.sequence, sequence);
    pthread_mutex_unlock(&l->lock);
}

/* ---- chunks ---- */
static void load_chunks(struct loading *l, const struct handed *r, unsigned count)
{
    struct policy *policy = l->d->cache->policy;
    struct index_loaded x;
    unsigned loaded = 0;
    uint32_t newest = 0;

    index_load_chunks(l->d, r, count, &x);
    for (unsigned i = 0; i < count; i++) {
        const char *key = r[i].key.at;
        if (x.err[i] != OK)
            continue;
        if (loaded++ == 0 || (int32_t)(x.mark[i]->last - newest) > 0)
            newest = x.mark[i]->last;
        policy_resume(policy, chunk_hash(key_id(key), key_be64(key + 16)), x.mark[i]);
    }
    pthread_mutex_lock(&l->lock);
    if (loaded > 0)
        policy_resume_clock(policy, newest);
    l->d->load.chunks += loaded;
    pthread_mutex_unlock(&l->lock);
    if (loaded < count)
        doom_failed(l, &l->d->load.chunks_doomed, r, x.err, count);
}

/* ---- threads ---- */
static void load_segment(struct loading *l, const struct segment *s)
{
    enum journal_db db = handover_db(s);
    struct handed r[INDEX_LOADS];
    uint32_t at = 0;
    unsigned count;

    do {
        for (count = 0; count < INDEX_LOADS && handover_next(s, &at, &r[count]);)
            count++;
        if (db == JOURNAL_OBJECTS)
            load_objects(l, r, count);
        else if (db == JOURNAL_CHUNKS)
            load_chunks(l, r, count);
    } while (count == INDEX_LOADS);
}

static void *work(void *arg)
{
    struct loading *l = arg;
    struct handover *h = l->d->handover;
    const struct segment *s;

    while ((s = handover_take(h))) {
        load_segment(l, s);
        handover_give(h, s);
        pthread_mutex_lock(&l->lock);
        bool failed = l->err != OK;
        pthread_mutex_unlock(&l->lock);
        if (failed)
            handover_stop(h);
    }
    return NULL;
}

unsigned load_threads(uint64_t records)
{
    cpu_set_t set;
    unsigned cpus = sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;

    return (unsigned)min_u64(min_u64(cpus, LOAD_THREADS), 1 + records / RECORDS_PER_THREAD);
}

static void *named_work(void *arg)
{
    pthread_setname_np(pthread_self(), "load");
    return work(arg);
}

/* With as many as can be had; this thread works, too. */
static void run_threads(struct loading *l)
{
    const struct load *load = &l->d->load;
    unsigned wanted = load_threads(load->objects_said + load->chunks_said), made = 0;
    pthread_t thread[LOAD_THREADS];

    while (made + 1 < wanted && pthread_create(&thread[made], NULL, named_work, l) == 0)
        made++;
    work(l);
    while (made > 0)
        pthread_join(thread[--made], NULL);
}

/* Tables of the final size: growing them entry by entry would rehash each of them a dozen times.
 * What the index says it holds may be wrong, what fits is not. */
static enum err reserve(struct directory *d)
{
    struct cache *c = d->cache;
    uint64_t fits = c->index_limit_bytes / sizeof(struct chunk) / CACHE_SHARDS;
    uint64_t objects = min_u64(d->load.objects_said / CACHE_SHARDS, fits);
    uint64_t chunks = min_u64(d->load.chunks_said / CACHE_SHARDS, fits);

    for (unsigned i = 0; i < CACHE_SHARDS; i++)
        if (!index_reserve_many(c, &c->object[i], objects) ||
            !index_reserve_many(c, &c->chunk[i], chunks))
            return ERR_MEMORY;
    return OK;
}

enum err load_directory(struct directory *d, bool behind)
{
    struct loading l = {.d = d, .err = OK};
    struct load *load = &d->load;

    load->behind = behind;
    load->began_ms = clock_ms();
    if (d->handover) {
        TRY(reserve(d));
        TRY(sums_begin(d));
        pthread_mutex_init(&l.lock, NULL);
        run_threads(&l);
        pthread_mutex_destroy(&l.lock);
        bool sound = handover_was_sound(d->handover);
        if (l.err != OK || !sound)
            recover_end(d);          /* else the thread of its disk waits for it */
        TRY(l.err);
        if (!sound)
            return ERR_RECORD;
    }
    move_up(&d->cache->sequence, load->sequence);
    /* What joined and was not read to its end doubts all, and so far these are all. */
    if (behind || atomic_load(&d->doubt_below) > load->sequence)
        atomic_store(&d->doubt_below, load->sequence);
    return OK;
}

void load_fini(struct load *l)
{
    mem_give(l->objects_doomed.key);
    mem_give(l->chunks_doomed.key);
    *l = (struct load){0};
}
