/* Multipart uploads under way: where each part lies in its hidden object, and what must agree
 * before they become one.
 *
 * Invariants:
 *  1. Part N begins at (N - 1) times the size of the longest part that was seen; each but the last
 *     has that size, a multiple of 1 MiB, so that no two parts share a block. An upload that does
 *     not keep to it is given up.
 *  2. Of the first part nobody knows whether it is the last. It stays where it is when the others
 *     turn out to need another layout: in a hidden object of its own, the tail. Of that those
 *     chunks become the whole's that begin at the same place in both; the rest is not kept.
 *  3. A part is listed with an ETag only when all of its bytes passed here and upstream took them.
 *     Blocks of one that failed or is sent again are blanked before any other byte is written
 *     there; one that is sent twice at a time ends the keeping.
 *  4. The table is bounded in number and time, its memory belongs to the index's limit.
 *
 * Life: from the first part that is seen until Complete, Abort, a day, or the end of the process.
 * Failure: an upload that is given up stays in the table as such, so that its later parts are not
 * taken for a beginning. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/cache/inside.h"

enum {
    UPLOADS_MAX = 1024,
    PARTS_MAX = 10000,
    PARTS_FIRST = 64,
    LIFE_MS = 24 * 3600 * 1000,
    PART_BYTES_MIN = 5 * MIB,        /* shorter is only the last one, in most stores */
};
/* Longer is none in any store; so many of the longest have a sum of less than 64 bits. */
static const uint64_t PART_BYTES_MAX = (uint64_t)1 << 40;

struct upload_part {
    struct id etag;                  /* of the ETag without quotes; 0: not there */
    uint64_t bytes;                  /* 0: was never begun */
    bool runs;
};
struct multipart {
    struct upload u;                 /* first */
    struct node node;                /* in the table, oldest first */
    struct id id;                    /* of bucket, key and upload id */
    uint64_t since_ms;
    uint64_t part_bytes;             /* of the longest part */
    bool alone;                      /* there is but one, and where it belongs is not known */
    uint64_t tail_at;                /* where in the tail its part begins, */
    uint32_t tail_number;            /* and which it is */
    struct upload_part *part;        /* by number - 1 */
    uint32_t room, last;             /* last: the highest that was begun; it alone may be shorter */
    uint32_t begun;                  /* parts that were begun */
    uint32_t holds;                  /* the table's included */
    bool spoiled;                    /* given up: nothing is kept */
    bool sealed;                     /* Complete is under way */
    uint8_t store;                   /* as in struct okey */
    uint16_t name_len[3];            /* of bucket, key, upload id */
    char name[];
};

/* ---- names ---- */
static struct id id_of(struct cache *c, const struct okey *k, struct span upload_id)
{
    struct okey name = *k;

    name.version = upload_id;        /* a table of its own: no version has such an entry */
    cache_key(c, &name);
    return name.id;
}

static struct id etag_id(struct cache *c, struct span etag)
{
    struct okey nothing = {.bucket = span_of(""), .key = span_of(""), .store = 0};

    if (etag.len >= 2 && etag.at[0] == '"')
        etag = span_make(etag.at + 1, etag.len - 2);
    return cache_data_id(c, &nothing, etag, 0);
}

static size_t name_bytes(const struct okey *k, struct span upload_id)
{
    return k->bucket.len + k->key.len + upload_id.len;
}

static bool is_named(const struct multipart *p, const struct okey *k, struct span upload_id)
{
    const struct span want[3] = {k->bucket, k->key, upload_id};
    const char *at = p->name;

    for (unsigned i = 0; i < 3; at += p->name_len[i++])
        if (!span_eq(span_make(at, p->name_len[i]), want[i]))
            return false;
    return p->store == k->store;
}

static void set_name(struct multipart *p, const struct okey *k, struct span upload_id)
{
    const struct span name[3] = {k->bucket, k->key, upload_id};
    char *at = p->name;

    p->store = k->store;
    for (unsigned i = 0; i < 3; i++) {
        p->name_len[i] = (uint16_t)name[i].len;
        if (name[i].len)
            memcpy(at, name[i].at, name[i].len);
        at += name[i].len;
    }
}

/* ---- the table; its lock is held ---- */
static struct multipart *find_locked(struct cache *c, const struct okey *k, struct span upload_id)
{
    struct id id = id_of(c, k, upload_id);

    LIST_EACH(&c->uploads.list, struct multipart, node, p)
        if (id_eq(p->id, id) && is_named(p, k, upload_id))
            return p;
    return NULL;
}

static size_t bytes_of(const struct multipart *p)
{
    return sizeof *p + p->name_len[0] + p->name_len[1] + p->name_len[2];
}

static void close_multipart(struct cache *c, struct multipart *p)
{
    if (p->u.object)
        upload_close(c, &p->u);
    if (p->part)
        index_uncharge(c, p->room * sizeof *p->part);
    mem_give(p->part);
    index_uncharge(c, bytes_of(p));
    mem_give(p);
}

/* Ends a hold; the last one to go is to be closed once the lock is given back. */
static struct multipart *drop_locked(struct multipart *p)
{
    must(p->holds > 0);
    return --p->holds == 0 ? p : NULL;
}

static struct multipart *unlist_locked(struct cache *c, struct multipart *p)
{
    if (!p->u.listed)
        return NULL;
    p->u.listed = false;
    node_remove(&p->node);
    c->uploads.count--;
    return drop_locked(p);
}

static void unlock_and_close(struct cache *c, struct multipart *dead)
{
    pthread_mutex_unlock(&c->uploads.lock);
    if (dead)
        close_multipart(c, dead);
}

/* ---- parts ---- */
static bool grow_parts(struct cache *c, struct multipart *p, uint32_t number)
{
    uint32_t room = p->room ? p->room : PARTS_FIRST;

    if (number <= p->room)
        return true;
    while (room < number)
        room *= 2;
    if (!index_charge(c, room * sizeof *p->part))
        return false;
    struct upload_part *part = mem_take(room * sizeof *part);
    if (!part) {
        index_uncharge(c, room * sizeof *part);
        return false;
    }
    if (p->part) {
        memcpy(part, p->part, p->room * sizeof *part);
        index_uncharge(c, p->room * sizeof *part);
    }
    mem_give(p->part);
    p->part = part;
    p->room = room;
    return true;
}

/* A hidden object that has room for every part. */
static bool lay_out(struct cache *c, struct multipart *p, const struct okey *k, uint64_t part_bytes)
{
    p->part_bytes = part_bytes;
    p->alone = part_bytes % BLOCK_BYTES != 0;
    return upload_open(c, &p->u, k, round_up(part_bytes * PARTS_MAX, CHUNK_BYTES));
}

/* For a part without others. Most begin at a chunk. */
static bool lay_out_alone(struct cache *c, struct multipart *p, const struct okey *k,
                          uint32_t number, uint64_t part_bytes)
{
    bool good = lay_out(c, p, k, part_bytes);
    p->alone = p->alone || (number > 1 && part_bytes < PART_BYTES_MIN);
    return good;
}

static struct multipart *make(struct cache *c, const struct okey *k, struct span upload_id,
                              uint32_t number, uint64_t part_bytes)
{
    size_t bytes = sizeof(struct multipart) + name_bytes(k, upload_id);

    if (upload_id.len > UINT16_MAX || !index_charge(c, bytes))
        return NULL;
    struct multipart *p = mem_take(bytes);
    if (!p) {
        index_uncharge(c, bytes);
        return NULL;
    }
    set_name(p, k, upload_id);
    p->id = id_of(c, k, upload_id);
    p->since_ms = clock_ms();
    p->holds = 1;
    if (grow_parts(c, p, 1) && lay_out_alone(c, p, k, number, part_bytes))
        return p;
    close_multipart(c, p);
    return NULL;
}

/* A new upload takes its place in the table. */
static struct multipart *list_new(struct cache *c, const struct okey *k, struct span upload_id,
                                  uint32_t number, uint64_t part_bytes)
{
    struct upload_table *t = &c->uploads;
    struct multipart *p = NULL;

    if (t->count < UPLOADS_MAX)
        p = make(c, k, upload_id, number, part_bytes);
    if (!p)
        return NULL;
    list_push(&t->list, &p->node);
    t->count++;
    p->u.listed = true;
    return p;
}

/* The place of a part that is begun, or about to be. */
static struct upload_place place_of(const struct multipart *p, uint32_t number)
{
    if (p->u.tail && number == p->tail_number)
        return (struct upload_place){p->u.tail, p->tail_at};
    return (struct upload_place){p->u.object, p->alone ? 0 : (number - 1) * p->part_bytes};
}

static void blank(struct cache *c, const struct multipart *p, uint32_t number)
{
    struct upload_place place = place_of(p, number);
    uint64_t at = place.at, end = at + p->part[number - 1].bytes;

    for (; at < end; at = round_down(at, CHUNK_BYTES) + CHUNK_BYTES) {
        uint64_t base = round_down(at, CHUNK_BYTES);
        unsigned first = (unsigned)((at - base) / BLOCK_BYTES);
        unsigned last = (unsigned)((min_u64(end - base, CHUNK_BYTES) - 1) / BLOCK_BYTES);
        uint8_t blocks = (uint8_t)((0xffu >> (7 - last)) & (0xffu << first));
        chunk_blank(c, place.object, base / CHUNK_BYTES, blocks);
    }
}

/* Given up: its slots come back at once, its place in the table later. */
static void spoil(struct cache *c, struct multipart *p)
{
    p->spoiled = true;
    index_forget(c, p->u.object->id, NULL, EVICT_CHANGED);
    if (p->u.tail)
        index_forget(c, p->u.tail->id, NULL, EVICT_CHANGED);
}

/* What was written of the part is nobody's any more; it does not run. */
static void forget_part(struct cache *c, struct multipart *p, uint32_t number)
{
    struct upload_part *part = &p->part[number - 1];

    if (part->bytes == 0)
        return;
    if (p->u.tail && number == p->tail_number)
        upload_close_tail(c, &p->u);
    else
        blank(c, p, number);
    *part = (struct upload_part){.bytes = 0};
    p->begun--;
}

/* The highest that was begun; 0: none was. */
static uint32_t the_other(const struct multipart *p)
{
    uint32_t number = p->last;

    while (number > 0 && p->part[number - 1].bytes == 0)
        number--;
    return number;
}

/* A layout in which the other part, the only one so far, and this one have their places. The other
 * stays where it is. */
static bool lay_out_anew(struct cache *c, struct multipart *p, const struct okey *k,
                         uint32_t number, uint64_t bytes)
{
    struct upload before = p->u;
    uint32_t other = the_other(p);
    uint64_t other_bytes = p->part[other - 1].bytes, base = max_u64(bytes, other_bytes);

    bool last_is_first = (other_bytes < base && other < number) || (bytes < base && number < other);
    if (p->begun > 1 || base % BLOCK_BYTES != 0 || last_is_first)
        return false;
    struct upload_place place = place_of(p, other);
    if (!lay_out(c, p, k, base)) {
        p->u.object = before.object;
        return false;
    }
    p->u.tail = place.object;
    p->tail_at = place.at;
    p->tail_number = other;
    before.tail = NULL;              /* if there was one, it is that */
    if (before.object != place.object)
        upload_close(c, &before);
    return true;
}

/* There is none any more but the one that begins. */
static bool begin_anew(struct cache *c, struct multipart *p, const struct okey *k, uint32_t number,
                       uint64_t bytes)
{
    struct upload before = p->u;

    must(!before.tail);
    if (!lay_out_alone(c, p, k, number, bytes)) {
        p->u.object = before.object;
        return false;
    }
    upload_close(c, &before);
    p->last = 0;
    return true;
}

/* Does a part of that size fit to those that were seen? */
static bool fits(const struct multipart *p, uint32_t number, uint64_t bytes)
{
    bool ends = bytes < p->part_bytes; /* only the last one may */

    if (bytes > p->part_bytes || (ends && number < p->last))
        return false;
    uint64_t last_bytes = p->last > 0 ? p->part[p->last - 1].bytes : 0;
    bool before_ends = last_bytes > 0 && last_bytes < p->part_bytes;
    return number <= p->last || !before_ends;
}

static bool may_begin(struct cache *c, struct multipart *p, const struct okey *k, uint32_t number,
                      uint64_t bytes)
{
    if (p->sealed || !grow_parts(c, p, number) || p->part[number - 1].runs)
        return false;
    if (p->last == 0)                /* it was just made for this one */
        return true;
    forget_part(c, p, number);
    if (p->begun == 0)
        return begin_anew(c, p, k, number, bytes);
    if ((p->alone || bytes > p->part_bytes) && !lay_out_anew(c, p, k, number, bytes))
        return false;
    return fits(p, number, bytes);
}

static bool begin_locked(struct cache *c, struct multipart *p, const struct okey *k,
                         uint32_t number, uint64_t bytes)
{
    if (p->spoiled)
        return false;
    if (!may_begin(c, p, k, number, bytes)) {
        if (!p->sealed)              /* while Complete runs, its list alone counts */
            spoil(c, p);
        return false;
    }
    p->part[number - 1] = (struct upload_part){.bytes = bytes, .runs = true};
    p->last = number > p->last ? number : p->last;
    p->begun++;
    p->holds++;
    return true;
}

struct upload *upload_part_begin(struct cache *c, const struct okey *k, struct span upload_id,
                                 uint32_t number, uint64_t bytes, struct upload_place *place)
{
    if (number == 0 || number > PARTS_MAX || bytes == 0 || bytes > PART_BYTES_MAX ||
        c->dir_count == 0)
        return NULL;
    pthread_mutex_lock(&c->uploads.lock);
    struct multipart *p = find_locked(c, k, upload_id);
    if (!p)
        p = list_new(c, k, upload_id, number, bytes);
    bool begun = p && begin_locked(c, p, k, number, bytes);
    if (begun)
        *place = place_of(p, number);
    pthread_mutex_unlock(&c->uploads.lock);
    return begun ? &p->u : NULL;
}

void upload_part_end(struct cache *c, struct upload *u, uint32_t number, struct span etag)
{
    struct multipart *p = container_of(u, struct multipart, u);

    pthread_mutex_lock(&c->uploads.lock);
    struct upload_part *part = &p->part[number - 1];
    must(part->runs);
    part->runs = false;
    if (etag.len > 0)
        part->etag = etag_id(c, etag);
    else
        blank(c, p, number);
    unlock_and_close(c, drop_locked(p));
}

/* ---- the end ---- */
/* The parts 1..count as they are listed, each as upstream has it, all of one size but the last. */
static bool agrees(struct cache *c, const struct multipart *p, const struct upload_listed *listed,
                   uint32_t count)
{
    if (p->spoiled || p->sealed || count == 0 || count > p->last)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const struct upload_part *part = &p->part[i];
        bool whole = part->bytes == p->part_bytes || (i + 1 == count && part->bytes > 0);
        if (listed[i].number != i + 1 || !whole || part->runs ||
            !id_eq(part->etag, etag_id(c, listed[i].etag)))
            return false;
    }
    return true;
}

/* Which chunks of the tail are the whole's. Those that hold bytes of other parts, too, stay the
 * other object's. */
static void place_tail(struct multipart *p, uint32_t count)
{
    uint32_t number = p->tail_number;

    p->u.tail_first = p->u.tail_end = 0;
    if (!p->u.tail || number > count)
        return;
    uint64_t begin = (number - 1) * p->part_bytes, end = begin + p->part[number - 1].bytes;
    if (begin % CHUNK_BYTES != p->tail_at % CHUNK_BYTES)
        return;
    p->u.tail_first = (begin + CHUNK_BYTES - 1) / CHUNK_BYTES;
    p->u.tail_end = number == count ? UINT64_MAX : end / CHUNK_BYTES;
    p->u.tail_from = (p->tail_at + CHUNK_BYTES - 1) / CHUNK_BYTES;
}

struct upload *upload_complete_begin(struct cache *c, const struct okey *k, struct span upload_id,
                                     const struct upload_listed *part, uint32_t count,
                                     uint64_t *size)
{
    pthread_mutex_lock(&c->uploads.lock);
    struct multipart *p = find_locked(c, k, upload_id);
    if (p && !agrees(c, p, part, count))
        p = NULL;
    if (p) {
        p->sealed = true;
        p->holds++;
        p->u.part_bytes = p->part_bytes;
        place_tail(p, count);
        *size = (count - 1) * p->part_bytes + p->part[count - 1].bytes;
    }
    pthread_mutex_unlock(&c->uploads.lock);
    return p ? &p->u : NULL;
}

void upload_complete_end(struct cache *c, struct upload *u, bool over)
{
    struct multipart *p = container_of(u, struct multipart, u);
    struct multipart *dead = NULL;

    pthread_mutex_lock(&c->uploads.lock);
    p->sealed = false;
    if (over)
        dead = unlist_locked(c, p);
    must(!dead);                     /* we hold it */
    unlock_and_close(c, drop_locked(p));
}

void upload_abort(struct cache *c, const struct okey *k, struct span upload_id)
{
    struct multipart *dead = NULL;

    pthread_mutex_lock(&c->uploads.lock);
    struct multipart *p = find_locked(c, k, upload_id);
    if (p) {
        spoil(c, p);                 /* for who still holds it */
        dead = unlist_locked(c, p);
    }
    unlock_and_close(c, dead);
}

/* ---- the table's life ---- */
void uploads_init(struct cache *c)
{
    pthread_mutex_init(&c->uploads.lock, NULL);
    list_init(&c->uploads.list);
}

void uploads_expire(struct cache *c)
{
    struct multipart *dead = NULL;
    bool more = true;

    while (more) {
        pthread_mutex_lock(&c->uploads.lock);
        struct node *oldest = list_first(&c->uploads.list);
        struct multipart *p = oldest ? container_of(oldest, struct multipart, node) : NULL;
        more = p && clock_ms() - p->since_ms >= LIFE_MS;
        dead = NULL;
        if (more) {
            spoil(c, p);
            dead = unlist_locked(c, p);
        }
        unlock_and_close(c, dead);
    }
}

void uploads_fini(struct cache *c)
{
    LIST_EACH(&c->uploads.list, struct multipart, node, p) {
        struct multipart *dead = unlist_locked(c, p);
        if (dead)
            close_multipart(c, dead);
    }
    pthread_mutex_destroy(&c->uploads.lock);
}
