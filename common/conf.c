/* The configuration: layers over the table of options, checks across options, look-up.
 *
 * Invariants:
 *  1. Layers are applied in the order default, file, environment, flag; a later one replaces a
 *     whole value. A value is checked when its layer is read, also if a later one replaces it.
 *  2. Every mistake is told and reading goes on; one or more mistakes mean that no config goes out.
 *  3. What a schedule sets is checked with the file and applied later, to a copy.
 *  4. buckets[0] holds the settings of [cache] and [prefetch] after all layers; a [[bucket]]
 *     section takes from it what it does not set itself.
 *  5. Every text a config points to lies in the arena behind it, so conf_give() frees all at once.
 *
 * Life: conf_load() and conf_parse() make a config, conf_give() ends it; in between it is constant.
 * Failure: ERR_CONFIG with the mistakes, ERR_MEMORY; what was made so far is freed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = MIB, ARENA_BYTES_MAX = 16 * MIB };

#define ROW(kind_, section_, key_, field_, standard_, flags_, help_)                               \
    [CONF_AT_##field_] = {.section = section_, .key = key_, .standard = standard_, .help = help_,  \
                          .kind = kind_, .flags = flags_, .of_upstream = OF_UPSTREAM,              \
                          .offset = offsetof(HOME, field_)
#define OPT_TEXT(section, key, field, standard, flags, help)                                       \
    ROW(CONF_TEXT, section, key, field, standard, flags, help)},
#define OPT_LIST(section, key, field, standard, flags, help)                                       \
    ROW(CONF_LIST, section, key, field, standard, flags, help)},
#define OPT_BOOL(section, key, field, standard, flags, help)                                       \
    ROW(CONF_BOOL, section, key, field, standard, flags, help)},
#define OPT_TIME(section, key, field, standard, flags, help)                                       \
    ROW(CONF_TIME, section, key, field, standard, flags, help)},
#define OPT_BYTES(section, key, field, standard, flags, help)                                      \
    ROW(CONF_BYTES, section, key, field, standard, flags, help)},
#define OPT_SIZE(section, key, field, standard, flags, help)                                       \
    ROW(CONF_SIZE, section, key, field, standard, flags, help)},
#define OPT_COUNT(section, key, field, standard, low, high, flags, help)                           \
    ROW(CONF_COUNT, section, key, field, standard, flags, help), .least = low, .most = high},
#define OPT_ENUM(section, key, field, standard, choice, flags, help)                               \
    ROW(CONF_ENUM, section, key, field, standard, flags, help), .values = choice},
const struct conf_option conf_options[CONF_OPTIONS] = {
#define HOME struct config
#define OF_UPSTREAM false
#define OPT_UPSTREAM_NOT
#include "table/options.h"
#undef OPT_UPSTREAM_NOT
#undef OF_UPSTREAM
#undef HOME
#define HOME struct conf_upstream
#define OF_UPSTREAM true
#define OPT_UPSTREAM_ONLY
#include "table/options.h"
};

/* A config and the memory behind it. */
struct holder {
    struct config config;
    struct arena arena;
};

/* ---- environment and flags ---- */

/* HEADPOND_<SECTION>_<KEY> */
static struct span variable_name(const struct conf_option *o, char *memory, size_t cap)
{
    struct text t;

    text_init(&t, memory, cap);
    text_addf(&t, "HEADPOND_%s_%s", o->section, o->key);
    must(!t.over);
    for (size_t i = 0; i < t.len; i++)
        if (memory[i] >= 'a' && memory[i] <= 'z')
            memory[i] = (char)(memory[i] - ('a' - 'A'));
    return text_span(&t);
}

/* Kubernetes adds variables for each Service of the namespace to each container: a Service named
 * "headpond" gives HEADPOND_SERVICE_HOST, HEADPOND_PORT, HEADPOND_PORT_9000_TCP_ADDR and others. */
static bool is_service_link(struct span name)
{
    while (name.len) {
        bool ends = span_is(name, "_SERVICE_HOST") || span_is(name, "_PORT");
        if (ends || span_starts(name, span_of("_SERVICE_PORT")))
            return true;
        if (span_starts(name, span_of("_PORT_")) && name.len > 6 && name.at[6] >= '0' &&
            name.at[6] <= '9')
            return true;
        name = span_from(name, 1);
    }
    return false;
}

/* Variables that belong to the command line's own tool, to clients and to the look-up of the file:
 * one environment may serve all of them. */
static bool is_other_variable(struct span name)
{
    return span_is(name, "HEADPOND_SERVER") || span_is(name, "HEADPOND_TOKEN_FILE") ||
           span_is(name, "HEADPOND_CONFIG") || is_service_link(name);
}

/* Options of an upstream are the default's. */
static bool has_target(struct conf_loader *l, struct conf_place place, const struct conf_option *o,
                       const char *name)
{
    bool has = !o->of_upstream || conf_default_upstream(l->config);

    if (!has)
        conf_mistake_add(l, place, "%s sets the [[upstream]] without match, and there is none",
                         name);
    return has;
}

static void take_variable(struct conf_loader *l, struct span name, struct span value)
{
    struct conf_place place = {.source = "environment"};
    struct conf_guess guess = {.word = name};
    char names[CONF_OPTIONS][64];
    struct conf_mistake spare;

    for (unsigned i = 0; i < CONF_OPTIONS; i++) {
        struct span known = variable_name(&conf_options[i], names[i], sizeof names[i]);
        if (span_eq(name, known)) {
            unsigned before = l->mistakes->count;
            if (!has_target(l, place, &conf_options[i], names[i]))
                return;
            l->set_at[i] = place;
            conf_set_text(l, &conf_options[i], place, value);
            l->refused[i] |= l->mistakes->count > before;
            return;
        }
        conf_guess_at(&guess, known);
    }
    struct text t = conf_mistake_begin(l, place, &spare);
    text_adds(&t, "unknown variable ");
    conf_show(&t, name);
    conf_guess_add(&t, &guess, "", "");
}

static void read_environment(struct conf_loader *l, char *const *environ_)
{
    for (; environ_ && *environ_; environ_++) {
        struct span value = span_of(*environ_), name = span_cut(&value, '=');
        if (span_starts(name, span_of("HEADPOND_")) && !is_other_variable(name))
            take_variable(l, name, value);
    }
}

static void take_flag(struct conf_loader *l, const struct conf_flag *flag, bool seen[CONF_OPTIONS])
{
    struct conf_place place = {.source = "command line"};
    struct span key = span_of(flag->key), section = span_cut(&key, '.');
    const struct conf_option *o = conf_find_option(section, key);

    if (!o) {
        conf_mistake_add(l, place, "unknown key %.60s", flag->key);
        return;
    }
    if (!has_target(l, place, o, flag->key))
        return;
    unsigned at = (unsigned)(o - conf_options), before = l->mistakes->count;
    struct conf_list *list = conf_field(l->config, o, 0);
    l->set_at[at] = place;
    /* The first one replaces what lower layers gave, the others add to it. */
    if (o->kind == CONF_LIST && !seen[at])
        list->count = 0;
    seen[at] = true;
    if (o->kind == CONF_LIST)
        conf_set_item(l, list, o, place, span_of(flag->value));
    else
        conf_set_text(l, o, place, span_of(flag->value));
    l->refused[at] |= l->mistakes->count > before;
}

/* ---- after all layers ---- */

static bool is_empty(struct config *c, const struct conf_option *o)
{
    const void *field = conf_field(c, o, 0);

    if (o->kind == CONF_LIST)
        return ((const struct conf_list *)field)->count == 0;
    must(o->kind == CONF_TEXT);
    return **(char *const *)field == '\0';
}

static void miss(struct conf_loader *l, const struct conf_option *o)
{
    struct conf_place place = {.source = l->name};
    char memory[64];

    variable_name(o, memory, sizeof memory);
    conf_mistake_add(l, place, "%s.%s is missing; set it in [%s] or by %s", o->section, o->key,
                     o->section, memory);
}

static void check_required(struct conf_loader *l)
{
    for (unsigned i = 0; i < CONF_OPTIONS; i++) {
        const struct conf_option *o = &conf_options[i];
        if ((o->flags & REQUIRED) && o->of_upstream && l->several)
            conf_upstream_required(l, o);
        /* A value that was refused has been told already. */
        else if ((o->flags & REQUIRED) && is_empty(l->config, o) && !l->refused[i])
            miss(l, o);
    }
}

static void check_together(struct conf_loader *l)
{
    struct config *c = l->config;
    bool cert = *c->server_tls_cert, key = *c->server_tls_key;

    if (cert != key) {
        unsigned given = cert ? CONF_AT_server_tls_cert : CONF_AT_server_tls_key;
        conf_mistake_add(l, l->set_at[given], "server.%s needs server.%s as well",
                         cert ? "tls_cert" : "tls_key", cert ? "tls_key" : "tls_cert");
    }
    if (c->admin_listen.count > CONF_ADMIN_LISTEN_MAX)
        conf_mistake_add(l, l->set_at[CONF_AT_admin_listen],
                         "admin.listen has %u addresses, more than the %u that there may be",
                         c->admin_listen.count, CONF_ADMIN_LISTEN_MAX);
}

static void make_ranges(struct config *c)
{
    for (unsigned i = 0; i < c->auth_anonymous.count; i++) {
        struct span text = span_of(c->auth_anonymous.item[i]);
        must(conf_cidr_read(text, &c->anonymous[c->anonymous_count++]) == OK);
    }
}

/* What a section sets itself; the rest is derived. */
static struct conf_bucket make_bucket(const struct conf_draft *d)
{
    struct conf_bucket b = {
        .match = d->match,
        .match_len = strlen(d->match),
        .line = d->line,
        .ttl_ms = d->ttl_ms,
        .list_ttl_own_ms = d->list_ttl_ms,
        .negative_ttl_ms = d->negative_ttl_ms,
        .immutable = d->immutable,
        .write_through = d->write == CONF_WRITE_THROUGH,
        .readahead = d->readahead != CONF_READAHEAD_OFF,
        .background = (uint8_t)d->background,
        .pin = d->pin,
        .quota_bytes = d->quota_bytes,
    };

    for (unsigned key = 0; key < BUCKET_KEYS; key++)
        b.own |= d->set_line[key] ? 1u << key : 0;
    return b;
}

static void derive_bucket(struct conf_bucket *b, const struct conf_bucket *standard)
{
    if (!(b->own >> KEY_TTL & 1))
        b->ttl_ms = standard->ttl_ms;
    if (!(b->own >> KEY_LIST_TTL & 1))
        b->list_ttl_own_ms = standard->list_ttl_own_ms;
    if (!(b->own >> KEY_NEGATIVE_TTL & 1))
        b->negative_ttl_ms = standard->negative_ttl_ms;
    if (!(b->own >> KEY_IMMUTABLE & 1))
        b->immutable = standard->immutable;
    if (!(b->own >> KEY_WRITE & 1))
        b->write_through = standard->write_through;
    if (!(b->own >> KEY_READAHEAD & 1))
        b->readahead = standard->readahead;
    if (!(b->own >> KEY_BACKGROUND & 1))
        b->background = standard->background;
    b->list_ttl_ms = b->immutable ? b->list_ttl_own_ms : min_u64(b->list_ttl_own_ms, b->ttl_ms);
}

void conf_derive_buckets(struct config *c)
{
    const struct conf_bucket standard = {
        .ttl_ms = c->cache_ttl,
        .list_ttl_own_ms = c->cache_list_ttl,
        .negative_ttl_ms = c->cache_negative_ttl,
        .immutable = c->cache_immutable,
        .write_through = c->cache_write == CONF_WRITE_THROUGH,
        .readahead = c->prefetch_readahead != CONF_READAHEAD_OFF,
        .background = (uint8_t)c->prefetch_background,
    };

    for (unsigned i = 0; i < c->bucket_count; i++)
        derive_bucket(&c->buckets[i], &standard);
}

static void make_buckets(struct conf_loader *l)
{
    struct config *c = l->config;

    c->buckets[0] = (struct conf_bucket){.match = conf_keep(l, span_of(""))};
    c->bucket_count = 1;
    for (unsigned i = 0; i < l->draft_count; i++)
        c->buckets[c->bucket_count++] = make_bucket(&l->drafts[i]);
    conf_derive_buckets(c);
}

/* ---- the public face ---- */

static void set_defaults(struct conf_loader *l)
{
    struct conf_place place = {.source = "options.h"};

    for (unsigned i = 0; i < CONF_OPTIONS; i++)
        conf_set_text(l, &conf_options[i], place, span_of(conf_options[i].standard));
    must(l->mistakes->count == 0);
    l->config->upstream[0].bucket = conf_keep(l, span_of(""));
    l->config->upstream_count = 1;
    l->standard = l->config->upstream[0];
}

static void read_layers(struct conf_loader *l, struct span bytes, char *const *environ_,
                        const struct conf_flag *flags, unsigned flag_count)
{
    bool seen[CONF_OPTIONS] = {false};

    set_defaults(l);
    l->sizes_given = true;
    conf_file_read(l, bytes);
    read_environment(l, environ_);
    for (unsigned i = 0; i < flag_count; i++)
        take_flag(l, &flags[i], seen);
    if (l->no_memory)
        return;
    check_required(l);
    check_together(l);
    conf_schedule_finish(l);
    if (l->mistakes->disks)
        conf_room_finish(l);
    if (l->mistakes->count)
        return;
    make_ranges(l->config);
    make_buckets(l);
}

enum err conf_parse(struct span bytes, const char *name, char *const *environ_,
                    const struct conf_flag *flags, unsigned flag_count, struct config **out,
                    struct conf_mistakes *mistakes)
{
    struct holder *h = mem_take(sizeof *h);
    struct conf_loader *l = mem_take(sizeof *l);
    enum err e = ERR_MEMORY;

    mistakes->count = 0;
    if (!h || !l)
        goto fail;
    arena_init(&h->arena, NULL, 0, ARENA_BYTES_MAX);
    *l = (struct conf_loader){.config = &h->config, .arena = &h->arena, .mistakes = mistakes};
    l->name = name ? name : "configuration";
    read_layers(l, bytes, environ_, flags, flag_count);
    h->config.file = name ? conf_keep(l, span_of(name)) : NULL;
    e = l->no_memory ? ERR_MEMORY : mistakes->count ? ERR_CONFIG : OK;
    if (e != OK)
        goto fail;
    mem_give(l);
    *out = &h->config;
    return OK;
fail:
    mem_give(l);
    conf_give(h ? &h->config : NULL);
    return e;
}

void conf_mistakes_tell(struct conf_mistakes *m, const char *format, ...)
{
    va_list more;

    va_start(more, format);
    if (m->count < CONF_MISTAKES_MAX)
        vsnprintf(m->item[m->count].text, sizeof m->item[0].text, format, more);
    va_end(more);
    m->count++;
}

/* ---- reload ---- */

static size_t size_of(enum conf_kind kind)
{
    switch (kind) {
    case CONF_TEXT: return sizeof(char *);
    case CONF_LIST: return sizeof(struct conf_list);
    case CONF_BOOL: return sizeof(bool);
    case CONF_TIME:
    case CONF_BYTES: return sizeof(uint64_t);
    case CONF_SIZE: return sizeof(struct conf_size);
    case CONF_COUNT:
    case CONF_ENUM: return sizeof(uint32_t);
    }
    return 0;
}

void conf_set_field(struct config *c, const struct conf_option *o, const union conf_any *value)
{
    memcpy(conf_field(c, o, 0), value, size_of(o->kind));
}

static bool same_list(const struct conf_list *a, const struct conf_list *b)
{
    bool same = a->count == b->count;

    for (unsigned i = 0; same && i < a->count; i++)
        same = strcmp(a->item[i], b->item[i]) == 0;
    return same;
}

static bool same_value(const struct conf_option *o, const void *a, const void *b)
{
    const struct conf_size *x = a, *y = b;

    switch (o->kind) {
    case CONF_TEXT: return strcmp(*(char *const *)a, *(char *const *)b) == 0;
    case CONF_LIST: return same_list(a, b);
    case CONF_SIZE: return x->bytes == y->bytes && !(x->percent < y->percent) &&
                           !(x->percent > y->percent);
    default: return memcmp(a, b, size_of(o->kind)) == 0;
    }
}

bool conf_keep_field(const struct conf_option *o, void *to, const void *from)
{
    bool differs = !same_value(o, to, from);

    memcpy(to, from, size_of(o->kind));
    return differs;
}

unsigned conf_keep_restart(struct config *next, const struct config *start, struct text *changed)
{
    unsigned count = 0;

    for (unsigned i = 0; i < CONF_OPTIONS; i++) {
        const struct conf_option *o = &conf_options[i];
        if (i == CONF_AT_name)
            count += conf_upstream_keep(next, start, changed);
        if (!(o->flags & RESTART) || o->of_upstream ||
            !conf_keep_field(o, conf_field(next, o, 0), (const char *)start + o->offset))
            continue;
        text_addf(changed, "%s%s.%s", changed->len ? ", " : "", o->section, o->key);
        count++;
    }
    return count;
}

/* ---- schedules ---- */

enum err conf_scheduled(const struct config *base, uint32_t in_force, struct config **out)
{
    struct holder *h = mem_take(sizeof *h);

    must(base->in_force == 0);
    if (!h)
        return ERR_MEMORY;
    h->config = *base;
    arena_init(&h->arena, NULL, 0, ARENA_BYTES_MAX);
    conf_schedule_apply(&h->config, in_force);
    *out = &h->config;
    return OK;
}

void conf_give(struct config *c)
{
    if (!c)
        return;
    struct holder *h = container_of(c, struct holder, config);
    arena_reset(&h->arena);
    mem_give(h);
}

/* Reads a whole file into memory that the caller frees; *why is the errno on ERR_SYSTEM. */
static enum err read_whole(const char *file, char **bytes, size_t *len, int *why)
{
    char *memory = mem_take(FILE_BYTES_MAX + 1);
    size_t used = 0;
    ssize_t got = -1;

    if (!memory)
        return ERR_MEMORY;
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && used <= FILE_BYTES_MAX) {
        got = read(fd, memory + used, FILE_BYTES_MAX + 1 - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
    }
    *why = errno;
    if (fd >= 0)
        close(fd);
    if (fd >= 0 && got >= 0 && used <= FILE_BYTES_MAX) {
        *bytes = memory;
        *len = used;
        return OK;
    }
    mem_give(memory);
    return fd >= 0 && got >= 0 ? ERR_TOO_LARGE : ERR_SYSTEM;
}

enum err conf_load(const char *file, char *const *environ_, const struct conf_flag *flags,
                   unsigned flag_count, struct config **out, struct conf_mistakes *mistakes)
{
    char *bytes = NULL;
    size_t len = 0;
    int why = 0;

    mistakes->count = 0;
    if (!file)
        return conf_parse(span_of(NULL), NULL, environ_, flags, flag_count, out, mistakes);
    enum err e = read_whole(file, &bytes, &len, &why);
    if (e == ERR_SYSTEM || e == ERR_TOO_LARGE) {
        mistakes->count = 1;
        snprintf(mistakes->item[0].text, sizeof mistakes->item[0].text, "%.200s: %s", file,
                 e == ERR_SYSTEM ? strerrordesc_np(why) : "is larger than 1 MiB");
        return ERR_CONFIG;
    }
    TRY(e);
    e = conf_parse(span_make(bytes, len), file, environ_, flags, flag_count, out, mistakes);
    mem_give(bytes);
    return e;
}

/* Whether match rules bucket/key: a bucket's whole name, or a prefix of "bucket/key". */
static bool rules(const struct conf_bucket *b, struct span bucket, struct span key)
{
    struct span match = span_make(b->match, b->match_len);

    if (!span_starts(match, bucket))
        return false;
    if (match.len == bucket.len)
        return true;
    return match.at[bucket.len] == '/' && span_starts(key, span_from(match, bucket.len + 1));
}

const struct conf_bucket *conf_bucket(const struct config *c, struct span bucket, struct span key)
{
    const struct conf_bucket *best = &c->buckets[0];

    for (unsigned i = 1; i < c->bucket_count; i++)
        if (c->buckets[i].match_len > best->match_len && rules(&c->buckets[i], bucket, key))
            best = &c->buckets[i];
    return best;
}

/* Whether all that match rules lies below bucket/prefix. */
static bool is_listed(const struct conf_bucket *b, struct span bucket, struct span prefix)
{
    struct span match = span_make(b->match, b->match_len);

    return match.len > bucket.len && span_starts(match, bucket) && match.at[bucket.len] == '/' &&
           span_starts(span_from(match, bucket.len + 1), prefix);
}

uint64_t conf_list_ttl_ms(const struct config *c, struct span bucket, struct span prefix)
{
    uint64_t least = conf_bucket(c, bucket, prefix)->list_ttl_ms;

    for (unsigned i = 1; i < c->bucket_count; i++)
        if (c->buckets[i].list_ttl_ms < least && is_listed(&c->buckets[i], bucket, prefix))
            least = c->buckets[i].list_ttl_ms;
    return least;
}
