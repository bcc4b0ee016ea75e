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
#include <limits.h>
#include <netinet/in.h>
#include <sys/un.h>

enum { TIME_DAYS_MAX = 36500, ADDRESS_BYTES_MAX = 64, MEMORY_MIB_LEAST = 64 };

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
        if (n == 0)
            return ERR_SYNTAX;
        *out = (struct conf_size){.bytes = n};
        return OK;
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
    struct span address, digits;
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

/* ---- checks of an option's value: NULL, or the end of the sentence ---- */

static const char *check_listen(struct span text)
{
    struct conf_listen at;

    return conf_listen_read(text, &at) == OK
               ? NULL
               : "is no listen address; write ADDRESS:PORT, [IPV6]:PORT or unix:/path";
}

/* Everyone on this machine may reach loopback; from elsewhere only the metrics may be had. */
static const char *check_admin_listen(struct span text)
{
    static const uint8_t one[16] = {[15] = 1};
    struct conf_listen at;

    if (conf_listen_read(text, &at) != OK || at.unix_path.len)
        return check_listen(text);
    bool loopback = at.v6 ? memcmp(at.addr, one, sizeof one) == 0 : at.addr[0] == 127;
    return loopback ? NULL
                    : "could be reached from elsewhere; use a loopback address or unix:/path, and "
                      "admin.metrics_listen for Prometheus and probes";
}

static const char *check_tcp_listen(struct span text)
{
    struct conf_listen at;

    return conf_listen_read(text, &at) == OK && at.unix_path.len == 0
               ? NULL
               : "is no listen address; write ADDRESS:PORT or [IPV6]:PORT";
}

static const char *check_range(struct span text)
{
    struct conf_cidr range;

    return conf_cidr_read(text, &range) == OK
               ? NULL
               : "is no address range; write it as \"10.0.0.0/8\" or \"fd00::/8\"";
}

static bool is_host_name(struct span host)
{
    bool good = host.len > 0 && host.len <= 253 && host.at[0] != '.' && host.at[0] != '-';

    for (size_t i = 0; good && i < host.len; i++) {
        unsigned char c = (unsigned char)host.at[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        /* "_" is no host name by RFC 1123, but container networks use it. */
        good = letter || c == '-' || c == '_' || (c == '.' && host.at[i - 1] != '.');
    }
    return good;
}

static const char *check_name(struct span text)
{
    return is_host_name(text) ? NULL : "is no name; use letters, digits, \"-\", \"_\" and \".\"";
}

static const char *check_reserved(struct span text)
{
    return is_host_name(text) && text.len <= BUCKET_BYTES_MAX
               ? NULL
               : "is no bucket's name; write it as \"admin\", without slashes";
}

static const char *check_domain(struct span text)
{
    return is_host_name(text) ? NULL : "is no domain; write it as \"s3.example.com\"";
}

/* host, host:port, [v6], [v6]:port */
static bool is_authority(struct span text)
{
    struct conf_cidr address;
    struct span rest = text, host;
    uint64_t port;
    bool v6 = span_starts(text, span_of("["));

    if (v6) {
        rest = span_from(text, 1);
        host = span_cut(&rest, ']');
        bool closed = host.len + 1 < text.len;
        if (!closed || (rest.len && rest.at[0] != ':'))
            return false;
        rest = span_from(rest, 1);
    } else {
        host = span_cut(&rest, ':');
    }
    size_t without_port = v6 ? host.len + 2 : host.len;
    if (without_port < text.len && (span_u64(rest, &port) != OK || port == 0 || port > 65535))
        return false;
    if (!v6)
        return is_host_name(host);
    return span_find(host, ':') < host.len && span_find(host, '/') == host.len &&
           conf_cidr_read(host, &address) == OK;
}

static const char *check_endpoint(struct span text)
{
    if (span_starts(text, span_of("file://"))) {
        struct span path = span_from(text, strlen("file://"));
        return path.len && path.at[0] == '/' ? NULL : "needs an absolute directory: file:///dir";
    }
    bool tls = span_starts(text, span_of("https://"));
    if (!tls && !span_starts(text, span_of("http://")))
        return "is no endpoint; write https://host[:port], http://host[:port] or file:///dir";
    struct span authority = span_from(text, strlen(tls ? "https://" : "http://"));
    if (span_find(authority, '@') < authority.len)
        return "must not hold credentials; they come from where AWS tools find them";
    if (span_ends(authority, span_of("/")))
        authority.len--;
    if (span_find(authority, '/') < authority.len)
        return "must end behind host and port; bucket and key come with each request";
    return is_authority(authority) ? NULL : "has no usable host and port";
}

/* The rest of it counts where a role needs it. */
static const char *check_sts(struct span text)
{
    return span_find(text, '@') < text.len
               ? "must not hold credentials; they come from where AWS tools find them"
               : NULL;
}

static const char *check_directory(struct span text)
{
    return text.len && text.len < PATH_MAX ? NULL : "is no directory";
}

static const char *check_memory(struct span text)
{
    uint64_t bytes;

    return conf_read_bytes(text, &bytes) == OK && bytes >= (uint64_t)MEMORY_MIB_LEAST * MIB
               ? NULL
               : "is too small; at least 64MiB are needed";
}

static const char *check_timeout(struct span text)
{
    uint64_t ms;

    return conf_read_time_ms(text, &ms) == OK && ms > 0 ? NULL : "must be more than 0";
}

typedef const char *value_check(struct span text);

static value_check *const checks[CONF_OPTIONS] = {
    [CONF_AT_server_listen] = check_tcp_listen,
    [CONF_AT_server_name] = check_name,
    [CONF_AT_server_domain] = check_domain,
    [CONF_AT_server_header_timeout] = check_timeout,
    [CONF_AT_server_idle_timeout] = check_timeout,
    [CONF_AT_server_body_timeout] = check_timeout,
    [CONF_AT_server_send_timeout] = check_timeout,
    [CONF_AT_admin_listen] = check_admin_listen,
    [CONF_AT_admin_metrics_listen] = check_tcp_listen,
    [CONF_AT_auth_anonymous] = check_range,
    [CONF_AT_endpoint] = check_endpoint,
    [CONF_AT_sts_endpoint] = check_sts,
    [CONF_AT_reserved] = check_reserved,
    [CONF_AT_connect_timeout] = check_timeout,
    [CONF_AT_read_timeout] = check_timeout,
    [CONF_AT_cache_dirs] = check_directory,
    [CONF_AT_cache_memory] = check_memory,
};

const char *conf_check(const struct conf_option *o, struct span text)
{
    /* Empty means "not set" for a text, so there is nothing to check. */
    if (o->kind == CONF_TEXT && text.len == 0)
        return NULL;
    /* An option that is not in the table, as a bucket's own keys, has no check. */
    for (unsigned i = 0; i < CONF_OPTIONS; i++)
        if (o == &conf_options[i] && checks[i])
            return checks[i](text);
    return NULL;
}

/* ---- did you mean ---- */

enum { DISTANCE_MAX = 2, WORD_BYTES_MAX = 63 };

/* Levenshtein's distance; more than DISTANCE_MAX for words that are too long. */
static unsigned distance(struct span a, struct span b)
{
    unsigned row[WORD_BYTES_MAX + 1];

    if (a.len > WORD_BYTES_MAX || b.len > WORD_BYTES_MAX)
        return DISTANCE_MAX + 1;
    for (unsigned j = 0; j <= b.len; j++)
        row[j] = j;
    for (unsigned i = 1; i <= a.len; i++) {
        unsigned diagonal = row[0];
        row[0] = i;
        for (unsigned j = 1; j <= b.len; j++) {
            unsigned replaced = diagonal + (a.at[i - 1] != b.at[j - 1]);
            diagonal = row[j];
            unsigned moved = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            row[j] = replaced < moved ? replaced : moved;
        }
    }
    return row[b.len];
}

void conf_guess_at(struct conf_guess *g, struct span candidate)
{
    unsigned d = distance(g->word, candidate);

    /* A word of two letters is near to every other one. */
    if (d <= DISTANCE_MAX && d < g->word.len && (g->best == 0 || d < g->best)) {
        g->best = d ? d : 1;
        g->nearest = candidate;
    }
}

void conf_guess_add(struct text *t, const struct conf_guess *g, const char *open, const char *close)
{
    if (g->best == 0)
        return;
    text_addf(t, "; did you mean %s", open);
    text_add(t, g->nearest);
    text_addf(t, "%s?", close);
}
