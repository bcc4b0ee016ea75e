/* The control plane: metrics, health, status, on libmicrohttpd's own thread. Never sees S3 traffic.
 *
 * Invariants:
 *  1. Nothing here is called from a loop thread; what it reads of cores is atomic, summed, or copied under a short lock.
 *  2. No answer carries a configuration value that could be a secret, a key or a token.
 *  3. Over TCP only GET and HEAD; requests with a foreign Origin or Host are refused (a browser must not be made to ask for someone).
 *
 * Life: admin_open() after the cores have started, admin_close() before they are joined. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_ADMIN_H
#define HEADPOND_ADMIN_H

#include "server/server.h"

/* Listens on admin.listen (unix:PATH, HOST:PORT; a socket path that cannot be made falls back to <first cache dir>/admin.sock) and admin.metrics_listen
 * (only /metrics, health, and the status page). why names cause and fix. ERR_CONFIG, ERR_SYSTEM. */
must_check enum err admin_open(struct server *s, char why[512]);
void admin_close(struct server *s);

#endif
