/* Signs a client's request with Signature Version 4, in a header or as a URL, the payload
 * unsigned unless the head says something else of it.
 *
 * Written from the published rules and not from the server's code: what verifies must not be what
 * signs.
 *
 * Invariants:
 *  1. Signed are host and, in a header, every x-amz-* and x-minio-* field, sorted; nothing else.
 *  2. The query is signed as it stands but sorted: the play writes it in canonical encoding.
 *
 * Life: stateless. Failure: text that does not fit sets `over` in the request. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/flow/play.h"

#define SCOPE "us-east-1/s3/aws4_request"

enum { PARTS_MAX = 64, CANONICAL_BYTES = 16 * KIB };

struct named {
    char name[64];
    struct span value;
};

static void hex(const uint8_t *in, size_t len, char *out)
{
    for (size_t i = 0; i < len; i++)
        snprintf(out + 2 * i, 3, "%02x", in[i]);
}

static void hmac(const void *key, int key_len, const char *text, uint8_t out[32])
{
    unsigned len = 32;

    must(HMAC(EVP_sha256(), key, key_len, (const uint8_t *)text, strlen(text), out, &len));
}

static int compare_spans(const void *a, const void *b)
{
    return span_compare(*(const struct span *)a, *(const struct span *)b);
}

/* Names before values, as "a=1" sorts before "a-b=1" only without its '='. */
static int compare_parts(const void *a, const void *b)
{
    struct span x = *(const struct span *)a, y = *(const struct span *)b;
    struct span name_x = span_cut(&x, '='), name_y = span_cut(&y, '=');
    int order = compare_spans(&name_x, &name_y);

    return order ? order : compare_spans(&x, &y);
}

static void add_query(struct text *t, struct span query)
{
    struct span part[PARTS_MAX];
    unsigned n = 0;

    while (query.len > 0 && n < PARTS_MAX)
        part[n++] = span_cut(&query, '&');
    qsort(part, n, sizeof part[0], compare_parts);
    for (unsigned i = 0; i < n; i++) {
        text_adds(t, i ? "&" : "");
        text_add(t, part[i]);
        if (span_find(part[i], '=') == part[i].len)
            text_addc(t, '=');
    }
}

/* The path once encoded: unreserved bytes and '/' bare, escapes as they are in upper case. */
static void add_path(struct text *t, struct span path)
{
    for (size_t i = 0; i < path.len; i++) {
        char c = path.at[i];
        bool bare = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                    (c && strchr("-._~/", c));
        if (c == '%' && i + 2 < path.len) {
            text_addf(t, "%%%c%c", toupper(path.at[i + 1]), toupper(path.at[i + 2]));
            i += 2;
        } else if (bare) {
            text_addc(t, c);
        } else {
            text_addf(t, "%%%02X", (uint8_t)c);
        }
    }
}

static int compare_named(const void *a, const void *b)
{
    return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

/* Host, x-amz-* and x-minio-* of the head that was written so far. */
static unsigned sign_fields(struct span head, struct named out[PARTS_MAX])
{
    unsigned n = 0;

    span_cut(&head, '\n');
    while (head.len > 0 && n < PARTS_MAX) {
        struct span line = span_cut(&head, '\n');
        struct span value = line;
        struct span name = span_cut(&value, ':');
        bool host = span_is_nocase(name, "host");
        bool ours = (name.len > 6 && strncasecmp(name.at, "x-amz-", 6) == 0) ||
                    (name.len > 8 && strncasecmp(name.at, "x-minio-", 8) == 0);
        if ((!host && !ours) || name.len >= sizeof out[n].name)
            continue;
        for (size_t i = 0; i <= name.len; i++)
            out[n].name[i] = i == name.len ? 0 : (char)tolower(name.at[i]);
        if (value.len > 0 && value.at[value.len - 1] == '\r')
            value.len--;
        out[n++].value = span_trim(value);
    }
    qsort(out, n, sizeof out[0], compare_named);
    return n;
}

static void add_canonical(struct text *t, struct text *names, const char *method,
                          struct span target, struct span head)
{
    struct named field[PARTS_MAX];
    unsigned n = sign_fields(head, field);
    struct span query = target;
    struct span path = span_cut(&query, '?');

    text_adds(t, method);
    text_addc(t, '\n');
    add_path(t, path);
    text_addc(t, '\n');
    add_query(t, query);
    text_addc(t, '\n');
    for (unsigned i = 0; i < n; i++) {
        text_addf(t, "%s:", field[i].name);
        text_add(t, field[i].value);
        text_addc(t, '\n');
        text_addf(names, "%s%s", i ? ";" : "", field[i].name);
    }
    text_addf(t, "\n%s\n", names->at);
    for (unsigned i = 0; i < n; i++)
        if (strcmp(field[i].name, "x-amz-content-sha256") == 0)
            text_add(t, field[i].value);
}

static void sign_text(const char *secret, const char *day, const char *text, char out[65])
{
    uint8_t key[32], mac[32];
    char first[SECRET_BYTES + 8];

    snprintf(first, sizeof first, "AWS4%s", secret);
    hmac(first, (int)strlen(first), day, key);
    hmac(key, 32, "us-east-1", mac);
    hmac(mac, 32, "s3", key);
    hmac(key, 32, "aws4_request", mac);
    hmac(mac, 32, text, key);
    hex(key, 32, out);
}

/* What stands behind a date: everything that is signed with it. */
static void sign_canonical(const char *secret, const char *stamp, const char *canonical,
                           char mac[65])
{
    char day[16], sum[65], to_sign[400];
    uint8_t digest[32];

    snprintf(day, sizeof day, "%.8s", stamp);
    SHA256((const uint8_t *)canonical, strlen(canonical), digest);
    hex(digest, sizeof digest, sum);
    snprintf(to_sign, sizeof to_sign, "AWS4-HMAC-SHA256\n%s\n%s/" SCOPE "\n%s", stamp, day, sum);
    sign_text(secret, day, to_sign, mac);
}

/* Good for a minute; the target is in canonical encoding. */
void sigv4_presign(struct text *url, const char *method, struct span target, const char *host,
                   const char *access, const char *secret)
{
    char stamp[32], mac[65], names_room[1024], head[300];
    char *room = mem_take(CANONICAL_BYTES);
    time_t now = (time_t)clock_wall_s();
    struct text canonical, names;
    struct tm tm;

    must(room);
    gmtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &tm);
    size_t from = url->len;
    text_add(url, target);
    text_addf(url, "%cX-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%s%%2F%.8s%%2Fus-east-1"
              "%%2Fs3%%2Faws4_request&X-Amz-Date=%s&X-Amz-Expires=60&X-Amz-SignedHeaders=host",
              span_find(target, '?') < target.len ? '&' : '?', access, stamp, stamp);
    snprintf(head, sizeof head, "line\nHost: %s\r\n", host);
    text_init(&canonical, room, CANONICAL_BYTES);
    text_init(&names, names_room, sizeof names_room);
    add_canonical(&canonical, &names, method, span_make(url->at + from, url->len - from),
                  span_of(head));
    text_adds(&canonical, "UNSIGNED-PAYLOAD");
    sign_canonical(secret, stamp, canonical.at, mac);
    text_addf(url, "&X-Amz-Signature=%s", mac);
    mem_give(room);
}

/* head: request line and fields so far; the fields of the signature are added to it. */
void sigv4_add(struct text *head, const char *method, struct span target, const char *access,
               const char *secret)
{
    char stamp[32], day[16], mac[65], names_room[1024];
    char *room = mem_take(CANONICAL_BYTES);
    time_t now = (time_t)clock_wall_s();
    struct text canonical, names;
    struct tm tm;

    must(room);
    gmtime_r(&now, &tm);
    strftime(stamp, sizeof stamp, "%Y%m%dT%H%M%SZ", &tm);
    snprintf(day, sizeof day, "%.8s", stamp);
    text_addf(head, "x-amz-date: %s\r\n", stamp);
    if (!memmem(head->at, head->len, "\r\nx-amz-content-sha256:", 23)) /* a body's own framing */
        text_adds(head, "x-amz-content-sha256: UNSIGNED-PAYLOAD\r\n");
    text_init(&canonical, room, CANONICAL_BYTES);
    text_init(&names, names_room, sizeof names_room);
    add_canonical(&canonical, &names, method, target, text_span(head));
    sign_canonical(secret, stamp, canonical.at, mac);
    text_addf(head, "Authorization: AWS4-HMAC-SHA256 Credential=%s/%s/" SCOPE ", SignedHeaders=%s, "
              "Signature=%s\r\n", access, day, names.at, mac);
    mem_give(room);
}
