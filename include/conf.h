/* The configuration: one table of options makes the struct, the parser, the environment names, the
 * reference text and conf/headpond.toml.
 *
 * Invariants:
 *  1. Precedence: flag, environment HEADPOND_<SECTION>_<KEY>, file, default.
 *  2. Every mistake is reported with file:line:column and what to do; all mistakes of a file are
 *     reported, not only the first.
 *  3. A struct config never changes after conf_load(); reload makes another one. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CONF_H
#define HEADPOND_CONF_H

#include "base.h"
#include "mem.h"

enum {
    CONF_LIST_MAX = 64,
    CONF_ADMIN_LISTEN_MAX = 8,
    CONF_BUCKETS_MAX = 64,
    CONF_UPSTREAMS_MAX = 16,
    CONF_SCHEDULES_MAX = 32,
    CONF_SETTINGS_MAX = 16,          /* of one schedule */
    CONF_WEEK_MINUTES = 7 * 24 * 60,
    CONF_MISTAKES_MAX = 50
};

/* Flags of options.h. */
enum conf_option_flag {
    RESTART = 1,                     /* (R): a change needs a restart */
    LIVE = 2,                        /* a reload applies a change */
    LATER = 4,                       /* any value but the default is refused: not in this version */
    REQUIRED = 8,                    /* must not be empty */
};

/* OPT_ENUM fields hold the position in the table's list of values. */
enum conf_path_style { CONF_PATH_STYLE_AUTO, CONF_PATH_STYLE_PATH, CONF_PATH_STYLE_VIRTUAL };
enum conf_offline { CONF_OFFLINE_SERVE, CONF_OFFLINE_FAIL };
enum conf_write { CONF_WRITE_THROUGH, CONF_WRITE_AROUND };
enum conf_background { CONF_BACKGROUND_OFF, CONF_BACKGROUND_AUTO, CONF_BACKGROUND_ALWAYS };
enum conf_readahead { CONF_READAHEAD_AUTO, CONF_READAHEAD_OFF };
enum conf_access { CONF_ACCESS_OFF, CONF_ACCESS_ERRORS, CONF_ACCESS_SLOW, CONF_ACCESS_ALL };

struct conf_list {
    char *item[CONF_LIST_MAX];
    unsigned count;
};
struct conf_size {                   /* "90%" or "2TiB" */
    uint64_t bytes;                  /* 0 when given in percent */
    double percent;
};

/* A range of addresses. IPv4 takes the first 4 bytes of addr; IPv4 in IPv6 (::ffff:a.b.c.d) is kept
 * as IPv4. */
struct conf_cidr {
    uint8_t addr[16];
    uint8_t bits;
    bool v6;
};

/* Settings that a [[bucket]] section may override; resolved once at load, so that a look-up is a
 * pointer. */
struct conf_bucket {
    char *match;                     /* "" for the defaults; "bucket" or "bucket/prefix" */
    size_t match_len;
    unsigned line;
    uint64_t ttl_ms;
    uint64_t list_ttl_ms;            /* not longer than ttl_ms, unless immutable */
    uint64_t negative_ttl_ms;
    bool immutable;
    bool write_through;              /* write = "through" */
    bool pin;
    uint64_t quota_bytes;            /* 0 = none */
    bool readahead;                  /* prefetch.readahead != "off" */
    uint8_t background;              /* enum conf_background */
    unsigned own;                    /* bits by enum conf_bucket_key: set by the section itself */
    uint64_t list_ttl_own_ms;        /* list_ttl_ms without its limit */
};

union conf_any {                     /* any scalar of struct config */
    char *text;
    bool flag;
    uint64_t number;
    uint32_t choice;
    struct conf_size size;
};

/* What a [[schedule]] section sets while it is in force. */
struct conf_setting {
    char *key;                       /* "prefetch.bandwidth"; "quota" of a bucket section */
    /* of conf_options; CONF_OPTIONS: bucket_key of buckets[bucket] */
    unsigned option;
    unsigned bucket, bucket_key;     /* enum conf_bucket_key */
    bool beaten;                     /* a flag or a variable sets the option */
    unsigned line;
    union conf_any value;
};
struct conf_schedule {
    char *when;                      /* "Mon-Fri 08:00-20:00", local time */
    char *match;                     /* of the bucket section that is set; NULL: none */
    uint8_t *minutes;                /* a bit for each of the week, from Monday 00:00 on */
    struct conf_setting setting[CONF_SETTINGS_MAX];
    unsigned setting_count;
    bool has_keys;                   /* also if they are refused */
    unsigned line, when_line, match_line;
};

/* Fields of options.h. */
#define OPT_TEXT(section, key, field, standard, flags, help) char *field;
#define OPT_LIST(section, key, field, standard, flags, help) struct conf_list field;
#define OPT_BOOL(section, key, field, standard, flags, help) bool field;
#define OPT_TIME(section, key, field, standard, flags, help) uint64_t field; /* ms */
#define OPT_BYTES(section, key, field, standard, flags, help) uint64_t field;
#define OPT_SIZE(section, key, field, standard, flags, help) struct conf_size field;
#define OPT_COUNT(section, key, field, standard, least, most, flags, help) uint32_t field;
#define OPT_ENUM(section, key, field, standard, values, flags, help) uint32_t field;

/* An [upstream] or [[upstream]] section: a store, and the buckets that are asked of it. */
struct conf_upstream {
#define OPT_UPSTREAM_ONLY
#include "table/options.h"
#undef OPT_UPSTREAM_ONLY
    /* Names of buckets as clients know them; one that ends in '*' stands for all that begin so.
     * Empty: the default, which gets what no other section matches. */
    struct conf_list match;
    char *bucket;                    /* what the store calls the only match; "" = the same */
};

struct config {
#define OPT_UPSTREAM_NOT
#include "table/options.h"
#undef OPT_UPSTREAM_NOT
#undef OPT_TEXT
#undef OPT_LIST
#undef OPT_BOOL
#undef OPT_TIME
#undef OPT_BYTES
#undef OPT_SIZE
#undef OPT_COUNT
#undef OPT_ENUM
    /* The default is [0], if there is one; else no option of a flag, a variable or a schedule
     * addresses any of them. */
    struct conf_upstream upstream[CONF_UPSTREAMS_MAX];
    unsigned upstream_count;         /* >= 1 */
    /* [0] = defaults from [cache] and [prefetch] */
    struct conf_bucket buckets[CONF_BUCKETS_MAX + 1];
    unsigned bucket_count;           /* >= 1 */
    struct conf_schedule schedule[CONF_SCHEDULES_MAX];
    unsigned schedule_count;
    uint32_t in_force;               /* bits: the schedules that are applied here */
    struct conf_cidr anonymous[CONF_LIST_MAX]; /* auth.anonymous, parsed */
    unsigned anonymous_count;
    char *file;                      /* NULL: none was read */
};

struct conf_mistake {
    /* "path:31:1: unknown key \"verfiy\" in [cache]; did you mean \"verify\"?" */
    char text[400];
};
struct conf_mistakes {
    unsigned count;                  /* may be over the array: the rest was only counted */
    struct conf_mistake item[CONF_MISTAKES_MAX];
    bool disks;                      /* in: look whether sizes fit the disks that are there, too */
};

/* One more, of what is looked at behind the loading: files that are named. */
void conf_mistakes_tell(struct conf_mistakes *m, const char *format, ...) printf_like(2, 3);

/* A flag from the command line, e.g. {"upstream.endpoint", "http://..."}; lists: the flag may be
 * repeated. */
struct conf_flag {
    const char *key, *value;
};
/* Reads file (NULL: none), environ and flags. ERR_CONFIG with *mistakes filled; ERR_MEMORY. */
must_check enum err conf_load(const char *file, char *const *environ_,
                              const struct conf_flag *flags, unsigned flag_count,
                              struct config **out, struct conf_mistakes *mistakes);
/* The same from bytes (name stands for the file in messages): the fuzz target and unit tests. */
must_check enum err conf_parse(struct span bytes, const char *name, char *const *environ_,
                               const struct conf_flag *flags, unsigned flag_count,
                               struct config **out, struct conf_mistakes *mistakes);
void conf_give(struct config *c);
/* For a reload: options that need a restart get the values of `start` (also as memory: start must
 * live as long). Names into `changed`, with ", " between, those that differed. Their number. */
unsigned conf_keep_restart(struct config *next, const struct config *start, struct text *changed);
/* The section that rules an object: longest match wins, [0] if none (never NULL). Hot path: no
 * allocation. */
const struct conf_bucket *conf_bucket(const struct config *c, struct span bucket, struct span key);
/* How old a list of the keys with that prefix may be: the least of all sections that rule some of
 * them. */
uint64_t conf_list_ttl_ms(const struct config *c, struct span bucket, struct span prefix);
/* ---- [[schedule]] ---- */
/* Of local time; 0 is Monday 00:00. */
unsigned conf_minute_of_week(uint64_t wall_s);
uint32_t conf_in_force(const struct config *c, unsigned minute); /* as config.in_force */
/* Minutes from that one to the next at which others are in force; 0: never. */
unsigned conf_next_change(const struct config *c, unsigned minute);
/* A configuration with those in force, of one with none; it borrows texts of base, which must live
 * as long. conf_give() ends it. ERR_MEMORY. */
must_check enum err conf_scheduled(const struct config *base, uint32_t in_force,
                                   struct config **out);
/* Sets the bits of "Mon-Fri 08:00-20:00"; NULL, or what is wrong with it. */
const char *conf_when_read(struct span text, uint8_t minutes[static CONF_WEEK_MINUTES / 8]);
/* ---- conf_route.c: which store has a bucket (pure) ---- */
struct conf_route {
    unsigned upstream;               /* its number */
    struct span bucket;              /* what the store calls it; borrowed from both */
};
/* An exact match beats a prefix, a longer prefix a shorter one, any of them the default. false:
 * there is no such bucket. Hot path: no allocation. */
bool conf_route(const struct config *c, struct span bucket, struct conf_route *out);
/* Whether the store would take what is asked of that bucket for a call of its administration, which
 * it serves below the same address: upstream.reserved. Hot path: no allocation. */
bool conf_is_reserved(const struct config *c, const struct conf_route *to, struct span key);
/* The section that takes what no other matches, or NULL. */
const struct conf_upstream *conf_default_upstream(const struct config *c);
/* Whether a match names one bucket; else *prefix is what names begin with. */
bool conf_match_is_exact(const char *match, struct span *prefix);
/* conf/headpond.toml: every option, commented, with its default. */
void conf_reference(struct text *out);
/* Its end: the sections of which there may be several, as comments. */
void conf_reference_repeated(struct text *out);
/* One line per option: section.key, type, default, (R) or live, help. `headpondd check --list`. */
void conf_list_options(struct text *out);
/* The effective configuration as TOML (--print-config). */
void conf_print(const struct config *c, struct text *out);

/* Scalars, also used by the command line. */
must_check enum err conf_read_bytes(struct span text, uint64_t *out);   /* "8MiB", "1GB", "512" */
/* "250ms" "60s" "2m" "1h" "7d" */
must_check enum err conf_read_time_ms(struct span text, uint64_t *out);

must_check enum err conf_read_size(struct span text, struct conf_size *out); /* "90%" or bytes */
/* "10.0.0.0/8", "::1", "fe80::/10"; without "/" the address alone. ERR_SYNTAX. */
must_check enum err conf_cidr_read(struct span text, struct conf_cidr *out);
/* Whether the address of a sockaddr_in or sockaddr_in6 lies in one of the ranges; false for other
 * families. */
struct sockaddr;
bool conf_cidr_has(const struct conf_cidr *list, unsigned count, const struct sockaddr *from);

/* Where to listen: "0.0.0.0:9000", "[::]:9000", "unix:/path". Host names are no listen
 * addresses. */
struct conf_listen {
    uint8_t addr[16];                /* IPv4: the first 4 bytes */
    uint16_t port;                   /* 0: the kernel chooses */
    bool v6;
    struct span unix_path;           /* borrowed from the text; empty for TCP */
};
must_check enum err conf_listen_read(struct span text, struct conf_listen *out);

/* ---- the table as data, for what prints and for what parses ---- */
enum conf_kind {
    CONF_TEXT,
    CONF_LIST,
    CONF_BOOL,
    CONF_TIME,
    CONF_BYTES,
    CONF_SIZE,
    CONF_COUNT,
    CONF_ENUM
};
struct conf_option {
    /* values: "a|b|c" of an enum, else NULL */
    const char *section, *key, *standard, *values, *help;
    enum conf_kind kind;
    unsigned flags;
    uint32_t least, most;            /* of a count */
    bool of_upstream;                /* the field is one of struct conf_upstream */
    size_t offset;                   /* of the field in struct config, or in that */
};
enum {
#define OPT_TEXT(section, key, field, standard, flags, help) CONF_AT_##field,
#define OPT_LIST OPT_TEXT
#define OPT_BOOL OPT_TEXT
#define OPT_TIME OPT_TEXT
#define OPT_BYTES OPT_TEXT
#define OPT_SIZE OPT_TEXT
#define OPT_COUNT(section, key, field, standard, least, most, flags, help) CONF_AT_##field,
#define OPT_ENUM(section, key, field, standard, values, flags, help) CONF_AT_##field,
#include "table/options.h"
#undef OPT_TEXT
#undef OPT_LIST
#undef OPT_BOOL
#undef OPT_TIME
#undef OPT_BYTES
#undef OPT_SIZE
#undef OPT_COUNT
#undef OPT_ENUM
    CONF_OPTIONS
};
extern const struct conf_option conf_options[CONF_OPTIONS];
/* Checks the text of a value, or one item of a list, beyond its type: NULL, or what is wrong ("is
 * no listen address; ..."). */
const char *conf_check(const struct conf_option *o, struct span text);

/* ---- did you mean: the nearest of some words, at most two letters away; also for the command line
 * ---- */
struct conf_guess {
    struct span word;                /* what was written; the rest begins as 0 */
    struct span nearest;             /* borrowed from the candidate */
    unsigned best;                   /* its distance; 0 = there is none */
};
void conf_guess_at(struct conf_guess *g, struct span candidate);
/* Appends `; did you mean <open>word<close>?`, or nothing. */
void conf_guess_add(struct text *t, const struct conf_guess *g, const char *open,
                    const char *close);

#endif
