/* The bytes of synthetic objects: a function of (bucket, key, version, offset), so that whoever
 * knows the name
 * of an object can check every byte of it without having a copy.
 *
 * Invariants:
 *  1. A byte depends on nothing but those four: not on the size, not on how a range was cut.
 *  2. Two versions, two keys or two offsets (8 bytes apart or more) of one object show different
 *     words but
 *     by a chance of 2^-64: a stale, misplaced or mixed block cannot pass for the right one.
 *  3. A size stands in the key itself ("shard@64M"), so a reader knows what length to expect.
 *
 * Life: nothing is kept. Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_BYTES_H
#define HEADPOND_TESTS_BYTES_H

#include "base.h"

static inline uint64_t bytes_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ (x >> 32);
}

/* The seed of one version of one object. */
static inline uint64_t bytes_seed(struct span bucket, struct span key, uint64_t version)
{
    uint64_t h = 0xcbf29ce484222325u;

    for (size_t i = 0; i < bucket.len; i++)
        h = (h ^ (uint8_t)bucket.at[i]) * 0x100000001b3u;
    h = (h ^ 0xff) * 0x100000001b3u;            /* no UTF-8 byte: "a","bc" is not "ab","c" */
    for (size_t i = 0; i < key.len; i++)
        h = (h ^ (uint8_t)key.at[i]) * 0x100000001b3u;
    return bytes_mix(bytes_mix(h) + version * 0x9e3779b97f4a7c15u);
}

/* Bytes 8*index .. 8*index+7 of the object, the lowest byte first. */
static inline uint64_t bytes_word(uint64_t seed, uint64_t index)
{
    return bytes_mix(seed + index * 0x9e3779b97f4a7c15u);
}

static inline uint8_t bytes_at(uint64_t seed, uint64_t offset)
{
    return (uint8_t)(bytes_word(seed, offset / 8) >> (offset % 8 * 8));
}

/* Writes bytes offset .. offset+len-1. */
static inline void bytes_make(uint64_t seed, uint64_t offset, void *out, size_t len)
{
    uint8_t *at = out;
    uint8_t *end = at + len;

    while (at < end && offset % 8)
        *at++ = bytes_at(seed, offset++);
    for (uint64_t i = offset / 8; end - at >= 8; i++, at += 8, offset += 8) {
        uint64_t word = bytes_word(seed, i);
        memcpy(at, &word, 8);
    }
    while (at < end)
        *at++ = bytes_at(seed, offset++);
}

/* Where bytes[0..len) first differ from bytes offset.. of the object; len when they are right. */
static inline size_t bytes_check(uint64_t seed, uint64_t offset, const void *bytes, size_t len)
{
    const uint8_t *at = bytes;
    uint8_t right[4096];

    for (size_t done = 0; done < len;) {
        size_t part = min_u64(len - done, sizeof right);
        bytes_make(seed, offset + done, right, part);
        if (memcmp(right, at + done, part) != 0) {
            while (*right == at[done]) {
                done++;
                *right = bytes_at(seed, offset + done);
            }
            return done;
        }
        done += part;
    }
    return len;
}

/* ---- entity tags: they name the version ---- */

enum { BYTES_ETAG_MAX = 48 };

/* "<seed>.<version>" in hexadecimal, in quotes. Not 32 digits and no -N: nothing may take it for an
 * MD5. */
static inline void bytes_etag(uint64_t seed, uint64_t version, char out[BYTES_ETAG_MAX])
{
    static const char digit[] = "0123456789abcdef";
    unsigned n = 0;

    out[n++] = '"';
    for (int shift = 60; shift >= 0; shift -= 4)
        out[n++] = digit[seed >> shift & 15];
    out[n++] = '.';
    for (int shift = 60; shift >= 0; shift -= 4)
        if (shift == 0 || version >> shift)
            out[n++] = digit[version >> shift & 15];
    out[n++] = '"';
    out[n] = 0;
}

/* The version that an entity tag of ours names; false for any other tag or another object's. */
static inline bool bytes_version(struct span etag, struct span bucket, struct span key,
                                 uint64_t *version)
{
    char right[BYTES_ETAG_MAX];
    uint64_t v = 0;

    if (etag.len < 20 || etag.len >= BYTES_ETAG_MAX)
        return false;
    for (size_t i = 18; i + 1 < etag.len; i++) {
        char c = etag.at[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        v = v << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    bytes_etag(bytes_seed(bucket, key, v), v, right);
    if (!span_eq(etag, span_of(right)))
        return false;
    *version = v;
    return true;
}

#endif
