/* What the load client asks: which object, which range, and the text of the request, signed if
 * wanted.
 *
 * Invariants:
 *  1. Sequential plans walk object by object, range by range, and begin again at the end: N x
 *     ranges requests ask every byte once.
 *  2. Ranges are aligned to their own size and lie inside the object.
 *  3. Each-once plans walk the same ranges in an order that is shuffled once, by a seed of its own:
 *     every run, and so every server, gets the same one.
 *
 * Life: one plan per process. Failure: at set-up, with a sentence. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>

#include "bench/load.h"
#include "sign.h"
#include "tests/lib/bytes.h"

enum { RANGES_MAX = 16 * MIB };
#define SHUFFLE_SEED 0x9e3779b97f4a7c15ull

static struct {
    struct span before, after;       /* of the run of '#' */
    unsigned digits;
    uint64_t next, random;
    uint32_t *order;                 /* of the ranges of all objects, when each is asked once */
    struct span bucket;
    struct sign_credentials credentials;
    struct secret secret;
    struct sign_key_cache key_cache;
} state;

static bool set_up_signing(void)
{
    const char *access = getenv("AWS_ACCESS_KEY_ID"), *secret = getenv("AWS_SECRET_ACCESS_KEY");

    if (!access || !secret || strlen(secret) > sizeof state.secret.bytes) {
        fprintf(stderr, "load: -S needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY\n");
        return false;
    }
    state.secret.len = (uint16_t)strlen(secret);
    memcpy(state.secret.bytes, secret, state.secret.len);
    state.credentials.access_key = span_of(access);
    state.credentials.secret = &state.secret;
    if (sign_setup_thread() != OK) {
        fprintf(stderr, "load: OpenSSL does not start\n");
        return false;
    }
    return true;
}

/* xorshift: uniform enough, and the same cost for every server. */
static uint64_t draw(uint64_t below)
{
    state.random ^= state.random << 13;
    state.random ^= state.random >> 7;
    state.random ^= state.random << 17;
    return state.random % below;
}

static uint64_t ranges_of(const struct plan *p) /* of all objects */
{
    return p->objects * (p->range > 0 && !p->fixed ? p->size / p->range : 1);
}

static bool shuffle(const struct plan *p)
{
    uint64_t count = ranges_of(p);

    state.order = count <= RANGES_MAX ? mem_take(count * sizeof *state.order) : NULL;
    if (!state.order) {
        fprintf(stderr, "load: too many ranges to ask each once\n");
        return false;
    }
    state.random = SHUFFLE_SEED;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t j = draw(i + 1);
        state.order[i] = state.order[j];
        state.order[j] = (uint32_t)i;
    }
    return true;
}

bool ask_setup(const struct plan *p)
{
    const char *run = strchr(p->key, '#');

    state.before = run ? span_make(p->key, (size_t)(run - p->key)) : span_of(p->key);
    state.digits = run ? (unsigned)strspn(run, "#") : 0;
    state.after = run ? span_of(run + state.digits) : span_of("");
    state.random = random_u64() | 1;
    struct span rest = span_from(span_of(p->key), 1);
    state.bucket = span_cut(&rest, '/');
    if (p->key[0] != '/' || rest.len == 0 || strlen(p->key) > KEY_BYTES_MAX) {
        fprintf(stderr, "load: -k wants /BUCKET/KEY\n");
        return false;
    }
    if (p->range > p->size || p->offset > p->size - p->range) {
        fprintf(stderr, "load: the range does not lie inside the object\n");
        return false;
    }
    return (!p->each || shuffle(p)) && (!p->region || set_up_signing());
}

static void choose(const struct plan *p, struct ask *a, uint64_t *object)
{
    uint64_t all = ranges_of(p), ranges = all / p->objects, which;

    if (p->each)
        which = state.order[state.next++ % all];
    else
        which = p->sequential ? state.next++ % all : draw(all);
    *object = which / ranges;
    a->bytes = p->range > 0 ? p->range : p->size;
    a->from = p->fixed ? p->offset : which % ranges * p->range;
}

static void add_target(struct text *t, uint64_t object)
{
    char digits[24];

    text_add(t, state.before);
    for (unsigned i = state.digits; i > 0; i--) {
        digits[(i - 1) % sizeof digits] = (char)('0' + object % 10);
        object /= 10;
    }
    text_add(t, span_make(digits, min_u64(state.digits, sizeof digits)));
    text_add(t, state.after);
}

static void sign(const struct plan *p, struct text *t, struct span path, struct span range)
{
    struct http_field field[] = {
        {span_of("host"), span_of(p->host)},
        {span_of("x-amz-content-sha256"), span_of(sign_empty_sha256)},
        {span_of("range"), range},
    };
    struct sign_request r = {.method = span_of("GET"), .path = path, .field = field,
                             .count = range.len > 0 ? 3 : 2,
                             .payload_hash = span_of(sign_empty_sha256)};
    char amz_date[17], memory[KIB];
    struct text authorization;

    text_init(&authorization, memory, sizeof memory);
    must(sign_v4(&r, &state.credentials, span_of(p->region), clock_wall_s(), &state.key_cache,
                 amz_date, &authorization) == OK);
    text_adds(t, "x-amz-content-sha256: ");
    text_adds(t, sign_empty_sha256);
    text_adds(t, "\r\nx-amz-date: ");
    text_adds(t, amz_date);
    text_adds(t, "\r\nAuthorization: ");
    text_add(t, text_span(&authorization));
    text_adds(t, "\r\n");
}

void ask_make(const struct plan *p, char *room, struct ask *out)
{
    struct text t, range;
    char memory[64];
    uint64_t object;

    choose(p, out, &object);
    out->text = room;
    text_init(&t, room, REQUEST_BYTES_MAX);
    text_init(&range, memory, sizeof memory);
    text_adds(&t, "GET ");
    add_target(&t, object);
    struct span path = span_make(t.at + 4, t.len - 4);
    text_adds(&t, " HTTP/1.1\r\nHost: ");
    text_adds(&t, p->host);
    text_adds(&t, "\r\n");
    if (p->range > 0) {
        text_adds(&range, "bytes=");
        text_addu(&range, out->from);
        text_addc(&range, '-');
        text_addu(&range, out->from + out->bytes - 1);
        text_adds(&t, "Range: ");
        text_add(&t, text_span(&range));
        text_adds(&t, "\r\n");
    }
    if (p->region)
        sign(p, &t, path, text_span(&range));
    text_adds(&t, "\r\n");
    must(!t.over);
    out->len = t.len;
    if (p->check)
        out->seed = bytes_seed(state.bucket, span_from(path, state.bucket.len + 2), 1);
}
