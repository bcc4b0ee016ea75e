/* Log lines: what an operator should act on, once, where it is handled, rate limited.
 *
 * Invariants:
 *  1. One event a line: "time level words key=value ..." (text), logfmt or JSON by log.format.
 *  2. The same event at most 5 times in 10 s, then one "suppressed N".
 *  3. Values are escaped (no control byte leaves); a key named in the redaction list
 *     (authorization, signature, token, secret, x-amz-security-token, x-amz-signature) is cut.
 *  4. Never blocks a loop for a pipe or a socket that nobody reads (a journal that hangs, a log
 *     driver): what cannot be written at once is counted and lost, not waited for. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_LOG_H
#define HEADPOND_LOG_H

#include "base.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
enum log_format { LOG_AUTO, LOG_TEXT, LOG_LOGFMT, LOG_JSON };

enum event {
#define X(name, level, words, help) name,
#include "table/events.h"
#undef X
    EVENT_COUNT
};

void log_setup(enum log_level at_most, enum log_format format);
/* One line. `pairs` is printf text of the form "key=%s other=%d"; values with blanks are quoted for
 * you when written with %s through log_value(). */
void log_event(enum event event, const char *pairs, ...) printf_like(2, 3);
/* Prints the overdue "suppressed=N" lines; to be called about once a second. */
void log_tick(void);
/* Quotes and escapes one value into a small per-thread ring of buffers (8 at once); the result is
 * cut at 200 bytes. */
const char *log_value(struct span value);
/* An access line: the caller has formatted everything behind "access "; not rate limited. In logfmt
 * and JSON the words without "=" are named client, method, target, status, sent, result, in this
 * order; a target with blanks must be written through log_value(). */
void log_access(struct span line);
uint64_t log_dropped_count(void);    /* lines that were lost, all or in part */
/* The last lines of level warn and above, newest first, for status (at most 10, terminated). */
size_t log_recent(char out[10][256]);

#endif
