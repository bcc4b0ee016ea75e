/* Where the readers of a plan are, by what is read through us.
 *
 * Words: a read is so many *steps* in front of a reader: 0 in what he reads, 1 in what comes next.
 * What he passed and never began was *left out*.
 *
 * Invariants:
 *  1. Who reads is not asked: a read belongs to the stream whose next entries name that object
 *     nearest. What no entry in front of a reader names moves nobody.
 *  2. A read far in front of a reader moves him only when the next one is behind it: another job
 *     may read the same objects in its own order.
 *  3. What a reader asks for at once comes in any order: of the last PLAN_PASSED entries behind
 *     him, one that he left out counts as read when it is. What lies farther back does not come
 *     back.
 *  4. A read is looked for from where each reader is, never from a stream's begin: what it costs
 *     grows with the streams that name the object, and with nothing else but logarithms.
 *  5. Of a key that is missing or empty nobody tells a read: behind the last other one of its
 *     stream it is not waited for.
 *
 * Life: with the plan; by its machine. Failure: none; a read that nobody told leaves a reader where
 * he was until the next one. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/jobs/plan.h"

enum {
    NEAR = 16,                       /* entries that a reader may have open, or leave out */
    LOOKS = 1024,                    /* entries of an object, before and behind all its readers */
    COMPARED_MOST = 32 * 1024,       /* ranges, for one read of many readers' object */
    RANK_SURE = 3,                   /* no other stream has a nearer one: see weigh() */
    /* of the rest of one behind its reader: the next one is nearer */
    STEPS_BACK = 2,                  /* where he may be another one, whose next entry it is */
};

/* ---- whose read it is ---- */
struct search {
    struct plan *p;
    const struct plan_object *o;
    const struct follow_read *read;
    struct plan_match *out;
    uint64_t best;                   /* rank of what was found */
    uint32_t end;                    /* of the object's uses */
    uint32_t each;                   /* uses that may be looked at, before and behind each reader */
};

/* Does the entry read some of these bytes? */
static bool entry_has(struct search *s, const struct plan_entry *e)
{
    uint32_t low = 0, high = e->range_count;

    s->out->compared++;
    if (e->ranges == PLAN_NONE)
        return true;
    const struct plan_range *range = s->p->range + e->ranges;
    while (low < high) {             /* the first that ends behind where the read begins */
        uint32_t middle = (low + high) / 2;
        s->out->compared++;
        if (range[middle].from + range[middle].length <= s->read->from)
            low = middle + 1;
        else
            high = middle;
    }
    return low < e->range_count && range[low].from < s->read->from + s->read->bytes;
}

/* Of the uses [low, high) the first that is not before that entry; a little behind the hint, if it
 * is of the same object. */
static uint32_t use_of(struct search *s, uint32_t low, uint32_t high, uint32_t hint, uint32_t entry)
{
    const uint32_t *use = s->p->use;
    uint32_t step = 1;

    if (hint > low && hint <= high && use[hint - 1] < entry)
        low = hint;
    for (; step < high - low && use[low + step - 1] < entry; step *= 2) {
        low += step;
        s->out->compared++;
    }
    high = (uint32_t)min_u64(high, low + step);
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        s->out->compared++;
        if (use[middle] < entry)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct plan_stream *stream_of(const struct search *s, uint32_t use)
{
    return &s->p->stream[s->p->entry[s->p->use[use]].stream];
}

/* Where the readers are among the uses of the object. */
static void find_readers(struct search *s)
{
    unsigned streams = 0;

    for (uint32_t use = s->o->first; use < s->end; streams++) {
        struct plan_stream *t = stream_of(s, use);
        t->uses = use;
        t->use = use_of(s, use, s->end, t->use, t->start + t->at);
        t->uses_end = use_of(s, t->use, s->end, t->uses_end, t->start + t->count);
        use = t->uses_end;
    }
    s->each = (uint32_t)max_u64(LOOKS / max_u64(streams, 1), NEAR);
}

/* A reader who begins at the front again, while he is in the middle of it or behind its end, is
 * another one. */
static bool goes_on(const struct plan_stream *t, uint32_t position, const struct plan_object *o,
                    const struct follow_read *read)
{
    bool early = t->offset <= CHUNK_BYTES && (o->state != PLANNED_KNOWN || t->offset < o->size);

    return t->begun && position == t->at && (read->from > 0 || !t->front || early);
}

static bool is_left_out(const struct plan_stream *t, uint32_t position)
{
    return position < t->at && t->at - position <= PLAN_PASSED &&
        t->left_out >> (t->at - position - 1) & 1;
}

static uint32_t steps_to(const struct plan_stream *t, uint32_t position,
                         const struct follow_read *read)
{
    if (position >= t->at)
        return position - t->at + !t->begun;
    return is_left_out(t, position) ? 1 : read->from == 0 ? PLAN_NONE : STEPS_BACK;
}

/* True: the entry has these bytes. It is taken if it is nearer than what was found. */
static bool weigh(struct search *s, const struct plan_stream *t, uint32_t use)
{
    uint32_t number = s->p->use[use], position = number - t->start;

    if (s->out->compared > COMPARED_MOST)
        return true;                 /* of very many readers not all are asked */
    if (!entry_has(s, &s->p->entry[number]))
        return false;
    uint32_t steps = steps_to(t, position, s->read);
    /* What follows is meant before what was left out, and that, or a rest, before others. */
    uint64_t rank = steps * 2ull + (steps == 1 ? position < t->at : position >= t->at);
    if (steps != PLAN_NONE && rank < s->best) {
        s->out->entry = number;
        s->out->steps = steps;
        s->best = rank;
    }
    return true;
}

static bool reads_it(const struct search *s, const struct plan_stream *t)
{
    return t->begun && t->use < t->uses_end && s->p->use[t->use] == t->start + t->at;
}

static void look_here(struct search *s, const struct plan_stream *t)
{
    if (!reads_it(s, t) || !goes_on(t, t->at, s->o, s->read) ||
        !entry_has(s, &s->p->entry[t->start + t->at]))
        return;
    bool anew = s->read->from == 0 && t->front; /* who begins it as well is nearer */
    s->out->entry = t->start + t->at;
    s->out->steps = anew ? STEPS_BACK : 0;
    s->best = 0;
}

static void look_next(struct search *s, const struct plan_stream *t)
{
    uint32_t use = t->use + reads_it(s, t);

    if (use < t->uses_end && s->p->use[use] == t->start + t->at + t->begun)
        (void)weigh(s, t, use);
}

static void look_behind(struct search *s, const struct plan_stream *t)
{
    uint32_t use = t->use;

    while (use > t->uses && t->use - use < s->each &&
           s->p->use[use - 1] - t->start + PLAN_PASSED >= t->at)
        use--;
    for (; use < t->use; use++)
        (void)weigh(s, t, use);
}

static void look_in_front(struct search *s, const struct plan_stream *t)
{
    uint32_t from = t->use + reads_it(s, t), use = from;

    while (use < t->uses_end && use - from < s->each && !weigh(s, t, use))
        use++;
}

bool plan_match(struct plan *p, const struct follow_read *read, struct plan_match *out)
{
    static void (*const looks[])(struct search *, const struct plan_stream *) = {
        look_here, look_next, look_behind, look_in_front, /* the nearest first */
    };
    const struct plan_object *o = plan_find(p, read->id);

    *out = (struct plan_match){.entry = PLAN_NONE, .steps = PLAN_NONE, .compared = 1};
    if (!o)
        return false;
    bool last = o + 1 == p->object + p->object_count;
    struct search s = {.p = p, .o = o, .read = read, .out = out, .best = UINT64_MAX,
                       .end = last ? p->entry_count : o[1].first};
    find_readers(&s);
    for (unsigned i = 0; i < ARRAY_COUNT(looks) && out->entry == PLAN_NONE; i++)
        for (uint32_t use = o->first; use < s.end && s.best > RANK_SURE;) {
            const struct plan_stream *t = stream_of(&s, use);
            looks[i](&s, t);
            use = t->uses_end;
        }
    return out->entry != PLAN_NONE;
}

/* ---- what it says of its reader ---- */
static void begin_entry(struct plan *p, struct plan_stream *t, uint32_t position)
{
    uint32_t far = position - t->at, passed = far - (t->begun && far > 0);
    uint64_t newly = far >= PLAN_PASSED ? UINT64_MAX : (1ull << far) - 1;

    if (t->begun && far > 0 && far <= PLAN_PASSED)
        newly &= ~(1ull << (far - 1));
    t->left_out = (far >= PLAN_PASSED ? 0 : t->left_out << far) | newly;
    p->now.skipped += passed;
    p->now.read++;
    p->since++;
    t->at = position;
    t->begun = true;
    t->front = false;
    t->offset = 0;
    t->jump = PLAN_NONE;
}

static void note_progress(struct plan *p, struct plan_stream *t, const struct follow_read *read)
{
    t->offset = max_u64(t->offset, read->from + read->bytes);
    t->front = t->front || read->from == 0;
    p->read_bytes += read->bytes;
    if (!read->waited || t->late_at == t->at + 1)
        return;
    t->late_at = t->at + 1;
    p->now.late++;
}

/* What he has passed already. */
static enum plan_heard hear_behind(struct plan *p, struct plan_stream *t, uint32_t position,
                                   const struct follow_read *read)
{
    p->read_bytes += read->bytes;
    if (!is_left_out(t, position))
        return HEARD_ON;
    t->left_out &= ~(1ull << (t->at - position - 1));
    p->now.skipped--;
    p->now.read++;
    p->now.late += read->waited;
    return HEARD_NEXT;
}

enum plan_heard plan_heard(struct plan *p, const struct follow_read *read,
                           const struct plan_match *match)
{
    struct plan_stream *t = &p->stream[p->entry[match->entry].stream];
    uint32_t position = match->entry - t->start;

    if (position < t->at)
        return hear_behind(p, t, position, read);
    if (position == t->at && t->begun) {
        note_progress(p, t, read);
        return HEARD_ON;
    }
    bool near = position - t->at <= NEAR;
    bool follows = t->jump != PLAN_NONE && position > t->jump && position - t->jump <= NEAR;
    if (!near && !follows) {
        t->jump = position;
        return HEARD_NOTHING;
    }
    begin_entry(p, t, position);
    note_progress(p, t, read);
    return HEARD_NEXT;
}

bool plan_awaits(const struct plan *p)
{
    for (uint32_t s = 0; s < p->stream_count; s++) {
        const struct plan_stream *t = &p->stream[s];
        for (uint32_t i = 1; i <= PLAN_PASSED && t->left_out >> (i - 1); i++) {
            const struct plan_entry *e = &p->entry[t->start + t->at - i];
            if (t->left_out >> (i - 1) & 1 && p->object[e->object].state <= PLANNED_KNOWN)
                return true;
        }
    }
    return false;
}

static uint64_t entry_end(const struct plan *p, const struct plan_entry *e)
{
    const struct plan_object *o = &p->object[e->object];
    uint64_t end = 0;

    if (o->state > PLANNED_KNOWN)
        return 0;
    if (e->ranges == PLAN_NONE)
        return o->size;
    for (unsigned i = 0; i < e->range_count; i++)
        end = max_u64(end, p->range[e->ranges + i].from + p->range[e->ranges + i].length);
    return o->state == PLANNED_KNOWN ? min_u64(end, o->size) : end;
}

bool plan_entry_wants(const struct plan *p, const struct plan_entry *e, uint64_t n, uint64_t *first)
{
    uint64_t size = p->object[e->object].size, from = n * CHUNK_BYTES, best = UINT64_MAX;

    if (from >= size)
        return false;
    *first = n;
    if (e->ranges == PLAN_NONE)
        return true;
    for (unsigned i = 0; i < e->range_count; i++) {
        const struct plan_range *r = &p->range[e->ranges + i];
        uint64_t end = min_u64(r->from + r->length, size);
        if (end > from && r->from < size)
            best = min_u64(best, max_u64(r->from, from) / CHUNK_BYTES);
    }
    *first = best;
    return best != UINT64_MAX;
}

/* It is not there, or has none of the bytes that are wanted: no read of it is ever told. */
static bool is_nothing(const struct plan *p, const struct plan_entry *e)
{
    uint8_t state = p->object[e->object].state;
    uint64_t first;

    return state == PLANNED_MISSING ||
        (state == PLANNED_KNOWN && !plan_entry_wants(p, e, 0, &first));
}

uint32_t plan_stream_end(const struct plan *p, const struct plan_stream *t)
{
    uint32_t end = t->count, least = t->at + t->begun;

    if (t->ahead < end)              /* there is more; and so few only are gone through */
        return end;
    while (end > least && is_nothing(p, &p->entry[t->start + end - 1]))
        end--;
    return end;
}

static bool is_in_last(const struct plan *p, const struct plan_stream *t)
{
    return t->at + t->begun >= plan_stream_end(p, t);
}

bool plan_is_begun(const struct plan *p)
{
    for (uint32_t s = 0; s < p->stream_count; s++)
        if (!p->stream[s].begun && !is_in_last(p, &p->stream[s]))
            return false;
    return p->now.read > 0;
}

bool plan_is_in_last(const struct plan *p)
{
    for (uint32_t s = 0; s < p->stream_count; s++)
        if (!is_in_last(p, &p->stream[s]))
            return false;
    return true;
}

bool plan_is_read(const struct plan *p)
{
    for (uint32_t s = 0; s < p->stream_count; s++) {
        const struct plan_stream *t = &p->stream[s];
        bool rest = t->begun && t->offset < entry_end(p, &p->entry[t->start + t->at]);
        if (rest || !is_in_last(p, t))
            return false;
    }
    return true;
}

uint64_t plan_size_guess(const struct plan *p, const struct plan_object *o)
{
    if (o->state == PLANNED_KNOWN)
        return o->size;
    if (o->state != PLANNED_UNKNOWN)
        return 0;
    return p->known > 0 ? p->known_bytes / p->known : CHUNK_BYTES;
}

/* Of an entry, from a chunk on. A range may be said to go far beyond its object's end. */
static uint64_t bytes_from(const struct plan *p, const struct plan_entry *e, uint64_t from)
{
    uint64_t size = plan_size_guess(p, &p->object[e->object]), sum = 0;

    if (e->ranges == PLAN_NONE)
        return size - min_u64(size, from);
    for (unsigned i = 0; i < e->range_count; i++) {
        const struct plan_range *r = &p->range[e->ranges + i];
        uint64_t end = min_u64(r->from + r->length, size);
        sum += end > max_u64(r->from, from) ? end - max_u64(r->from, from) : 0;
    }
    return sum;
}

void plan_measure(struct plan *p, struct plan_stream *t)
{
    uint64_t reader = t->begun ? t->offset : 0;

    if (t->ahead < t->at || (t->ahead == t->at && t->chunk * CHUNK_BYTES < reader)) {
        t->ahead = t->at;
        t->chunk = (reader + CHUNK_BYTES - 1) / CHUNK_BYTES;
    }
    t->distance = 0;
    for (uint32_t i = t->at; i < t->ahead && i < t->count; i++)
        t->distance += bytes_from(p, &p->entry[t->start + i], i == t->at ? reader : 0);
    if (t->ahead < t->count && t->chunk > 0)
        t->distance +=
            bytes_from(p, &p->entry[t->start + t->ahead], t->ahead == t->at ? reader : 0) -
            bytes_from(p, &p->entry[t->start + t->ahead], t->chunk * CHUNK_BYTES);
}
