/* Scenarios: what is prepared, what is played while something goes wrong, and what must hold.
 *
 * Invariants:
 *  1. What is prepared is judged strictly; what is played strictly until the injection has fired,
 *     then by what must always hold: a clean end has the right bytes, nothing hangs, and an answer
 *     is the expected one, an error of the server's side (5xx), or visibly broken. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_STAGE_H
#define HEADPOND_STAGE_H

#include "tests/sim/sim.h"

enum { STAGE_KEY_BYTES = 96 };
#define ANY_LENGTH UINT64_MAX

struct scene;
struct stage {
    const struct scene *scene;
    unsigned number;                 /* of the run in this life: keys are fresh */
    bool strict;                     /* as if nothing had gone wrong: while it is prepared */
    char key[STAGE_KEY_BYTES];       /* of bucket "b"; its size behind '@' */
    char failure[400];               /* "" = none; the first stands */
    char note[96];                   /* of set_up for play */
    struct asker a;
    struct reply r;
};
struct scene {
    const char *name;
    void (*set_up)(struct stage *s); /* NULL: nothing */
    void (*play)(struct stage *s);
    void (*after)(struct stage *s);  /* NULL: the key is asked for once more */
    const struct life *life;         /* NULL: the standard one */
    const char *script;              /* for the origin, at the begin of each run */
    const char *size;                /* of its key; NULL: 300 bytes */
    bool loose;                      /* may end broken even if nothing is injected */
    bool ends;                       /* the server does not live on */
    bool birth;                      /* its play is the start of the server */
    bool heavy;                      /* a run costs much: few of them */
};

void stage_fail(struct stage *s, const char *format, ...) printf_like(2, 3);
uint64_t stage_size(const struct stage *s);          /* of the key's object */
void stage_new_key(struct stage *s, const char *size);
/* A request on a connection of its own; the answer is in s->r, judged. fields: whole lines. */
void stage_ask(struct stage *s, const char *method, const char *target, const char *fields);
void stage_judge(struct stage *s, int status, uint64_t length);
void stage_get(struct stage *s, const char *fields, int status, uint64_t length);
/* GET of the whole key. */
void stage_get_all(struct stage *s);
/* The object is wholly on disk and in memory; then only on disk. */
void stage_fill(struct stage *s);
void stage_fill_disk(struct stage *s);
/* Runs play on a thread of its own, n times at once. */
void stage_together(struct stage *s, unsigned n, void (*play)(struct stage *));

#endif
