/* The process: what is made at start and does not change until exit. Forward declarations and
 * constant configuration only.
 *
 * Invariants:
 *  1. After birth (main.c) every field is constant but the atomics below, so that no lock is needed
 *     to read it.
 *  2. Parts are born in the order of the floors and die in the mirrored order. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_SERVER_H
#define HEADPOND_SERVER_H

#include <stdatomic.h>

#include "base.h"
#include "conf.h"
#include "metric.h"

struct core;
struct cache;
struct origin;
struct fills;
struct keys;
struct net;
struct s3;
struct admin;

enum server_state { SERVER_STARTING, SERVER_READY, SERVER_DRAINING };

struct server {
    const struct config *config;
    struct core **core;              /* core[0..core_count), one thread each */
    unsigned core_count;
    struct cache *cache;
    struct origin *origin;
    struct fills *fills;
    struct net *net;
    struct s3 *s3;
    struct admin *admin;
    const struct keys *keys;         /* NULL: keys_file is not set */
    char store[300];                 /* identity of the upstream store: part of every cache id */
    char name[256];                  /* server.name or the host name */
    char via[300];                   /* name-8hex: finds request loops */
    uint64_t started_wall_s, started_ms;
    _Atomic int state;               /* enum server_state */
};

#endif
