/* Which prefixes of keys are groups: found by the bytes that come in below them.
 *
 * Invariants:
 *  1. A key belongs to the longest group that it begins with: a bucket, a prefix that ends in '/',
 *     or what the configuration names. Group 0, the catch-all, begins every key.
 *  2. Bytes count for every longer prefix of the key. The longest one that has GROUP_BYTES becomes
 *     a group; the bytes from before stay with the group that it was part of until they are read.
 *  3. There are at most EHD_GROUPS. A new one takes the place of the one that was idle for longest,
 *     if that was idle for long; else it has to wait.
 *  4. A tag is never another group's: its upper part tells how often the number was given.
 *  5. The generation moves with every change, so that who remembers a tag asks again.
 *
 * Life: with its ehd. Failure: prefixes are known by hashes of 64 bit; two that collide share a
 * group, which costs hits. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pthread.h>

#include "server/policy/inside.h"

enum {
    GROUP_BYTES_SHARE = 64,          /* of the capacity: small caches have small groups */
    PREFIXES = 4096,                 /* that may become groups */
    PREFIX_TRIES = 8,
    LEVELS = 16,                     /* of a key that are looked at below its group */
    LENGTHS = BUCKET_BYTES_MAX + KEY_BYTES_MAX + 2,
};
#define GROUP_BYTES (512 * (uint64_t)MIB)

struct group {
    uint64_t hash;                   /* of its prefix; 0: free */
    uint16_t given;                  /* how often */
    uint8_t parent;                  /* the group it was part of */
    bool declared;
    uint16_t name_len;               /* 0: restored, and no key of it was seen since */
    char name[POLICY_NAME_BYTES];    /* its prefix, as far as there is room */
};
struct prefix {                      /* on its way to become one */
    uint64_t hash, bytes;
};
struct ehd_prefixes {
    pthread_mutex_t lock;
    struct group group[EHD_GROUPS];
    _Atomic uint16_t generation;
    _Atomic unsigned count;
    uint64_t group_bytes;
    struct prefix prefix[PREFIXES];
    uint8_t ends[LENGTHS / 8 + 1];   /* bit: something declared ends there, without a '/' */
};

/* FNV-1a: every prefix's hash falls out of one pass over the key. */
static const uint64_t HASH_BASIS = 0xCBF29CE484222325, HASH_PRIME = 0x100000001B3;

static uint64_t hash_on(uint64_t h, char c)
{
    return (h ^ (uint8_t)c) * HASH_PRIME;
}

struct ehd_prefixes *ehd_prefixes_make(uint64_t capacity_bytes)
{
    struct ehd_prefixes *s = mem_take(sizeof *s);

    if (!s)
        return NULL;
    pthread_mutex_init(&s->lock, NULL);
    s->group[0] = (struct group){.hash = HASH_BASIS, .declared = true};
    s->group_bytes = min_u64(GROUP_BYTES, capacity_bytes / GROUP_BYTES_SHARE);
    atomic_init(&s->generation, 1);
    atomic_init(&s->count, 1);
    return s;
}

void ehd_prefixes_free(struct ehd_prefixes *s)
{
    if (!s)
        return;
    pthread_mutex_destroy(&s->lock);
    mem_give(s);
}

uint16_t ehd_prefixes_tag(const struct ehd_prefixes *s, unsigned group)
{
    return (uint16_t)(group + EHD_GROUPS * (unsigned)PEEK(s->group[group].given));
}

unsigned ehd_prefixes_parent(const struct ehd_prefixes *s, unsigned group)
{
    return PEEK(s->group[group].parent);
}

uint16_t ehd_prefixes_generation(const struct ehd_prefixes *s)
{
    return atomic_load_explicit(&s->generation, memory_order_relaxed);
}

unsigned ehd_prefixes_count(const struct ehd_prefixes *s)
{
    return atomic_load(&s->count);
}

static unsigned group_of(const struct ehd_prefixes *s, uint64_t hash)
{
    for (unsigned g = 0; g < EHD_GROUPS; g++)
        if (s->group[g].hash == hash)
            return g;
    return EHD_GROUPS;
}

/* The hash becomes group g; 0 is nobody's generation, so that a memo of zeroes is none. */
static void settle(struct ehd_prefixes *s, unsigned g, uint64_t hash)
{
    uint16_t next = (uint16_t)(ehd_prefixes_generation(s) + 1);

    if (s->group[g].hash == 0)
        atomic_fetch_add(&s->count, 1);
    s->group[g].hash = hash;
    s->group[g].name_len = 0;
    POKE(s->group[g].given, (uint16_t)((s->group[g].given + 1) % (UINT16_MAX / EHD_GROUPS)));
    atomic_store(&s->generation, next ? next : 1);
}

static char char_at(struct span bucket, struct span key, size_t at)
{
    return at < bucket.len    ? bucket.at[at]
           : at == bucket.len ? '/'
                              : key.at[at - bucket.len - 1];
}

/* Its prefix is the first `ends` bytes of bucket/key. */
static void name_group(struct ehd_prefixes *s, unsigned g, struct span bucket, struct span key,
                       size_t ends)
{
    struct group *group = &s->group[g];

    for (size_t at = 0; at < ends && at < sizeof group->name; at++)
        group->name[at] = char_at(bucket, key, at);
    group->name_len = (uint16_t)min_u64(ends, sizeof group->name);
}

void ehd_prefixes_declare(struct ehd_prefixes *s, struct span match)
{
    uint64_t hash = HASH_BASIS;
    struct span rest = match;
    bool bucket = span_cut(&rest, '/').len == match.len;

    if (match.len == 0 || match.len >= LENGTHS)
        return;
    for (size_t n = 0; n < match.len; n++)
        hash = hash_on(hash, match.at[n]);
    hash = bucket ? hash_on(hash, '/') : hash;
    pthread_mutex_lock(&s->lock);
    unsigned g = group_of(s, 0);
    if (g < EHD_GROUPS && group_of(s, hash) == EHD_GROUPS) {
        settle(s, g, hash);
        s->group[g].declared = true;
        name_group(s, g, match, span_of(""), match.len + bucket);
        if (!bucket && match.at[match.len - 1] != '/')
            s->ends[match.len / 8] |= (uint8_t)(1u << match.len % 8);
    }
    pthread_mutex_unlock(&s->lock);
}

uint64_t ehd_prefixes_hash(const struct ehd_prefixes *s, unsigned group)
{
    return s->group[group].hash;
}

size_t ehd_prefixes_name(struct ehd_prefixes *s, uint16_t tag, char out[POLICY_NAME_BYTES])
{
    unsigned g = tag % EHD_GROUPS;

    pthread_mutex_lock(&s->lock);
    size_t len = ehd_prefixes_tag(s, g) == tag ? s->group[g].name_len : 0;
    memcpy(out, s->group[g].name, len);
    pthread_mutex_unlock(&s->lock);
    return len;
}

unsigned ehd_prefixes_adopt(struct ehd_prefixes *s, uint64_t hash)
{
    pthread_mutex_lock(&s->lock);
    unsigned g = hash ? group_of(s, hash) : EHD_GROUPS, free_ = group_of(s, 0);
    if (hash && g == EHD_GROUPS && free_ < EHD_GROUPS) {
        settle(s, free_, hash);
        g = free_;
    }
    pthread_mutex_unlock(&s->lock);
    return g;
}

/* The hash's place, or the one with the fewest bytes nearby, which are lost. */
static struct prefix *prefix_of(struct ehd_prefixes *s, uint64_t hash)
{
    struct prefix *least = NULL;

    for (unsigned n = 0; n < PREFIX_TRIES; n++) {
        struct prefix *p = &s->prefix[(hash ^ hash >> 32 ^ n) % PREFIXES];
        if (p->hash == hash)
            return p;
        if (!least || p->bytes < least->bytes)
            least = p;
    }
    *least = (struct prefix){.hash = hash};
    return least;
}

/* A number for a new group: a free one, or that of the one idle for longest. */
static unsigned number_for(const struct ehd_prefixes *s, const struct ehd_idle *idle)
{
    unsigned free_ = group_of(s, 0), longest = EHD_GROUPS;
    uint32_t most = idle->most;

    if (free_ < EHD_GROUPS)
        return free_;
    for (unsigned g = 1; g < EHD_GROUPS; g++)
        if (!s->group[g].declared && idle->of(idle->ehd, g) >= most) {
            longest = g;
            most = idle->of(idle->ehd, g);
        }
    return longest;
}

struct path {                        /* a key's group, and the prefixes below that could be one */
    unsigned group, count;
    size_t group_ends;               /* in bucket/key */
    uint64_t below[LEVELS];
    size_t ends[LEVELS];
};

static struct path look_up(const struct ehd_prefixes *s, struct span bucket, struct span key)
{
    struct path path = {0};
    uint64_t hash = HASH_BASIS;

    for (size_t at = 0; at < bucket.len + 1 + key.len && at + 1 < LENGTHS; at++) {
        char c = char_at(bucket, key, at);
        hash = hash_on(hash, c);
        if (c != '/' && !(s->ends[(at + 1) / 8] >> (at + 1) % 8 & 1))
            continue;
        unsigned g = group_of(s, hash);
        if (g < EHD_GROUPS) {
            path.group = g;
            path.group_ends = at + 1;
            path.count = 0;
        } else if (c == '/' && path.count < LEVELS) {
            path.ends[path.count] = at + 1;
            path.below[path.count++] = hash;
        }
    }
    return path;
}

/* Which of the path's prefixes is the longest that has come to enough bytes; LEVELS: none. */
static unsigned count_bytes(struct ehd_prefixes *s, const struct path *path, uint64_t bytes)
{
    unsigned longest = LEVELS;

    for (unsigned n = 0; n < path->count; n++) {
        struct prefix *p = prefix_of(s, path->below[n]);
        p->bytes += bytes;
        if (p->bytes < s->group_bytes)
            continue;
        p->bytes = 0;
        longest = n;
    }
    return longest;
}

uint16_t ehd_prefixes_find(struct ehd_prefixes *s, struct span bucket, struct span key,
                           uint64_t bytes, const struct ehd_idle *idle)
{
    pthread_mutex_lock(&s->lock);
    struct path path = look_up(s, bucket, key);
    unsigned ripe = bytes > 0 ? count_bytes(s, &path, bytes) : LEVELS;
    unsigned g = ripe < LEVELS ? number_for(s, idle) : EHD_GROUPS;
    if (g < EHD_GROUPS) {
        settle(s, g, path.below[ripe]);
        POKE(s->group[g].parent, (uint8_t)path.group);
        path.group = g;
        path.group_ends = path.ends[ripe];
    }
    if (s->group[path.group].name_len == 0)
        name_group(s, path.group, bucket, key, path.group_ends);
    uint16_t tag = ehd_prefixes_tag(s, path.group);
    pthread_mutex_unlock(&s->lock);
    return tag;
}
