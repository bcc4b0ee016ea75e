/* The checksums of S3, incremental, in memory of a fixed size. Pure.
 *
 * Invariants:
 *  1. A state lies whole inside struct payload_sum; nothing is allocated, nothing is fetched.
 *  2. A digest's bytes are those that S3 writes in base64: big-endian for CRCs and XXH.
 *
 * Life: begin, any number of adds, end; the struct is the caller's. The tables of CRC-64 are made
 * once per process, at the first use of that sum.
 * Failure: none. OpenSSL refusing to hash memory it was given stops the process, as in sign.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "payload.h"

#include <isa-l/crc.h>
#include <pthread.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

/* The low-level functions keep their whole state in a plain struct; the EVP layer allocates at each
 * start (sign.c tells more). */
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/md5.h>
#include <openssl/sha.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct kind_row {
    const char *name, *field;
    uint8_t digest_bytes;
};
static const struct kind_row kind_table[PAYLOAD_KIND_COUNT] = {
    [PAYLOAD_NO_SUM] = {"", "", 0},
    [PAYLOAD_CRC32] = {"CRC32", "x-amz-checksum-crc32", 4},
    [PAYLOAD_CRC32C] = {"CRC32C", "x-amz-checksum-crc32c", 4},
    [PAYLOAD_CRC64NVME] = {"CRC64NVME", "x-amz-checksum-crc64nvme", 8},
    [PAYLOAD_SHA1] = {"SHA1", "x-amz-checksum-sha1", SHA_DIGEST_LENGTH},
    [PAYLOAD_SHA256] = {"SHA256", "x-amz-checksum-sha256", SHA256_BYTES},
    [PAYLOAD_SHA512] = {"SHA512", "x-amz-checksum-sha512", SHA512_DIGEST_LENGTH},
    [PAYLOAD_MD5] = {"MD5", "x-amz-checksum-md5", MD5_BYTES},
    [PAYLOAD_XXHASH64] = {"XXHASH64", "x-amz-checksum-xxhash64", 8},
    [PAYLOAD_XXHASH3] = {"XXHASH3", "x-amz-checksum-xxhash3", 8},
    [PAYLOAD_XXHASH128] = {"XXHASH128", "x-amz-checksum-xxhash128", 16},
};

size_t payload_digest_bytes(enum payload_kind kind)
{
    return kind_table[kind].digest_bytes;
}

const char *payload_kind_field(enum payload_kind kind)
{
    return kind_table[kind].field;
}

const char *payload_kind_name(enum payload_kind kind)
{
    return kind_table[kind].name;
}

/* ---- CRC-64/NVME: Debian 12's isa-l has other polynomials only ---- */
/* Reflected throughout: the lowest bit is the highest power of x. */
#define CRC64_POLYNOMIAL 0x9a6c9329ac4bc9b5u
enum { FOLD_BYTES = 64 };            /* four lanes of 128 bit */

static struct {
    uint64_t slice[8][256];          /* [k][b]: byte b followed by k zero bytes */
    uint64_t fold_near[2], fold_far[2]; /* moves 128 bit over 128 and over 512 bit */
    bool has_clmul;
} crc64;
static pthread_once_t crc64_once = PTHREAD_ONCE_INIT;

/* x^power modulo the polynomial */
static uint64_t crc64_power(unsigned power)
{
    uint64_t x = (uint64_t)1 << 63;
    while (power-- > 0)
        x = x >> 1 ^ (x & 1 ? CRC64_POLYNOMIAL : 0);
    return x;
}

static void crc64_prepare(void)
{
    for (unsigned b = 0; b < 256; b++) {
        uint64_t crc = b;
        for (unsigned bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? CRC64_POLYNOMIAL : 0);
        crc64.slice[0][b] = crc;
    }
    for (unsigned k = 1; k < 8; k++)
        for (unsigned b = 0; b < 256; b++) {
            uint64_t crc = crc64.slice[k - 1][b];
            crc64.slice[k][b] = crc >> 8 ^ crc64.slice[0][crc & 255];
        }
    /* One power less than the distance: the product of two reflected numbers is one bit short. */
    crc64.fold_near[0] = crc64_power(128 + 64 - 1);
    crc64.fold_near[1] = crc64_power(128 - 1);
    crc64.fold_far[0] = crc64_power(512 + 64 - 1);
    crc64.fold_far[1] = crc64_power(512 - 1);
#ifdef __x86_64__
    crc64.has_clmul = __builtin_cpu_supports("pclmul");
#endif
}

static uint64_t crc64_by_table(uint64_t crc, const uint8_t *at, size_t len)
{
    for (; len >= 8; at += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, at, sizeof(word));
        crc ^= word;
        crc = crc64.slice[7][crc & 255] ^ crc64.slice[6][crc >> 8 & 255] ^
              crc64.slice[5][crc >> 16 & 255] ^ crc64.slice[4][crc >> 24 & 255] ^
              crc64.slice[3][crc >> 32 & 255] ^ crc64.slice[2][crc >> 40 & 255] ^
              crc64.slice[1][crc >> 48 & 255] ^ crc64.slice[0][crc >> 56];
    }
    for (; len > 0; at++, len--)
        crc = crc >> 8 ^ crc64.slice[0][(crc ^ *at) & 255];
    return crc;
}

#ifdef __x86_64__
__attribute__((target("pclmul"))) static inline __m128i crc64_fold(__m128i lane, __m128i by,
                                                                   __m128i next)
{
    __m128i high = _mm_clmulepi64_si128(lane, by, 0x00);
    __m128i low = _mm_clmulepi64_si128(lane, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(high, low), next);
}

static inline __m128i load(const uint8_t *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

/* At least FOLD_BYTES. Each 16 bytes are carried over the following ones; what is left of the whole
 * blocks is 16 bytes with the same remainder, which the tables take. */
__attribute__((target("pclmul"))) static uint64_t crc64_by_clmul(uint64_t crc, const uint8_t *at,
                                                                 size_t len)
{
    __m128i far = load((const uint8_t *)crc64.fold_far);
    __m128i near = load((const uint8_t *)crc64.fold_near);
    __m128i lane[4];
    uint8_t rest[16];
    for (unsigned i = 0; i < 4; i++)
        lane[i] = load(at + (size_t)16 * i);
    lane[0] = _mm_xor_si128(lane[0], _mm_set_epi64x(0, (int64_t)crc));
    for (size_t from = FOLD_BYTES; len - from >= FOLD_BYTES; from += FOLD_BYTES)
#pragma GCC unroll 4
        for (unsigned i = 0; i < 4; i++)
            lane[i] = crc64_fold(lane[i], far, load(at + from + (size_t)16 * i));
    at += len / FOLD_BYTES * FOLD_BYTES;
    len %= FOLD_BYTES;
    for (unsigned i = 1; i < 4; i++)
        lane[i] = crc64_fold(lane[i - 1], near, lane[i]);
    _mm_storeu_si128((__m128i *)(void *)rest, lane[3]);
    return crc64_by_table(crc64_by_table(0, rest, sizeof(rest)), at, len);
}
#else
static uint64_t crc64_by_clmul(uint64_t crc, const uint8_t *at, size_t len)
{
    return crc64_by_table(crc, at, len);
}
#endif

uint64_t crc64_nvme(uint64_t crc, const void *bytes, size_t len)
{
    pthread_once(&crc64_once, crc64_prepare);
    if (crc64.has_clmul && len >= FOLD_BYTES)
        return ~crc64_by_clmul(~crc, bytes, len);
    return ~crc64_by_table(~crc, bytes, len);
}

/* ---- all of them ---- */
union state {
    uint32_t crc32;
    uint64_t crc64;
    SHA_CTX sha1;
    SHA256_CTX sha256;
    SHA512_CTX sha512;
    MD5_CTX md5;
    XXH64_state_t xxh64;
    XXH3_state_t xxh3;               /* wants 64-byte alignment */
};
enum { STATE_ALIGN = 64 };
_Static_assert(sizeof(union state) + STATE_ALIGN - sizeof(uint64_t) <=
                   sizeof(((struct payload_sum *)NULL)->state),
               "any state fits at its alignment");

static union state *state_of(struct payload_sum *s)
{
    return (union state *)(void *)round_up((uintptr_t)s->state, STATE_ALIGN);
}

void payload_sum_begin(struct payload_sum *s, enum payload_kind kind)
{
    union state *u = state_of(s);
    s->kind = (uint8_t)kind;
    switch (kind) {
    case PAYLOAD_CRC32:
    case PAYLOAD_CRC32C:
        u->crc32 = 0;
        break;
    case PAYLOAD_CRC64NVME:
        u->crc64 = 0;
        break;
    case PAYLOAD_SHA1:
        must(SHA1_Init(&u->sha1) == 1);
        break;
    case PAYLOAD_SHA256:
        must(SHA256_Init(&u->sha256) == 1);
        break;
    case PAYLOAD_SHA512:
        must(SHA512_Init(&u->sha512) == 1);
        break;
    case PAYLOAD_MD5:
        must(MD5_Init(&u->md5) == 1);
        break;
    case PAYLOAD_XXHASH64:
        must(XXH64_reset(&u->xxh64, 0) == XXH_OK);
        break;
    case PAYLOAD_XXHASH3:
        XXH3_INITSTATE(&u->xxh3);
        must(XXH3_64bits_reset(&u->xxh3) == XXH_OK);
        break;
    case PAYLOAD_XXHASH128:
        XXH3_INITSTATE(&u->xxh3);
        must(XXH3_128bits_reset(&u->xxh3) == XXH_OK);
        break;
    default:
        must(kind == PAYLOAD_NO_SUM);
    }
}

void payload_sum_add(struct payload_sum *s, const void *bytes, size_t len)
{
    union state *u = state_of(s);
    if (len == 0)
        return;
    switch ((enum payload_kind)s->kind) {
    case PAYLOAD_CRC32:
        u->crc32 = crc32_gzip_refl(u->crc32, bytes, len);
        break;
    case PAYLOAD_CRC32C:
        u->crc32 = crc32c(u->crc32, bytes, len);
        break;
    case PAYLOAD_CRC64NVME:
        u->crc64 = crc64_nvme(u->crc64, bytes, len);
        break;
    case PAYLOAD_SHA1:
        must(SHA1_Update(&u->sha1, bytes, len) == 1);
        break;
    case PAYLOAD_SHA256:
        must(SHA256_Update(&u->sha256, bytes, len) == 1);
        break;
    case PAYLOAD_SHA512:
        must(SHA512_Update(&u->sha512, bytes, len) == 1);
        break;
    case PAYLOAD_MD5:
        must(MD5_Update(&u->md5, bytes, len) == 1);
        break;
    case PAYLOAD_XXHASH64:
        must(XXH64_update(&u->xxh64, bytes, len) == XXH_OK);
        break;
    case PAYLOAD_XXHASH3:
        must(XXH3_64bits_update(&u->xxh3, bytes, len) == XXH_OK);
        break;
    case PAYLOAD_XXHASH128:
        must(XXH3_128bits_update(&u->xxh3, bytes, len) == XXH_OK);
        break;
    default:
        break;
    }
}

static void write_big_endian(uint64_t n, size_t bytes, uint8_t *out)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = (uint8_t)(n >> 8 * (bytes - 1 - i));
}

static void write_xxh128(const XXH3_state_t *state, uint8_t *out)
{
    XXH128_hash_t hash = XXH3_128bits_digest(state);
    write_big_endian(hash.high64, 8, out);
    write_big_endian(hash.low64, 8, out + 8);
}

size_t payload_sum_end(struct payload_sum *s, uint8_t out[PAYLOAD_DIGEST_MAX])
{
    union state *u = state_of(s);
    size_t bytes = kind_table[s->kind].digest_bytes;
    switch ((enum payload_kind)s->kind) {
    case PAYLOAD_CRC32:
    case PAYLOAD_CRC32C:
        write_big_endian(u->crc32, bytes, out);
        break;
    case PAYLOAD_CRC64NVME:
        write_big_endian(u->crc64, bytes, out);
        break;
    case PAYLOAD_SHA1:
        must(SHA1_Final(out, &u->sha1) == 1);
        break;
    case PAYLOAD_SHA256:
        must(SHA256_Final(out, &u->sha256) == 1);
        break;
    case PAYLOAD_SHA512:
        must(SHA512_Final(out, &u->sha512) == 1);
        break;
    case PAYLOAD_MD5:
        must(MD5_Final(out, &u->md5) == 1);
        break;
    case PAYLOAD_XXHASH64:
        write_big_endian(XXH64_digest(&u->xxh64), bytes, out);
        break;
    case PAYLOAD_XXHASH3:
        write_big_endian(XXH3_64bits_digest(&u->xxh3), bytes, out);
        break;
    case PAYLOAD_XXHASH128:
        write_xxh128(&u->xxh3, out);
        break;
    default:
        break;
    }
    s->kind = PAYLOAD_NO_SUM;
    return bytes;
}

/* ---- CRCs put together ---- */
/* A CRC is the remainder of its bytes as a polynomial: bytes that follow multiply it by x^8 each,
 * then add their own. All are reflected, and begin and end inverted, which cancels out. */
struct field {
    uint64_t polynomial, one;        /* one: x^0, the highest bit */
};

static struct field field_of(enum payload_kind kind)
{
    switch (kind) {
    case PAYLOAD_CRC32: return (struct field){0xedb88320, (uint64_t)1 << 31};
    case PAYLOAD_CRC32C: return (struct field){0x82f63b78, (uint64_t)1 << 31};
    default: break;
    }
    must(kind == PAYLOAD_CRC64NVME);
    return (struct field){CRC64_POLYNOMIAL, (uint64_t)1 << 63};
}

static uint64_t field_multiply(struct field f, uint64_t a, uint64_t b)
{
    uint64_t product = 0;

    for (uint64_t bit = f.one; bit; bit >>= 1) {
        product ^= a & bit ? b : 0;
        b = b >> 1 ^ (b & 1 ? f.polynomial : 0);
    }
    return product;
}

bool payload_crc_joins(enum payload_kind kind)
{
    return kind == PAYLOAD_CRC32 || kind == PAYLOAD_CRC32C || kind == PAYLOAD_CRC64NVME;
}

uint64_t payload_crc(enum payload_kind kind, const void *bytes, size_t len)
{
    switch (kind) {
    case PAYLOAD_CRC32: return crc32_gzip_refl(0, bytes, len);
    case PAYLOAD_CRC32C: return crc32c(0, bytes, len);
    default: break;
    }
    must(kind == PAYLOAD_CRC64NVME);
    return crc64_nvme(0, bytes, len);
}

uint64_t payload_crc_shift(enum payload_kind kind, uint64_t len)
{
    struct field f = field_of(kind);
    uint64_t shift = f.one, square = f.one >> 8; /* x^8 */

    for (; len > 0; len >>= 1) {
        if (len & 1)
            shift = field_multiply(f, shift, square);
        square = field_multiply(f, square, square);
    }
    return shift;
}

uint64_t payload_crc_join(enum payload_kind kind, uint64_t first, uint64_t second, uint64_t shift)
{
    return field_multiply(field_of(kind), first, shift) ^ second;
}

size_t payload_crc_write(enum payload_kind kind, uint64_t crc, uint8_t out[PAYLOAD_DIGEST_MAX])
{
    size_t bytes = kind_table[kind].digest_bytes;

    write_big_endian(crc, bytes, out);
    return bytes;
}
