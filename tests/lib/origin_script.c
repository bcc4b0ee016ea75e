/* The test origin's script: statements that add objects and rules, or ask for counters.
 *
 * Invariants:
 *  1. A statement is carried out whole or, with a reason, not at all.
 *  2. Texts of a statement are copied and kept until the origin ends.
 *
 * Life: called from any thread; each statement takes the lock once.
 * Failure: a mistake in a statement is told in the answer; nothing is changed then. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/lib/origin_part.h"

struct kept {
    struct kept *next;
    char bytes[];
};

static struct span keep(struct origin *o, struct span text)
{
    struct kept *k = mem_take(sizeof *k + text.len + 1);

    must(k);
    k->next = o->kept;
    o->kept = k;
    if (text.len > 0)
        memcpy(k->bytes, text.at, text.len);
    return span_make(k->bytes, text.len);
}

/* ---- knobs ---- */

/* 1 = taken, 0 = no knob of that name, -1 = bad value. */
static int read_knob(struct span word, struct knobs *out)
{
    static const char *const numbers[] = {
#define X(name, text) text,
        ORIGIN_NUMBERS(X)
#undef X
    };
    static const char *const texts[] = {
#define X(name, text) text,
        ORIGIN_TEXTS(X)
#undef X
    };
    struct span value;

    for (unsigned i = 0; i < NUMBER_COUNT; i++)
        if (word_value(word, numbers[i], &value)) {
            out->numbers_set |= (uint64_t)1 << i;
            return size_read(value, &out->number[i]) == OK ? 1 : -1;
        }
    for (unsigned i = 0; i < TEXT_COUNT; i++)
        if (word_value(word, texts[i], &value)) {
            out->texts_set |= 1u << i;
            out->text[i] = value;
            return 1;
        }
    if (!word_value(word, "header", &value))
        return 0;
    if (out->headers == KNOB_HEADERS_MAX)
        return -1;
    out->header[out->headers++] = value;
    return 1;
}

static void keep_knobs(struct origin *o, struct knobs *k)
{
    for (unsigned i = 0; i < TEXT_COUNT; i++)
        if (k->texts_set >> i & 1)
            k->text[i] = keep(o, k->text[i]);
    for (unsigned i = 0; i < k->headers; i++)
        k->header[i] = keep(o, k->header[i]);
}

static void append_rule(struct rule **list, const struct rule *rule)
{
    struct rule *copy = mem_take(sizeof *copy);

    must(copy);
    *copy = *rule;
    while (*list)
        list = &(*list)->next;
    *list = copy;
}

static void drop_rules(struct rule **list, const struct span *where)
{
    while (*list) {
        struct rule *rule = *list;
        if (where && !span_eq(rule->where, *where)) {
            list = &rule->next;
            continue;
        }
        *list = rule->next;
        mem_give(rule);
    }
}

static struct span read_where(struct span word)
{
    return span_is(word, "*") ? span_make(word.at, 0) : word;
}

/* set WHERE ..., next WHERE ... */
static bool do_rule(struct origin *o, const struct statement *st, struct text *answer)
{
    struct rule rule = {.count = 1};
    bool once = span_is(st->word[0], "next");

    for (unsigned i = 2; i < st->count; i++) {
        struct span value;
        bool good = true;
        if (once && word_value(st->word[i], "method", &value))
            rule.method = value;
        else if (once && word_value(st->word[i], "count", &value))
            good = size_read(value, &rule.count) == OK;
        else if (once && word_value(st->word[i], "skip", &value))
            good = size_read(value, &rule.skip) == OK;
        else
            good = read_knob(st->word[i], &rule.knobs) == 1;
        if (!good) {
            text_addf(answer, "no such knob or value: %s", st->word[i].at);
            return false;
        }
    }
    rule.where = keep(o, read_where(st->word[1]));
    rule.method = keep(o, rule.method);
    keep_knobs(o, &rule.knobs);
    append_rule(once ? &o->once : &o->set, &rule);
    return true;
}

static bool do_unset(struct origin *o, const struct statement *st, struct text *answer)
{
    struct span where = read_where(st->word[1]);

    (void)answer;
    drop_rules(&o->set, &where);
    return true;
}

static bool do_clear(struct origin *o, const struct statement *st, struct text *answer)
{
    (void)st;
    (void)answer;
    drop_rules(&o->set, NULL);
    drop_rules(&o->once, NULL);
    return true;
}

/* ---- objects ---- */

static bool name_bucket(struct origin *o, struct span bucket)
{
    for (unsigned i = 0; i < o->buckets; i++)
        if (span_eq(o->bucket[i], bucket))
            return true;
    if (o->buckets == ORIGIN_BUCKETS_MAX)
        return false;
    o->bucket[o->buckets++] = keep(o, bucket);
    return true;
}

static bool read_object_word(struct span word, struct object *out)
{
    struct span value;

    if (word_value(word, "size", &value))
        return size_read(value, &out->size) == OK;
    if (word_value(word, "version", &value))
        return size_read(value, &out->version) == OK;
    if (word_value(word, "modified", &value))
        return size_read(value, &out->modified_s) == OK;
    if (word_value(word, "etag", &value)) {
        out->etag = value;
        return true;
    }
    if (!word_value(word, "header", &value) || out->headers == KNOB_HEADERS_MAX)
        return false;
    out->header[out->headers++] = value;
    return true;
}

static void put_object(struct origin *o, const struct object *said)
{
    struct object *obj = origin_object(o, said->bucket, said->key, true);

    obj->size = said->size;
    obj->version = said->version;
    obj->modified_s = said->modified_s;
    obj->etag = said->etag.len > 0 ? keep(o, said->etag) : span_of("");
    obj->headers = said->headers;
    for (unsigned i = 0; i < said->headers; i++)
        obj->header[i] = keep(o, said->header[i]);
    obj->gone = false;
    obj->listed = true;
    mem_give(o->sorted);
    o->sorted = NULL;
}

/* Reads words from `first` on; the size comes from the key if no word tells. */
static bool read_object(struct origin *o, const struct statement *st, unsigned first,
                        struct object *out, struct text *answer)
{
    *out = (struct object){.bucket = st->word[1], .key = st->word[2], .version = 1,
                           .modified_s = MODIFIED_STANDARD};
    if (!size_of_key(out->key, &out->size))
        out->size = 0;
    for (unsigned i = first; i < st->count; i++)
        if (!read_object_word(st->word[i], out)) {
            text_addf(answer, "not a property of an object: %s", st->word[i].at);
            return false;
        }
    if (!name_bucket(o, out->bucket)) {
        text_adds(answer, "too many buckets");
        return false;
    }
    return true;
}

static bool do_object(struct origin *o, const struct statement *st, struct text *answer)
{
    struct object said;

    if (!read_object(o, st, 3, &said, answer))
        return false;
    put_object(o, &said);
    return true;
}

/* objects BUCKET a-####.tar COUNT */
static bool do_objects(struct origin *o, const struct statement *st, struct text *answer)
{
    struct object said;
    uint64_t many;
    char name[KEY_BYTES_MAX + 1];
    struct span pattern = st->word[2];
    size_t hash = span_find(pattern, '#'), digits = 0;

    while (hash + digits < pattern.len && pattern.at[hash + digits] == '#')
        digits++;
    if (size_read(st->word[3], &many) != OK || digits == 0 || pattern.len >= sizeof name) {
        text_adds(answer, "objects BUCKET KEY-WITH-### COUNT");
        return false;
    }
    if (!read_object(o, st, 4, &said, answer))
        return false;
    for (uint64_t i = 0; i < many; i++) {
        int len = snprintf(name, sizeof name, "%.*s%0*llu%.*s", (int)hash, pattern.at, (int)digits,
                           (unsigned long long)i, (int)(pattern.len - hash - digits),
                           pattern.at + hash + digits);
        said.key = span_make(name, (size_t)len);
        put_object(o, &said);
    }
    return true;
}

static bool do_bucket(struct origin *o, const struct statement *st, struct text *answer)
{
    if (!name_bucket(o, st->word[1])) {
        text_adds(answer, "too many buckets");
        return false;
    }
    o->closed_world = true;
    return true;
}

static bool do_bump(struct origin *o, const struct statement *st, struct text *answer)
{
    struct span value;
    uint64_t by = 1;

    if (st->count > 3 && (!word_value(st->word[3], "by", &value) || size_read(value, &by) != OK)) {
        text_adds(answer, "bump BUCKET KEY [by=N]");
        return false;
    }
    struct object *obj = origin_object(o, st->word[1], st->word[2], true);
    obj->version += by;
    obj->modified_s = max_u64(obj->modified_s + 1, clock_wall_s());
    return true;
}

static bool do_delete(struct origin *o, const struct statement *st, struct text *answer)
{
    (void)answer;
    origin_object(o, st->word[1], st->word[2], true)->gone = true;
    mem_give(o->sorted);
    o->sorted = NULL;
    return true;
}

/* ---- switches and counters ---- */

static bool do_listen(struct origin *o, const struct statement *st, struct text *answer)
{
    if (origin_listen(o, span_is(st->word[1], "on")))
        return true;
    text_adds(answer, "cannot listen");
    return false;
}

static bool do_log(struct origin *o, const struct statement *st, struct text *answer)
{
    (void)answer;
    o->log_on = span_is(st->word[1], "on");
    return true;
}

static bool do_mark(struct origin *o, const struct statement *st, struct text *answer)
{
    (void)st;
    (void)answer;
    uint64_t open = o->stats.connections, running = o->stats.running;
    o->stats = (struct origin_stats){.connections = open, .max_connections = open,
                                     .running = running, .max_running = running};
    o->body_bytes = 0;
    o->marks++;
    for (unsigned i = 0; i < ORIGIN_TABLE; i++)
        for (struct object *obj = o->table[i]; obj; obj = obj->next)
            obj->requests = obj->body_bytes = 0;
    for (unsigned i = 0; i < o->logged; i++)
        mem_give(o->log[i]);
    mem_give(o->log);
    o->log = NULL;
    o->logged = 0;
    return true;
}

static bool do_cut(struct origin *o, const struct statement *st, struct text *answer)
{
    (void)st;
    (void)answer;
    origin_cut(o);
    return true;
}

static bool do_stats(struct origin *o, const struct statement *st, struct text *answer)
{
    struct origin_stats *s = &o->stats;

    if (st->count == 3) {
        struct object *obj = origin_object(o, st->word[1], st->word[2], false);
        text_addf(answer, "requests=%llu body_bytes=%llu\n",
                  (unsigned long long)(obj ? obj->requests : 0),
                  (unsigned long long)(obj ? obj->body_bytes : 0));
        return true;
    }
    text_addf(answer, "requests=%llu get=%llu head=%llu list=%llu other=%llu body_bytes=%llu ",
              (unsigned long long)s->requests, (unsigned long long)s->get,
              (unsigned long long)s->head, (unsigned long long)s->list,
              (unsigned long long)s->other, (unsigned long long)o->body_bytes);
    text_addf(answer, "connections=%llu max_connections=%llu max_running=%llu ",
              (unsigned long long)s->connections, (unsigned long long)s->max_connections,
              (unsigned long long)s->max_running);
    text_addf(answer, "put=%llu taken_bytes=%llu\n", (unsigned long long)s->put,
              (unsigned long long)s->taken_bytes);
    return true;
}

static bool do_requests(struct origin *o, const struct statement *st, struct text *answer)
{
    (void)st;
    for (unsigned i = 0; i < o->logged; i++) {
        text_adds(answer, o->log[i]);
        text_addc(answer, '\n');
    }
    return true;
}

/* ---- the table of statements ---- */

static const struct verb {
    const char *name;
    unsigned least, most;            /* words, its name included */
    bool (*run)(struct origin *o, const struct statement *st, struct text *answer);
} verb_table[] = {
    {"object", 3, 32, do_object},   {"objects", 4, 32, do_objects}, {"bucket", 2, 2, do_bucket},
    {"bump", 3, 4, do_bump},        {"delete", 3, 3, do_delete},    {"set", 3, 40, do_rule},
    {"next", 3, 40, do_rule},       {"unset", 2, 2, do_unset},      {"clear", 1, 1, do_clear},
    {"listen", 2, 2, do_listen},    {"log", 2, 2, do_log},          {"mark", 1, 1, do_mark},
    {"cut", 1, 1, do_cut},          {"stats", 1, 3, do_stats},      {"requests", 1, 1, do_requests},
};

bool origin_do(struct origin *o, const struct statement *st, struct text *answer)
{
    for (size_t i = 0; i < ARRAY_COUNT(verb_table); i++) {
        const struct verb *v = &verb_table[i];
        if (!span_is(st->word[0], v->name))
            continue;
        if (st->count < v->least || st->count > v->most || st->block) {
            text_addf(answer, "%s: wrong number of words", v->name);
            return false;
        }
        pthread_mutex_lock(&o->lock);
        bool good = v->run(o, st, answer);
        pthread_mutex_unlock(&o->lock);
        return good;
    }
    text_addf(answer, "unknown statement: %s", st->word[0].at);
    return false;
}

bool origin_script(struct origin *o, struct span text, struct text *answer)
{
    struct script s;
    char why[200];
    bool good = true;

    if (script_read(text, &s, why) != OK) {
        text_adds(answer, why);
        return false;
    }
    for (unsigned i = 0; good && i < s.count; i++)
        good = origin_do(o, &s.statement[i], answer);
    script_free(&s);
    return good;
}

/* ---- what tests ask in C ---- */

void origin_stats(struct origin *o, struct origin_stats *out)
{
    pthread_mutex_lock(&o->lock);
    *out = o->stats;
    out->body_bytes = o->body_bytes;
    pthread_mutex_unlock(&o->lock);
}

bool origin_key_stats(struct origin *o, struct span bucket, struct span key, uint64_t *requests,
                      uint64_t *body_bytes)
{
    pthread_mutex_lock(&o->lock);
    struct object *obj = origin_object(o, bucket, key, false);
    *requests = obj ? obj->requests : 0;
    *body_bytes = obj ? obj->body_bytes : 0;
    pthread_mutex_unlock(&o->lock);
    return obj != NULL;
}

unsigned origin_saw(struct origin *o, struct span text, unsigned *first)
{
    unsigned found = 0;

    pthread_mutex_lock(&o->lock);
    for (unsigned i = 0; i < o->logged; i++)
        if (memmem(o->log[i], strlen(o->log[i]), text.at, text.len) && found++ == 0)
            *first = i;
    pthread_mutex_unlock(&o->lock);
    return found;
}

void origin_forget_rules(struct origin *o)
{
    drop_rules(&o->set, NULL);
    drop_rules(&o->once, NULL);
    while (o->kept) {
        struct kept *k = o->kept;
        o->kept = k->next;
        mem_give(k);
    }
}
