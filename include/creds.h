/* Who signs for upstream, and whose signatures we accept: the SDKs' credential chain and keys_file.
 *
 * Invariants:
 *  1. Credentials come from the first source that is configured, in the order of the AWS SDKs; a
 *     configured source that does not work is an error, never a reason to try the next one.
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
enum { CREDS_ACCESS_BYTES_MAX = 128, CREDS_TOKEN_BYTES_MAX = 4 * KIB, CREDS_REGION_BYTES_MAX = 63 };

struct creds {
    char access_key[CREDS_ACCESS_BYTES_MAX + 1];
    struct secret secret;
    char token[CREDS_TOKEN_BYTES_MAX + 1]; /* "" = none: a static key pair */
    const char *source;              /* "environment", "config file", ...; for status and doctor */
    uint64_t expire_s;               /* of a token, Unix time; 0 = nobody told */
};
struct creds_place {                 /* where to look; borrowed */
    char *const *environ_;
    const char *profile;             /* upstream.profile; "" = AWS_PROFILE, then "default" */
};
/* Reads files. The environment's keys come first, but not when the profile was named by the
 * configuration (as in the SDKs). ERR_NOT_FOUND: nothing is configured. ERR_CREDENTIALS: something
 * is, and it is unusable or not supported in this version. In both cases *why has a sentence for
 * the operator. ERR_MEMORY. */
must_check enum err creds_read(const struct creds_place *place, struct creds *out,
                               struct text *why);
/* AWS_REGION, AWS_DEFAULT_REGION, then `region` of the profile. ERR_NOT_FOUND when none says it;
 * ERR_CREDENTIALS, ERR_MEMORY. */
must_check enum err creds_region(const struct creds_place *place,
                                 char out[CREDS_REGION_BYTES_MAX + 1], struct text *why);
void creds_wipe(struct creds *c);

/* ---- ~/.aws files: one property a call; pure ---- */
struct ini {
    struct span rest;
    unsigned line;                   /* of the property just told, from 1 */
    unsigned column;                 /* of a mistake, from 1 */
    struct span section;             /* text in brackets, trimmed; at == NULL before one */
    const char *why;                 /* the mistake */
};
void ini_begin(struct ini *i, struct span bytes);
/* Next "name = value" of any section; nested properties and comments are skipped. ERR_NOT_FOUND at
 * the end, ERR_SYNTAX with line, column and why. */
must_check enum err ini_next(struct ini *i, struct span *name, struct span *value);

/* A whole file into memory of mem_take (give it back with mem_give_secret(at, len + 1)),
 * terminated, at most 1 MiB. `private`: it must be a regular file that nobody but its owner may
 * read. ERR_NOT_FOUND, ERR_DENIED, ERR_TOO_LARGE, ERR_SYSTEM with a sentence in *why;
 * ERR_MEMORY. */
must_check enum err creds_file(const char *path, bool private, char **out, size_t *len,
                               struct text *why);

/* ---- the server's own keys ---- */
enum { KEYS_MAX = 1024, KEYS_SCOPES_MAX = 64 };

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
    unsigned scope_count;            /* 0 = everything */
    const struct key_scope *scope;
};
struct keys;

/* Lines of "ACCESS SECRET [ro|rw] [bucket[/prefix],...]"; '#' at the start of a word begins a
 * comment. A prefix is a plain string prefix: end it with '/' to mean a folder. ERR_CONFIG with
 * *mistakes filled; ERR_MEMORY. */
must_check enum err keys_read(const char *path, struct keys **out, struct conf_mistakes *mistakes);
/* The same from bytes (name stands for the file in messages): the fuzz target and unit tests. */
must_check enum err keys_parse(struct span bytes, const char *name, struct keys **out,
                               struct conf_mistakes *mistakes);
void keys_give(struct keys *k);      /* wipes; NULL is fine */
unsigned keys_count(const struct keys *k);
const struct key *keys_find(const struct keys *k, struct span access_key); /* NULL: unknown */

/* May this key read (or write) that object? For a list, object is its prefix: what may be listed
 * then lies in scope. */
bool keys_allow(const struct key *k, bool write, struct span bucket, struct span object);
/* May it know that the bucket exists (ListBuckets, HeadBucket, GetBucketLocation)? */
bool keys_allow_bucket(const struct key *k, struct span bucket);
/* May it use the bucket's own settings (sub-resources)? Only keys without scopes may. */
bool keys_allow_settings(const struct key *k, bool write);

#endif
