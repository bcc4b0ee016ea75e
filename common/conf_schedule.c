/* [[schedule]] sections: what is set by the time of the week.
 *
 * Invariants:
 *  1. Every value of every section is checked when the file is read, whatever time it is then.
 *  2. A section belongs to the file: what a flag or a variable sets, it does not change.
 *  3. Of two sections that are in force and set the same, the one further down counts.
 *
 * Life: sections are read into a loader's config and keep their minutes in its arena;
 * conf_schedule_apply() works on a copy that borrows them.
 * Failure: mistakes are added to the loader's. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_load.h"

#include <time.h>

enum { DAY = 24 * 60, MINUTE_BYTES = (CONF_WEEK_MINUTES + 7) / 8 };

/* ---- when ---- */

static const char days[7][4] = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"};
static const char *const not_when = "is no time of the week; write \"Mon-Fri 08:00-20:00\", "
                                    "\"22:00-06:00\" or \"Sat,Sun\"";

static bool read_day(struct span text, unsigned *out)
{
    for (*out = 0; *out < ARRAY_COUNT(days); ++*out)
        if (span_is(text, days[*out]))
            return true;
    return false;
}

/* "Mon", "Mon-Fri", "Sat,Sun", "Fri-Mon" as bits. */
static bool read_days(struct span text, unsigned *mask)
{
    if (span_ends(text, span_of(",")))
        return false;
    for (*mask = 0; text.len;) {
        struct span to = span_cut(&text, ',');
        bool several = span_find(to, '-') < to.len;
        struct span from = span_cut(&to, '-');
        unsigned first, last;
        if (!read_day(from, &first) || !read_day(several ? to : from, &last))
            return false;
        for (unsigned day = first;; day = (day + 1) % 7) {
            *mask |= 1u << day;
            if (day == last)
                break;
        }
    }
    return *mask != 0;
}

/* "08:00"; "24:00" is the end of a day. */
static bool read_clock(struct span text, unsigned *out)
{
    uint64_t hour, minute;

    if (text.len != 5 || text.at[2] != ':' || span_u64(span_make(text.at, 2), &hour) != OK ||
        span_u64(span_make(text.at + 3, 2), &minute) != OK)
        return false;
    *out = (unsigned)(hour * 60 + minute);
    return minute < 60 && *out <= DAY;
}

static void set_minutes(uint8_t *minutes, unsigned day, unsigned from, unsigned to)
{
    for (unsigned at = day * DAY + from; at < day * DAY + to; at++) {
        unsigned minute = at % CONF_WEEK_MINUTES;
        minutes[minute / 8] |= (uint8_t)(1u << minute % 8);
    }
}

/* One "08:00-20:00" on each of the days; one that ends before it begins goes on the day after. */
static const char *read_hours(struct span text, unsigned mask, uint8_t *minutes)
{
    struct span end = text, begin = span_cut(&end, '-');
    unsigned from, to;

    if (!read_clock(begin, &from) || !read_clock(end, &to) || from == DAY)
        return not_when;
    if (from == to)
        return "is no time at all; leave the hours out for whole days";
    for (unsigned day = 0; day < 7; day++)
        if (mask >> day & 1)
            set_minutes(minutes, day, from, to < from ? to + DAY : to);
    return NULL;
}

const char *conf_when_read(struct span text, uint8_t minutes[static MINUTE_BYTES])
{
    bool two = span_find(text, ' ') < text.len; /* words: days, hours */
    struct span hours = text, first = span_cut(&hours, ' ');
    bool has_days = two || (first.len && first.at[0] > '9');
    unsigned mask = 0x7f;
    const char *why = NULL;

    if (has_days && !read_days(first, &mask))
        return not_when;
    if (!two)
        hours = has_days ? span_of("00:00-24:00") : first;
    if (!hours.len || span_ends(hours, span_of(",")))
        return not_when;
    while (hours.len && !why)
        why = read_hours(span_cut(&hours, ','), mask, minutes);
    return why;
}

/* ---- what of the file it is ---- */

static struct conf_schedule *current(struct conf_loader *l)
{
    return &l->config->schedule[l->config->schedule_count - 1];
}

void conf_schedule_open(struct conf_loader *l, const struct toml_item *item)
{
    struct conf_place place = conf_in_file(l, item->place);

    l->part = CONF_PART_SKIPPED;
    if (!item->array) {
        conf_mistake_add(l, place, "[schedule] must be written [[schedule]]");
        return;
    }
    if (l->config->schedule_count == CONF_SCHEDULES_MAX) {
        conf_mistake_add(l, place, "more than %d [[schedule]] sections", CONF_SCHEDULES_MAX);
        return;
    }
    l->config->schedule[l->config->schedule_count++] =
        (struct conf_schedule){.line = item->place.line};
    l->part = CONF_PART_SCHEDULE;
}

static void take_when(struct conf_loader *l, const struct toml_item *item)
{
    static const struct conf_option row = {.section = "schedule", .key = "when"};
    struct conf_schedule *s = current(l);

    if (conf_is_repeated(l, item, span_of("when"), &s->when_line))
        return;
    conf_set_toml(l, &row, &item->value, &s->when);
    if (!s->when)
        return;
    s->minutes = arena_take(l->arena, MINUTE_BYTES);
    if (!s->minutes) {
        l->no_memory = true;
        return;
    }
    memset(s->minutes, 0, MINUTE_BYTES);
    const char *why = conf_when_read(span_of(s->when), s->minutes);
    if (why)
        conf_mistake_value(l, conf_in_file(l, item->value.place), &row, span_of(s->when), why);
}

static void take_match(struct conf_loader *l, const struct toml_item *item)
{
    static const struct conf_option row = {.section = "schedule", .key = "match"};
    struct conf_schedule *s = current(l);

    if (!conf_is_repeated(l, item, span_of("match"), &s->match_line))
        conf_set_toml(l, &row, &item->value, &s->match);
}

/* NULL: it is told why there is no room, or that it is there already. */
static struct conf_setting *add_setting(struct conf_loader *l, const struct toml_item *item,
                                        struct span key)
{
    struct conf_schedule *s = current(l);

    for (unsigned i = 0; i < s->setting_count; i++) {
        if (!span_is(key, s->setting[i].key))
            continue;
        conf_is_repeated(l, item, key, &s->setting[i].line);
        return NULL;
    }
    if (s->setting_count == CONF_SETTINGS_MAX) {
        conf_mistake_add(l, conf_in_file(l, item->place), "more than %d keys in a [[schedule]]; "
                         "write a second one for the same time", CONF_SETTINGS_MAX);
        return NULL;
    }
    struct conf_setting *setting = &s->setting[s->setting_count++];
    *setting = (struct conf_setting){.key = conf_keep(l, key), .line = item->place.line};
    return setting;
}

/* Why an option is set by no schedule, or NULL. */
static const char *refusal(const struct conf_option *o)
{
    if (o->flags & LATER)
        return "is not in this version; remove it";
    if (o->flags & RESTART)
        return "needs a restart, so no schedule can set it; headpondd check --list tells which are "
               "live";
    if (o->kind == CONF_TEXT || o->kind == CONF_LIST)
        return "is no number, size, time or choice: no schedule can set it";
    return NULL;
}

static void take_option(struct conf_loader *l, const struct toml_item *item,
                        const struct conf_option *o, struct span key)
{
    struct conf_place place = conf_in_file(l, item->place);
    const char *why = refusal(o);
    struct conf_setting *setting;

    if (why) {
        conf_mistake_add(l, place, "%s.%s %s", o->section, o->key, why);
        return;
    }
    setting = add_setting(l, item, key);
    if (!setting)
        return;
    setting->option = (unsigned)(o - conf_options);
    conf_set_toml(l, o, &item->value, &setting->value);
}

static void mistake_key(struct conf_loader *l, const struct toml_item *item, struct span key)
{
    struct conf_guess guess = {.word = key};
    char names[CONF_OPTIONS][64];
    struct conf_mistake spare;
    struct text t = conf_mistake_begin(l, conf_in_file(l, item->place), &spare);

    for (unsigned i = 0; i < CONF_OPTIONS; i++) {
        struct text name;
        text_init(&name, names[i], sizeof names[i]);
        text_addf(&name, "%s.%s", conf_options[i].section, conf_options[i].key);
        if (!refusal(&conf_options[i]))
            conf_guess_at(&guess, text_span(&name));
    }
    text_adds(&t, "unknown key ");
    conf_show(&t, key);
    text_adds(&t, " in [[schedule]]");
    conf_guess_add(&t, &guess, "\"", "\"");
    if (!guess.best)
        text_adds(&t, "; write it as \"section.key\", or, with match, as a [[bucket]] has it");
}

static void take_bucket_key(struct conf_loader *l, const struct toml_item *item, struct span key)
{
    struct conf_option row;
    struct conf_setting *setting;
    unsigned at;

    if (!conf_bucket_key(key, &row, &at)) {
        mistake_key(l, item, key);
        return;
    }
    setting = add_setting(l, item, key);
    if (!setting)
        return;
    setting->option = CONF_OPTIONS;
    setting->bucket_key = at;
    conf_set_toml(l, &row, &item->value, &setting->value);
}

void conf_schedule_pair(struct conf_loader *l, const struct toml_item *item, struct span key)
{
    struct span rest = key, section = span_cut(&rest, '.');
    const struct conf_option *o = conf_find_option(section, rest);

    if (span_is(key, "when")) {
        take_when(l, item);
        return;
    }
    if (span_is(key, "match")) {
        take_match(l, item);
        return;
    }
    current(l)->has_keys = true;
    if (o)
        take_option(l, item, o, key);
    else
        take_bucket_key(l, item, key);
}

/* ---- once all layers are read ---- */

static unsigned find_bucket(const struct conf_loader *l, const char *match)
{
    for (unsigned i = 0; i < l->draft_count; i++)
        if (l->drafts[i].match && strcmp(l->drafts[i].match, match) == 0)
            return i + 1;
    return 0;
}

static void finish_setting(struct conf_loader *l, struct conf_schedule *s, struct conf_setting *set)
{
    struct conf_place place = conf_in_file(l, (struct toml_place){set->line, 1});

    if (set->option == CONF_OPTIONS) {
        set->bucket = s->match ? find_bucket(l, s->match) : 0;
        if (!s->match)
            conf_mistake_add(l, place, "%s is a key of [[bucket]] sections: name one by match",
                             set->key);
        return;
    }
    const struct conf_option *o = &conf_options[set->option];
    const char *source = l->set_at[set->option].source;
    if (o->of_upstream && !conf_default_upstream(l->config))
        conf_mistake_add(l, place, "%s sets the [[upstream]] without match, and there is none",
                         set->key);
    set->beaten = source && source != l->name;
}

static void mistake_match(struct conf_loader *l, const struct conf_schedule *s)
{
    struct toml_place at = {s->match_line, 1};
    struct conf_mistake spare;
    struct text t = conf_mistake_begin(l, conf_in_file(l, at), &spare);

    text_adds(&t, "there is no [[bucket]] with match ");
    conf_show(&t, span_of(s->match));
    text_adds(&t, "; add one, it may hold nothing else");
}

void conf_schedule_finish(struct conf_loader *l)
{
    for (unsigned i = 0; i < l->config->schedule_count && !l->no_memory; i++) {
        struct conf_schedule *s = &l->config->schedule[i];
        struct conf_place place = conf_in_file(l, (struct toml_place){s->line, 1});
        if (!s->when_line)
            conf_mistake_add(l, place, "schedule.when is missing; set it to a time of the week, "
                             "as \"Mon-Fri 08:00-20:00\"");
        if (!s->has_keys)
            conf_mistake_add(l, place, "this [[schedule]] sets nothing; add keys, as "
                             "\"prefetch.bandwidth\" = \"200MB\"");
        if (s->match && !find_bucket(l, s->match))
            mistake_match(l, s);
        for (unsigned k = 0; k < s->setting_count; k++)
            finish_setting(l, s, &s->setting[k]);
    }
}

/* ---- in force ---- */

unsigned conf_minute_of_week(uint64_t wall_s)
{
    time_t seconds = (time_t)wall_s;
    struct tm local;

    if (!localtime_r(&seconds, &local))
        return 0;
    unsigned day = (unsigned)(local.tm_wday + 6) % 7; /* Monday is 0 */
    return day * DAY + (unsigned)(local.tm_hour * 60 + local.tm_min);
}

uint32_t conf_in_force(const struct config *c, unsigned minute)
{
    uint32_t mask = 0;

    must(minute < CONF_WEEK_MINUTES);
    for (unsigned i = 0; i < c->schedule_count; i++)
        mask |= (uint32_t)(c->schedule[i].minutes[minute / 8] >> minute % 8 & 1) << i;
    return mask;
}

unsigned conf_next_change(const struct config *c, unsigned minute)
{
    uint32_t now = conf_in_force(c, minute);

    for (unsigned after = 1; after < CONF_WEEK_MINUTES; after++)
        if (conf_in_force(c, (minute + after) % CONF_WEEK_MINUTES) != now)
            return after;
    return 0;
}

static void set_bucket(struct conf_bucket *b, const struct conf_setting *s)
{
    b->own |= 1u << s->bucket_key;
    switch ((enum conf_bucket_key)s->bucket_key) {
    case KEY_QUOTA: b->quota_bytes = s->value.number; break;
    case KEY_PIN: b->pin = s->value.flag; break;
    case KEY_TTL: b->ttl_ms = s->value.number; break;
    case KEY_LIST_TTL: b->list_ttl_own_ms = s->value.number; break;
    case KEY_NEGATIVE_TTL: b->negative_ttl_ms = s->value.number; break;
    case KEY_IMMUTABLE: b->immutable = s->value.flag; break;
    case KEY_WRITE: b->write_through = s->value.choice == CONF_WRITE_THROUGH; break;
    case KEY_READAHEAD: b->readahead = s->value.choice != CONF_READAHEAD_OFF; break;
    case KEY_BACKGROUND: b->background = (uint8_t)s->value.choice; break;
    case KEY_MATCH:
    case BUCKET_KEYS: break;
    }
}

void conf_schedule_apply(struct config *c, uint32_t mask)
{
    c->in_force = mask;
    for (unsigned i = 0; i < c->schedule_count; i++) {
        const struct conf_schedule *s = &c->schedule[i];
        if (!(mask >> i & 1))
            continue;
        for (unsigned k = 0; k < s->setting_count; k++) {
            const struct conf_setting *set = &s->setting[k];
            if (set->option == CONF_OPTIONS)
                set_bucket(&c->buckets[set->bucket], set);
            else if (!set->beaten)
                conf_set_field(c, &conf_options[set->option], &set->value);
        }
    }
    conf_derive_buckets(c);
}
