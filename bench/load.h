/* What the load client's files share: the plan of a run, what is asked, TLS, histograms.
 *
 * Invariants:
 *  1. Times are nanoseconds of the monotonic clock.
 *  2. A histogram's error is below 1.6 % of the value. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_BENCH_LOAD_H
#define HEADPOND_BENCH_LOAD_H

#include <sys/types.h>

#include "mem.h"

/* ---- hist.c ---- */
enum { HIST_SUB = 64, HIST_CELLS = 40 * HIST_SUB };
struct hist {
    uint64_t cell[HIST_CELLS];
    uint64_t count, max_ns;
};
void hist_add(struct hist *h, uint64_t ns);
/* The value that this share (0..1) of the entries does not exceed, in microseconds; 0 when
 * empty. */
double hist_us(const struct hist *h, double share);

/* ---- secure.c ---- */
/* A session on a connected socket that blocks; NULL when there is none to be had. */
struct ssl_st *secure_open(int fd);
void secure_close(struct ssl_st *ssl);
ssize_t secure_send(struct ssl_st *ssl, const void *bytes, size_t len);
ssize_t secure_recv(struct ssl_st *ssl, void *out, size_t cap);

/* ---- ask.c ---- */
enum { REQUEST_BYTES_MAX = 4 * KIB };
struct plan {
    const char *host;                /* ADDRESS:PORT, also the Host field */
    const char *key;                 /* /BUCKET/KEY with a run of '#' */
    uint64_t objects;                /* how many numbers the run takes */
    uint64_t size;                   /* of every object */
    uint64_t range;                  /* bytes of each range; 0 = whole objects */
    uint64_t offset;                 /* of every range when fixed */
    bool fixed, sequential;          /* where ranges begin, which object is next */
    bool each;                       /* each range once before any comes again, in a random order */
    bool check;                      /* compare the bytes */
    bool tls;
    const char *region;              /* sign with SigV4; NULL = do not */
    uint64_t connections, requests;  /* requests 0 = until the time is over */
    double rate;                     /* per second; 0 = closed loop */
    uint64_t warm_ns, measure_ns, linger_ns;
    uint64_t stuck_ns;               /* no byte for so long: give up */
    int core;                        /* whose busy time is told; -1 = none */
    const char *pids;                /* whose CPU time is told, "PID,PID" */
    bool memory;                     /* tell what their memory grew by */
};
struct ask {                         /* one request */
    uint64_t from, bytes;            /* of the object */
    uint64_t seed;                   /* of its bytes */
    size_t len;
    char *text;
};
/* Once, before the first ask_make(); false after a sentence on standard error. */
must_check bool ask_setup(const struct plan *p);
/* The next request, its text in a room of REQUEST_BYTES_MAX. */
void ask_make(const struct plan *p, char *room, struct ask *out);

#endif
