/* Where a store is and how it wants to be asked: its URL taken apart, the Host field and the paths
 * of requests, the region in its name. For the server, and for tools that ask the store themselves.
 *
 * Invariants:
 *  1. Pure: no name is looked up here, nothing is allocated.
 *  2. A text that does not fit says `over`. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_ENDPOINT_H
#define HEADPOND_ENDPOINT_H

#include <sys/socket.h>

#include "base.h"
#include "http.h"
#include "mem.h"

enum { ENDPOINT_HOST_BYTES = 256, ENDPOINT_REGION_BYTES = 64 };

struct endpoint {
    bool directory;                  /* file://: path is the root, all else is unset */
    bool tls, host_is_address;
    bool amazon;                     /* *.amazonaws.com[.cn] */
    bool virtual_host;               /* BUCKET.host instead of /BUCKET */
    uint16_t port;
    char host[ENDPOINT_HOST_BYTES];  /* without brackets; lower case */
    /* as in the Host field: brackets, port when not the scheme's own */
    char authority[ENDPOINT_HOST_BYTES + 8];
    char path[1024];                 /* "" or "/base", without a slash at its end */
};
must_check enum err endpoint_read(struct span text, unsigned path_style, struct endpoint *out,
                                  const char **why);
/* The region in an endpoint's name: s3.REGION.amazonaws.com, s3-REGION..., s3.dualstack.REGION...,
 * bucket.s3.REGION.... false: none. */
bool endpoint_region(struct span host, char out[ENDPOINT_REGION_BYTES]);
/* could be a region at all: letters, digits, hyphens */
bool region_is_name(struct span text);
void endpoint_host(const struct endpoint *p, struct span bucket, struct text *out);
void endpoint_path(const struct endpoint *p, struct span bucket, struct span key, struct text *out);
/* Loopback, private, carrier-grade or link-local; IPv4 in IPv6 as IPv4. */
bool address_is_private(const struct sockaddr *at);
/* No store stands there: link-local addresses (clouds keep instance metadata and credentials on
 * them), multicast, unspecified. A name that leads to one has been tampered with. */
bool address_is_strange(const struct sockaddr *at);

#endif
