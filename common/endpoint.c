/* Where the store is and how it wants to be asked: the configured URL, the Host field, paths,
 * regions in names.
 *
 * Invariants:
 *  1. Pure: no name is looked up here, nothing is allocated.
 *  2. A key goes on the wire percent-encoded once and is never normalised: "//", "." and ".." are
 *     parts of keys.
 *  3. With virtual hosts the bucket stands in the Host field only: every connection goes to the
 *     endpoint's own name, so that one pool serves all buckets and bucket names with dots meet no
 *     wildcard certificate.
 *
 * Life: a struct endpoint is made at start and never changes.
 * Failure: an unusable URL is ERR_CONFIG with a sentence; texts that do not fit set `over` for the
 * caller to see. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>

#include "conf.h"
#include "endpoint.h"

/* ---- the URL ---- */

static void copy_lower(struct span in, char *out)
{
    for (size_t i = 0; i < in.len; i++)
        out[i] = (char)(in.at[i] >= 'A' && in.at[i] <= 'Z' ? in.at[i] + ('a' - 'A') : in.at[i]);
    out[in.len] = '\0';
}

static void write_authority(struct endpoint *p)
{
    bool v6 = strchr(p->host, ':') != NULL;
    struct text t;

    text_init(&t, p->authority, sizeof(p->authority));
    text_addf(&t, v6 ? "[%s]" : "%s", p->host);
    if (p->port != (p->tls ? 443 : 80))
        text_addf(&t, ":%u", (unsigned)p->port);
    must(!t.over);
}

static enum err set_path(struct span path, struct endpoint *out, const char **why)
{
    while (path.len && path.at[path.len - 1] == '/')
        path.len--;
    if (path.len >= sizeof(out->path)) {
        *why = "the path is too long";
        return ERR_CONFIG;
    }
    memcpy(out->path, path.len ? path.at : "", path.len);
    out->path[path.len] = '\0';
    return OK;
}

static enum err set_directory(struct span path, struct endpoint *out, const char **why)
{
    size_t len;

    if (uri_decode(path, false, out->path, sizeof(out->path) - 1, &len) != OK) {
        *why = "the directory's path is too long or badly escaped";
        return ERR_CONFIG;
    }
    out->path[len] = '\0';
    out->directory = true;
    return OK;
}

static bool is_amazon(struct span host)
{
    return span_ends(host, span_of(".amazonaws.com")) ||
        span_ends(host, span_of(".amazonaws.com.cn"));
}

enum err endpoint_read(struct span text, unsigned path_style, struct endpoint *out,
                       const char **why)
{
    struct endpoint p = {0};
    struct uri uri;

    if (uri_parse(text, &uri, why) != OK)
        return ERR_CONFIG;
    if (span_is(uri.scheme, "file")) {
        TRY(set_directory(uri.path, &p, why));
        *out = p;
        return OK;
    }
    TRY(set_path(uri.path, &p, why));
    if (uri.host.len == 0 || uri.host.len >= sizeof(p.host)) {
        *why = "the host is missing or too long";
        return ERR_CONFIG;
    }
    p.tls = span_is(uri.scheme, "https");
    p.port = uri.port ? uri.port : p.tls ? 443 : 80;
    p.host_is_address = uri.host_is_address;
    copy_lower(uri.host, p.host);
    p.amazon = !p.host_is_address && is_amazon(span_of(p.host));
    p.virtual_host = path_style == CONF_PATH_STYLE_VIRTUAL ||
                     (path_style == CONF_PATH_STYLE_AUTO && p.amazon);
    if (p.virtual_host && p.host_is_address) {
        *why = "path_style = \"virtual\" needs a host name, not an address";
        return ERR_CONFIG;
    }
    write_authority(&p);
    *out = p;
    return OK;
}

/* ---- regions ---- */

bool region_is_name(struct span text)
{
    if (text.len < 2 || text.len >= ENDPOINT_REGION_BYTES)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        char c = text.at[i];
        if (!(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && !(c >= '0' && c <= '9') &&
            c != '-' && c != '_')
            return false;
    }
    return true;
}

/* "eu-central-1", "us-gov-west-1", "us-west-002": letters first, a hyphen inside, a digit last. */
static bool looks_like_region(struct span label)
{
    return region_is_name(label) && label.at[0] >= 'a' && label.at[0] <= 'z' &&
        span_find(label, '-') < label.len &&
           label.at[label.len - 1] >= '0' && label.at[label.len - 1] <= '9';
}

bool endpoint_region(struct span host, char out[ENDPOINT_REGION_BYTES])
{
    static const char *const services[] = {"s3", "s3-fips", "s3-accelerate", "dualstack"};
    bool behind_service = false;

    while (host.len) {
        struct span label = span_cut(&host, '.');
        struct span region = label;
        /* s3-eu-west-1.amazonaws.com, of old */
        if (!behind_service && span_starts(label, span_of("s3-")))
            region = span_from(label, 3);
        else if (!behind_service)
            region.len = 0;
        if (looks_like_region(region)) {
            memcpy(out, region.at, region.len);
            out[region.len] = '\0';
            return true;
        }
        bool service = false;
        for (unsigned i = 0; i < ARRAY_COUNT(services); i++)
            service = service || span_is(label, services[i]);
        behind_service = service;
    }
    return false;
}

/* ---- the request's place ---- */

void endpoint_host(const struct endpoint *p, struct span bucket, struct text *out)
{
    if (p->virtual_host && bucket.len) {
        text_add(out, bucket);
        text_addc(out, '.');
    }
    text_adds(out, p->authority);
}

void endpoint_path(const struct endpoint *p, struct span bucket, struct span key, struct text *out)
{
    text_adds(out, p->path);
    text_addc(out, '/');
    if (!p->virtual_host && bucket.len) {
        uri_encode(out, bucket, false);
        if (key.len)
            text_addc(out, '/');
    }
    uri_encode(out, key, true);
}

/* ---- addresses ---- */

static bool v4_is_private(uint32_t a) /* host order */
{
    return a >> 24 == 127 || a >> 24 == 10 || a >> 20 == (172 << 4 | 1) ||
        a >> 16 == (192 << 8 | 168) ||
           a >> 16 == (169 << 8 | 254) || a >> 22 == (100 << 2 | 1); /* RFC 1918, 3927, 6598 */
}

bool address_is_private(const struct sockaddr *at)
{
    if (at->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)at;
        return v4_is_private(ntohl(v4->sin_addr.s_addr));
    }
    if (at->sa_family != AF_INET6)
        return false;
    const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)at)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(a)) {
        uint32_t v4;
        memcpy(&v4, a->s6_addr + 12, sizeof(v4));
        return v4_is_private(ntohl(v4));
    }
    /* RFC 4193 */
    return IN6_IS_ADDR_LOOPBACK(a) || IN6_IS_ADDR_LINKLOCAL(a) || (a->s6_addr[0] & 0xfe) == 0xfc;
}

/* 169.254.0.0/16, 0.0.0.0/8 and what is no host's address at all. */
static bool v4_is_strange(uint32_t a)
{
    return a >> 16 == 0xa9fe || a >> 24 == 0 || a >> 28 >= 0xe;
}

bool address_is_strange(const struct sockaddr *at)
{
    if (at->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const void *)at;
        return v4_is_strange(ntohl(v4->sin_addr.s_addr));
    }
    const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)at)->sin6_addr;
    if (IN6_IS_ADDR_V4MAPPED(a)) {
        uint32_t v4;
        memcpy(&v4, a->s6_addr + 12, sizeof(v4));
        return v4_is_strange(ntohl(v4));
    }
    static const uint8_t amazon_services[] = {0xfd, 0x00, 0x0e, 0xc2}; /* fd00:ec2::254 */
    return IN6_IS_ADDR_LINKLOCAL(a) || IN6_IS_ADDR_MULTICAST(a) || IN6_IS_ADDR_UNSPECIFIED(a) ||
           memcmp(a->s6_addr, amazon_services, sizeof(amazon_services)) == 0;
}
