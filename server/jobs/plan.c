/* A loader's plan as data: which keys each of its streams will read, in order.
 *
 * Invariants:
 *  1. A key's text stands there once, however often the plan names it; where its entries are is
 *     found in an index, by stream and place.
 *  2. Behind plan_settle() a stream's entries stand behind each other, and nothing grows any more.
 *  3. What the plans hold together, also those in the making, is counted in one account and
 *     bounded.
 *
 * Life: plan_make(), plan_add() for each entry, plan_settle(); one thread's, then that of the
 * machine (plan_run.c).
 * Failure: a plan that is too large, or without memory, takes no more entries and says so. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "server/jobs/plan.h"

enum { ROOM_FIRST = 256, TEXT_FIRST = 16 * KIB, SLOTS_FIRST = 1024 };

struct plan *plan_make(struct plan_account *account)
{
    struct plan *p = mem_take(sizeof *p);

    if (p)
        p->account = account;
    return p;
}

void plan_empty(struct plan *p)
{
    atomic_fetch_sub(&p->account->bytes, p->bytes);
    atomic_fetch_sub(&p->account->entries, p->entry_count);
    mem_give(p->text);
    mem_give(p->object);
    mem_give(p->entry);
    mem_give(p->range);
    mem_give(p->slot);
    mem_give(p->stream);
    mem_give(p->use);
    p->text = NULL;
    p->object = NULL;
    p->entry = NULL;
    p->range = NULL;
    p->slot = NULL;
    p->stream = NULL;
    p->use = NULL;
    p->bytes = 0;
    p->object_count = p->entry_count = p->stream_count = p->reader_count = p->slots = 0;
}

void plan_free(struct plan *p)
{
    if (p)
        plan_empty(p);
    mem_give(p);
}

/* ---- room ---- */
/* So many bytes more, if all plans together may have them. */
static enum err charge(struct plan *p, uint64_t bytes)
{
    if (atomic_fetch_add(&p->account->bytes, bytes) + bytes > PLAN_BYTES_MAX) {
        atomic_fetch_sub(&p->account->bytes, bytes);
        return ERR_TOO_LARGE;
    }
    p->bytes += bytes;
    return OK;
}

static void uncharge(struct plan *p, uint64_t bytes)
{
    atomic_fetch_sub(&p->account->bytes, bytes);
    p->bytes -= bytes;
}

static enum err take_charged(struct plan *p, uint64_t bytes, void **out)
{
    TRY(charge(p, bytes));
    *out = mem_take(bytes);
    if (*out)
        return OK;
    uncharge(p, bytes);
    return ERR_MEMORY;
}

/* Room for one more of *count items (or for `more` bytes of text). */
static enum err make_room(struct plan *p, void **at, uint32_t *room, uint64_t need, size_t each)
{
    if (need <= *room)
        return OK;
    uint64_t next = max_u64(need, 2 * (uint64_t)*room);
    if (next > UINT32_MAX)
        return ERR_TOO_LARGE;
    TRY(charge(p, (next - *room) * each));
    void *grown = mem_grow(*at, next * each);
    if (!grown) {
        uncharge(p, (next - *room) * each);
        return ERR_MEMORY;
    }
    *at = grown;
    *room = (uint32_t)next;
    return OK;
}

/* ---- keys ---- */
struct span plan_rest(const struct plan *p, const struct plan_object *o)
{
    return span_make(p->text + o->text, o->len);
}

static uint32_t *slot_of(const struct plan *p, struct id id, struct span rest)
{
    uint32_t at = (uint32_t)id.a & (p->slots - 1);

    while (p->slot[at] != PLAN_NONE) {
        const struct plan_object *o = &p->object[p->slot[at]];
        if (id_eq(o->id, id) && (!rest.at || span_eq(plan_rest(p, o), rest)))
            break;
        at = (at + 1) & (p->slots - 1);
    }
    return &p->slot[at];
}

struct plan_object *plan_find(const struct plan *p, struct id id)
{
    uint32_t found = p->slots ? *slot_of(p, id, (struct span){0}) : PLAN_NONE;

    return found == PLAN_NONE ? NULL : &p->object[found];
}

/* At most half of the slots are used. */
static enum err grow_slots(struct plan *p)
{
    uint32_t slots = p->slots ? 2 * p->slots : SLOTS_FIRST;

    if (p->slots && p->object_count < p->slots / 2)
        return OK;
    TRY(charge(p, (uint64_t)(slots - p->slots) * sizeof *p->slot));
    uint32_t *fresh = mem_take(slots * sizeof *fresh);
    if (!fresh) {
        uncharge(p, (uint64_t)(slots - p->slots) * sizeof *p->slot);
        return ERR_MEMORY;
    }
    memset(fresh, 0xff, slots * sizeof *fresh);
    mem_give(p->slot);
    p->slot = fresh;
    p->slots = slots;
    for (uint32_t i = 0; i < p->object_count; i++)
        *slot_of(p, p->object[i].id, plan_rest(p, &p->object[i])) = i;
    return OK;
}

static enum err enter_object(struct plan *p, const struct plan_wish *wish, uint32_t *out)
{
    TRY(grow_slots(p));
    uint32_t *slot = slot_of(p, wish->id, wish->rest);
    if (*slot != PLAN_NONE) {
        *out = *slot;
        return OK;
    }
    TRY(make_room(p, (void **)&p->object, &p->object_room,
                  max_u64(p->object_count + 1ull, ROOM_FIRST), sizeof *p->object));
    TRY(make_room(p, (void **)&p->text, &p->text_room,
                  max_u64(p->text_used + wish->rest.len, TEXT_FIRST), 1));
    p->object[p->object_count] = (struct plan_object){.id = wish->id, .text = p->text_used,
        .len = (uint16_t)wish->rest.len, .size = PLAN_SIZE_UNKNOWN};
    if (wish->rest.len > 0)
        memcpy(p->text + p->text_used, wish->rest.at, wish->rest.len);
    p->text_used += (uint32_t)wish->rest.len;
    *out = *slot = p->object_count++;
    return OK;
}

/* ---- entries ---- */
static int by_place(const void *a, const void *b)
{
    const struct plan_range *r = a, *q = b;

    return r->from < q->from ? -1 : r->from > q->from;
}

/* In order, and what overlaps or touches is one; so many are left. */
static uint32_t join_ranges(struct plan_range *range, uint32_t count)
{
    uint32_t kept = 1;

    qsort(range, count, sizeof *range, by_place);
    for (uint32_t i = 1; i < count; i++) {
        struct plan_range *last = &range[kept - 1];
        uint64_t end = range[i].from + range[i].length;
        if (range[i].from > last->from + last->length)
            range[kept++] = range[i];
        else
            last->length = max_u64(last->length, end - last->from);
    }
    return kept;
}

static enum err enter_ranges(struct plan *p, const struct plan_wish *wish)
{
    for (unsigned i = 0; i < wish->range_count; i++) {
        const struct plan_range *r = &wish->range[i];
        if (r->length == 0 || r->from > INT64_MAX || r->length > INT64_MAX)
            return ERR_SYNTAX;
    }
    TRY(make_room(p, (void **)&p->range, &p->range_room,
                  max_u64(p->range_count + (uint64_t)wish->range_count, ROOM_FIRST),
                  sizeof *p->range));
    struct plan_range *range = p->range + p->range_count;
    memcpy(range, wish->range, wish->range_count * sizeof *range);
    p->range_count += join_ranges(range, wish->range_count);
    return OK;
}

static enum err enter_entry(struct plan *p, const struct plan_wish *wish)
{
    uint32_t object, ranges = wish->range_count ? p->range_count : PLAN_NONE;

    TRY(enter_object(p, wish, &object));
    TRY(make_room(p, (void **)&p->entry, &p->entry_room,
                  max_u64(p->entry_count + 1ull, ROOM_FIRST), sizeof *p->entry));
    if (wish->range_count)
        TRY(enter_ranges(p, wish));
    p->entry[p->entry_count++] = (struct plan_entry){.object = object, .ranges = ranges,
        .stream = (uint16_t)wish->stream,
        .range_count = (uint16_t)(wish->range_count ? p->range_count - ranges : 0)};
    return OK;
}

enum err plan_add(struct plan *p, const struct plan_wish *wish)
{
    if (wish->stream >= PLAN_STREAMS_MAX || wish->rest.len > KEY_BYTES_MAX ||
        wish->range_count > PLAN_RANGES_MAX)
        return ERR_SYNTAX;
    if (atomic_fetch_add(&p->account->entries, 1) >= PLAN_ENTRIES_MAX) {
        atomic_fetch_sub(&p->account->entries, 1);
        return ERR_TOO_LARGE;
    }
    enum err err = enter_entry(p, wish);
    if (err != OK) {
        atomic_fetch_sub(&p->account->entries, 1);
        return err;
    }
    p->stream_count = (uint32_t)max_u64(p->stream_count, wish->stream + 1ull);
    return OK;
}

/* ---- settling ---- */
/* Entries go to their streams, in the order in which they came. */
static enum err part_entries(struct plan *p)
{
    struct plan_entry *sorted = mem_take(max_u64(p->entry_count, 1) * sizeof *sorted);
    uint32_t at = 0;

    if (!sorted)
        return ERR_MEMORY;
    for (uint32_t i = 0; i < p->entry_count; i++)
        p->stream[p->entry[i].stream].count++;
    for (uint32_t s = 0; s < p->stream_count; s++) {
        p->stream[s].start = at;
        at += p->stream[s].count;
        p->stream[s].count = 0;
    }
    for (uint32_t i = 0; i < p->entry_count; i++) {
        struct plan_stream *s = &p->stream[p->entry[i].stream];
        sorted[s->start + s->count++] = p->entry[i];
    }
    mem_give(p->entry);
    p->entry = sorted;
    uncharge(p, (uint64_t)(p->entry_room - max_u64(p->entry_count, 1)) * sizeof *sorted);
    p->entry_room = (uint32_t)max_u64(p->entry_count, 1);
    return OK;
}

static enum err note_uses(struct plan *p)
{
    uint32_t end = 0;

    TRY(take_charged(p, p->entry_count * sizeof *p->use, (void **)&p->use));
    for (uint32_t i = 0; i < p->entry_count; i++)
        p->object[p->entry[i].object].first++;
    for (uint32_t i = 0; i < p->object_count; i++)
        p->object[i].first = end += p->object[i].first;
    for (uint32_t i = p->entry_count; i > 0; i--)
        p->use[--p->object[p->entry[i - 1].object].first] = i - 1;
    return OK;
}

/* How many entries stand in front of position `at`, over all streams. */
static uint64_t places_before(const struct plan *p, uint64_t at)
{
    uint64_t sum = 0;

    for (uint32_t s = 0; s < p->stream_count; s++)
        sum += min_u64(p->stream[s].count, at);
    return sum;
}

/* The first `from` entries, position by position over the streams, are not wanted. */
static void skip_places(struct plan *p, uint64_t from)
{
    uint64_t low = 0, high = p->entry_count;

    from = min_u64(from, p->entry_count);
    while (low < high) {             /* the last position with no more than that before it */
        uint64_t middle = (low + high + 1) / 2;
        if (places_before(p, middle) <= from)
            low = middle;
        else
            high = middle - 1;
    }
    uint64_t left = from - places_before(p, low);
    for (uint32_t s = 0; s < p->stream_count; s++) {
        struct plan_stream *t = &p->stream[s];
        bool one_more = left > 0 && t->count > low;
        left -= one_more;
        t->at = t->ahead = (uint32_t)min_u64(t->count, low + one_more);
        p->reader_count += t->at < t->count;
    }
}

enum err plan_settle(struct plan *p)
{
    if (p->entry_count == 0)
        return ERR_SYNTAX;
    TRY(take_charged(p, p->stream_count * sizeof *p->stream, (void **)&p->stream));
    TRY(part_entries(p));
    TRY(note_uses(p));
    for (uint32_t s = 0; s < p->stream_count; s++)
        p->stream[s].jump = PLAN_NONE;
    skip_places(p, p->facts.from);
    return OK;
}

uint64_t plan_place(const struct plan *p)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t s = 0; s < p->stream_count; s++) {
        const struct plan_stream *t = &p->stream[s];
        uint64_t passed = t->at + (t->begun ? 1ull : 0);
        if (passed < t->count)
            least = min_u64(least, passed);
    }
    return least == UINT64_MAX ? p->entry_count : places_before(p, least);
}
