/* Streams: which ranged reads of an object follow each other, whichever connections they come over
 * and in whatever order (pure).
 *
 * A stream is an interval of an object that was asked for without a gap. A range that begins where
 * one ends makes it longer, so does one that ends where it begins; a range between two makes one of
 * them. So the ten parallel parts of a downloader are one stream as soon as the holes between them
 * are filled, two readers at different places of an object are two, and reads by strides or at
 * random are none.
 *
 * Samples that a loader takes at random touch each other by chance, and each is one of many: where
 * most ranges of the set's objects begin anew, two that touch are no stream yet.
 *
 * Invariants:
 *  1. Nobody reads ahead of a lone range, unless it begins where the object does.
 *  2. What is fetched ahead is at most RAMP times what the stream has read, and window chunks, in
 *     front of its end: a reader who stops early wastes little.
 *  3. A chunk is handed out until who got it tells that it is under way. Streams that become one
 *     may both have had it; fill/ fetches it once.
 *  4. The table never grows: a set has STREAM_WAYS streams, and the one that was longest without a
 *     read makes room.
 *
 * Life: streams_open() with the tables of fill/, streams_close() with them; any core, a set's lock
 * is held for a look at its streams.
 * Failure: a stream that lost its place begins anew, as a first range does. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "server/fill/fill.h"

enum {
    RAMP = 4,
    TWO_IN_A_ROW = 2,
    MANY_IN_A_ROW = 5,               /* where most ranges follow none */
    FOLLOW_ALL = 1 << 16,            /* stream_set.following: each one does */
    FOLLOW_OF = 16,                  /* it is a mean of about so many */
    /* Of 256 samples of an object the last 16 are remembered: an eighth touch one of them. Of an
     * object that is read in two ranges the second follows. */
    FOLLOW_FEW = FOLLOW_ALL / 8 * 3,
};

struct stream {
    struct id data_id;
    uint64_t from, front;            /* bytes [from, front) were asked for; front 0: no stream */
    /* chunks [first, ahead) are under way, or were; first 0: none was begun */
    uint64_t first, ahead;
    uint64_t used;                   /* when it got its last range, in those of the set */
    uint64_t serial;                 /* when it began, likewise: no other of the set has it */
    uint32_t reads;                  /* ranges that it is made of */
    uint32_t window;                 /* chunks in front of a reader */
};

struct stream_set {
    pthread_mutex_t lock;
    uint64_t now;
    uint32_t following;              /* how many ranges follow another one, of late */
    struct stream stream[STREAM_WAYS];
};

struct streams {
    struct stream_set set[STREAM_SETS];
};

static struct stream_set *lock_set(struct streams *t, struct id data_id)
{
    struct stream_set *s = &t->set[data_id.a % STREAM_SETS];
    pthread_mutex_lock(&s->lock);
    return s;
}

static void unlock_set(struct stream_set *s)
{
    pthread_mutex_unlock(&s->lock);
}

static bool is_of(const struct stream *s, struct id data_id)
{
    return s->front > 0 && id_eq(s->data_id, data_id);
}

/* The longest one of the object's that ends there, begins there, or has that byte. */
enum side { ENDS, BEGINS, HOLDS };
static struct stream *find(struct stream_set *set, struct id data_id, uint64_t at, enum side side)
{
    struct stream *best = NULL;
    for (unsigned i = 0; i < STREAM_WAYS; i++) {
        struct stream *s = &set->stream[i];
        bool fits = is_of(s, data_id) && (side == ENDS     ? s->front == at
                                          : side == BEGINS ? s->from == at
                                                           : s->from <= at && at < s->front);
        if (fits && (!best || s->reads > best->reads))
            best = s;
    }
    return best;
}

static struct stream *make(struct stream_set *set, struct id data_id, uint64_t from, uint64_t end)
{
    struct stream *s = &set->stream[0];
    for (unsigned i = 1; i < STREAM_WAYS && s->front > 0; i++)
        if (set->stream[i].front == 0 || set->stream[i].used < s->used)
            s = &set->stream[i];
    *s = (struct stream){.data_id = data_id, .from = from, .front = end,
                         .serial = set->now, .window = STREAM_WINDOW_FIRST};
    return s;
}

/* The range fills the hole before next, if there is one. */
static struct stream *join(struct stream *s, struct stream *next)
{
    if (!next || next == s)
        return s;
    s->front = max_u64(s->front, next->front);
    if (next->first > 0 && (s->first == 0 || next->first < s->first))
        s->first = next->first;
    s->ahead = max_u64(s->ahead, next->ahead);
    s->reads += next->reads;
    s->window = (uint32_t)max_u64(s->window, next->window);
    next->front = 0;
    return s;
}

static void note_following(struct stream_set *set, bool follows)
{
    set->following -= set->following / FOLLOW_OF;
    if (follows)
        set->following += FOLLOW_ALL / FOLLOW_OF;
}

/* So many ranges that touch are a stream. */
static uint32_t in_a_row(const struct stream_set *set)
{
    return set->following < FOLLOW_FEW ? MANY_IN_A_ROW : TWO_IN_A_ROW;
}

void streams_note(struct streams *t, struct id data_id, struct stream_read *r)
{
    must(r->from < r->end);
    struct stream_set *set = lock_set(t, data_id);
    set->now++;
    struct stream *s = find(set, data_id, r->from, ENDS);
    struct stream *next = find(set, data_id, r->end, BEGINS);
    note_following(set, s || next);
    if (s) {
        s->front = r->end;
        s = join(s, next);
    } else if (next) {
        s = next;
        s->from = r->from;
    } else {
        s = make(set, data_id, r->from, r->end);
    }
    s->reads++;
    s->used = set->now;
    r->slot = (uint32_t)(s - set->stream);
    r->serial = s->serial;
    r->first = s->first;
    r->begun = s->ahead;
    r->follows = s->reads >= in_a_row(set);
    r->window = s->window;
    unlock_set(set);
}

/* That of a range that was noted: another one may have taken it in, or its place. */
static struct stream *stream_of(struct stream_set *set, struct id data_id,
                                const struct stream_read *r)
{
    struct stream *s = &set->stream[r->slot];
    return is_of(s, data_id) && s->serial == r->serial ? s : find(set, data_id, r->end - 1, HOLDS);
}

/* The end of what may be under way in front of the stream. */
static uint64_t limit_of(const struct stream_set *set, const struct stream *s)
{
    if (s->reads < in_a_row(set) && s->from > 0)
        return 0;
    return s->front + min_u64((uint64_t)s->window * CHUNK_BYTES, RAMP * (s->front - s->from));
}

bool streams_next(struct streams *t, struct id data_id, const struct stream_read *r,
                  uint64_t *number)
{
    struct stream_set *set = lock_set(t, data_id);
    struct stream *s = stream_of(set, data_id, r);
    bool more = false;
    if (s) {
        s->window = (uint32_t)max_u64(s->window, min_u64(r->window, STREAM_WINDOW_MOST));
        *number = max_u64(s->ahead, (s->front + CHUNK_BYTES - 1) / CHUNK_BYTES);
        more = *number * CHUNK_BYTES < limit_of(set, s);
    }
    unlock_set(set);
    return more;
}

void streams_took(struct streams *t, struct id data_id, const struct stream_read *r,
                  uint64_t number)
{
    struct stream_set *set = lock_set(t, data_id);
    struct stream *s = stream_of(set, data_id, r);
    if (s && s->first == 0)
        s->first = number;
    if (s)
        s->ahead = max_u64(s->ahead, number + 1);
    unlock_set(set);
}

int64_t streams_room(uint32_t most, unsigned distance)
{
    int64_t far = (int64_t)min_u64(distance, STREAM_WINDOW_MOST) - STREAM_WINDOW_FIRST;
    int64_t all = most;
    if (far <= 0)
        return all;
    int64_t less = all * 3 / 4 * far / (STREAM_WINDOW_MOST - STREAM_WINDOW_FIRST);
    return all > less ? all - less : 1;
}

struct streams *streams_open(void)
{
    struct streams *t = mem_take(sizeof(*t));
    for (unsigned i = 0; t && i < STREAM_SETS; i++) {
        pthread_mutex_init(&t->set[i].lock, NULL);
        t->set[i].following = FOLLOW_ALL;
    }
    return t;
}

void streams_close(struct streams *t)
{
    for (unsigned i = 0; t && i < STREAM_SETS; i++)
        pthread_mutex_destroy(&t->set[i].lock);
    mem_give(t);
}
