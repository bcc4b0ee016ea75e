/* Globs as the tools for buckets have them, and filters made of them.
 *
 * Invariants:
 *  1. A match takes no longer than pattern times text, and no memory.
 *  2. '*' is any run of bytes, '/' among them, as object keys have no directories; '?' is any byte;
 *     [abc], [a-z] and [!a-z] are one byte; a backslash takes the next byte as it is. A bracket
 *     that is not closed stands for itself. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_GLOB_H
#define HEADPOND_GLOB_H

#include "base.h"

bool glob_match(struct span glob, struct span text);
/* filter: lines, each '+' or '-' and a glob. Taken is what no '-' matches, and a '+', if there is
 * one. The empty filter takes all. */
bool filter_has(struct span filter, struct span text);

#endif
