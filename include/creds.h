/* Who signs for upstream, and whose signatures we accept: the SDKs' credential chain and keys_file.
 *
 * Invariants:
 *  1. Credentials come from the first source that is configured, in the order of the AWS SDKs; a
 *     configured source that does not work is an error, never a reason to try the next one.
 *     Finding it (a plan) reads files only; who has to be asked is asked by origin/.
 *  2. Endpoints in the environment and in profiles are ignored: clients' own variables would point
 *     the server at itself.
 *  3. A keys_file wider than 0600 is refused; every mistake in it is told with file:line:column.
 *  4. struct keys never changes after keys_read(); reload makes another one. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CREDS_H
#define HEADPOND_CREDS_H

#include "base.h"
#include "conf.h"
#include "mem.h"
#include "sign.h"

/* ---- upstream credentials ---- */
enum {
    CREDS_ACCESS_BYTES_MAX = 128,
    CREDS_TOKEN_BYTES_MAX = 4 * KIB,
    CREDS_REGION_BYTES_MAX = 63,
    CREDS_SOURCE_BYTES = 160,
    CREDS_STEPS_MAX = 5,
    CREDS_ANSWER_BYTES_MAX = 64 * KIB,
};

struct creds {
    char access_key[CREDS_ACCESS_BYTES_MAX + 1]; /* "" = configured, but not to be had yet */
    struct secret secret;
    char token[CREDS_TOKEN_BYTES_MAX + 1]; /* "" = none: a static key pair */
    char source[CREDS_SOURCE_BYTES]; /* "environment", "config file", ...; for status and doctor */
    uint64_t expire_s;               /* Unix time; 0 = never, or nobody told */
    bool renewed;                    /* the server gets the next ones by itself */
};
/* May a request be signed with them now? */
static inline bool creds_usable(const struct creds *c, uint64_t now_s)
{
    return c->access_key[0] && (c->expire_s == 0 || now_s < c->expire_s);
}
void creds_wipe(struct creds *c);
/* Takes a pair (and a token, or an empty span) over; NULL, or what is wrong with it in words, which
 * show nothing of it. */
const char *creds_set(struct creds *out, struct span access, struct span secret,
                      struct span token);

/* ---- the chain: where they come from ---- */
enum creds_kind {
    CREDS_STATIC,                    /* plan->first */
    CREDS_PROCESS,                   /* what a command prints */
    CREDS_WEB_IDENTITY,              /* STS for a token in a file */
    CREDS_CONTAINER,                 /* an endpoint that the container's runtime named */
    CREDS_INSTANCE,                  /* EC2 instance metadata, version 2 */
    CREDS_ROLE,                      /* STS for the credentials of the step before */
};
struct creds_step {                  /* texts belong to the plan; "" = not given */
    enum creds_kind kind;
    const char *command;             /* process */
    const char *url;                 /* of the answer (container), service (instance) or STS */
    const char *token, *token_file;  /* for the container's endpoint; web identity: token_file */
    const char *role, *session, *external_id; /* role, web identity */
    const char *region;              /* to sign for, role */
    uint32_t duration_s;             /* of the role; 0 = what STS thinks right */
    bool own_sts;                    /* upstream.sts_endpoint: trusted as the upstream is */
    const char *ca_file;             /* of its own STS; "" = the system's store */
    bool insecure;
};
struct creds_plan;                   /* immutable, counted */
struct creds_place {                 /* where to look; borrowed */
    char *const *environ_;
    const char *profile;             /* "" = AWS_PROFILE, then "default" */
    const char *region;              /* upstream.region: for STS when nobody else names one */
    const char *sts_endpoint;        /* upstream.sts_endpoint; "" = that of AWS */
    const char *ca_file;             /* upstream.ca_file and insecure: hold for sts_endpoint, too */
    bool insecure;
};
/* Reads files, asks nobody. The environment's keys come first, but not when the profile was named
 * by the configuration (as in the SDKs). ERR_NOT_FOUND: nothing is configured, and instance
 * metadata is switched off. ERR_CREDENTIALS: something is, and it is unusable or not supported. In
 * both cases *why has a sentence for the operator. ERR_MEMORY. */
must_check enum err creds_find(const struct creds_place *place, struct creds_plan **out,
                               struct text *why);
struct creds_plan *creds_plan_hold(struct creds_plan *p);
void creds_plan_drop(struct creds_plan *p); /* the last one wipes; NULL is fine */
/* The steps one after the other give the credentials: each takes those of the one before. */
unsigned creds_plan_steps(const struct creds_plan *p, const struct creds_step **out);
/* Static credentials: step 0 when it is CREDS_STATIC. */
const struct creds *creds_plan_first(const struct creds_plan *p);
/* All that there is: nobody has to be asked. */
bool creds_plan_is_static(const struct creds_plan *p);
/* Nothing is configured: instance metadata is asked, and may not exist. */
bool creds_plan_is_last_resort(const struct creds_plan *p);
const char *creds_plan_source(const struct creds_plan *p); /* lives with the plan */
bool creds_plan_same(const struct creds_plan *a, const struct creds_plan *b);

/* AWS_REGION, AWS_DEFAULT_REGION, then `region` of the profile. ERR_NOT_FOUND when none says it;
 * ERR_CREDENTIALS, ERR_MEMORY. */
must_check enum err creds_region(const struct creds_place *place,
                                 char out[CREDS_REGION_BYTES_MAX + 1], struct text *why);

/* ---- answers of those who are asked (pure) ---- */
enum creds_form { CREDS_OF_PROCESS, CREDS_OF_CONTAINER, CREDS_OF_INSTANCE };
/* JSON, at most CREDS_ANSWER_BYTES_MAX. ERR_SYNTAX with *why in words that show nothing of the
 * answer; ERR_MEMORY. Sets all of *out but source and renewed. */
must_check enum err creds_answer_json(enum creds_form form, struct span bytes, struct creds *out,
                                      struct text *why);
/* XML of STS: AssumeRole or AssumeRoleWithWebIdentity. Likewise. */
must_check enum err creds_answer_sts(const char *action, struct span bytes, struct creds *out,
                                     struct text *why);
/* The code of an error, of XML or JSON: letters, digits, dots; else "". */
enum { CREDS_CODE_BYTES = 48 };
void creds_answer_code(struct span bytes, char out[CREDS_CODE_BYTES]);

/* ---- answers of upstream ---- */
/* Overwrites in an error's bytes, which keep their length, what they repeat of our own request: the
 * token, signatures, what was signed. c may be NULL: nobody signed. */
void creds_blank_echo(const struct creds *c, char *at, size_t len);
/* 2026-11-20T18:00:00Z, with a fraction, with an offset; 0: unreadable. */
uint64_t creds_time(struct span text);
/* A command line as a POSIX shell would cut it: blanks, '...', "..." and \; nothing is expanded.
 * Words go to memory (strlen + 1 bytes suffice); argv ends with NULL. False: a quote is open, there
 * are more than max - 1 words, or none. */
bool creds_split(const char *command, char *memory, char **argv, unsigned max);

/* ---- ~/.aws files: one property a call; pure ---- */
struct ini {
    struct span rest;
    unsigned line;                   /* of the property just told, from 1 */
    unsigned column;                 /* of a mistake, from 1 */
    struct span section;             /* text in brackets, trimmed; at == NULL before one */
    const char *why;                 /* the mistake */
    size_t indent;                   /* of the line before that counted */
    bool property;                   /* it was one: what stands deeper belongs to it */
};
void ini_begin(struct ini *i, struct span bytes);
/* Next "name = value" of any section, indented or not; comments, and what stands deeper than the
 * property above it (a continuation, or nested: of no use to us) are skipped, as Python's
 * configparser reads these files for the AWS tools. ERR_NOT_FOUND at the end,
 * ERR_SYNTAX with line, column and why. */
must_check enum err ini_next(struct ini *i, struct span *name, struct span *value);

/* A whole file into memory of mem_take (give it back with mem_give_secret(at, len + 1)),
 * terminated, at most 1 MiB. `private`: it must be a regular file that nobody but its owner may
 * read. ERR_NOT_FOUND, ERR_DENIED, ERR_TOO_LARGE, ERR_SYSTEM with a sentence in *why;
 * ERR_MEMORY. */
must_check enum err creds_file(const char *path, bool private, char **out, size_t *len,
                               struct text *why);

/* ---- the server's own keys ---- */
enum { KEYS_MAX = 1024, KEYS_SCOPES_MAX = 64, KEYS_PROFILE_BYTES_MAX = 64 };

struct key_scope {
    struct span bucket;
    struct span prefix;              /* of object keys; empty = the whole bucket */
};
struct key {
    struct span access_key;
    struct secret secret;
    unsigned index;                  /* 0..count-1: for per-core tables of struct sign_key_cache */
    unsigned line;                   /* in the file */
    bool write;
    struct span profile;             /* whose credentials go upstream; at == NULL: the server's */
    uint8_t profile_number;          /* its number in the settings, 0 = the server's */
    unsigned scope_count;            /* 0 = everything */
    const struct key_scope *scope;
};
struct keys;

/* Lines of "ACCESS SECRET [ro|rw] [bucket[/prefix],...] [profile=NAME]"; '#' at the start of a
 * word begins a comment. A prefix is a plain string prefix: end it with '/' to mean a folder.
 * ERR_CONFIG with *mistakes filled; ERR_MEMORY. */
must_check enum err keys_read(const char *path, struct keys **out, struct conf_mistakes *mistakes);
/* The same from bytes (name stands for the file in messages): the fuzz target and unit tests. */
must_check enum err keys_parse(struct span bytes, const char *name, struct keys **out,
                               struct conf_mistakes *mistakes);
void keys_give(struct keys *k);      /* wipes; NULL is fine */
unsigned keys_count(const struct keys *k);
const struct key *keys_at(const struct keys *k, unsigned index); /* in order of access keys */
/* While nobody else sees them. */
void keys_set_profile(struct keys *k, unsigned index, uint8_t number);
const struct key *keys_find(const struct keys *k, struct span access_key); /* NULL: unknown */

/* May this key read (or write) that object? For a list, object is its prefix: what may be listed
 * then lies in scope. */
bool keys_allow(const struct key *k, bool write, struct span bucket, struct span object);
/* May it know that the bucket exists (ListBuckets, HeadBucket, GetBucketLocation)? */
bool keys_allow_bucket(const struct key *k, struct span bucket);
/* May it use the bucket's own settings (sub-resources)? Only keys without scopes may. */
bool keys_allow_settings(const struct key *k, bool write);

#endif
