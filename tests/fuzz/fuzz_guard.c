/* What a stranger sends to the control plane: the Host field, and (first byte odd) a listen address
 * with the host that a status answer shows to its reader. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin/guard.c"

#include "conf.h"
#include "tests/fuzz/fuzz.h"

static bool is_bracketed(struct span field)
{
    return field.len && field.at[0] == '[';
}

static void check_host(struct span field)
{
    static const char *const names[] = {"cache.local", ""};
    char again[600];
    struct span host = guard_host_name(field);
    demand(host.at != NULL);
    if (guard_host(field, names, ARRAY_COUNT(names)))
        demand(is_address(host, AF_INET) || is_address(host, AF_INET6) ||
               span_is_nocase(host, "localhost") || span_is_nocase(host, "cache.local"));
    if (host.len == 0) {
        demand(!guard_host(field, names, ARRAY_COUNT(names)));
        return;
    }
    for (size_t i = 0; i < host.len; i++)
        demand(host.at[i] > ' ' && host.at[i] < 0x7f && !strchr("<>\"'&/@", host.at[i]));
    demand(host.at >= field.at && host.at + host.len <= field.at + field.len);
    demand(is_bracketed(field) || span_find(host, ':') == host.len);
    if (host.len > 500)
        return;
    /* The same host with a port is the same host. */
    bool v6 = is_bracketed(field);
    snprintf(again, sizeof(again), "%s%.*s%s:65535", v6 ? "[" : "", (int)host.len, host.at,
             v6 ? "]" : "");
    if (!memchr(host.at, 0, host.len))
        demand(span_eq(guard_host_name(span_of(again)), host));
}

static void check_url(struct span listen, struct span host)
{
    char text[256], url[S3_URL_BYTES];
    const char *why = NULL;
    struct uri u;
    struct conf_listen at;
    if (listen.len >= sizeof(text) || memchr(listen.at, 0, listen.len))
        return;
    memcpy(text, listen.at, listen.len);
    text[listen.len] = 0;
    status_s3_url(text, listen.len % 2 != 0, host, url);
    demand(strlen(url) < sizeof(url));
    if (url[0] == 0)
        return;
    demand(conf_listen_read(span_of(text), &at) == OK);
    if (uri_parse(span_of(url), &u, &why) == OK)
        demand(u.port == at.port && u.path.len == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed f = {data, size};
    bool url = feed_below(&f, 2);
    struct span first = feed_line(&f);
    char *copy = exact_copy(first.at, first.len);
    first.at = copy;
    if (url)
        check_url(first, guard_host_name(feed_line(&f)));
    else
        check_host(first);
    exact_give(copy);
    return 0;
}
