/* Checksums of synthetic objects, as the knob sum= wants them: bit by bit, from their definitions,
 * so that no mistake is shared with the server's.
 *
 * Invariants:
 *  1. The sum is of the bytes that the name means, whatever corrupt= and shift= make of the body.
 *
 * Life: nothing is kept. Failure: an unknown kind stops the test. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <openssl/evp.h>

#include "tests/lib/bytes.h"
#include "tests/lib/origin_part.h"

enum { PART_BYTES = 64 * KIB };

struct crc_kind {
    const char *name;
    uint64_t polynomial;             /* reflected */
    unsigned bits;
};

static const struct crc_kind crcs[] = {
    {"crc32", 0xedb88320, 32},
    {"crc32c", 0x82f63b78, 32},
    {"crc64nvme", 0x9a6c9329ac4bc9b5, 64},
};

static uint64_t crc_add(const struct crc_kind *kind, uint64_t crc, const uint8_t *at, size_t len)
{
    while (len-- > 0) {
        crc ^= *at++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? kind->polynomial : 0);
    }
    return crc;
}

static size_t crc_of(const struct crc_kind *kind, const struct plan *p, uint8_t *digest)
{
    uint64_t ones = kind->bits == 64 ? ~(uint64_t)0 : 0xffffffff, crc = ones;
    uint8_t part[PART_BYTES];

    for (uint64_t at = 0; at < p->size; at += sizeof part) {
        size_t len = min_u64(sizeof part, p->size - at);
        bytes_make(p->seed, at, part, len);
        crc = crc_add(kind, crc, part, len);
    }
    crc ^= ones;
    for (unsigned i = 0; i < kind->bits / 8; i++)
        digest[i] = (uint8_t)(crc >> (kind->bits - 8 - 8 * i));
    return kind->bits / 8;
}

static size_t hash_of(const char *name, const struct plan *p, uint8_t *digest)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    const EVP_MD *kind = EVP_get_digestbyname(name);
    unsigned len = 0;
    uint8_t part[PART_BYTES];

    must(c && kind && EVP_DigestInit_ex(c, kind, NULL));
    for (uint64_t at = 0; at < p->size; at += sizeof part) {
        size_t n = min_u64(sizeof part, p->size - at);
        bytes_make(p->seed, at, part, n);
        must(EVP_DigestUpdate(c, part, n));
    }
    must(EVP_DigestFinal_ex(c, digest, &len));
    EVP_MD_CTX_free(c);
    return len;
}

static size_t digest_of(const char *name, const struct plan *p, uint8_t *digest)
{
    for (size_t i = 0; i < ARRAY_COUNT(crcs); i++)
        if (strcmp(name, crcs[i].name) == 0)
            return crc_of(&crcs[i], p, digest);
    return hash_of(name, p, digest);
}

static bool sum_name(const struct plan *p, char name[16])
{
    struct span kind = knob_text(&p->knobs, TEXT_SUM);

    must(kind.len < 16);
    memcpy(name, kind.at ? kind.at : "", kind.len);
    name[kind.len] = 0;
    return kind.len > 0;
}

bool origin_sum_etag(struct plan *p)
{
    uint8_t digest[EVP_MAX_MD_SIZE];
    char name[16];

    if (!sum_name(p, name) || strcmp(name, "md5") != 0)
        return false;
    size_t len = digest_of(name, p, digest);
    struct text t;
    text_init(&t, p->etag, sizeof p->etag);
    text_adds(&t, "\"");
    for (size_t i = 0; i < len; i++)
        text_addf(&t, "%02x", digest[i]);
    text_adds(&t, "\"");
    return true;
}

void origin_sum_field(const struct plan *p, struct text *out)
{
    uint8_t digest[EVP_MAX_MD_SIZE], base64[2 * EVP_MAX_MD_SIZE];
    char name[16];

    if (!sum_name(p, name) || strcmp(name, "md5") == 0)
        return;
    EVP_EncodeBlock(base64, digest, (int)digest_of(name, p, digest));
    text_addf(out, "x-amz-checksum-%s: %s\r\nx-amz-checksum-type: FULL_OBJECT\r\n", name,
              (char *)base64);
}
