/* What a write through us does to what is known: epochs of keys and buckets, and the doubt that
 * must be on disk before the write can have any effect.
 *
 * Invariants:
 *  1. A count moves when a write begins and when it ends, and says how many are under way. What was
 *     asked for at one count may be learnt only while that count stands and none is under way.
 *  2. The count of a key, and of its versions, moves; then each entry that is hit becomes doubtful
 *     under its stripe. What is learnt is compared with the count and stored under the same stripe.
 *     So no answer lifts a doubt that is younger than its question.
 *  3. A bucket write, and one without version of a key of which versions may be here, take a number
 *     of the sequence that orders records, after their count has moved. What was vouched for before
 *     it is doubtful: records by their own number, entries by the sequence read before their epoch
 *     was found to hold. Who takes a number later for a record sees the write under way.
 *  4. What lists of a bucket say is overtaken by each write in it; they are only in memory, and a
 *     count of its own tells.
 *  5. A write is let go when each directory that has, had, or may have a record of the key says on
 *     disk that it is doubtful or gone; or is known, itself or by another directory, to be behind;
 *     or hangs, with all others: then nothing is left that could tell, but this process.
 *
 * Life: a struct cache_write belongs to its request; while it is busy one journal at a time has it,
 * and hands it on.
 * Failure: a directory that cannot commit is waited for once; then it is doubted as a whole at the
 * next start.
 * Limits: keys share 65,536 counts, buckets 4096: a stranger's write costs a question, and once
 * versions were learnt under its count a commit of each directory. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "server/cache/inside.h"

static const uint64_t ONE_MOVE = (uint64_t)1 << 32, ONE_WRITE = 1;

static uint32_t moves(uint64_t count)
{
    return (uint32_t)(count >> 32);
}

static bool is_written(uint64_t count)
{
    return (uint32_t)count > 0;
}

static void begin(_Atomic uint64_t *count)
{
    uint64_t before = atomic_fetch_add(count, ONE_MOVE + ONE_WRITE);

    must((uint32_t)before < UINT32_MAX);
}

static void end(_Atomic uint64_t *count)
{
    uint64_t before = atomic_fetch_add(count, ONE_MOVE - ONE_WRITE);

    must((uint32_t)before > 0);
}

/* ---- readers ---- */
struct epoch cache_epoch(struct cache *c, const struct okey *k)
{
    return (struct epoch){
        .key_stripe = k->key_stripe,
        .bucket_stripe = k->bucket_stripe,
        .upstream = k->upstream,
        .key = moves(atomic_load(&c->epochs.key[k->key_stripe])),
        .bucket = moves(atomic_load(&c->epochs.bucket[k->bucket_stripe].count)),
    };
}

void epoch_prefetch(const struct cache *c, const struct okey *k)
{
    __builtin_prefetch((const void *)&c->epochs.key[k->key_stripe]);
}

bool cache_epoch_holds(struct cache *c, struct epoch e)
{
    uint64_t key = atomic_load(&c->epochs.key[e.key_stripe]);
    uint64_t bucket = atomic_load(&c->epochs.bucket[e.bucket_stripe].count);

    return moves(key) == e.key && moves(bucket) == e.bucket && !is_written(key) &&
        !is_written(bucket);
}

bool cache_is_written(struct cache *c, struct epoch e)
{
    return is_written(atomic_load(&c->epochs.key[e.key_stripe])) ||
        epoch_bucket_is_written(c, e.bucket_stripe);
}

bool epoch_bucket_is_written(struct cache *c, uint16_t bucket_stripe)
{
    return is_written(atomic_load(&c->epochs.bucket[bucket_stripe].count));
}

uint64_t epoch_lists(struct cache *c, uint16_t bucket_stripe)
{
    return atomic_load(&c->epochs.bucket[bucket_stripe].lists);
}

bool epoch_lists_hold(struct cache *c, uint16_t bucket_stripe, uint64_t count)
{
    return epoch_lists(c, bucket_stripe) == count && !is_written(count);
}

bool epoch_doubts(struct cache *c, uint16_t bucket_stripe, _Atomic uint64_t *vouched)
{
    uint64_t newest = atomic_load(&c->epochs.newest), v = atomic_load(vouched);

    if (v >= newest)
        return false;
    /* One that is under way may have an older number than newest, and has not told it yet. */
    bool written = epoch_bucket_is_written(c, bucket_stripe);
    if (v < atomic_load(&c->epochs.bucket[bucket_stripe].after))
        return true;
    while (!written && v < newest && !atomic_compare_exchange_weak(vouched, &v, newest))
        ;
    return false;
}

/* ---- versions ---- */
void epoch_note_version(struct cache *c, uint16_t key_stripe)
{
    _Atomic uint8_t *byte = &c->epochs.versions[key_stripe / 8];
    uint8_t bit = (uint8_t)(1U << key_stripe % 8);

    if (!(atomic_load(byte) & bit))
        atomic_fetch_or(byte, bit);
}

/* Who notes a version behind this look finds that the count has moved, and learns nothing. */
static bool has_versions(struct cache *c, uint16_t key_stripe)
{
    return atomic_load(&c->epochs.versions[key_stripe / 8]) >> key_stripe % 8 & 1;
}

/* *vouched stays: who moved it on would have to look at both again. */
bool epoch_doubts_version(struct cache *c, struct epoch e, const _Atomic uint64_t *vouched)
{
    uint64_t v = atomic_load(vouched);

    return v < atomic_load(&c->epochs.after[e.key_stripe]) ||
        v < atomic_load(&c->epochs.bucket[e.bucket_stripe].after);
}

/* ---- waiting for the disks ---- */
static void write_heard(struct core *core, struct message *msg)
{
    struct cache_write *w = container_of(msg, struct cache_write, msg);

    (void)core;
    w->busy = false;
    w->m->inflight--;
    machine_wake(w->m);
}

/* From directory to directory: all of them were asked for a commit, so that the first wait is the
 * longest. false: nothing is left to wait for. */
static bool waits_on(struct cache_write *w)
{
    while (w->dirs != 0) {
        unsigned i = (unsigned)__builtin_ctz(w->dirs);
        w->dirs &= w->dirs - 1;
        if (journal_await(w->cache->dir[i].journal, w))
            return true;
    }
    return false;
}

void write_failed(struct cache_write *w, unsigned dir, bool noted)
{
    w->why = ERR_DISK;
    if (noted && !w->elsewhere)
        return;
    w->unmarked |= 1U << dir;
    w->elsewhere = true;
    w->dirs |= ((1U << w->cache->dir_count) - 1) & ~w->unmarked;
}

void write_go_on(struct cache_write *w)
{
    if (!waits_on(w))
        core_send(w->m->core, &w->msg);
}

static void await_all(struct cache_write *w, uint32_t asked)
{
    struct cache *c = w->cache;

    for (unsigned i = 0; i < c->dir_count; i++)
        if (asked >> i & 1)
            journal_poke(c->dir[i].journal);
    w->dirs = (1U << c->dir_count) - 1;
    w->busy = true;
    w->m->inflight++;
    if (waits_on(w))
        return;
    w->busy = false;
    w->m->inflight--;
}

/* ---- what is known durably of a stripe ---- */
static void name_of(bool of_key, uint16_t stripe, char out[EPOCH_NAME_BYTES])
{
    snprintf(out, EPOCH_NAME_BYTES, of_key ? "%sk%04x" : "%s%03x", EPOCH_NAMES,
             of_key ? stripe : stripe % EPOCH_BUCKETS);
}

static uint64_t next_number(struct cache *c)
{
    return atomic_fetch_add(&c->sequence, 1) + 1;
}

static void tell_all(struct cache *c, bool of_key, uint16_t stripe, uint64_t after)
{
    char name[EPOCH_NAME_BYTES];
    struct journal_change change = {.state = name, .number = after};

    name_of(of_key, stripe, name);
    for (unsigned i = 0; i < c->dir_count; i++)
        if (journal_queue(c->dir[i].journal, &change, 1) != OK)
            journal_distrust(c->dir[i].journal);
}

bool epoch_load(struct cache *c, struct span name, uint64_t after)
{
    const size_t head = sizeof EPOCH_NAMES - 1;
    bool of_key = name.len > head && name.at[head] == 'k';
    char expected[EPOCH_NAME_BYTES];
    uint16_t at = 0;

    for (size_t i = head + of_key; i < name.len && i < sizeof expected - 1; i++) {
        unsigned digit = (unsigned char)name.at[i];
        at = (uint16_t)(at * 16 + (digit >= 'a' ? digit - 'a' + 10 : digit - '0'));
    }
    at = of_key ? at : at % EPOCH_BUCKETS;
    name_of(of_key, at, expected);
    if (!span_is(name, expected))
        return false;
    move_up(of_key ? &c->epochs.after[at] : &c->epochs.bucket[at].after, after);
    if (!of_key)
        move_up(&c->epochs.newest, after);
    move_up(&c->sequence, after);
    return true;
}

/* ---- keys ---- */
/* Directories in which something was queued. */
static uint32_t doubt_key(struct cache *c, struct id id)
{
    struct index_shard *stripe = index_shard(c->stripe, id);
    uint32_t asked = 0;

    pthread_mutex_lock(&stripe->lock);
    struct entry *e = entry_of(c, id);
    if (e) {
        uint32_t before = e->doubted;
        entry_doubt(c, e);
        asked = e->doubted & ~before;
    }
    pthread_mutex_unlock(&stripe->lock);
    return asked;
}

/* A change without version may be one of the current version's fields, and which one that is only
 * the store knows: all that are here become doubtful. They are not looked for, a number tells. */
static void doubt_versions(struct cache *c, struct cache_write *w, const struct okey *k)
{
    if (k->version.len > 0 || !has_versions(c, k->key_stripe))
        return;
    uint64_t after = next_number(c);
    move_up(&c->epochs.after[k->key_stripe], after);
    tell_all(c, true, k->key_stripe, after);
    w->numbered = c->dir_count > 0;
}

void cache_write_begin(struct cache *c, struct cache_write *w, const struct okey *k,
                       struct machine *m)
{
    struct okey other = *k;

    *w = (struct cache_write){.m = m, .cache = c, .begun = true, .msg.deliver = write_heard};
    /* The version "null" is what a write without version replaces where versions are suspended. */
    other.version = k->version.len > 0 ? span_of("") : span_of("null");
    cache_key(c, &other);
    w->id[0] = k->id;
    w->id[1] = other.id;
    begin(&c->epochs.bucket[k->bucket_stripe].lists);
    begin(&c->epochs.key[k->key_stripe]);
    uint32_t asked = doubt_key(c, w->id[1]);
    asked |= doubt_key(c, w->id[0]);
    w->epoch = cache_epoch(c, k);
    doubt_versions(c, w, k);
    await_all(w, w->numbered ? (1U << c->dir_count) - 1 : asked);
}

/* Who came later shows in the number of those under way, or has moved the epoch. One that was there
 * before and ended just as w began is not seen; what is pended is doubtful anyway. */
bool write_is_alone(struct cache *c, const struct cache_write *w)
{
    uint64_t key = atomic_load(&c->epochs.key[w->epoch.key_stripe]);
    uint64_t bucket = atomic_load(&c->epochs.bucket[w->epoch.bucket_stripe].count);

    return w->begun && moves(key) == w->epoch.key && (uint32_t)key == 1 &&
        moves(bucket) == w->epoch.bucket && !is_written(bucket);
}

/* ---- buckets ---- */
void cache_bucket_write_begin(struct cache *c, struct cache_write *w, struct span bucket,
                              struct machine *m)
{
    uint16_t at = index_bucket_stripe(c, bucket);
    struct bucket_epoch *b = &c->epochs.bucket[at];

    *w = (struct cache_write){.m = m, .cache = c, .begun = true, .whole_bucket = true,
                              .numbered = true, .epoch.bucket_stripe = at,
                              .msg.deliver = write_heard};
    begin(&b->lists);
    begin(&b->count);
    uint64_t after = next_number(c);
    move_up(&b->after, after);
    move_up(&c->epochs.newest, after);
    tell_all(c, false, at, after);
    await_all(w, (1U << c->dir_count) - 1);
}

/* ---- the end of either ---- */
void cache_write_end(struct cache *c, struct cache_write *w, bool gone)
{
    must(!w->busy);
    if (!w->begun)
        return;
    struct bucket_epoch *b = &c->epochs.bucket[w->epoch.bucket_stripe];
    w->begun = false;
    end(&b->lists);
    if (w->whole_bucket) {
        end(&b->count);
        return;
    }
    if (gone)
        index_forget(c, w->id[0], NULL, EVICT_CHANGED);
    end(&c->epochs.key[w->epoch.key_stripe]);
}
