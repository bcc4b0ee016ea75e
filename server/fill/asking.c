/* Who is asking what a key is: joining, asking beside others, the answer to all.
 *
 * Invariants:
 *  1. Those who know nothing of a key and want the same of it share one asking; who wants bytes of
 *     another chunk asks at once, since they come with his answer: he waits for one way to
 *     upstream, not for two.
 *  2. Who knows the object and comes to a chunk that an asking will bring waits for it: else it
 *     would come twice.
 *  3. Every learner, and every such reader, hears exactly once.
 *
 * Life: an asking is a fetch with a contact, listed until it is answered.
 * Failure: the answer's, to all who joined. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/fill/fill.h"

/* ---- the table ---- */

/* Those of before a write of the key answer who waits already, and nobody else. */
static bool is_asking_of(const struct fetch *f, struct id id, struct epoch epoch, uint8_t profile)
{
    return id_eq(f->contact->key.id, id) && f->epoch.upstream == epoch.upstream &&
           f->profile == profile && epoch_eq(f->epoch, epoch);
}

static struct fetch *find_locked(struct fill_shard *s, const struct okey *k, struct epoch now,
                                 uint8_t profile)
{
    LIST_EACH(&s->askings, struct fetch, asking, f)
        if (is_asking_of(f, k->id, now, profile))
            return f;
    return NULL;
}

/* Who wants bytes of another chunk than those of the askings under way asks beside them: his bytes
 * come with the answer, so that he waits for one way to upstream, not for two. Returns the asking
 * that he is to join, or NULL. */
static struct fetch *find_near_locked(struct fill_shard *s, const struct okey *k,
                                      struct epoch now, const struct learn *l)
{
    struct fetch *first = find_locked(s, k, now, l->profile);
    uint64_t chunk = contact_chunk(l);
    unsigned count = 0;

    if (chunk == NO_CHUNK || l->patient || l->prewarm)
        return first;
    LIST_EACH(&s->askings, struct fetch, asking, f) {
        if (!is_asking_of(f, k->id, now, l->profile))
            continue;
        if (f->contact->chunk == chunk)
            return f;
        count++;
    }
    return count < ASKINGS_BESIDE ? NULL : first;
}

static void unlist_locked(struct fetch *f)
{
    if (node_linked(&f->asking))
        node_remove(&f->asking);
}

/* ---- readers who know the object ---- */

/* An asking under way, which lets nobody go first, will bring bytes of that chunk. */
static struct fetch *asking_for(struct fill_shard *s, const struct object *o, uint64_t number,
                                const struct wait *w)
{
    LIST_EACH(&s->askings, struct fetch, asking, f)
        if (is_asking_of(f, o->id, w->epoch, w->profile) && f->contact->chunk == number &&
            !f->contact->patient && !f->contact->prewarm)
            return f;
    return NULL;
}

/* The reader knows the object and comes to a chunk that others, who did not, have asked for: when
 * they are answered he looks again, else what they bring would come twice. */
bool asking_awaits(struct core *c, const struct object *o, uint64_t number, struct wait *w)
{
    struct fill_shard *s = fill_shard(c, shard_of_object(o->id));
    struct fetch *f;

    shard_lock(s);
    f = asking_for(s, o, number, w);
    if (f) {
        w->shard = shard_of_object(o->id);
        w->busy = true;
        w->m->inflight++;
        list_push(&f->contact->readers, &w->node);
        origin_reader_waits(c->server->origin[w->epoch.upstream]);
    }
    shard_unlock(s);
    return f != NULL;
}

bool asking_brings(struct core *c, const struct object *o, uint64_t number,
                   const struct wait *like)
{
    struct fill_shard *s = fill_shard(c, shard_of_object(o->id));

    shard_lock(s);
    bool asked = asking_for(s, o, number, like) != NULL;
    shard_unlock(s);
    return asked;
}

/* ---- waiting for knowledge ---- */

static void learn_heard(struct core *c, struct message *msg)
{
    struct learn *l = container_of(msg, struct learn, msg);
    (void)c;
    l->busy = false;
    l->ended = true;
    l->m->inflight--;
    machine_wake(l->m);
}

static void link_learner(struct fetch *f, struct learn *l)
{
    list_push(&f->contact->learners, &l->node);
    l->busy = true;
    l->m->inflight++;
}

/* Who cannot wait joins what a plan asks: from now on it goes before what others let go first. */
static void hurry_locked(struct fetch *f)
{
    if (!f->contact->patient)
        return;
    f->contact->patient = false;
    f->called = true;
    core_send(f->m.core, &f->call);
}

/* as: of whom it is, l or one without a waiter */
static void learn(struct core *c, const struct okey *k, struct learn *l, const struct learn *as,
                  bool fresh)
{
    uint8_t shard = shard_of_object(k->id);
    struct fill_shard *s = fill_shard(c, shard);
    struct epoch now = cache_epoch(c->server->cache, k);
    shard_lock(s);
    struct fetch *f =
        l ? find_near_locked(s, k, now, l) : find_locked(s, k, now, as->profile);
    bool hastier = f && l && f->contact->patient && !l->patient && !f->contact->plan;
    bool blind = f && l && l->sums && !f->contact->sums; /* a plan asks for no checksums */
    bool waits = hastier || blind || (f && l && f->contact->background && !l->background);
    if (waits) {                     /* it lets others go first, and answers who waits already */
        unlist_locked(f);
        f = NULL;
    }
    bool joinable = f && !(fresh && f->contact->sent);
    if (joinable || (f && !l)) {
        if (l) {
            l->joined = true;
            l->early = f->contact->sent;
            link_learner(f, l);
        }
        if (l && !l->patient)
            hurry_locked(f);
        shard_unlock(s);
        return;
    }
    bool alone = f == NULL;
    f = fetch_make(c);
    if (f && contact_make(c, f, k, as) != OK) {
        shard_unlock(s);             /* without a contact and an object it ends at once */
        f = NULL;
    } else {
        if (f && l)
            link_learner(f, l);
        if (f && alone)
            list_push(&s->askings, &f->asking);
        if (f) {
            f->ask_shard = shard;
            f->profile = as->profile;
            f->hint = as->hint;
            f->epoch = now;
        }
        if (f && as->prewarm)
            fetch_set_prewarm(f, as->plan, as->background);
        shard_unlock(s);
    }
    if (!f && l) {
        l->err = ERR_BUSY;
        l->ended = true;
        machine_wake(l->m);
    }
}

void fill_learn(struct core *c, const struct okey *k, struct learn *l, bool fresh)
{
    must(!l->busy);
    l->msg.deliver = learn_heard;
    l->shard = shard_of_object(k->id);
    l->ended = l->joined = l->early = false;
    l->err = OK;
    l->object = NULL;
    learn(c, k, l, l, fresh);
}

void fill_refresh(struct core *c, const struct okey *k, uint8_t profile)
{
    const struct learn refresh = {.kind = LEARN_HEAD, .profile = profile};
    if (!origin_is_down(c->server->origin[k->upstream]))
        learn(c, k, NULL, &refresh, false);
}

bool fill_leave_learn(struct core *c, struct learn *l)
{
    if (!l->busy)
        return true;
    struct fill_shard *s = fill_shard(c, l->shard);
    shard_lock(s);
    bool linked = node_linked(&l->node);
    if (linked)
        node_remove(&l->node);
    shard_unlock(s);
    if (linked) {
        l->busy = false;
        l->m->inflight--;
    }
    return linked;
}

void asking_answer(struct core *c, struct fetch *f, const struct learnt *what)
{
    struct fill_shard *s = fill_shard(c, f->ask_shard);
    shard_lock(s);
    unlist_locked(f);
    LIST_EACH(&f->contact->learners, struct learn, node, l) {
        node_remove(&l->node);
        l->err = what->err;
        l->epoch = f->epoch;
        l->object = what->object;
        if (l->object)
            object_hold(l->object);
        if (what->upstream)
            l->upstream = *what->upstream;
        core_send(l->m->core, &l->msg);
    }
    LIST_EACH(&f->contact->readers, struct wait, node, w)
        wait_answer(c, w, OK, NULL);
    shard_unlock(s);
}
