/* Numbers as people read them: IEC sizes for storage, decimal rates, durations; always with their
 * unit.
 *
 * Invariants:
 *  1. Pure; what is appended is ASCII and holds no character that HTML or a shell would take for
 *     its own.
 *  2. A value that is not a number, or is below 0, is shown as 0. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_UNITS_H
#define HEADPOND_UNITS_H

#include "mem.h"

void units_count(struct text *t, uint64_t n);                            /* 18 233 */
/* 139.1 GiB, 9.00 TiB, 512 B */
void units_bytes(struct text *t, uint64_t bytes);
/* Both in the unit of the whole: 9.00 of 12.00 TiB */
void units_bytes_of(struct text *t, uint64_t part, uint64_t whole);
/* 3.65 GB/s, in the unit that suits `like`, so that two rates side by side can be compared. */
/* 69.6 / 139.1 GiB */
void units_bytes_part(struct text *t, uint64_t part, uint64_t whole);
void units_rate(struct text *t, double bytes_per_s, double like);
/* 3d 2h, 5h 40m, 1m 03s, 45s */
void units_duration(struct text *t, uint64_t seconds);
/* 0.9 ms, 118 ms, 1.20 s */
void units_ms(struct text *t, double ms);
void units_percent(struct text *t, double ratio, unsigned decimals);     /* 98.6 % */

#endif
