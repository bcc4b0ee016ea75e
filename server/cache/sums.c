/* CRCs of chunks that a start left behind: read while others are served.
 *
 * They are two thirds of the memory that an index takes, and memory that a process touches for the
 * first time is what a start waits for. Nobody needs them but who reads a chunk from its disk. So a
 * start makes heads only; then the directory's thread reads the records once more, and those first
 * for which a read waits.
 *
 * Invariants:
 *  1. A chunk without CRCs is as its record has it, but for blocks that are no longer present: none
 *     is written (chunk_admit()), and no newer record is made (record()). So the record in the
 *     index is its own if it names the same slot.
 *  2. CRCs come once, under the stripe of the chunk's object, and stay.
 *  3. A chunk whose CRCs cannot be had leaves: its record cannot be read, or its index is lost.
 *     That may take seconds; once `gone` is set no block of such a chunk counts as present, and no
 *     transfer waits for it any more.
 *  4. A transfer in `wants` is told in any case, once, and only after 2 or 3, unless the directory
 *     is not up. Its chunk is held as long. So who reads again behind ERR_CHANGED finds CRCs, or
 *     no block.
 *
 * Life: sums_begin() before the first record is loaded; the thread of disk.c calls sums_work()
 * until all records were met, then frees what that needed.
 * Failure: see 3. A disk that hangs keeps the transfers that wait here; keeper.c knows them
 * late. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"
#include "server/cache/start.h"

enum {
    PAGES_AT_ONCE = 16,              /* of residents, for one call */
    /* until a slice is tried again for which there was no memory */
    AGAIN_MS = 200,
};

enum err sums_begin(struct directory *d)
{
    if (!d->sums.reader)
        d->sums.reader = mem_take(sizeof *d->sums.reader);
    if (!d->sums.reader)
        return ERR_MEMORY;
    d->sums.reader->d = d;
    return OK;
}

void sums_end(struct directory *d)
{
    mem_give(d->sums.reader);
    d->sums.reader = NULL;
    atomic_store(&d->sums.left, 0);
    atomic_store(&d->sums.gone, false);
}

/* Stripe held. */
static void drop(struct cache *c, struct chunk *k)
{
    if (chunk_sums(k) || k->state & CHUNK_DEAD)
        return;
    struct directory *d = &c->dir[k->slot.dir];
    atomic_fetch_add(&d->index_dropped, 1);
    log_event(EVENT_RECORD, "disk=%s chunk=%llu note=%s", log_value(span_of(d->path)),
              (unsigned long long)k->number, log_value(span_of("its checksums cannot be had")));
    chunk_remove(c, k, true, EVICT_DISK);
}

/* ---- a read that waits ---- */
/* On its core. */
static void told(struct core *core, struct message *msg)
{
    struct transfer *t = container_of(msg, struct transfer, told);

    must(t->waits && t->op.m->core == core && t->op.m->inflight > 0);
    t->waits = false;
    t->op.m->inflight--;
    machine_wake(t->op.m);
}

void sums_await(struct transfer *t)
{
    struct machine *m = t->op.m;
    struct directory *d = &m->core->server->cache->dir[t->chunk->slot.dir];

    t->waits = true;
    t->core = m->core;
    t->told.deliver = told;
    m->inflight++;
    pthread_mutex_lock(&d->disk.lock);
    if (atomic_load(&d->sums.gone)) {
        t->waits = false;
        m->inflight--;
    } else {
        list_push(&d->sums.wants, &t->want);
        pthread_cond_signal(&d->disk.wake);
    }
    pthread_mutex_unlock(&d->disk.lock);
}

void sums_lose(struct cache *c, struct chunk *k)
{
    struct index_shard *stripe = index_shard(c->stripe, k->object_id);

    pthread_mutex_lock(&stripe->lock);
    drop(c, k);
    pthread_mutex_unlock(&stripe->lock);
}

/* ---- the thread ---- */
/* Of a disk that is not up nothing is read: the records wait until it is back. */
static bool can_read(const struct directory *d)
{
    return d->sums.reader && !atomic_load(&d->sums.gone) && directory_is_up(d) && !d->left &&
           !journal_is_lost(d->journal);
}

bool sums_wanted(struct directory *d)
{
    return !list_empty(&d->sums.wants) || can_read(d) ||
           (d->sums.reader && (atomic_load(&d->sums.gone) || journal_is_lost(d->journal)));
}

static bool is_of(const struct chunk *k, const struct directory *d, const struct chunk_record *r)
{
    return !chunk_sums(k) && k->slot.dir == d->number && k->slot.page == r->slot.page &&
           k->slot.at == r->slot.at && k->slot.class_ == r->slot.class_ && k->bytes == r->bytes &&
           id_eq(k->object_id, r->object_id);
}

static void take_record(struct directory *d, const struct handed *h)
{
    struct cache *c = d->cache;
    struct chunk_record r;
    struct span crcs;

    if (h->key.len != CHANGE_KEY_BYTES || record_chunk_look(h->value, &r, &crcs) != OK ||
        chunk_sums_size(r.bytes) == 0)
        return;                      /* or it has them: it may be packed, and is left in peace */
    struct index_shard *stripe = index_shard(c->stripe, r.object_id);
    pthread_mutex_lock(&stripe->lock);
    struct chunk *k =
        chunk_peek(c, r.object_id, key_id(h->key.at), key_be64(h->key.at + 16));
    if (k && is_of(k, d, &r)) {
        if (chunk_add_sums(c, k, crcs)) {
            atomic_fetch_sub(&d->sums.left, 1);
            d->sums.read++;
        } else {
            drop(c, k);
        }
    }
    pthread_mutex_unlock(&stripe->lock);
}

static void finish(struct directory *d)
{
    mem_give(d->sums.reader);
    d->sums.reader = NULL;
    atomic_store(&d->sums.gone, false); /* nor does a chunk lack them */
    if (d->sums.read > 0)
        log_event(EVENT_INDEX_SUMS, "disk=%s chunks=%llu ms=%llu", log_value(span_of(d->path)),
                  (unsigned long long)d->sums.read,
                  (unsigned long long)(clock_ms() - d->sums.began_ms));
    recover_end(d);
}

/* No more can be had. Under the lock, so that no transfer waits from now on. */
static void give_up(struct directory *d)
{
    pthread_mutex_lock(&d->disk.lock);
    atomic_store(&d->sums.gone, true);
    pthread_mutex_unlock(&d->disk.lock);
}

/* Who still lacks them leaves, some at a time: others ask this thread meanwhile. */
static void drop_some(struct directory *d)
{
    for (unsigned i = 0; i < PAGES_AT_ONCE; i++, d->sums.page++) {
        if (d->sums.page >= d->residents.pages || atomic_load(&d->sums.left) == 0) {
            finish(d);
            return;
        }
        residents_visit(d, d->sums.page, false, drop);
    }
}

/* Of a record or a slice that could not be read. Without memory for a transaction it can later. */
static void read_failed(struct directory *d, enum err err)
{
    if (err == ERR_BUSY)
        return;
    if (!journal_is_lost(d->journal))
        journal_lose(d->journal, "it is damaged");
    give_up(d);
}

static void pause_reading(struct directory *d)
{
    pthread_mutex_lock(&d->disk.lock);
    cache_wait(&d->disk.wake, &d->disk.lock, AGAIN_MS);
    pthread_mutex_unlock(&d->disk.lock);
}

/* So many records of the pass over all. */
static void read_some(struct directory *d)
{
    struct reader *r = d->sums.reader;

    if (d->sums.began_ms == 0)
        d->sums.began_ms = clock_ms();
    r->handle = journal_handle(d->journal, JOURNAL_CHUNKS);
    enum err err = reader_slice(r);
    if (err != OK && err != ERR_NOT_FOUND) {
        read_failed(d, err);
        pause_reading(d);
        return;
    }
    for (unsigned i = 0; i < r->count; i++)
        take_record(d, &r->record[i]);
    if (err == ERR_NOT_FOUND || atomic_load(&d->sums.left) == 0)
        give_up(d);                  /* nothing is left, or nothing that has a record */
}

/* What its read waits for. */
static void read_one(struct directory *d, struct chunk *k)
{
    uint64_t key[3] = {htobe64(k->data_id.a), htobe64(k->data_id.b), htobe64(k->number)};
    struct reader *r = d->sums.reader;

    r->handle = journal_handle(d->journal, JOURNAL_CHUNKS);
    enum err err = reader_look(r, span_make(key, sizeof key));
    if (err == OK)
        take_record(d, &r->record[0]);
    else if (err != ERR_NOT_FOUND)
        read_failed(d, err);
}

static struct transfer *next_want(struct directory *d)
{
    pthread_mutex_lock(&d->disk.lock);
    struct node *n = list_pop(&d->sums.wants);
    pthread_mutex_unlock(&d->disk.lock);
    return n ? container_of(n, struct transfer, want) : NULL;
}

void sums_work(struct directory *d)
{
    struct transfer *t;

    if (d->sums.reader && journal_is_lost(d->journal))
        give_up(d);
    while ((t = next_want(d))) {
        if (can_read(d) && !chunk_sums(t->chunk))
            read_one(d, t->chunk);
        if (directory_is_up(d))
            sums_lose(d->cache, t->chunk); /* unless it has them */
        core_send(t->core, &t->told);
    }
    if (d->sums.reader && atomic_load(&d->sums.gone))
        drop_some(d);
    else if (can_read(d))
        read_some(d);
}
