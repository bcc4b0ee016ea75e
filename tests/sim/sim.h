/* A whole server in a simulated world: one seed, one run. Threads, clock, chance, sockets and the
 * rings' operations belong to the simulation; the server, the scripted origin (tests/lib/origin.h)
 * and the clients run unchanged on top of it.
 *
 * Invariants:
 *  1. One thread runs at a time. It gives way only where it would block (a condition, a socket, a
 *     ring's turn, a join), and who is next is chosen by the seed.
 *  2. Time passes only when nobody can run, to the next moment at which somebody can; and a few
 *     microseconds with each turn of a ring.
 *  3. What the server calls and the kernel answers at once passes a wrapper (ld --wrap); files are
 *     real ones, read and written at the moment of the completion.
 *  4. All chance of the process comes from the seed. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_SIM_H
#define HEADPOND_SIM_H

#include <pthread.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base.h"

/* ---- sched.c: who runs, and when ---- */
enum { FIBERS_MAX = 512 };
struct fiber {                       /* a thread that runs when it is given the baton */
    const char *name;
    bool (*ready)(void *argument);   /* what it waits for; NULL: nothing, it may run */
    void *argument;
    uint64_t until_us;               /* it runs at the latest then */
    pthread_cond_t *cond;            /* it waits for a signal of this one */
    bool signaled;
    bool used, over, server;         /* server: its allocations may be refused */
    unsigned inside;                 /* > 0: it runs code of the simulation, not of its own */
    void *private_;
};
struct world {
    uint64_t now_us, wall_us;        /* wall_us: of the moment now_us == 0 */
    uint64_t seed, chance;
    uint64_t steps, steps_max;       /* choices so far; beyond: something runs in circles */
    bool active, birth;              /* birth: threads made now are the server's */
    bool fine;                       /* cuts transfers finely */
    bool verbose;                    /* the server's log lines are shown */
    bool frozen;                     /* reads and writes of files do not complete */
};
extern struct world world;
struct fiber *sim_self(void);
/* The calling thread becomes the first fiber. */
void sim_start(uint64_t seed);
/* Chance begins anew: what follows is a function of this seed and of the server's state. */
void sim_reseed(uint64_t seed);
uint64_t sim_random(void);
static inline uint64_t sim_below(uint64_t n)
{
    return n ? sim_random() % n : 0;
}
static inline bool sim_one_in(unsigned n)
{
    return sim_below(n) == 0;
}
/* Gives way until ready (NULL: never) or the time has come. */
void sim_block(bool (*ready)(void *), void *argument, uint64_t until_us);
void sim_wait_ms(uint64_t ms);
/* Between these, allocations are the simulation's own and never refused. */
void sim_enter(void);
void sim_leave(void);
/* Says what everybody waits for, then aborts. */
_Noreturn void sim_fail(const char *what);

/* ---- wire.c: sockets ---- */
enum { SIM_FD_FIRST = 1 << 20 };
static inline bool sim_is_fd(int fd)
{
    return fd >= SIM_FD_FIRST;
}
/* The next moment at which a byte arrives somewhere; UINT64_MAX: none is under way. */
uint64_t wire_next_us(void);
/* Sockets and events that the server's side holds open. */
unsigned wire_open_count(void);
/* What an operation may do now. Results as the kernel's: count or -errno; -EAGAIN: not yet. */
int32_t wire_take(int fd, void *mem, uint32_t len, bool peek);
int32_t wire_put(int fd, const void *mem, uint32_t len);
int32_t wire_accept(int fd);
int32_t wire_connect(int fd, const struct sockaddr *to);
int32_t wire_close(int fd);
bool wire_can_take(int fd), wire_can_put(int fd), wire_can_accept(int fd);
bool wire_is_listener(int fd);
/* A client: connects to a port on loopback. */
int wire_client(uint16_t port);

/* ---- inject.c: what goes wrong ---- */
/* ALLOCS: from then on; DISK: that operation and all later ones of its kind on files. */
enum inject_kind { INJECT_NONE, INJECT_ALLOC, INJECT_ALLOCS, INJECT_OP, INJECT_DISK };
enum { INJECT_OUTCOMES = 8 };
struct inject {
    enum inject_kind kind;
    uint64_t at;                     /* the at-th from arming on; 1 = the first */
    unsigned outcome;                /* of an operation */
};
/* From now on the plan counts; disarmed, nothing goes wrong. */
void inject_arm(const struct inject *plan);
void inject_disarm(void);
bool inject_fired(void);             /* since it was armed */
/* Of operations: rate in a thousand, of random outcomes; for the random simulation. */
void inject_rates(unsigned ops, unsigned allocs);
const char *inject_outcome_name(unsigned outcome);
/* Asked by the ring for each completion; len: of what is transferred, 0 for none. True: *res is to
 * be the result. *part: of a short count, as much is really done. */
struct op;
bool inject_op(const struct op *op, uint32_t len, int32_t *res, uint32_t *part);
uint64_t inject_allocs(void), inject_ops(void); /* counted since it was armed */

/* ---- store.c: the scripted origin inside ---- */
void store_start(void);
void store_stop(void);
uint16_t store_port(void);
void store_do(const char *format, ...) printf_like(1, 2);
uint64_t store_requests(void);       /* since the last mark */

/* ---- seal.c: TLS of clients and before the origin ---- */
struct seal;
const char *seal_file(bool key);     /* PEM, made at first use */
struct seal *seal_client(void);
void seal_free(struct seal *s);      /* NULL is fine */
bool seal_flush(struct seal *s, int fd);
bool seal_write(struct seal *s, int fd, const void *bytes, size_t len);
/* Feeds what came and takes what it says; results as wire_take(). */
int32_t seal_take(struct seal *s, const void *raw, int32_t len, void *out, uint32_t cap);
uint16_t seal_front(void);           /* its port; starts it when it does not run */
void seal_front_end(void);

/* ---- life.c: the server ---- */
struct life {
    uint64_t cache_memory;           /* 0: a small standard */
    unsigned workers;
    /* Upstreams, of which all are the one store: "main" has what no other has, "other" o-*, and
     * "renamed" calls bucket "near" "far". */
    bool several;
    const char *set[16][2];          /* further options, ends with NULL */
    const char *sections;            /* of the file: [[bucket]] ones; NULL: there is no file */
};
enum { SIM_PORT = 9000 };
void life_begin(const struct life *l);
/* False: it could not start. What was born by then stays, as it does when the process ends. */
bool life_try(const struct life *l);
void life_drain(void);               /* SIGTERM came; life_end() waits for it */
void life_end(void);                 /* drains if that was not begun, then closes all */
bool life_is_up(void);
bool life_is_sealed(void);           /* it speaks TLS to clients */
void life_remove_files(void);        /* the cache's directory; not while it lives */
const char *life_dir(void);          /* of everything of this run */
/* Nothing runs: no request, no fetch, all written is committed. False: not within the time. */
bool life_settle(uint64_t within_ms);
/* A job of that kind (enum job_kind) from its begin to its end. false: it could not be made. */
struct job_view;
struct plan_view;
bool life_job(unsigned kind, const char *prefix, struct job_view *out);
/* Posts a plan of one stream with these keys ("a b c") of the bucket, and waits until it fetches
 * nothing more. false: it was refused. */
bool life_plan(const char *bucket, const char *keys, uint64_t *id);
bool life_plan_view(uint64_t id, struct plan_view *out);
bool life_plan_drop(uint64_t id);
void life_plans_drop(void);          /* all that are known */
/* Free objects of all stocks go back to malloc, so that the next request takes them anew. */
void life_cool(void);
/* Everything cached in memory goes; what is on disk stays. */
void life_forget_memory(void);
/* Every disk is in use again, however often it failed. */
void life_mend(void);
unsigned life_disk_state(void);      /* enum disk_state of the only one */
/* Flips one byte of what stands on disk of every present block of an object. */
void life_damage(const char *bucket, const char *key);
struct core;
struct core *life_core(void);        /* the first */
bool life_on_disk(const char *bucket, const char *key); /* its first block is */
struct text;
/* What is held, though nothing runs. Empty: nothing. */
void life_accounts(struct text *out);

/* ---- change.c: a write through the server, as its cache sees it ---- */
struct life_body {                   /* of that version of the key's object */
    uint64_t version, size;
    uint64_t sent;                   /* bytes that come; fewer than size: the client goes away */
};
struct life_change {
    const char *key;                 /* in bucket "b"; NULL: the whole bucket is written to */
    bool gone;                       /* a deletion */
    const struct life_body *body;    /* NULL: none that is kept */
};
/* Begins it, lets act change the store once the doubt is on disk and the body is sent (not if that
 * was cut short), and ends it. Blocks; not while the server ends. */
void life_write(const struct life_change *change, void (*act)(void *), void *argument);

/* ---- client.c: who asks, and checks every byte ---- */
struct reply {
    int status;                      /* 0: no head came */
    bool complete;                   /* ended as its head announced */
    bool reset;                      /* by a reset, or by an early end */
    bool late;                       /* nothing more came for ever */
    bool closes;                     /* "Connection: close" */
    uint64_t length, got;            /* announced (UINT64_MAX: not), came */
    uint64_t from, version;
    char x_cache[16], code[64], etag[80];
    char wrong[200];                 /* what cannot be right in whatever happened */
    char body[4096];                 /* of documents */
    char head[8192];
};
struct asker {                       /* one connection */
    int fd;
    struct seal *seal;               /* NULL: plain */
    char in[64 * KIB];
    size_t filled;
    uint64_t until_us;
};
void asker_open(struct asker *a);
void asker_close(struct asker *a);
bool asker_send(struct asker *a, const char *format, ...) printf_like(2, 3);
bool asker_put(struct asker *a, const char *bytes, size_t len);
/* Waits for "100 Continue" and takes it; false: another answer came, or none. */
bool asker_may_send(struct asker *a);
/* Reads one answer. bucket and key: of an object whose bytes are checked; NULL: a document. */
void asker_read(struct asker *a, const char *bucket, const char *key, bool head_only,
                struct reply *r);

/* ---- torture.c, random.c: the two programs ---- */
int torture_main(int argc, char **argv);
int random_main(int argc, char **argv);

#endif
