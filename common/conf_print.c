/* The configuration as text: the reference file, the list of options, the effective values.
 *
 * Invariants:
 *  1. What conf_reference() and conf_print() write is TOML that conf_parse() reads.
 *  2. conf_print() of a config that was read from conf_print()'s text is the same text.
 *
 * Life: pure functions over a config and a text; nothing is owned.
 * Failure: a text that is too small is cut and says `over`. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_load.h"

/* A TOML basic string. */
static void add_string(struct text *t, struct span value)
{
    text_addc(t, '"');
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)value.at[i];
        if (c < ' ' || c == 0x7F) {
            text_addf(t, "\\u%04x", c);
            continue;
        }
        if (c == '"' || c == '\\')
            text_addc(t, '\\');
        text_addc(t, (char)c);
    }
    text_addc(t, '"');
}

static void add_standard(struct text *t, const struct conf_option *o)
{
    struct span rest = span_of(o->standard);
    const char *between = "";

    if (o->kind == CONF_BOOL || o->kind == CONF_COUNT) {
        text_add(t, rest);
        return;
    }
    if (o->kind != CONF_LIST) {
        add_string(t, rest);
        return;
    }
    text_addc(t, '[');
    for (; rest.len; between = ", ") {
        text_adds(t, between);
        add_string(t, span_trim(span_cut(&rest, ',')));
    }
    text_addc(t, ']');
}

/* "(0 to 256)", "auto | path | virtual": what may be written, where the type does not say it. */
static void add_limits(struct text *t, const struct conf_option *o)
{
    struct span rest = span_of(o->values);

    if (o->kind == CONF_COUNT)
        text_addf(t, " (%u to %u)", o->least, o->most);
    if (o->kind != CONF_ENUM || span_find(rest, '|') == rest.len)
        return;
    text_adds(t, " (");
    while (rest.len) {
        text_add(t, span_cut(&rest, '|'));
        text_adds(t, rest.len ? " | " : ")");
    }
}

static void add_option(struct text *t, const struct conf_option *o)
{
    text_adds(t, "# ");
    if (o->flags & RESTART)
        text_adds(t, "(R) ");
    text_adds(t, o->help);
    add_limits(t, o);
    if (o->flags & LATER)
        text_adds(t, "; not in this version");
    /* What must be filled in stands ready, all else as a comment: defaults may change. */
    text_addf(t, "\n%s%s = ", o->flags & REQUIRED ? "" : "#", o->key);
    add_standard(t, o);
    text_addc(t, '\n');
}

void conf_reference(struct text *out)
{
    const char *section = "";

    text_adds(out,
              "# /etc/headpond/headpond.toml - every key is optional except upstream.endpoint and "
              "cache.dirs.\n"
              "# Sizes: B KiB MiB GiB TiB (also KB MB GB TB). Times: ms s m h d.\n"
              "# Check: headpondd check. Apply: systemctl reload headpond\n"
              "# (R) = needs a restart; all else is applied by reload.\n"
              "# Order of precedence: flag, environment (HEADPOND_UPSTREAM_ENDPOINT=...), this "
              "file, default.\n"
              "# Upstream credentials never stand here: they are found as every AWS tool finds "
              "them.\n");
    for (unsigned i = 0; i < CONF_OPTIONS; i++) {
        const struct conf_option *o = &conf_options[i];
        if (strcmp(section, o->section) != 0)
            text_addf(out, "\n[%s]\n", o->section);
        section = o->section;
        add_option(out, o);
    }
    text_addc(out, '\n');
    conf_reference_repeated(out);
}

void conf_reference_repeated(struct text *out)
{
    text_adds(
        out,
        "# Instead of [upstream], up to 16 sections [[upstream]], each with any of its keys, "
        "a\n# name, and match: the buckets that are asked of it. A \"*\" at the end stands "
        "for all\n# names that begin so; an exact name beats it, and a longer one a shorter "
        "one. The section\n# without match gets all others, and is the one that flags and "
        "variables set. bucket is\n# what the store calls the one bucket that match names. "
        "(R) but for what is not (R) above.\n"
        "#   [[upstream]]\n"
        "#   name = \"aws\"\n"
        "#   endpoint = \"https://s3.eu-central-1.amazonaws.com\"\n"
        "#   [[upstream]]\n"
        "#   name = \"minio\"\n"
        "#   endpoint = \"http://minio.lan:9000\"\n"
        "#   profile = \"minio\"\n"
        "#   match = [\"scratch-*\"]\n"
        "#   [[upstream]]\n"
        "#   name = \"archive\"\n"
        "#   endpoint = \"file:///srv/archive\"\n"
        "#   match = [\"old-data\"]\n"
        "#   bucket = \"2019\"\n"
        "\n"
        "# Any number of sections for a bucket, \"bucket\", or a part of it, "
        "\"bucket/prefix\"; the\n"
        "# longest match rules. They may set ttl, list_ttl, negative_ttl, immutable, write,\n"
        "# readahead, background; and quota, the most bytes that the section may hold on the "
        "disks\n# (0 = no limit), and pin: true keeps what was read until the pin ends. All of it "
        "is live.\n"
        "#[[bucket]]\n"
        "#match = \"train-data/imagenet/\"\n"
        "#immutable = true\n"
        "#quota = \"2TiB\"\n"
        "#pin = false\n"
        "\n"
        "# What holds at some times of the week, local time: \"Mon-Fri 08:00-20:00\", "
        "\"22:00-06:00\"\n# (over midnight), \"Sat,Sun\", or hours with commas. Keys are any "
        "number, size, time or choice\n# that is not (R), as \"section.key\"; with match, the "
        "keys of the [[bucket]] section that has\n# it. Of several in force that set the same, "
        "the last counts. Flags and variables win over all.\n"
        "#[[schedule]]\n"
        "#when = \"Mon-Fri 08:00-20:00\"\n"
        "#\"prefetch.bandwidth\" = \"200MB\"\n"
        "#\"prefetch.inflight\" = 8\n"
        "#[[schedule]]\n"
        "#when = \"Mon-Fri 20:00-08:00\"\n"
        "#match = \"train-data/imagenet/\"\n"
        "#quota = \"4TiB\"\n");
}

void conf_list_options(struct text *out)
{
    static const char *const kinds[] = {
        [CONF_TEXT] = "text",   [CONF_LIST] = "list",   [CONF_BOOL] = "bool",
        [CONF_TIME] = "time",   [CONF_BYTES] = "bytes", [CONF_SIZE] = "size",
        [CONF_COUNT] = "count", [CONF_ENUM] = "choice",
    };
    char name[64], standard[128];
    struct text t;

    for (unsigned i = 0; i < CONF_OPTIONS; i++) {
        const struct conf_option *o = &conf_options[i];
        text_init(&t, name, sizeof name);
        text_addf(&t, "%s.%s", o->section, o->key);
        text_init(&t, standard, sizeof standard);
        add_standard(&t, o);
        text_addf(out, "%-24s %-6s %-16s %-4s %s", name, kinds[o->kind], standard,
                  o->flags & RESTART ? "(R)" : "live", o->help);
        add_limits(out, o);
        text_adds(out, o->flags & LATER ? "; not in this version\n" : "\n");
    }
}

/* ---- the effective configuration ---- */

/* The largest unit that takes the number whole. */
static void add_with_unit(struct text *t, uint64_t n, const uint64_t *factors,
                          const char *const *units)
{
    unsigned at = 0;

    while (n && n % factors[at])
        at++;
    text_addc(t, '"');
    text_addu(t, n / factors[at]);
    text_adds(t, n ? units[at] : "");
    text_addc(t, '"');
}

static void add_bytes(struct text *t, uint64_t bytes)
{
    static const uint64_t factors[] = {TIB, GIB, MIB, KIB, 1};
    static const char *const units[] = {"TiB", "GiB", "MiB", "KiB", "B"};

    add_with_unit(t, bytes, factors, units);
}

static void add_time(struct text *t, uint64_t ms)
{
    static const uint64_t factors[] = {86400000, 3600000, 60000, 1000, 1};
    static const char *const units[] = {"d", "h", "m", "s", "ms"};

    add_with_unit(t, ms, factors, units);
}

static void add_choice(struct text *t, const char *values, uint32_t at)
{
    struct span rest = span_of(values), choice = span_cut(&rest, '|');

    for (; at > 0; at--)
        choice = span_cut(&rest, '|');
    add_string(t, choice);
}

static void add_list(struct text *t, const struct conf_list *list)
{
    text_addc(t, '[');
    for (unsigned i = 0; i < list->count; i++) {
        text_adds(t, i ? ", " : "");
        add_string(t, span_of(list->item[i]));
    }
    text_addc(t, ']');
}

static void add_size(struct text *t, const struct conf_size *size)
{
    if (size->bytes)
        add_bytes(t, size->bytes);
    else
        text_addf(t, "\"%g%%\"", size->percent);
}

static void add_value(struct text *t, const struct conf_option *o, const void *field)
{
    switch (o->kind) {
    case CONF_TEXT:
        add_string(t, span_of(*(char *const *)field));
        break;
    case CONF_LIST:
        add_list(t, field);
        break;
    case CONF_BOOL:
        text_adds(t, *(const bool *)field ? "true" : "false");
        break;
    case CONF_TIME:
        add_time(t, *(const uint64_t *)field);
        break;
    case CONF_BYTES:
        add_bytes(t, *(const uint64_t *)field);
        break;
    case CONF_SIZE:
        add_size(t, field);
        break;
    case CONF_COUNT:
        text_addu(t, *(const uint32_t *)field);
        break;
    case CONF_ENUM:
        add_choice(t, o->values, *(const uint32_t *)field);
        break;
    }
}

static void add_bucket(struct text *t, const struct conf_bucket *b)
{
    text_adds(t, "\n[[bucket]]\nmatch = ");
    add_string(t, span_of(b->match));
    text_adds(t, "\nttl = ");
    add_time(t, b->ttl_ms);
    text_adds(t, "\nlist_ttl = ");
    add_time(t, b->list_ttl_ms);
    text_adds(t, "\nnegative_ttl = ");
    add_time(t, b->negative_ttl_ms);
    text_addf(t, "\nimmutable = %s\nwrite = \"%s\"\nreadahead = \"%s\"\nquota = ",
              b->immutable ? "true" : "false", b->write_through ? "through" : "around",
              b->readahead ? "auto" : "off");
    add_bytes(t, b->quota_bytes);
    text_addf(t, "\npin = %s\nbackground = ", b->pin ? "true" : "false");
    add_choice(t, conf_options[CONF_AT_prefetch_background].values, b->background);
    text_addc(t, '\n');
}

static void add_schedule(struct text *t, const struct conf_schedule *s)
{
    struct conf_option of_bucket;
    unsigned at;

    text_adds(t, "\n[[schedule]]\nwhen = ");
    add_string(t, span_of(s->when));
    if (s->match) {
        text_adds(t, "\nmatch = ");
        add_string(t, span_of(s->match));
    }
    text_addc(t, '\n');
    for (unsigned i = 0; i < s->setting_count; i++) {
        const struct conf_setting *set = &s->setting[i];
        bool own =
            set->option == CONF_OPTIONS && conf_bucket_key(span_of(set->key), &of_bucket, &at);
        text_addf(t, own ? "%s = " : "\"%s\" = ", set->key);
        add_value(t, own ? &of_bucket : &conf_options[set->option], &set->value);
        text_addc(t, '\n');
    }
}

static void add_upstreams(struct text *t, const struct config *c)
{
    bool one = c->upstream_count == 1 && conf_default_upstream(c);

    for (unsigned i = 0; i < c->upstream_count; i++) {
        const struct conf_upstream *u = &c->upstream[i];
        text_adds(t, one ? "\n[upstream]\n" : "\n[[upstream]]\n");
        for (unsigned k = 0; k < CONF_OPTIONS; k++) {
            const struct conf_option *o = &conf_options[k];
            if (!o->of_upstream)
                continue;
            text_addf(t, "%s = ", o->key);
            add_value(t, o, (const char *)u + o->offset);
            text_addc(t, '\n');
        }
        if (u->match.count) {
            text_adds(t, "match = ");
            add_list(t, &u->match);
            text_addc(t, '\n');
        }
        if (u->bucket[0]) {
            text_adds(t, "bucket = ");
            add_string(t, span_of(u->bucket));
            text_addc(t, '\n');
        }
    }
}

void conf_print(const struct config *c, struct text *out)
{
    const char *section = "";

    for (unsigned i = 0; i < CONF_OPTIONS; i++) {
        const struct conf_option *o = &conf_options[i];
        if (i == CONF_AT_name)
            add_upstreams(out, c);
        if (o->of_upstream)
            continue;
        if (strcmp(section, o->section) != 0)
            text_addf(out, "%s[%s]\n", i ? "\n" : "", o->section);
        section = o->section;
        text_addf(out, "%s = ", o->key);
        add_value(out, o, (const char *)c + o->offset);
        text_addc(out, '\n');
    }
    for (unsigned i = 1; i < c->bucket_count; i++)
        add_bucket(out, &c->buckets[i]);
    for (unsigned i = 0; i < c->schedule_count; i++)
        add_schedule(out, &c->schedule[i]);
}
