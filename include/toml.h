/* TOML, as much as a configuration file needs: sections, arrays of sections, dotted and quoted
 * keys, one-line strings, integers, booleans, arrays of strings; item by item, mistakes included.
 *
 * Invariants:
 *  1. What is accepted is valid TOML 1.0 and means the same there; the rest is a mistake with its
 *     place.
 *  2. After a mistake reading goes on behind it, so that all mistakes of a file are found.
 *  3. Decoded text lives in the caller's arena, is terminated and, unless that was told as a
 *     mistake before, is UTF-8 without a NUL. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TOML_H
#define HEADPOND_TOML_H

#include "base.h"
#include "mem.h"

enum { TOML_PARTS_MAX = 4, TOML_LIST_MAX = 64 };

struct toml_place {
    unsigned line, column;           /* from 1; columns count characters */
};
enum toml_kind { TOML_STRING, TOML_INTEGER, TOML_BOOL, TOML_LIST };
struct toml_value {
    enum toml_kind kind;
    struct toml_place place;
    struct span text;                /* of a string */
    int64_t integer;
    bool flag;
    unsigned count;                  /* of a list */
    struct span item[TOML_LIST_MAX];
    struct toml_place item_place[TOML_LIST_MAX];
};
struct toml_item {
    struct toml_place place;         /* of the key, the section or the mistake */
    struct span part[TOML_PARTS_MAX]; /* a.b."c d" */
    unsigned parts;
    bool array;                      /* [[section]] */
    struct toml_value value;         /* of a pair */
    char mistake[200];
};

struct toml_cursor {
    size_t at, line_start;
    unsigned line;
};
struct toml {                        /* the reader's own */
    struct span all;
    size_t at, line_start;
    unsigned line;
    struct toml_cursor checked;      /* bytes before it are known to be legal */
    bool in_list;
    bool no_memory;
    struct arena *arena;
};
enum toml_event { TOML_END, TOML_SECTION, TOML_PAIR, TOML_MISTAKE, TOML_NO_MEMORY };
/* bytes and arena are borrowed until the end. */
void toml_open(struct toml *t, struct span bytes, struct arena *arena);
/* The next item; *out is valid until the next call, its texts as long as the arena. */
enum toml_event toml_next(struct toml *t, struct toml_item *out);

#endif
