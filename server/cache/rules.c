/* What the operator says of names: [[bucket]] sections, which may have a quota or a pin, and pins.
 *
 * Invariants:
 *  1. A name is a bucket, or a bucket and what keys begin with, as clients say it. Where it leads
 *     (a store and its own name of the bucket) is found once, as routes do not change while we run.
 *  2. An object belongs to the one section that rules it, the longest, and is pinned by that or by
 *     any pin, however short.
 *  3. A chunk is judged when it enters the index (quota.c), after it became visible to walks; every
 *     change of names is followed by a walk over all that is there. So nothing keeps a verdict of
 *     before.
 *  4. A section keeps its number while it is configured. Numbers of sections that are gone are used
 *     again once a walk has taken all their chunks away.
 *  5. A pin is on the disk of a directory before its maker hears so (cache_state_sync), and ends by
 *     the wall clock.
 *
 * Life: rules_init() with the cache, rules_open() before records are loaded, rules_loaded() behind
 * them; cache_rules_tick() by one thread, once a second.
 * Failure: a section for which there is no memory now is tried again by the next tick. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>

#include "log.h"
#include "server/cache/packed.h"

enum { PIN_VALUE_BYTES = CACHE_PIN_BYTES + 32, CHUNKS_PER_LOOK = 256 };

void rules_init(struct cache *c)
{
    struct rules *r = &c->rules;

    pthread_mutex_init(&r->lock, NULL);
    pthread_mutex_init(&r->turn, NULL);
    for (unsigned i = 0; i < RULE_SECTIONS; i++)
        pthread_mutex_init(&r->section[i].lock, NULL);
}

static void name_free(struct rule_name *n)
{
    mem_give(n->text);
    mem_give(n->bucket);
    *n = (struct rule_name){0};
}

void rules_fini(struct cache *c)
{
    struct rules *r = &c->rules;

    for (unsigned i = 0; i < CACHE_PINS_MAX; i++)
        name_free(&r->pin[i].name);
    for (unsigned i = 0; i < RULE_SECTIONS; i++) {
        name_free(&r->section[i].name);
        mem_give(r->section[i].item);
        pthread_mutex_destroy(&r->section[i].lock);
    }
    pthread_mutex_destroy(&r->turn);
    pthread_mutex_destroy(&r->lock);
    memset(r, 0, sizeof *r);         /* a load that is repeated counts from nothing */
}

/* ---- names ---- */
/* A name that no upstream has leads nowhere. */
static enum err name_make(struct cache *c, struct span text, struct rule_name *out)
{
    struct rule_name n = {.text = mem_copy(text), .store = STORE_NONE};
    struct conf_route route;

    if (!n.text)
        return ERR_MEMORY;
    n.prefix = span_make(n.text, text.len);
    struct span bucket = span_cut(&n.prefix, '/');
    if (conf_route(c->config, bucket, &route)) {
        n.store = c->server->store_of[route.upstream];
        n.bucket = mem_copy(route.bucket);
        if (!n.bucket) {
            name_free(&n);
            return ERR_MEMORY;
        }
    }
    *out = n;
    return OK;
}

static bool covers(const struct rule_name *n, const struct okey *k)
{
    return n->bucket && n->store == k->store && span_is(k->bucket, n->bucket) &&
        span_starts(k->key, n->prefix);
}

static bool is_over(const struct pin *p, uint64_t now_s)
{
    return p->until_s && p->until_s <= now_s;
}

struct verdict rules_judge(struct cache *c, const struct okey *k)
{
    struct rules *r = &c->rules;
    struct verdict v = {0};
    size_t best = 0;

    if (!atomic_load(&r->any))
        return v;
    uint64_t now_s = clock_wall_s();
    pthread_mutex_lock(&r->lock);
    for (unsigned i = 1; i < RULE_SECTIONS; i++) {
        const struct section *s = &r->section[i];
        if (!s->live || s->name.prefix.len + 1 <= best || !covers(&s->name, k))
            continue;
        best = s->name.prefix.len + 1;
        v.section = (uint8_t)i;
        v.pinned = s->pin;
    }
    for (unsigned i = 0; i < CACHE_PINS_MAX && !v.pinned; i++)
        v.pinned = r->pin[i].name.text && !is_over(&r->pin[i], now_s) &&
            covers(&r->pin[i].name, k);
    pthread_mutex_unlock(&r->lock);
    return v;
}

/* Names changed; lock held. */
static void changed(struct rules *r)
{
    bool any = false;

    for (unsigned i = 1; i < RULE_SECTIONS; i++)
        any = any || r->section[i].live;
    for (unsigned i = 0; i < CACHE_PINS_MAX; i++)
        any = any || r->pin[i].name.text;
    atomic_store(&r->any, any);
    atomic_fetch_add(&r->changes, 1);
}

/* ---- sections ---- */
static unsigned find_section(const struct rules *r, const char *match)
{
    for (unsigned i = 1; i < RULE_SECTIONS; i++)
        if (r->section[i].name.text && strcmp(r->section[i].name.text, match) == 0)
            return i;
    return 0;
}

static bool is_applied(const struct rules *r, const struct config *config)
{
    unsigned live = 0;

    for (unsigned i = 1; i < RULE_SECTIONS; i++)
        live += r->section[i].live;
    for (unsigned i = 1; i < config->bucket_count; i++) {
        const struct conf_bucket *b = &config->buckets[i];
        const struct section *s = &r->section[find_section(r, b->match)];
        if (!s->live || s->pin != b->pin || atomic_load(&s->quota_bytes) != b->quota_bytes)
            return false;
    }
    return config->bucket_count == 0 || live == config->bucket_count - 1;
}

/* A number for a new section: one that never was used, or whose chunks all have gone. 0: none. */
static unsigned free_section(struct rules *r)
{
    for (unsigned i = 1; i < RULE_SECTIONS; i++) {
        struct section *s = &r->section[i];
        pthread_mutex_lock(&s->lock);
        bool empty = s->count == 0;
        pthread_mutex_unlock(&s->lock);
        if (!s->live && empty)
            return i;
    }
    return 0;
}

static enum err add_section(struct cache *c, const struct conf_bucket *b)
{
    struct rules *r = &c->rules;
    unsigned at = find_section(r, b->match);

    if (!at) {
        struct rule_name name;
        at = free_section(r);
        if (!at)
            return ERR_BUSY;
        TRY(name_make(c, span_of(b->match), &name));
        name_free(&r->section[at].name);
        r->section[at].name = name;
        r->section[at].metric = metric_name_label(NAMED_BUCKET, b->match);
    }
    policy_declare(c->policy, span_of(b->match)); /* again is harmless */
    r->section[at].live = true;
    r->section[at].pin = b->pin;
    atomic_store(&r->section[at].quota_bytes, b->quota_bytes);
    return OK;
}

enum err rules_apply(struct cache *c, const struct config *config)
{
    struct rules *r = &c->rules;
    enum err first = OK;

    pthread_mutex_lock(&r->lock);
    if (is_applied(r, config)) {
        pthread_mutex_unlock(&r->lock);
        return OK;
    }
    for (unsigned i = 1; i < RULE_SECTIONS; i++)
        r->section[i].live = false;
    for (unsigned i = 1; i < config->bucket_count; i++) {
        enum err e = add_section(c, &config->buckets[i]);
        first = first == OK ? e : first;
    }
    changed(r);
    pthread_mutex_unlock(&r->lock);
    return first;
}

/* ---- pins ---- */
static void pin_state_name(unsigned at, char out[16])
{
    snprintf(out, 16, "pin/%03u", at % 1000);
}

static enum err save_pin(struct cache *c, unsigned at, struct span prefix, uint64_t until_s)
{
    char name[16], memory[PIN_VALUE_BYTES];
    struct text t;

    pin_state_name(at, name);
    text_init(&t, memory, sizeof memory);
    text_addu(&t, until_s);
    text_addc(&t, ' ');
    text_add(&t, prefix);
    must(!t.over);
    return cache_state_put(c, span_of(name), text_span(&t));
}

/* Its place, or the first free one; CACHE_PINS_MAX: there is none. */
static unsigned find_pin(const struct rules *r, struct span prefix, bool or_free)
{
    unsigned free_ = CACHE_PINS_MAX;

    for (unsigned i = CACHE_PINS_MAX; i-- > 0;) {
        if (r->pin[i].name.text && span_is(prefix, r->pin[i].name.text))
            return i;
        if (!r->pin[i].name.text)
            free_ = i;
    }
    return or_free ? free_ : CACHE_PINS_MAX;
}

static enum err check_prefix(struct span prefix)
{
    struct span key = prefix, bucket = span_cut(&key, '/');

    if (bucket.len == 0 || memchr(prefix.at, '\0', prefix.len))
        return ERR_SYNTAX;
    return bucket.len > BUCKET_BYTES_MAX || key.len > KEY_BYTES_MAX ? ERR_TOO_LARGE : OK;
}

static enum err set_pin(struct cache *c, unsigned at, struct span prefix, uint64_t until_s)
{
    struct pin *p = &c->rules.pin[at];

    if (!p->name.text)
        TRY(name_make(c, prefix, &p->name));
    p->until_s = until_s;
    changed(&c->rules);
    return OK;
}

enum err cache_pin(struct cache *c, struct span prefix, uint64_t until_s)
{
    struct rules *r = &c->rules;

    TRY(check_prefix(prefix));
    pthread_mutex_lock(&r->lock);
    unsigned at = find_pin(r, prefix, true);
    enum err e = at < CACHE_PINS_MAX ? save_pin(c, at, prefix, until_s) : ERR_FULL;
    if (e == OK)
        e = set_pin(c, at, prefix, until_s);
    pthread_mutex_unlock(&r->lock);
    return e;
}

bool cache_may_pin(struct cache *c, struct span prefix)
{
    struct rules *r = &c->rules;

    pthread_mutex_lock(&r->lock);
    bool may = find_pin(r, prefix, true) < CACHE_PINS_MAX;
    pthread_mutex_unlock(&r->lock);
    return may;
}

/* Lock held. */
static void drop_pin(struct cache *c, unsigned at)
{
    char name[16];

    pin_state_name(at, name);
    if (cache_state_remove(c, span_of(name)) == ERR_MEMORY)
        return;                      /* it would come back: kept, and tried again */
    name_free(&c->rules.pin[at].name);
    changed(&c->rules);
}

enum err cache_unpin(struct cache *c, struct span prefix)
{
    struct rules *r = &c->rules;

    pthread_mutex_lock(&r->lock);
    unsigned at = find_pin(r, prefix, false);
    if (at < CACHE_PINS_MAX)
        drop_pin(c, at);
    bool stays = at < CACHE_PINS_MAX && r->pin[at].name.text;
    pthread_mutex_unlock(&r->lock);
    return at == CACHE_PINS_MAX ? ERR_NOT_FOUND : stays ? ERR_MEMORY : OK;
}

static void copy_pin(const struct rule_name *n, struct cache_pin *out)
{
    snprintf(out->prefix, sizeof out->prefix, "%s", n->text);
    out->routed = n->bucket != NULL;
}

unsigned cache_pins(struct cache *c, struct cache_pin *out, unsigned cap)
{
    struct rules *r = &c->rules;
    unsigned count = 0;

    pthread_mutex_lock(&r->lock);
    for (unsigned i = 0; i < CACHE_PINS_MAX && count < cap; i++) {
        if (!r->pin[i].name.text)
            continue;
        out[count] = (struct cache_pin){.until_s = r->pin[i].until_s};
        copy_pin(&r->pin[i].name, &out[count++]);
    }
    for (unsigned i = 1; i < RULE_SECTIONS && count < cap; i++) {
        if (!r->section[i].live || !r->section[i].pin)
            continue;
        out[count] = (struct cache_pin){.section = true};
        copy_pin(&r->section[i].name, &out[count++]);
    }
    pthread_mutex_unlock(&r->lock);
    return count;
}

/* A pin of before the restart. What cannot be read is no pin. */
static void load_pin(void *arg, struct span name, struct span value)
{
    struct cache *c = arg;
    uint64_t at, until_s;
    struct span number = span_cut(&value, ' ');

    if (span_u64(span_from(name, strlen("pin/")), &at) != OK || at >= CACHE_PINS_MAX ||
        span_u64(number, &until_s) != OK || check_prefix(value) != OK ||
        find_pin(&c->rules, value, false) < CACHE_PINS_MAX)
        return;
    if (set_pin(c, (unsigned)at, value, until_s) != OK)
        log_event(EVENT_CONFIG, "note=%s prefix=%s",
                  log_value(span_of("no memory for a pin; it holds again after a restart")),
                  log_value(value));
}

/* ---- after a change: all that is here is judged anew ---- */
static void judge_object(struct cache *c, struct object *o)
{
    struct index_shard *stripe = index_shard(c->stripe, o->id);
    uint64_t count = (o->size + CHUNK_BYTES - 1) / CHUNK_BYTES;
    const struct okey k = {.store = o->store, .bucket = object_bucket(o), .key = object_key(o)};
    struct verdict v = rules_judge(c, &k);

    for (uint64_t number = 0; number < count; number++) {
        pthread_mutex_lock(&stripe->lock);
        struct chunk *chunk = chunk_peek(c, o->id, o->data_id, number);
        if (chunk)
            quota_judge_again(c, chunk, v);
        pthread_mutex_unlock(&stripe->lock);
    }
}

/* Of a packed one: else it stays as it is. */
static bool is_judged_otherwise(struct cache *c, const struct packed *p, const void *arg)
{
    char text[PACKED_TEXT];
    struct small s;

    (void)arg;
    packed_read(p, &s, text);
    struct verdict v = rules_judge(c, &s.k);
    bool pinned = s.mark.flags & MARK_PINNED;
    return v.section != s.section || v.pinned != pinned || s.unpinned;
}

static void judge_all(struct cache *c)
{
    struct object *o[CACHE_WALK_MAX];

    for (uint64_t at = 0; at != CACHE_WALK_OVER;) {
        unsigned count = walk_wanted(c, &at, o, is_judged_otherwise, NULL);
        for (unsigned i = 0; i < count; i++) {
            judge_object(c, o[i]);
            object_leave(c, o[i]);
        }
    }
}

static void walk_if_changed(struct cache *c)
{
    struct rules *r = &c->rules;
    uint64_t changes = atomic_load(&r->changes);

    if (atomic_load(&r->walked) == changes)
        return;
    judge_all(c);
    atomic_store(&r->walked, changes);
}

static void end_pins(struct cache *c)
{
    struct rules *r = &c->rules;
    uint64_t now_s = clock_wall_s();

    pthread_mutex_lock(&r->lock);
    for (unsigned i = 0; i < CACHE_PINS_MAX; i++)
        if (r->pin[i].name.text && is_over(&r->pin[i], now_s))
            drop_pin(c, i);
    pthread_mutex_unlock(&r->lock);
}

void cache_rules_tick(struct cache *c, const struct config *now)
{
    pthread_mutex_lock(&c->rules.turn);
    bool applied = rules_apply(c, now) == OK;
    end_pins(c);
    walk_if_changed(c);
    quota_trim(c);
    if (!applied)                    /* now some numbers may be free; else at the next tick */
        rules_apply(c, now);
    pthread_mutex_unlock(&c->rules.turn);
}

enum err rules_open(struct cache *c)
{
    TRY(rules_apply(c, c->config));
    atomic_store(&c->rules.walked, atomic_load(&c->rules.changes));
    return OK;
}

void rules_loaded(struct cache *c)
{
    pthread_mutex_lock(&c->rules.lock);
    cache_state_walk(c, span_of("pin/"), load_pin, c);
    pthread_mutex_unlock(&c->rules.lock);
    end_pins(c);
    walk_if_changed(c);
}
