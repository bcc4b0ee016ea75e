/* Which chunks are fetched before the reader comes to them: those of his answer, and those behind
 * it when his range is one of a stream (fill/stream.c).
 *
 * Invariants:
 *  1. What the client says of its reads (x-headpond-hint) goes before what the configuration
 *     supposes: sequential goes on behind the answer, random never begins.
 *  2. At most g->window chunks are under way in front of the reader, and no chunk is begun that is
 *     here already.
 *  3. The window grows by what was waited for: once with each chunk, never for the first, which
 *     nobody could have fetched ahead.
 *  4. Nothing is begun beside the first bytes of an answer while they may come at once (FIRST_MS).
 *
 * Life: part of a GET, called when its range is known and at each turn of its pump.
 * Failure: at the limit of read-ahead nothing is begun; the next turn tries again. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

/* What begins beside the first bytes takes line and core from them: of a cold 64 MiB of a store at
 * hand they came after 2.6 ms, and alone after 1.0. A store that is far leaves both idle, so they
 * have no more than this, and what the timers' tick makes of it. */
enum { FIRST_MS = 2 };

static struct cache *cache_of(const struct get *g)
{
    return g->m.core->server->cache;
}

/* By the names that clients use. */
static bool reads_ahead(struct get *g)
{
    const struct s3_ask *a = &container_of(g, struct req, get)->ask;
    return conf_bucket(g->m.core->settings->config, a->bucket, a->key)->readahead;
}

/* The last chunk worth fetching ahead: of the answer, or of the object. */
static uint64_t last_ahead(const struct get *g)
{
    return (get_hint(g) & HINT_SEQUENTIAL ? g->object->size - 1 : g->to) / CHUNK_BYTES;
}

/* Does anybody want to be ahead of the reader? What the client says of its reads goes before what
 * the configuration supposes. */
static bool may_be_ahead(struct get *g)
{
    return !(get_hint(g) & HINT_RANDOM) &&
           (get_hint(g) & HINT_SEQUENTIAL || reads_ahead(g));
}

bool get_reads_on(const struct get *g)
{
    return get_hint(g) & HINT_SEQUENTIAL || (g->streams && g->stream.follows);
}

/* What was fetched ahead, or came with the asking, and had left again when its reader came, is one
 * use all the same. */
uint32_t get_told(const struct get *g, uint64_t number)
{
    uint64_t base = number * CHUNK_BYTES;
    if (number > g->from / CHUNK_BYTES && number < g->ahead)
        return CHUNK_BYTES;
    if (g->streams && number >= g->stream.first && number < g->stream.begun)
        return CHUNK_BYTES;
    return g->told > base ? (uint32_t)min_u64(g->told - base, CHUNK_BYTES) : 0;
}

/* Where it ends what will be read of a chunk: of one behind the answer all. */
static uint32_t upto_ahead(const struct get *g, uint64_t number)
{
    return number <= g->to / CHUNK_BYTES ? get_asked_upto(g, number)
                                         : object_chunk_bytes(g->object, number);
}

/* For a reader in chunk here. False: not now. */
static bool bring(struct get *g, uint64_t number, uint64_t here)
{
    struct wait like = {.epoch = g->epoch, .profile = get_profile(g), .hint = get_hint(g),
                        .to = upto_ahead(g, number)};
    uint8_t mask = (uint8_t)((1u << (like.to + BLOCK_BYTES - 1) / BLOCK_BYTES) - 1);
    struct chunk *k = chunk_find(cache_of(g), g->object->data_id, number);
    bool present = k && (chunk_present(cache_of(g), k) & mask) == mask;
    if (k)
        chunk_drop(cache_of(g), k);
    unsigned distance = (unsigned)(number - min_u64(here, number));
    return present || fill_ahead(g->m.core, g->object, number, distance, &like);
}

void get_begin_ahead(struct get *g)
{
    const struct object *o = g->object;
    g->began_ms = g->m.core->now_ms;
    g->window = STREAM_WINDOW_FIRST;
    g->waited = g->ahead;
    /* All of an object needs no stream, nor does a range when all behind it is wanted. One in the
     * last chunk is of the stream that had that chunk fetched. */
    bool part = o->size > CHUNK_BYTES && g->to - g->from + 1 < o->size;
    g->streams = part && !(get_hint(g) & HINT_SEQUENTIAL) && may_be_ahead(g);
    g->stream_rests = false;
    if (!g->streams)
        return;
    g->stream.from = g->from;
    g->stream.end = g->to + 1;
    streams_note(fill_streams(g->m.core), o->data_id, &g->stream);
    g->window = g->stream.window;
}

void get_waits(struct get *g, uint64_t number)
{
    if (number < g->waited)
        return;
    g->waited = number + 1;
    g->window = (unsigned)min_u64(g->window * 2, STREAM_WINDOW_MOST);
}

/* What others of the stream will ask for behind this answer. */
static void follow_stream(struct get *g, uint64_t here)
{
    struct streams *t = fill_streams(g->m.core);
    uint64_t number;
    if (g->stream_rests && g->stream_here == here && g->stream.window == g->window)
        return;
    g->stream.window = g->window;
    g->stream_here = here;
    g->stream_rests = false;
    while (streams_next(t, g->object->data_id, &g->stream, &number) &&
           number <= here + g->window &&
           number <= (g->object->size - 1) / CHUNK_BYTES) {
        if (!bring(g, number, here))
            return;
        streams_took(t, g->object->data_id, &g->stream, number);
    }
    g->stream_rests = true;
}

/* A young object is an exception: its head waits until all of it is under way. */
static bool first_bytes_come(struct get *g)
{
    bool wait = !g->send_begun && !g->pinning && g->count > 0 &&
                get_piece(g, 0)->state == PIECE_WAIT &&
                g->m.core->now_ms - g->began_ms < FIRST_MS;
    if (wait && (g->timer.at_ms == 0 || g->timer.at_ms > g->m.core->now_ms + FIRST_MS))
        timer_set(&g->timer, &g->m, FIRST_MS);
    return wait;
}

void get_fetch_ahead(struct get *g)
{
    uint64_t here = g->next / CHUNK_BYTES, last = last_ahead(g);
    bool asked = false;
    if (first_bytes_come(g))
        return;
    while (g->ahead <= last && g->ahead <= here + g->window) {
        if (!asked && !may_be_ahead(g))
            return;
        asked = true;
        if (!bring(g, g->ahead, here))
            return;
        g->ahead++;
    }
    if (g->streams && g->ahead > last)
        follow_stream(g, here);
}
