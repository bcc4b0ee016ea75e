/* Globs as the tools for buckets have them, and filters made of them.
 *
 * Invariants:
 *  1. Only the last '*' is ever tried again: what earlier ones took need not change for a match to
 *     be found, so no pattern takes more than its length times that of the text.
 *  2. Patterns are outside bytes: every one means something, none is refused.
 *
 * Life: pure functions. Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "glob.h"

/* Does a set, "[" at glob.at[at], hold the byte? *next is behind it; at: it is not closed, and
 * stands for itself. */
static bool set_has(struct span glob, size_t at, uint8_t c, size_t *next)
{
    size_t i = at + 1;
    bool not_ = i < glob.len && (glob.at[i] == '!' || glob.at[i] == '^'), has = false;

    i += not_;
    for (size_t first = i; i < glob.len && (glob.at[i] != ']' || i == first); i++) {
        uint8_t low = (uint8_t)glob.at[i], high = low;
        if (i + 2 < glob.len && glob.at[i + 1] == '-' && glob.at[i + 2] != ']') {
            high = (uint8_t)glob.at[i + 2];
            i += 2;
        }
        has = has || (c >= low && c <= high);
    }
    *next = i < glob.len ? i + 1 : at;
    return has != not_;
}

/* Does the element at *at match the byte? Then *at is behind it. */
static bool matches_one(struct span glob, size_t *at, uint8_t c)
{
    size_t next = *at + 1;
    bool good;

    if (*at >= glob.len)
        return false;
    char g = glob.at[*at];
    if (g == '?') {
        good = true;
    } else if (g == '[') {
        good = set_has(glob, *at, c, &next);
        if (next == *at) {
            good = c == '[';
            next = *at + 1;
        }
    } else if (g == '\\' && next < glob.len) {
        good = (uint8_t)glob.at[next] == c;
        next++;
    } else {
        good = (uint8_t)g == c;
    }
    if (good)
        *at = next;
    return good;
}

bool glob_match(struct span glob, struct span text)
{
    size_t g = 0, t = 0, star = glob.len, from = 0;

    while (t < text.len) {
        if (g < glob.len && glob.at[g] == '*') {
            star = g++;
            from = t;
        } else if (matches_one(glob, &g, (uint8_t)text.at[t])) {
            t++;
        } else if (star < glob.len) {
            g = star + 1;            /* it takes one byte more */
            t = ++from;
        } else {
            return false;
        }
    }
    while (g < glob.len && glob.at[g] == '*')
        g++;
    return g == glob.len;
}

bool filter_has(struct span filter, struct span text)
{
    bool wants = false, wanted = false;

    while (filter.len > 0) {
        struct span line = span_cut(&filter, '\n');
        bool minus = line.len > 0 && line.at[0] == '-';
        bool plus = line.len > 0 && line.at[0] == '+';
        bool match = (minus || plus) && glob_match(span_from(line, 1), text);
        if (minus && match)
            return false;
        wants = wants || plus;
        wanted = wanted || (plus && match);
    }
    return wanted || !wants;
}
