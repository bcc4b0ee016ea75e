/* Addresses and scalars that operators write: what is accepted is usable as it is, and written once
 * more it is read as the same. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/endpoint.c"

#include "tests/fuzz/fuzz.h"

static bool is_plain(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text >= 0x7f)
            return false;
    return true;
}

static void check_endpoint(struct span text, unsigned style)
{
    struct endpoint p, again;
    const char *why = NULL;
    char url[2 * KIB];
    if (endpoint_read(text, style, &p, &why) != OK) {
        demand(why != NULL);
        return;
    }
    if (p.directory) {
        demand(p.path[0] == '/');
        return;
    }
    demand(p.host[0] && p.port && is_plain(p.authority) && is_plain(p.path));
    demand(p.path[0] == 0 || p.path[strlen(p.path) - 1] != '/');
    demand(!p.virtual_host || !p.host_is_address);
    snprintf(url, sizeof(url), "%s://%s%s", p.tls ? "https" : "http", p.authority, p.path);
    demand(endpoint_read(span_of(url), style, &again, &why) == OK);
    demand(again.tls == p.tls && again.port == p.port && strcmp(again.host, p.host) == 0);
    demand(strcmp(again.authority, p.authority) == 0 && strcmp(again.path, p.path) == 0);
    demand(again.virtual_host == p.virtual_host && again.amazon == p.amazon);
}

static void check_region(struct span host)
{
    char region[ENDPOINT_REGION_BYTES];
    if (!endpoint_region(host, region))
        return;
    demand(region_is_name(span_of(region)));
    char name[ENDPOINT_REGION_BYTES + 32], again[ENDPOINT_REGION_BYTES];
    snprintf(name, sizeof(name), "s3.%s.example.com", region);
    demand(endpoint_region(span_of(name), again) && strcmp(again, region) == 0);
}

static void check_scalars(struct span text)
{
    uint64_t bytes, ms, again;
    char out[64];
    struct conf_size size;
    struct conf_cidr cidr;
    struct conf_listen listen;
    if (conf_read_bytes(text, &bytes) == OK) {
        snprintf(out, sizeof(out), "%llu", (unsigned long long)bytes);
        demand(conf_read_bytes(span_of(out), &again) == OK && again == bytes);
    }
    if (conf_read_time_ms(text, &ms) == OK) {
        snprintf(out, sizeof(out), "%llums", (unsigned long long)ms);
        demand(conf_read_time_ms(span_of(out), &again) == OK && again == ms);
    }
    if (conf_read_size(text, &size) == OK)
        demand(size.bytes == 0 || size.percent == 0);
    if (conf_cidr_read(text, &cidr) == OK)
        demand(cidr.bits <= (cidr.v6 ? 128 : 32));
    if (conf_listen_read(text, &listen) == OK)
        demand(listen.unix_path.len == 0 || listen.unix_path.at[0] == '/');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char *bytes = exact_copy(data + 1, size - 1);
    struct span text = span_make(bytes, size - 1);
    check_endpoint(text, data[0] % 3);
    check_region(text);
    check_scalars(text);
    exact_give(bytes);
    return 0;
}
