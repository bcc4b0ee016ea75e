/* The configuration: one table of options makes the struct, the parser, the environment names, the reference
 * text and conf/headpond.toml.
 *
 * Invariants:
 *  1. Precedence: flag, environment HEADPOND_<SECTION>_<KEY>, file, default (product.md 2.4).
 *  2. Every mistake is reported with file:line:column and what to do; all mistakes of a file are reported, not only the first.
 *  3. A struct config never changes after conf_load(); reload makes another one. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CONF_H
#define HEADPOND_CONF_H

#include "base.h"
#include "mem.h"

enum { CONF_LIST_MAX = 64, CONF_BUCKETS_MAX = 64, CONF_MISTAKES_MAX = 50 };

struct conf_list {
    char *item[CONF_LIST_MAX];
    unsigned count;
};
struct conf_size {                   /* "90%" or "2TiB" */
    uint64_t bytes;                  /* 0 when given in percent */
    double percent;
};

/* Settings that a [[bucket]] section may override; resolved once at load, so that a look-up is a pointer. */
struct conf_bucket {
    char *match;                     /* "" for the defaults; "bucket" or "bucket/prefix" (decisions.md 27) */
    unsigned line;
    uint64_t ttl_ms;
    bool immutable;
    bool write_through;              /* write = "through" */
    bool pin;
    uint64_t quota_bytes;            /* 0 = none */
    bool readahead;                  /* prefetch.readahead != "off" */
};

struct config {
#define OPT_TEXT(section, key, field, standard, flags, help) char *field;
#define OPT_LIST(section, key, field, standard, flags, help) struct conf_list field;
#define OPT_BOOL(section, key, field, standard, flags, help) bool field;
#define OPT_TIME(section, key, field, standard, flags, help) uint64_t field; /* ms */
#define OPT_BYTES(section, key, field, standard, flags, help) uint64_t field;
#define OPT_SIZE(section, key, field, standard, flags, help) struct conf_size field;
#define OPT_COUNT(section, key, field, standard, least, most, flags, help) uint32_t field;
#define OPT_ENUM(section, key, field, standard, values, flags, help) uint32_t field;
#include "table/options.h"
#undef OPT_TEXT
#undef OPT_LIST
#undef OPT_BOOL
#undef OPT_TIME
#undef OPT_BYTES
#undef OPT_SIZE
#undef OPT_COUNT
#undef OPT_ENUM
    struct conf_bucket buckets[CONF_BUCKETS_MAX + 1]; /* [0] = defaults from [cache] and [prefetch] */
    unsigned bucket_count;           /* >= 1 */
    char *file;                      /* NULL: none was read */
};

struct conf_mistake {
    char text[400];                  /* "path:31:1: unknown key \"verfiy\" in [cache]; did you mean \"verify\"?" */
};
struct conf_mistakes {
    unsigned count;                  /* may be over the array: the rest was only counted */
    struct conf_mistake item[CONF_MISTAKES_MAX];
};

/* A flag from the command line, e.g. {"upstream.endpoint", "http://..."}; lists: the flag may be repeated. */
struct conf_flag {
    const char *key, *value;
};
/* Reads file (NULL: none), environ and flags. ERR_CONFIG with *mistakes filled; ERR_MEMORY. */
must_check enum err conf_load(const char *file, char *const *environ_, const struct conf_flag *flags, unsigned flag_count,
                              struct config **out, struct conf_mistakes *mistakes);
/* The same from bytes (name stands for the file in messages): the fuzz target and unit tests. */
must_check enum err conf_parse(struct span bytes, const char *name, char *const *environ_, const struct conf_flag *flags,
                               unsigned flag_count, struct config **out, struct conf_mistakes *mistakes);
void conf_give(struct config *c);
/* The section that rules an object: longest match wins, [0] if none (never NULL). Hot path: no allocation. */
const struct conf_bucket *conf_bucket(const struct config *c, struct span bucket, struct span key);
/* conf/headpond.toml: every option, commented, with its default. */
void conf_reference(struct text *out);
/* One line per option: section.key, type, default, (R) or live, help. `headpondd check --list`. */
void conf_list_options(struct text *out);
/* The effective configuration as TOML (--print-config). */
void conf_print(const struct config *c, struct text *out);

/* Scalars, also used by the command line. */
must_check enum err conf_read_bytes(struct span text, uint64_t *out);   /* "8MiB", "1GB", "512" */
must_check enum err conf_read_time_ms(struct span text, uint64_t *out); /* "250ms" "60s" "2m" "1h" "7d" */

#endif
