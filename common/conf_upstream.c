/* Sections of upstreams: one [upstream], or several [[upstream]] that each match some buckets.
 *
 * Invariants:
 *  1. Once a file was read without a mistake, each bucket's name leads to at most one section, in
 *     whatever order they stand; several have names, all different; at most one has no match, and
 *     it is the first.
 *  2. A reload never changes which sections there are, nor what they match: those of the start
 *     stay, with the live options of the sections that have the same names.
 *
 * Life: works on a loader, or on two configs, and owns nothing.
 * Failure: mistakes are added to the loader's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_load.h"

enum { NAME_BYTES_MAX = 32 };

static const struct conf_option match_key = {.section = "upstream", .key = "match",
                                             .kind = CONF_LIST},
                                bucket_key = {.section = "upstream", .key = "bucket",
                                              .kind = CONF_TEXT};

/* ---- while the file is read ---- */

static struct conf_upstream *current(struct conf_loader *l)
{
    return &l->config->upstream[l->upstream];
}

static void begin_section(struct conf_loader *l, struct toml_place place)
{
    l->config->upstream[l->upstream] = l->standard;
    l->sections[l->upstream] = (struct conf_section){.place = place};
    l->section = "upstream";
    l->part = CONF_PART_OPTIONS;
    for (unsigned i = 0; i < CONF_OPTIONS; i++)
        if (conf_options[i].of_upstream)
            l->set_at[i] = (struct conf_place){.source = NULL};
}

static void open_one(struct conf_loader *l, const struct toml_item *item)
{
    struct conf_place place = conf_in_file(l, item->place);

    if (l->several) {
        conf_mistake_add(l, place,
                         "[upstream] cannot stand beside [[upstream]], which began in "
                         "line %u; write [[upstream]] for each",
                         l->sections[0].place.line);
    } else if (l->one_upstream.line) {
        conf_mistake_add(l, place, "section [upstream] is given twice; it began in line %u",
                         l->one_upstream.line);
    } else {
        l->one_upstream = item->place;
        begin_section(l, item->place);
    }
}

static void open_another(struct conf_loader *l, const struct toml_item *item)
{
    struct conf_place place = conf_in_file(l, item->place);

    if (l->one_upstream.line) {
        conf_mistake_add(l, place, "[[upstream]] cannot stand beside [upstream], which began in "
                                   "line %u; write [[upstream]] for each", l->one_upstream.line);
    } else if (l->several && l->config->upstream_count == CONF_UPSTREAMS_MAX) {
        conf_mistake_add(l, place, "more than %d [[upstream]] sections", CONF_UPSTREAMS_MAX);
    } else {
        l->upstream = l->several ? l->config->upstream_count++ : 0;
        l->several = true;
        begin_section(l, item->place);
    }
}

void conf_upstream_open(struct conf_loader *l, const struct toml_item *item)
{
    l->part = CONF_PART_SKIPPED;
    if (item->array)
        open_another(l, item);
    else
        open_one(l, item);
}

void conf_upstream_at_root(struct conf_loader *l, const struct toml_item *item)
{
    if (l->one_upstream.line)
        return;
    l->one_upstream = item->place;
    l->sections[0] = (struct conf_section){.place = item->place};
}

/* The names that passed their check, with their places. */
static void take_match(struct conf_loader *l, const struct toml_value *v)
{
    struct conf_section *s = &l->sections[l->upstream];
    struct conf_list *list = &current(l)->match;

    s->match_at = v->place;
    if (v->kind == TOML_LIST && v->count == 0)
        conf_mistake_add(l, conf_in_file(l, v->place), "upstream.match is empty; leave it out for "
                                                       "what no other section matches");
    if (v->kind != TOML_LIST)
        conf_set_toml(l, &match_key, v, list);
    for (unsigned i = 0; v->kind == TOML_LIST && i < v->count; i++) {
        struct toml_place at = v->item_place[i];
        if (conf_set_item(l, list, &match_key, conf_in_file(l, at), v->item[i]))
            s->item_at[list->count - 1] = at;
    }
}

bool conf_upstream_own_pair(struct conf_loader *l, const struct toml_item *item)
{
    struct conf_section *s = &l->sections[l->upstream];
    struct span key = item->part[0];
    bool match = span_is(key, "match"), bucket = span_is(key, "bucket");

    if (item->parts != 1 || (!match && !bucket))
        return false;
    if (!l->several) {
        conf_mistake_add(l, conf_in_file(l, item->place), "upstream.%s belongs to [[upstream]]; "
                         "write the section so", match ? "match" : "bucket");
    } else if (match) {
        if (!conf_is_repeated(l, item, key, &s->match_line))
            take_match(l, &item->value);
    } else if (!conf_is_repeated(l, item, key, &s->bucket_line)) {
        s->bucket_at = item->value.place;
        conf_set_toml(l, &bucket_key, &item->value, &current(l)->bucket);
    }
    return true;
}

/* ---- once it was read ---- */

static bool is_section_name(struct span text)
{
    for (size_t i = 0; i < text.len; i++) {
        char c = text.at[i];
        if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'))
            return false;
    }
    return text.len > 0 && text.len <= NAME_BYTES_MAX;
}

static void check_section_name(struct conf_loader *l, unsigned i)
{
    struct config *c = l->config;
    struct conf_place place = conf_in_file(l, l->sections[i].place);
    const char *name = c->upstream[i].name;
    const struct conf_option *o = &conf_options[CONF_AT_name];

    if (c->upstream_count == 1)
        return;
    if (!name[0]) {
        conf_mistake_add(l, place, "upstream.name is missing; each of several [[upstream]] needs "
                                   "one of its own");
        return;
    }
    if (!is_section_name(span_of(name)))
        conf_mistake_value(l, place, o, span_of(name), "is no name of one of several; use 1 to 32 "
                                                       "of a-z, 0-9 and \"-\"");
    for (unsigned j = 0; j < i; j++)
        if (strcmp(c->upstream[j].name, name) == 0)
            conf_mistake_value(l, place, o, span_of(name), "is another section's name already");
}

/* What is wrong with the name of a bucket, as a match or as the store's own; NULL: nothing. */
static const char *check_bucket(struct span text, bool match)
{
    if (span_starts(text, span_of("s3://")))
        return "must be written without s3://";
    if (match && span_ends(text, span_of("*")))
        text.len--;
    if (text.len == 0)
        return match ? "matches everything; leave match out for what no other section matches"
                     : "is no bucket's name";
    if (text.len > BUCKET_BYTES_MAX)
        return "is longer than any bucket's name";
    if (span_find(text, '/') < text.len)
        return "must be a bucket's name, without keys";
    if (span_find(text, '*') < text.len)
        return match ? "may have a \"*\" at its end only" : "must be one bucket's name";
    return NULL;
}

/* The line in which the same match was given before; 0: it was not. */
static unsigned line_of_equal(const struct conf_loader *l, unsigned section, const char *match)
{
    for (unsigned i = 0; i < section; i++) {
        const struct conf_list *list = &l->config->upstream[i].match;
        for (unsigned k = 0; k < list->count; k++)
            if (strcmp(list->item[k], match) == 0)
                return l->sections[i].item_at[k].line;
    }
    return 0;
}

static void check_matches(struct conf_loader *l, unsigned i)
{
    const struct conf_list *list = &l->config->upstream[i].match;

    for (unsigned k = 0; k < list->count && !l->no_memory; k++) {
        struct conf_place place = conf_in_file(l, l->sections[i].item_at[k]);
        const char *why = check_bucket(span_of(list->item[k]), true);
        unsigned line = line_of_equal(l, i, list->item[k]);
        if (why)
            conf_mistake_value(l, place, &match_key, span_of(list->item[k]), why);
        else if (line)
            conf_mistake_add(l, place, "upstream.match \"%.80s\" leads to another upstream already,"
                                       " by line %u", list->item[k], line);
    }
}

static void check_rename(struct conf_loader *l, unsigned i)
{
    const struct conf_upstream *u = &l->config->upstream[i];
    struct conf_place place = conf_in_file(l, l->sections[i].bucket_at);
    struct span unused;

    if (!l->sections[i].bucket_line)
        return;
    const char *why = check_bucket(span_of(u->bucket), false);
    if (why)
        conf_mistake_value(l, place, &bucket_key, span_of(u->bucket), why);
    else if (u->match.count != 1 || !conf_match_is_exact(u->match.item[0], &unused))
        conf_mistake_value(l, place, &bucket_key, span_of(u->bucket),
                           "renames one bucket: match must be one name, without \"*\"");
}

/* Sections without match. */
static void check_defaults(struct conf_loader *l)
{
    unsigned first = 0;

    for (unsigned i = 0; i < l->config->upstream_count; i++) {
        if (l->sections[i].match_line)
            continue;
        if (first)
            conf_mistake_add(l, conf_in_file(l, l->sections[i].place),
                             "a second [[upstream]] without match; the one in line %u takes what no"
                             " other matches", first);
        else
            first = l->sections[i].place.line;
    }
}

/* Flags, variables and schedules address the first one. */
static void bring_default_forward(struct conf_loader *l)
{
    struct config *c = l->config;
    unsigned at = 0;

    while (at < c->upstream_count && l->sections[at].match_line)
        at++;
    if (at == 0 || at == c->upstream_count)
        return;
    struct conf_upstream u = c->upstream[at];
    struct conf_section s = l->sections[at];
    memmove(&c->upstream[1], &c->upstream[0], at * sizeof u);
    memmove(&l->sections[1], &l->sections[0], at * sizeof s);
    c->upstream[0] = u;
    l->sections[0] = s;
}

void conf_upstream_finish(struct conf_loader *l)
{
    l->upstream = 0;
    if (!l->several || l->no_memory)
        return;
    for (unsigned i = 0; i < l->config->upstream_count && !l->no_memory; i++) {
        check_section_name(l, i);
        check_matches(l, i);
        check_rename(l, i);
    }
    check_defaults(l);
    bring_default_forward(l);
}

void conf_upstream_required(struct conf_loader *l, const struct conf_option *o)
{
    const struct conf_upstream *standard = conf_default_upstream(l->config);

    for (unsigned i = 0; i < l->config->upstream_count; i++) {
        bool told = l->sections[i].refused ||
                    (standard && i == 0 && l->refused[o - conf_options]);
        must(o->kind == CONF_TEXT);
        if (!**(char *const *)conf_field(l->config, o, i) && !told)
            conf_mistake_add(l, conf_in_file(l, l->sections[i].place),
                             "%s.%s is missing in this section", o->section, o->key);
    }
}

/* ---- reload ---- */

static bool same_match(const struct conf_upstream *a, const struct conf_upstream *b)
{
    bool same = a->match.count == b->match.count && strcmp(a->bucket, b->bucket) == 0;

    for (unsigned i = 0; same && i < a->match.count; i++)
        same = strcmp(a->match.item[i], b->match.item[i]) == 0;
    return same;
}

/* What `like` is called in the other config; NULL: it is not there. */
static const struct conf_upstream *find(const struct config *c, const struct conf_upstream *like,
                                        bool alone)
{
    if (alone && c->upstream_count == 1)
        return &c->upstream[0];
    for (unsigned i = 0; i < c->upstream_count; i++)
        if (strcmp(c->upstream[i].name, like->name) == 0)
            return &c->upstream[i];
    return NULL;
}

static void name_change(struct text *changed, const struct conf_upstream *u, const char *key)
{
    text_addf(changed, "%supstream.%s", changed->len ? ", " : "", key);
    if (u)
        text_addf(changed, " of %s", u->name);
}

/* The options of one that is in both: those of the start, but for the live ones. */
static unsigned keep_one(struct conf_upstream *to, const struct conf_upstream *start, bool alone,
                         struct text *changed)
{
    unsigned count = 0;

    for (unsigned i = 0; i < CONF_OPTIONS; i++) {
        const struct conf_option *o = &conf_options[i];
        if (!o->of_upstream || !(o->flags & RESTART))
            continue;
        if (!conf_keep_field(o, (char *)to + o->offset, (const char *)start + o->offset))
            continue;
        name_change(changed, alone ? NULL : start, o->key);
        count++;
    }
    if (!same_match(to, start)) {
        name_change(changed, alone ? NULL : start, "match");
        count++;
    }
    to->match = start->match;
    to->bucket = start->bucket;
    return count;
}

unsigned conf_upstream_keep(struct config *next, const struct config *start, struct text *changed)
{
    struct conf_upstream kept[CONF_UPSTREAMS_MAX] = {0};
    bool alone = start->upstream_count == 1, other = next->upstream_count != start->upstream_count;
    unsigned count = 0;

    for (unsigned i = 0; i < start->upstream_count; i++) {
        const struct conf_upstream *same = find(next, &start->upstream[i], alone);
        kept[i] = same ? *same : start->upstream[i];
        count += keep_one(&kept[i], &start->upstream[i], alone, changed);
        other = other || !same;
    }
    if (other) {
        text_addf(changed, "%sthe set of upstreams", changed->len ? ", " : "");
        count++;
    }
    memcpy(next->upstream, kept, start->upstream_count * sizeof kept[0]);
    next->upstream_count = start->upstream_count;
    return count;
}
