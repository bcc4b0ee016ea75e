/* The Host check: a page of someone else's must not read our answers by pointing its name at us.
 *
 * Invariants:
 *  1. What is malformed is refused; nothing is resolved or guessed.
 *
 * Life: pure functions. Failure: none. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin/admin.h"

#include <arpa/inet.h>

enum { ADDRESS_BYTES = 64 };

static bool is_port(struct span digits)
{
    uint64_t port;
    return span_u64(digits, &port) == OK && port <= 65535;
}

static bool is_address(struct span host, int family)
{
    uint8_t address[16];
    char text[ADDRESS_BYTES];

    if (host.len == 0 || host.len >= sizeof text || memchr(host.at, '\0', host.len))
        return false;
    memcpy(text, host.at, host.len);
    text[host.len] = '\0';
    return inet_pton(family, text, address) == 1;
}

/* What names of hosts are made of; a status answer shows the name again, as part of a URL. */
static bool is_name(struct span host)
{
    for (size_t i = 0; i < host.len; i++) {
        char c = host.at[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!letter && !(c >= '0' && c <= '9') && c != '-' && c != '.' && c != '_')
            return false;
    }
    return true;
}

struct span guard_host_name(struct span field)
{
    static const struct span none = {"", 0};
    struct span rest = field, host;

    if (span_starts(field, span_of("["))) {
        rest = span_from(field, 1);
        if (span_find(rest, ']') == rest.len)
            return none;
        host = span_cut(&rest, ']');
        if (!is_address(host, AF_INET6) || (rest.len && rest.at[0] != ':'))
            return none;
        return rest.len == 0 || is_port(span_from(rest, 1)) ? host : none;
    }
    bool has_port = span_find(field, ':') < field.len;
    host = span_cut(&rest, ':');
    return is_name(host) && (!has_port || is_port(rest)) ? host : none;
}

bool guard_host(struct span field, const char *const *names, unsigned count)
{
    struct span host = guard_host_name(field);

    if (host.len == 0)
        return false;
    if (is_address(host, AF_INET) || is_address(host, AF_INET6) ||
        span_is_nocase(host, "localhost"))
        return true;
    for (unsigned i = 0; i < count; i++)
        if (names[i][0] && span_is_nocase(host, names[i]))
            return true;
    return false;
}
