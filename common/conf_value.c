/* What a value of the configuration may look like: sizes, times, address ranges, listen addresses.
 *
 * Invariants:
 *  1. A reader takes the whole text or fails; *out is set on success only.
 *  2. No result overflows when a caller turns it into smaller units: times end at TIME_DAYS_MAX.
 *  3. Bits of a conf_cidr behind its length are 0.
 *
 * Life: pure functions; nothing is owned.
 * Failure: ERR_SYNTAX for malformed text, ERR_TOO_LARGE for a number out of range. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "conf.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

enum { TIME_DAYS_MAX = 36500, ADDRESS_BYTES_MAX = 64 };

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit byte_units[] = {
    {"", 1},
    {"B", 1},
    {"KiB", KIB},
    {"MiB", MIB},
    {"GiB", (uint64_t)1 << 30},
    {"TiB", (uint64_t)1 << 40},
    {"KB", 1000},
    {"MB", 1000000},
    {"GB", 1000000000},
    {"TB", UINT64_C(1000000000000)},
};
static const struct unit time_units[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000},
};

/* Digits, then perhaps blanks, then the unit: "8MiB", "95 %". */
static void split_number(struct span text, struct span *number, struct span *unit)
{
    size_t len = 0;

    text = span_trim(text);
    while (len < text.len && text.at[len] >= '0' && text.at[len] <= '9')
        len++;
    *number = span_make(text.at, len);
    *unit = span_trim(span_from(text, len));
}

static enum err read_with_unit(struct span text, const struct unit *units, size_t count,
                               uint64_t *out)
{
    struct span number, unit;
    uint64_t n;

    split_number(text, &number, &unit);
    TRY(span_u64(number, &n));
    for (size_t i = 0; i < count; i++) {
        if (!span_is(unit, units[i].name))
            continue;
        if (n > UINT64_MAX / units[i].factor)
            return ERR_TOO_LARGE;
        *out = n * units[i].factor;
        return OK;
    }
    return ERR_SYNTAX;
}

enum err conf_read_bytes(struct span text, uint64_t *out)
{
    uint64_t bytes;

    TRY(read_with_unit(text, byte_units, ARRAY_COUNT(byte_units), &bytes));
    /* File offsets are signed. */
    if (bytes > INT64_MAX)
        return ERR_TOO_LARGE;
    *out = bytes;
    return OK;
}

enum err conf_read_time_ms(struct span text, uint64_t *out)
{
    uint64_t ms = 0;

    /* "0" means the same in every unit. */
    if (!span_is(span_trim(text), "0"))
        TRY(read_with_unit(text, time_units, ARRAY_COUNT(time_units), &ms));
    if (ms > (uint64_t)TIME_DAYS_MAX * 86400000)
        return ERR_TOO_LARGE;
    *out = ms;
    return OK;
}

enum err conf_read_size(struct span text, struct conf_size *out)
{
    struct span rest = span_trim(text), whole;
    uint64_t n, tenths = 0;

    if (!span_ends(rest, span_of("%"))) {
        TRY(conf_read_bytes(text, &n));
        *out = (struct conf_size){.bytes = n};
        return n ? OK : ERR_SYNTAX;
    }
    rest = span_trim(span_make(rest.at, rest.len - 1));
    bool fraction = span_find(rest, '.') < rest.len;
    whole = span_cut(&rest, '.');
    TRY(span_u64(whole, &n));
    if (fraction && rest.len != 1)
        return ERR_SYNTAX;
    if (fraction)
        TRY(span_u64(rest, &tenths));
    if (n > 100 || (n == 100 && tenths))
        return ERR_TOO_LARGE;
    if (n == 0 && tenths == 0)
        return ERR_SYNTAX;
    *out = (struct conf_size){.percent = (double)n + (double)tenths / 10};
    return OK;
}

/* ---- addresses ---- */

static bool read_address(struct span text, bool v6, uint8_t addr[16])
{
    char copy[ADDRESS_BYTES_MAX];

    if (text.len >= sizeof copy || span_find(text, '\0') < text.len)
        return false;
    memset(addr, 0, 16);
    memcpy(copy, text.at, text.len);
    copy[text.len] = '\0';
    return text.len > 0 && inet_pton(v6 ? AF_INET6 : AF_INET, copy, addr) == 1;
}

static const uint8_t mapped_prefix[12] = {[10] = 0xFF, [11] = 0xFF}; /* RFC 4291 2.5.5.2 */

enum err conf_cidr_read(struct span text, struct conf_cidr *out)
{
    struct span rest = span_trim(text);
    bool with_bits = span_find(rest, '/') < rest.len;
    struct span address = span_cut(&rest, '/');
    struct conf_cidr range = {.v6 = span_find(address, ':') < address.len};
    uint64_t bits = range.v6 ? 128 : 32, most = bits;

    if (!read_address(address, range.v6, range.addr))
        return ERR_SYNTAX;
    if (with_bits)
        TRY(span_u64(rest, &bits));
    if (bits > most)
        return ERR_SYNTAX;
    if (range.v6 && bits >= 96 && memcmp(range.addr, mapped_prefix, sizeof mapped_prefix) == 0) {
        memcpy(range.addr, range.addr + 12, 4);
        memset(range.addr + 4, 0, 12);
        range.v6 = false;
        bits -= 96;
    }
    /* Whoever writes 10.1.2.3/8 means the range around it. */
    for (size_t i = 0; i < sizeof range.addr; i++) {
        size_t kept = bits > i * 8 ? (size_t)bits - i * 8 : 0;
        if (kept < 8)
            range.addr[i] &= (uint8_t)(0xFF00u >> kept);
    }
    range.bits = (uint8_t)bits;
    *out = range;
    return OK;
}

static bool is_within(const struct conf_cidr *range, const uint8_t *addr)
{
    unsigned whole = range->bits / 8, rest = range->bits % 8;

    if (memcmp(range->addr, addr, whole) != 0)
        return false;
    return rest == 0 || ((range->addr[whole] ^ addr[whole]) & (0xFF00u >> rest) & 0xFF) == 0;
}

bool conf_cidr_has(const struct conf_cidr *list, unsigned count, const struct sockaddr *from)
{
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    uint8_t addr[16];
    bool is_v6 = from->sa_family == AF_INET6;

    /* Copied, as a sockaddr in a receive buffer need not be aligned for its real type. */
    if (is_v6) {
        memcpy(&v6, from, sizeof v6);
        memcpy(addr, &v6.sin6_addr, 16);
    } else if (from->sa_family == AF_INET) {
        memcpy(&v4, from, sizeof v4);
        memcpy(addr, &v4.sin_addr, 4);
    } else {
        return false;
    }
    /* A dual-stack socket shows IPv4 clients as ::ffff:a.b.c.d. */
    if (is_v6 && memcmp(addr, mapped_prefix, sizeof mapped_prefix) == 0) {
        memmove(addr, addr + 12, 4);
        is_v6 = false;
    }
    for (unsigned i = 0; i < count; i++)
        if (list[i].v6 == is_v6 && is_within(&list[i], addr))
            return true;
    return false;
}

enum err conf_listen_read(struct span text, struct conf_listen *out)
{
    struct conf_listen at = {.port = 0};
    uint64_t port;

    if (span_starts(text, span_of("unix:"))) {
        at.unix_path = span_from(text, strlen("unix:"));
        bool fits = at.unix_path.len < sizeof ((struct sockaddr_un *)0)->sun_path;
        if (at.unix_path.len == 0 || at.unix_path.at[0] != '/' || !fits)
            return ERR_SYNTAX;
        *out = at;
        return OK;
    }
    struct span address = text, digits;
    at.v6 = span_starts(text, span_of("["));
    if (at.v6) {
        struct span rest = span_from(text, 1);
        address = span_cut(&rest, ']');
        if (!span_starts(rest, span_of(":")))
            return ERR_SYNTAX;
        digits = span_from(rest, 1);
    } else {
        digits = text;
        address = span_cut(&digits, ':');
    }
    TRY(span_u64(digits, &port));
    if (port > 65535 || !read_address(address, at.v6, at.addr))
        return ERR_SYNTAX;
    at.port = (uint16_t)port;
    *out = at;
    return OK;
}
