/* Part damage: a filled cache, one damage at a time, and what must come of it. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_DAMAGE_H
#define HEADPOND_TESTS_DAMAGE_H

#include "tests/crash/crash.h"

enum { SLAB_PAGE = 4096 };

struct place {                       /* a page of the slab in use */
    unsigned page, thing, known;
    uint32_t len;                    /* bytes of it that are the object's */
    uint64_t offset;                 /* in the object */
};
struct slabmap {
    const struct thing *thing;
    const char *bucket;
    struct place *place;
    unsigned count, pages;
};
struct slabmap *slabmap_make(const char *slab, const struct thing *t, unsigned things,
                             const char *bucket);
const struct place *slabmap_at(const struct slabmap *m, unsigned page); /* NULL: unused */
void slabmap_free(struct slabmap *m);

enum { DAMAGE_THINGS = 48 };

/* A lane: pristine files, and the directory in which they are damaged. */
struct patient {
    struct daemon server;
    struct thing thing[DAMAGE_THINGS];
    unsigned fresh;                  /* names of objects that were never asked for */
    char bucket[16], pristine[PATH_BYTES + 32], older[PATH_BYTES + 64];
    struct slabmap *map;
    uint64_t dice;
    pthread_t thread;
};

/* What a damage must lead to. */
struct effect {
    char what[200];                  /* in words, for the report */
    unsigned blocks;                 /* blocks of objects that are damaged: so many failures */
    bool exactly;                    /* blocks are told by their checksums, one by one */
    bool any;                        /* nothing is known: but what is lost must be counted */
    bool refused;                    /* the start must be refused, in words */
    bool running;                    /* to be done while the server runs */
};
/* The damage of a number; before the start, or while it runs. */
void damage_do(struct patient *p, unsigned number, struct effect *out);
void damage_running(struct patient *p, const struct effect *e);
unsigned damage_kinds(void);

#endif
