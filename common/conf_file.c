/* The configuration file: sections and pairs of TOML to options and [[bucket]] drafts.
 *
 * Invariants:
 *  1. A pair belongs to the section above it; below a section that is refused pairs are skipped, so
 *     that one mistake is told once.
 *  2. A key is set at most once per section; the second one is a mistake.
 *
 * Life: works on a loader and owns nothing.
 * Failure: mistakes are added to the loader's; reading goes on to the end of the file. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_load.h"

enum { OWN_KEY = -1 };
static const struct {
    const char *key;
    int option;                      /* CONF_AT_..., or OWN_KEY */
    enum conf_kind kind;
    size_t offset;                   /* in struct conf_draft */
} bucket_keys[BUCKET_KEYS] = {
#define FIELD(field) offsetof(struct conf_draft, field)
    [KEY_MATCH] = {"match", OWN_KEY, CONF_TEXT, FIELD(match)},
    [KEY_QUOTA] = {"quota", OWN_KEY, CONF_BYTES, FIELD(quota_bytes)},
    [KEY_PIN] = {"pin", OWN_KEY, CONF_BOOL, FIELD(pin)},
    [KEY_TTL] = {"ttl", CONF_AT_cache_ttl, CONF_TIME, FIELD(ttl_ms)},
    [KEY_LIST_TTL] = {"list_ttl", CONF_AT_cache_list_ttl, CONF_TIME, FIELD(list_ttl_ms)},
    [KEY_NEGATIVE_TTL] = {"negative_ttl", CONF_AT_cache_negative_ttl, CONF_TIME,
                          FIELD(negative_ttl_ms)},
    [KEY_IMMUTABLE] = {"immutable", CONF_AT_cache_immutable, CONF_BOOL, FIELD(immutable)},
    [KEY_WRITE] = {"write", CONF_AT_cache_write, CONF_ENUM, FIELD(write)},
    [KEY_READAHEAD] = {"readahead", CONF_AT_prefetch_readahead, CONF_ENUM, FIELD(readahead)},
    [KEY_BACKGROUND] = {"background", CONF_AT_prefetch_background, CONF_ENUM, FIELD(background)},
#undef FIELD
};

/* Why an option is none of a section's: what it rules belongs to all buckets together. */
static const struct {
    int option;
    const char *why;
} for_all[] = {
    {CONF_AT_cache_dirs, "all buckets share the disks"},
    {CONF_AT_cache_size, "all buckets share the disks; quota limits a section's part of them"},
    {CONF_AT_cache_min_free, "all buckets share the disks; quota limits a section's part of them"},
    {CONF_AT_cache_memory, "all buckets share the memory"},
    {CONF_AT_cache_index_memory, "all buckets share the memory"},
    {CONF_AT_cache_chunk, "it is how bytes lie on the disks"},
    {CONF_AT_cache_verify, "it is how the disks are read"},
    {CONF_AT_cache_policy, "one policy compares the chunks of all buckets; pin and quota are a "
                           "section's"},
    {CONF_AT_prefetch_inflight, "it counts the chunks of all requests"},
};

/* s3://bucket/prefix, /bucket and the like are what people write at first. */
static const char *check_match(struct span text)
{
    struct span key = text, bucket = span_cut(&key, '/');

    if (span_starts(text, span_of("s3://")))
        return "must be written without s3://";
    if (bucket.len == 0)
        return "must begin with a bucket's name: \"bucket\" or \"bucket/prefix\"";
    if (bucket.len > BUCKET_BYTES_MAX || key.len > KEY_BYTES_MAX)
        return "is longer than any bucket or key";
    return NULL;
}

static const struct conf_option *find_section(struct span section)
{
    for (unsigned i = 0; i < CONF_OPTIONS; i++)
        if (span_is(section, conf_options[i].section))
            return &conf_options[i];
    return NULL;
}

/* The name as it was written, dots included, into the arena. */
static struct span joined(struct conf_loader *l, const struct toml_item *item)
{
    char memory[256];
    struct text t;

    text_init(&t, memory, sizeof memory);
    for (unsigned i = 0; i < item->parts; i++) {
        if (i)
            text_addc(&t, '.');
        text_add(&t, item->part[i]);
    }
    return span_of(conf_keep(l, text_span(&t)));
}

static void mistake_section(struct conf_loader *l, const struct toml_item *item, struct span name)
{
    struct conf_mistake spare;
    struct conf_guess guess = {.word = name};
    struct text t = conf_mistake_begin(l, conf_in_file(l, item->place), &spare);

    for (unsigned i = 0; i < CONF_OPTIONS; i++)
        conf_guess_at(&guess, span_of(conf_options[i].section));
    text_adds(&t, "unknown section ");
    conf_show(&t, name);
    conf_guess_add(&t, &guess, "[", "]");
}

static void mistake_key(struct conf_loader *l, struct conf_place place, struct span key,
                        const char *section)
{
    struct conf_mistake spare;
    struct conf_guess guess = {.word = key};
    const struct conf_option *elsewhere = NULL;
    bool bucket = strcmp(section, "[bucket]") == 0;
    struct text t = conf_mistake_begin(l, place, &spare);

    for (unsigned i = 0; i < CONF_OPTIONS; i++) {
        if (strcmp(conf_options[i].section, section) == 0)
            conf_guess_at(&guess, span_of(conf_options[i].key));
        if (!elsewhere && span_is(key, conf_options[i].key))
            elsewhere = &conf_options[i];
    }
    for (unsigned i = 0; bucket && i < BUCKET_KEYS; i++)
        conf_guess_at(&guess, span_of(bucket_keys[i].key));
    if (strcmp(section, "upstream") == 0) {
        conf_guess_at(&guess, span_of("match"));
        conf_guess_at(&guess, span_of("bucket"));
    }
    text_adds(&t, "unknown key ");
    conf_show(&t, key);
    text_addf(&t, " in [%s]", section);
    if (elsewhere)
        text_addf(&t, "; it belongs to [%s]", elsewhere->section);
    else
        conf_guess_add(&t, &guess, "\"", "\"");
}

static void open_bucket(struct conf_loader *l, const struct toml_item *item)
{
    l->part = CONF_PART_SKIPPED;
    if (!item->array) {
        conf_mistake_add(l, conf_in_file(l, item->place), "[bucket] must be written [[bucket]]");
        return;
    }
    if (l->draft_count == CONF_BUCKETS_MAX) {
        conf_mistake_add(l, conf_in_file(l, item->place), "more than %d [[bucket]] sections",
                         CONF_BUCKETS_MAX);
        return;
    }
    l->drafts[l->draft_count++] = (struct conf_draft){.line = item->place.line};
    l->part = CONF_PART_BUCKET;
}

static void open_section(struct conf_loader *l, const struct toml_item *item)
{
    struct span name = joined(l, item);
    const struct conf_option *first = find_section(name);
    struct conf_place place = conf_in_file(l, item->place);

    l->part = CONF_PART_SKIPPED;
    if (span_is(name, "bucket")) {
        open_bucket(l, item);
    } else if (span_is(name, "schedule")) {
        conf_schedule_open(l, item);
    } else if (!first) {
        mistake_section(l, item, name);
    } else if (first->of_upstream) {
        conf_upstream_open(l, item);
    } else if (item->array) {
        conf_mistake_add(l, place, "[[%s]] must be written [%s]", first->section, first->section);
    } else if (l->section_line[first - conf_options]) {
        conf_mistake_add(l, place, "section [%s] is given twice; it began in line %u",
                         first->section, l->section_line[first - conf_options]);
    } else {
        l->section_line[first - conf_options] = item->place.line;
        l->section = first->section;
        l->part = CONF_PART_OPTIONS;
    }
}

bool conf_is_repeated(struct conf_loader *l, const struct toml_item *item, struct span key,
                      unsigned *set_line)
{
    if (*set_line) {
        struct conf_mistake spare;
        struct text t = conf_mistake_begin(l, conf_in_file(l, item->place), &spare);
        conf_show(&t, key);
        text_addf(&t, " is set twice; first in line %u", *set_line);
        return true;
    }
    *set_line = item->place.line;
    return false;
}

static void take_option(struct conf_loader *l, const struct conf_option *o,
                        const struct toml_item *item)
{
    struct conf_place *set_at = &l->set_at[o - conf_options];
    unsigned before = l->mistakes->count;

    if (conf_is_repeated(l, item, item->part[item->parts - 1], &set_at->at.line))
        return;
    *set_at = conf_in_file(l, item->place);
    conf_set_toml(l, o, &item->value, conf_field(l->config, o, l->upstream));
    bool refused = l->mistakes->count > before;
    if (o->of_upstream && l->several)
        l->sections[l->upstream].refused |= refused && (o->flags & REQUIRED);
    else
        l->refused[o - conf_options] = refused;
}

static void mistake_for_all(struct conf_loader *l, struct conf_place place,
                            const struct conf_option *o)
{
    const char *why = "it rules all buckets together";

    for (unsigned i = 0; i < ARRAY_COUNT(for_all); i++)
        if (for_all[i].option == o - conf_options)
            why = for_all[i].why;
    conf_mistake_add(l, place, "%s.%s cannot be set for a bucket: %s; set it in [%s]", o->section,
                     o->key, why, o->section);
}

bool conf_bucket_key(struct span key, struct conf_option *out, unsigned *at)
{
    for (*at = 0; *at < BUCKET_KEYS; ++*at) {
        if (!span_is(key, bucket_keys[*at].key))
            continue;
        *out = (struct conf_option){.section = "bucket", .key = bucket_keys[*at].key,
                                    .kind = bucket_keys[*at].kind};
        if (bucket_keys[*at].option != OWN_KEY)
            out->values = conf_options[bucket_keys[*at].option].values;
        return true;
    }
    return false;
}

static void take_bucket_pair(struct conf_loader *l, const struct toml_item *item)
{
    struct conf_draft *draft = &l->drafts[l->draft_count - 1];
    struct conf_place place = conf_in_file(l, item->place);
    struct span key = joined(l, item);
    struct conf_option own;
    union conf_any unused;
    unsigned at;

    if (conf_bucket_key(key, &own, &at)) {
        if (!conf_is_repeated(l, item, key, &draft->set_line[at]))
            conf_set_toml(l, &own, &item->value, (char *)draft + bucket_keys[at].offset);
        return;
    }
    const struct conf_option *o = conf_find_option(span_of("cache"), key);
    if (!o)
        o = conf_find_option(span_of("prefetch"), key);
    if (o && (o->flags & LATER) && conf_fits(o->kind, item->value.kind))
        conf_set_toml(l, o, &item->value, &unused);
    else if (o)
        mistake_for_all(l, place, o);
    else
        mistake_key(l, place, key, "[bucket]");
}

static void take_root_pair(struct conf_loader *l, const struct toml_item *item)
{
    const struct conf_option *o = NULL;
    struct conf_mistake spare;

    if (item->parts == 2)
        o = conf_find_option(item->part[0], item->part[1]);
    if (o && o->of_upstream)
        conf_upstream_at_root(l, item);
    if (o) {
        take_option(l, o, item);
        return;
    }
    struct text t = conf_mistake_begin(l, conf_in_file(l, item->place), &spare);
    text_adds(&t, "key ");
    conf_show(&t, joined(l, item));
    text_adds(&t, " stands before any section");
}

static void take_pair(struct conf_loader *l, const struct toml_item *item)
{
    struct conf_place place = conf_in_file(l, item->place);
    const struct conf_option *o;

    switch (l->part) {
    case CONF_PART_SKIPPED:
        return;
    case CONF_PART_ROOT:
        take_root_pair(l, item);
        return;
    case CONF_PART_BUCKET:
        take_bucket_pair(l, item);
        return;
    case CONF_PART_SCHEDULE:
        conf_schedule_pair(l, item, joined(l, item));
        return;
    case CONF_PART_OPTIONS:
        break;
    }
    o = item->parts == 1 ? conf_find_option(span_of(l->section), item->part[0]) : NULL;
    if (o)
        take_option(l, o, item);
    else if (strcmp(l->section, "upstream") != 0 || !conf_upstream_own_pair(l, item))
        mistake_key(l, place, joined(l, item), l->section);
}

/* What a [[bucket]] section needs once all its keys are known. */
static void check_draft(struct conf_loader *l, const struct conf_draft *d)
{
    static const struct conf_option match = {.section = "bucket", .key = "match"};
    struct conf_place place = conf_in_file(l, (struct toml_place){d->line, 1});

    if (!d->set_line[KEY_MATCH])
        conf_mistake_add(l, place, "bucket.match is missing; set it to \"bucket\" or "
                                   "\"bucket/prefix\"");
    if (!d->match)
        return;
    place.at.line = d->set_line[KEY_MATCH];
    const char *why = check_match(span_of(d->match));
    if (why)
        conf_mistake_value(l, place, &match, span_of(d->match), why);
    for (const struct conf_draft *other = l->drafts; other < d; other++)
        if (other->match && strcmp(other->match, d->match) == 0)
            conf_mistake_value(l, place, &match, span_of(d->match), "has a section already");
}

static void read_items(struct conf_loader *l, struct span bytes)
{
    struct toml t;
    struct toml_item item;

    toml_open(&t, bytes, l->arena);
    for (;;) {
        switch (toml_next(&t, &item)) {
        case TOML_END:
            return;
        case TOML_NO_MEMORY:
            l->no_memory = true;
            return;
        case TOML_MISTAKE:
            conf_mistake_add(l, conf_in_file(l, item.place), "%s", item.mistake);
            break;
        case TOML_SECTION:
            open_section(l, &item);
            break;
        case TOML_PAIR:
            take_pair(l, &item);
            break;
        }
    }
}

void conf_file_read(struct conf_loader *l, struct span bytes)
{
    read_items(l, bytes);
    for (unsigned i = 0; i < l->draft_count && !l->no_memory; i++)
        check_draft(l, &l->drafts[i]);
    conf_upstream_finish(l);
}
