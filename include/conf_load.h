/* What the files of the configuration loader share: conf.c, conf_set.c, conf_file.c, conf_room.c,
 * conf_upstream.c. Nobody else includes it.
 *
 * Invariants:
 *  1. A mistake never stops the loading; it is added and the value is left as it was.
 *  2. Texts that a config keeps come from conf_keep(), so they die with it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CONF_LOAD_H
#define HEADPOND_CONF_LOAD_H

#include "conf.h"
#include "toml.h"

struct conf_place {
    const char *source;              /* file name, "environment", "command line" */
    struct toml_place at;            /* line 0: the source has no lines */
};

/* The keys of a [[bucket]] section. */
enum conf_bucket_key {
    KEY_MATCH,
    KEY_QUOTA,
    KEY_PIN,
    KEY_TTL,
    KEY_LIST_TTL,
    KEY_NEGATIVE_TTL,
    KEY_IMMUTABLE,
    KEY_WRITE,
    KEY_READAHEAD,
    KEY_BACKGROUND,
    BUCKET_KEYS,
};
struct conf_draft {
    char *match;
    uint64_t ttl_ms, list_ttl_ms, negative_ttl_ms, quota_bytes;
    bool immutable, pin;
    /* enum conf_write, enum conf_readahead, enum conf_background */
    uint32_t write, readahead, background;
    unsigned line;
    unsigned set_line[BUCKET_KEYS];  /* 0 = not set */
};

/* What of an upstream section is known while the file is read. */
struct conf_section {
    struct toml_place place;
    unsigned match_line, bucket_line;      /* 0 = not set */
    struct toml_place match_at, bucket_at; /* of the values */
    struct toml_place item_at[CONF_LIST_MAX]; /* of each item of match that is kept */
    bool refused;                    /* a required option was given, and is a mistake */
};

enum conf_part {
    CONF_PART_ROOT,
    CONF_PART_OPTIONS,
    CONF_PART_BUCKET,
    CONF_PART_SCHEDULE,
    CONF_PART_SKIPPED
};

struct conf_loader {
    struct config *config;
    struct arena *arena;
    const char *name;                /* of the file, for messages */
    struct conf_mistakes *mistakes;
    struct conf_place set_at[CONF_OPTIONS]; /* source NULL: the default holds */
    bool refused[CONF_OPTIONS];      /* a layer's value was a mistake */
    struct conf_draft drafts[CONF_BUCKETS_MAX];
    unsigned draft_count;
    struct conf_upstream standard;   /* the defaults of an upstream section */
    struct conf_section sections[CONF_UPSTREAMS_MAX]; /* of config->upstream */
    unsigned upstream;               /* the section that pairs of the file belong to */
    bool sizes_given;                /* the defaults are set: what comes was written by somebody */
    struct conf_place size_at;       /* of cache.size's value; source NULL: the default holds */
    char *size_text;                 /* as it was written */
    struct toml_place one_upstream;  /* of [upstream]; line 0: there is none */
    bool several;                    /* [[upstream]] was seen */
    enum conf_part part;             /* of the file: what pairs belong to */
    const char *section;             /* CONF_PART_OPTIONS: of the table */
    unsigned section_line[CONF_OPTIONS]; /* by the section's first option; 0 = not seen */
    bool no_memory;
};

/* ---- conf_set.c: mistakes ---- */
/* Begins a mistake with its place; what is added to the text follows. Over the limit it is counted
 * and written into *spare, which nobody reads. */
struct text conf_mistake_begin(struct conf_loader *l, struct conf_place place,
                               struct conf_mistake *spare);
void conf_mistake_add(struct conf_loader *l, struct conf_place place, const char *format, ...)
    printf_like(3, 4);
/* "section.key "value" sentence" */
void conf_mistake_value(struct conf_loader *l, struct conf_place place,
                        const struct conf_option *o, struct span value, const char *sentence);
/* A text of the user, quoted, for a message: cut, without what could command a terminal. */
void conf_show(struct text *t, struct span value);
struct conf_place conf_in_file(const struct conf_loader *l, struct toml_place at);

/* ---- conf_set.c: values ---- */
char *conf_keep(struct conf_loader *l, struct span text);
/* Of that upstream, if it is an option of one. */
void *conf_field(struct config *c, const struct conf_option *o, unsigned upstream);
/* NULL when there is no such option. */
const struct conf_option *conf_find_option(struct span section, struct span key);
/* A value written as one text (defaults, environment); lists are separated by commas. */
void conf_set_text(struct conf_loader *l, const struct conf_option *o, struct conf_place place,
                   struct span text);
/* One more item of a list; false: it is not kept. */
bool conf_set_item(struct conf_loader *l, struct conf_list *list, const struct conf_option *o,
                   struct conf_place place, struct span item);
bool conf_fits(enum conf_kind kind, enum toml_kind given);
/* A value of the file, into field. */
void conf_set_toml(struct conf_loader *l, const struct conf_option *o,
                   const struct toml_value *value, void *field);

/* ---- conf_file.c ---- */
void conf_file_read(struct conf_loader *l, struct span bytes);
/* Tells a key that was set before; *set_line is 0 or the line. */
bool conf_is_repeated(struct conf_loader *l, const struct toml_item *item, struct span key,
                      unsigned *set_line);

/* A key of [[bucket]] sections but match, as an option. false: there is none of that name. */
bool conf_bucket_key(struct span key, struct conf_option *out, unsigned *at);

/* ---- conf_room.c ---- */
/* Once all layers were read: does what cache.size asks for leave cache.min_free? */
void conf_room_finish(struct conf_loader *l);

/* ---- conf_schedule.c ---- */
void conf_schedule_open(struct conf_loader *l, const struct toml_item *item);
void conf_schedule_pair(struct conf_loader *l, const struct toml_item *item, struct span key);
/* Once all layers were read: what the sections need. */
void conf_schedule_finish(struct conf_loader *l);
void conf_schedule_apply(struct config *c, uint32_t in_force);

/* ---- conf.c ---- */
void conf_set_field(struct config *c, const struct conf_option *o, const union conf_any *value);
/* Buckets get from [cache] and [prefetch] what their sections do not set. */
void conf_derive_buckets(struct config *c);

/* ---- conf_upstream.c ---- */
void conf_upstream_open(struct conf_loader *l, const struct toml_item *item);
/* A pair that stands before any section: "upstream.key = value". */
void conf_upstream_at_root(struct conf_loader *l, const struct toml_item *item);
/* match or bucket. false: it is another key. */
bool conf_upstream_own_pair(struct conf_loader *l, const struct toml_item *item);
/* Once the file was read: what the sections need, and what they must not be together. Brings the
 * default to the front. */
void conf_upstream_finish(struct conf_loader *l);
void conf_upstream_required(struct conf_loader *l, const struct conf_option *o);
/* For a reload, as conf_keep_restart(). */
unsigned conf_upstream_keep(struct config *next, const struct config *start, struct text *changed);
/* What differs of an option that needs a restart; the field gets the value of the start. */
bool conf_keep_field(const struct conf_option *o, void *to, const void *from);

#endif
