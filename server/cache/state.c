/* Small named values that a restart finds again: what jobs, pins and policies must not forget.
 *
 * Invariants:
 *  1. Each value has a number from the sequence of records; of two with one name the higher number
 *     is the true one. A removal is a value without bytes, so that a directory which missed it
 *     cannot bring the name back.
 *  2. `held` of a value names the directories whose newest record, on disk or queued, is this very
 *     one. What a directory lacks is queued again by its writer until the journal takes it.
 *  3. Directories of the newest session are believed; one that is behind teaches nothing, and what
 *     it alone knows is overwritten before its commits count as new.
 *  4. A mark of removal goes for good only at a start at which every directory holds it, or when
 *     the room for values is short and all of them have been told, or it may come back
 *     (STATE_LOOSE): a directory that is not there hears of nothing, for weeks perhaps.
 *
 * Life: state_init() before the directories are loaded; state_load() for each record,
 * state_loaded() before the writers start; state_fini() after they ended. The lock comes before the
 * journals'.
 * Failure: damaged records are counted, and replaced by another directory's or by a removal. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <endian.h>

#include "server/cache/inside.h"
#include "sign.h"

enum {
    VALUE_FORMAT = 1,
    VALUE_HEAD = 10,                 /* format, removed, number (big-endian) */
    VALUE_CRC = 4,
};

struct state_value {
    struct node node;
    char name[CHANGE_KEY_BYTES + 1]; /* as in the sub-database, STATE_VALUE_MARK first */
    bool removed;
    uint32_t held;
    uint64_t number;
    uint8_t *record;                 /* as it is on disk; NULL: a removal that has none yet */
    uint32_t record_len;
};

/* ---- records ---- */
static uint32_t crc_of(const char *name, const uint8_t *record, size_t len)
{
    return crc32c(crc32c(0, name, strlen(name)), record, len);
}

/* NULL: no memory. */
static uint8_t *write_record(const char *name, uint64_t number, const struct span *value)
{
    size_t bytes = value ? value->len : 0, len = VALUE_HEAD + bytes;
    uint8_t *record = mem_take(len + VALUE_CRC);

    if (!record)
        return NULL;
    uint64_t n = htobe64(number);
    record[0] = VALUE_FORMAT;
    record[1] = !value;
    memcpy(record + 2, &n, sizeof n);
    if (bytes)
        memcpy(record + VALUE_HEAD, value->at, bytes);
    uint32_t crc = htole32(crc_of(name, record, len));
    memcpy(record + len, &crc, sizeof crc);
    return record;
}

static enum err read_record(const char *name, struct span bytes, bool *removed, uint64_t *number)
{
    const uint8_t *at = (const uint8_t *)bytes.at;
    uint32_t crc;

    if (bytes.len < VALUE_HEAD + VALUE_CRC)
        return ERR_RECORD;
    memcpy(&crc, at + bytes.len - VALUE_CRC, sizeof crc);
    if (le32toh(crc) != crc_of(name, at, bytes.len - VALUE_CRC))
        return ERR_RECORD;
    if (at[0] != VALUE_FORMAT || at[1] > 1)
        return ERR_NEWER;
    *removed = at[1];
    memcpy(number, at + 2, sizeof *number);
    *number = be64toh(*number);
    return OK;
}

static struct span value_of(const struct state_value *v)
{
    return span_make((const char *)v->record + VALUE_HEAD,
                     v->record_len - VALUE_HEAD - VALUE_CRC);
}

/* ---- the table; all under its lock ---- */
static struct state_value *find(struct state_table *t, const char *name)
{
    LIST_EACH(&t->list, struct state_value, node, v)
        if (strcmp(v->name, name) == 0)
            return v;
    return NULL;
}

static void set_record(struct state_table *t, struct state_value *v, uint8_t *record, size_t len)
{
    t->bytes -= v->record_len;
    mem_give(v->record);
    v->record = record;
    v->record_len = (uint32_t)len;
    t->bytes += len;
}

static void drop(struct state_table *t, struct state_value *v)
{
    set_record(t, v, NULL, 0);
    node_remove(&v->node);
    t->count--;
    mem_give(v);
}

static struct state_value *add(struct state_table *t, const char *name)
{
    struct state_value *v = t->count < STATE_VALUES_MAX ? mem_take(sizeof *v) : NULL;

    if (!v)
        return NULL;
    memcpy(v->name, name, strlen(name));
    list_push(&t->list, &v->node);
    t->count++;
    return v;
}

static uint32_t all_dirs(const struct cache *c)
{
    return (1U << c->dir_count) - 1;
}

static bool queue(struct directory *d, const struct state_value *v, bool remove)
{
    struct journal_change change = {
        .state = v->name,
        .bytes = span_make((const char *)v->record, v->record_len),
        .remove = remove,
    };
    return journal_queue(d->journal, &change, 1) == OK;
}

/* What directory d lacks, as far as its journal takes it. */
static void tell(struct cache *c, struct directory *d)
{
    struct state_table *t = &c->values;
    uint32_t bit = 1U << d->number;
    bool all = true;

    LIST_EACH(&t->list, struct state_value, node, v) {
        if (!(v->held & bit) && v->record && queue(d, v, false))
            v->held |= bit;
        all &= (v->held & bit) != 0;
    }
    if (all)
        atomic_fetch_and(&t->owed, ~bit);
}

static void tell_all(struct cache *c)
{
    atomic_fetch_or(&c->values.owed, all_dirs(c));
    for (unsigned i = 0; i < c->dir_count; i++)
        tell(c, &c->dir[i]);
}

/* Whoever puts it does not mind if it comes back with a directory that missed its removal. */
static bool may_come_back(const struct state_value *v)
{
    return span_starts(span_of(v->name + 1), span_of(STATE_LOOSE));
}

/* The mark of a removal is forgotten, here and on disk. false: a journal would not take it. */
static bool purge(struct cache *c, struct state_value *v)
{
    for (unsigned i = 0; i < c->dir_count; i++)
        if (!queue(&c->dir[i], v, true) && !may_come_back(v)) {
            v->held = 0;             /* those that took it are told again */
            atomic_fetch_or(&c->values.owed, all_dirs(c));
            return false;
        }
    drop(&c->values, v);
    return true;
}

/* Room for one more: the oldest removal goes that all have heard of, or need not. */
static void make_room(struct cache *c)
{
    struct state_value *oldest = NULL;

    LIST_EACH(&c->values.list, struct state_value, node, v)
        if (v->removed && (v->held == all_dirs(c) || may_come_back(v)) &&
            (!oldest || v->number < oldest->number))
            oldest = v;
    if (oldest)
        purge(c, oldest);
}

/* value NULL: removed. */
static enum err change(struct cache *c, const char *name, const struct span *value)
{
    struct state_table *t = &c->values;
    size_t len = VALUE_HEAD + VALUE_CRC + (value ? value->len : 0);
    struct state_value *v = find(t, name);

    if (!value && (!v || v->removed))
        return ERR_NOT_FOUND;
    if (!v && t->count == STATE_VALUES_MAX)
        make_room(c);
    if ((!v && t->count == STATE_VALUES_MAX) ||
        t->bytes + len - (v ? v->record_len : 0) > STATE_VALUES_BYTES)
        return ERR_FULL;
    uint64_t number = atomic_fetch_add(&c->sequence, 1);
    uint8_t *record = write_record(name, number, value);
    if (record && !v)
        v = add(t, name);
    if (!record || !v) {
        mem_give(record);
        return ERR_MEMORY;
    }
    set_record(t, v, record, len);
    v->number = number;
    v->removed = !value;
    v->held = 0;
    tell_all(c);
    return OK;
}

/* ---- the face ---- */
static void stored_name(struct span name, char out[CHANGE_KEY_BYTES + 1])
{
    must(name.len > 0 && name.len <= STATE_NAME_MAX && !memchr(name.at, '\0', name.len));
    memset(out, 0, CHANGE_KEY_BYTES + 1);
    out[0] = STATE_VALUE_MARK;
    memcpy(out + 1, name.at, name.len);
}

enum err cache_state_put(struct cache *c, struct span name, struct span value)
{
    char stored[CHANGE_KEY_BYTES + 1];

    stored_name(name, stored);
    if (value.len > STATE_VALUE_MAX)
        return ERR_TOO_LARGE;
    pthread_mutex_lock(&c->values.lock);
    enum err err = change(c, stored, &value);
    pthread_mutex_unlock(&c->values.lock);
    return err;
}

enum err cache_state_remove(struct cache *c, struct span name)
{
    char stored[CHANGE_KEY_BYTES + 1];

    stored_name(name, stored);
    pthread_mutex_lock(&c->values.lock);
    enum err err = change(c, stored, NULL);
    pthread_mutex_unlock(&c->values.lock);
    return err;
}

enum err cache_state_get(struct cache *c, struct span name, void *out, size_t cap, size_t *len)
{
    char stored[CHANGE_KEY_BYTES + 1];

    stored_name(name, stored);
    pthread_mutex_lock(&c->values.lock);
    const struct state_value *v = find(&c->values, stored);
    enum err err = v && !v->removed ? OK : ERR_NOT_FOUND;
    struct span value = err == OK ? value_of(v) : span_of("");
    if (value.len > cap)
        err = ERR_TOO_LARGE;
    if (err == OK && value.len)
        memcpy(out, value.at, value.len);
    *len = value.len;
    pthread_mutex_unlock(&c->values.lock);
    return err;
}

void cache_state_walk(struct cache *c, struct span prefix,
                      void (*each)(void *arg, struct span name, struct span value), void *arg)
{
    pthread_mutex_lock(&c->values.lock);
    LIST_EACH(&c->values.list, struct state_value, node, v) {
        struct span name = span_of(v->name + 1);
        if (!v->removed && span_starts(name, prefix))
            each(arg, name, value_of(v));
    }
    pthread_mutex_unlock(&c->values.lock);
}

bool cache_state_sync(struct cache *c, unsigned timeout_ms)
{
    uint64_t deadline_ms = clock_ms() + timeout_ms, mark[CACHE_DIRS_MAX] = {0};
    bool saved = false;

    for (unsigned i = 0; i < c->dir_count; i++)
        mark[i] = journal_mark(c->dir[i].journal);
    for (unsigned i = 0; i < c->dir_count; i++)
        if (!(atomic_load(&c->values.owed) >> i & 1) &&
            journal_wait(c->dir[i].journal, mark[i], deadline_ms))
            saved = true;
    return saved;
}

/* ---- inside the folder ---- */
void state_init(struct cache *c)
{
    pthread_mutex_init(&c->values.lock, NULL);
    list_init(&c->values.list);
}

void state_fini(struct cache *c)
{
    LIST_EACH(&c->values.list, struct state_value, node, v)
        drop(&c->values, v);
    pthread_mutex_destroy(&c->values.lock);
}

void state_tell(struct directory *d)
{
    struct state_table *t = &d->cache->values;

    if (!(atomic_load(&t->owed) >> d->number & 1))
        return;
    pthread_mutex_lock(&t->lock);
    tell(d->cache, d);
    pthread_mutex_unlock(&t->lock);
}

void state_untold(struct directory *d)
{
    struct state_table *t = &d->cache->values;
    uint32_t bit = 1U << d->number;

    pthread_mutex_lock(&t->lock);
    LIST_EACH(&t->list, struct state_value, node, v)
        v->held &= ~bit;
    atomic_fetch_or(&t->owed, bit);
    pthread_mutex_unlock(&t->lock);
}

/* The record as d has it becomes the known one. */
static enum err adopt(struct directory *d, struct state_value *v, struct span record)
{
    uint8_t *copy = mem_take(record.len);

    if (!copy)
        return ERR_MEMORY;
    memcpy(copy, record.at, record.len);
    set_record(&d->cache->values, v, copy, record.len);
    v->held = 1U << d->number;
    return read_record(v->name, record, &v->removed, &v->number);
}

enum err state_load(struct directory *d, struct span name, struct span record, bool stale)
{
    struct state_table *t = &d->cache->values;
    char stored[CHANGE_KEY_BYTES + 1] = {0};
    uint64_t number = 0;
    bool removed;

    if (name.len > CHANGE_KEY_BYTES || name.len < 2 || memchr(name.at, '\0', name.len) ||
        record.len > VALUE_HEAD + VALUE_CRC + STATE_VALUE_MAX)
        return ERR_RECORD;
    memcpy(stored, name.at, name.len);
    enum err err = read_record(stored, record, &removed, &number);
    struct state_value *v = find(t, stored);
    bool known = v != NULL;
    if (!v)
        v = add(t, stored);
    if (!v)
        return ERR_FULL;
    move_up(&d->cache->sequence, number + 1);
    if (!known)
        v->removed = true;           /* unless the record says otherwise */
    if (err == OK && !stale && (!v->record || number > v->number))
        return adopt(d, v, record);
    if (err == OK && v->record && number == v->number)
        v->held |= 1U << d->number;
    return err;
}

void state_loaded(struct cache *c)
{
    LIST_EACH(&c->values.list, struct state_value, node, v) {
        if (v->removed && v->held == all_dirs(c)) {
            purge(c, v);
        } else if (!v->record) {     /* known only where it is not believed */
            v->number = atomic_fetch_add(&c->sequence, 1);
            uint8_t *record = write_record(v->name, v->number, NULL);
            set_record(&c->values, v, record, record ? VALUE_HEAD + VALUE_CRC : 0);
        }
    }
    tell_all(c);
}
