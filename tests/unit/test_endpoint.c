/* Where the store is: URLs, Host fields, paths, regions in names, private addresses. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/endpoint.c"

#include <setjmp.h>
#include <stdio.h>

#include <cmocka.h>

static void test_urls(void **state)
{
    static const struct {
        const char *text;
        unsigned style;
        bool ok, tls, virtual_host, amazon;
        uint16_t port;
        const char *host, *authority, *path;
    } table[] = {
        {"https://s3.eu-central-1.amazonaws.com", CONF_PATH_STYLE_AUTO, true, true, true, true, 443,
         "s3.eu-central-1.amazonaws.com", "s3.eu-central-1.amazonaws.com", ""},
        {"https://S3.EU-Central-1.amazonaws.com/", CONF_PATH_STYLE_PATH, true, true, false, true,
            443,
         "s3.eu-central-1.amazonaws.com", "s3.eu-central-1.amazonaws.com", ""},
        {"http://minio.local:9000", CONF_PATH_STYLE_AUTO, true, false, false, false, 9000,
            "minio.local", "minio.local:9000", ""},
        {"http://minio.local:9000", CONF_PATH_STYLE_VIRTUAL, true, false, true, false, 9000,
            "minio.local", "minio.local:9000", ""},
        {"http://10.0.0.1:80/base/", CONF_PATH_STYLE_AUTO, true, false, false, false, 80,
            "10.0.0.1", "10.0.0.1", "/base"},
        {"https://[fd00::1]:8443", CONF_PATH_STYLE_AUTO, true, true, false, false, 8443, "fd00::1",
            "[fd00::1]:8443", ""},
        {"https://10.0.0.1", CONF_PATH_STYLE_VIRTUAL, false, false, false, false, 0, "", "", ""},
        {"https://evilamazonaws.com", CONF_PATH_STYLE_AUTO, true, true, false, false, 443,
            "evilamazonaws.com",
         "evilamazonaws.com", ""},
        {"ftp://host", CONF_PATH_STYLE_AUTO, false, false, false, false, 0, "", "", ""},
        {"https://", CONF_PATH_STYLE_AUTO, false, false, false, false, 0, "", "", ""},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(table); i++) {
        struct endpoint p;
        const char *why = NULL;
        enum err e = endpoint_read(span_of(table[i].text), table[i].style, &p, &why);
        if ((e == OK) != table[i].ok)
            fail_msg("%s: %s", table[i].text, why);
        if (e != OK) {
            assert_non_null(why);
            continue;
        }
        assert_int_equal(p.tls, table[i].tls);
        assert_int_equal(p.virtual_host, table[i].virtual_host);
        assert_int_equal(p.amazon, table[i].amazon);
        assert_int_equal(p.port, table[i].port);
        assert_string_equal(p.host, table[i].host);
        assert_string_equal(p.authority, table[i].authority);
        assert_string_equal(p.path, table[i].path);
        assert_false(p.directory);
    }
}

/* The longest host and path that fit, and one byte more. */
static void test_long_hosts_and_paths(void **state)
{
    char text[2 * KIB], label[64] = {0};
    struct endpoint p;
    const char *why;
    (void)state;
    memset(label, 'a', sizeof(label) - 1);
    for (int more = 0; more <= 1; more++) {
        why = NULL;
        /* RFC 1035 2.3.4: 253 bytes in labels of 63 */
        snprintf(text, sizeof(text), "https://%s.%s.%s.%.*s", label, label, label, 61 + more,
                 label);
        assert_int_equal(endpoint_read(span_of(text), CONF_PATH_STYLE_AUTO, &p, &why),
                         more ? ERR_CONFIG : OK);
        assert_true(more == (why != NULL));
        snprintf(text, sizeof(text), "https://h/%0*d//", (int)sizeof(p.path) - 2 + more, 1);
        assert_int_equal(endpoint_read(span_of(text), CONF_PATH_STYLE_AUTO, &p, &why),
                         more ? ERR_CONFIG : OK);
        if (more)
            assert_string_equal(why, "the path is too long");
    }
}

static void test_directories(void **state)
{
    struct endpoint p;
    const char *why = NULL;
    (void)state;
    assert_int_equal(endpoint_read(span_of("file:///data/with%20blank"), 0, &p, &why), OK);
    assert_true(p.directory);
    assert_string_equal(p.path, "/data/with blank");
    assert_int_equal(endpoint_read(span_of("file:///data%00x"), 0, &p, &why), ERR_CONFIG);
    assert_int_equal(endpoint_read(span_of("file://data"), 0, &p, &why), ERR_CONFIG);
}

static void test_regions_in_names(void **state)
{
    static const struct {
        const char *host, *region;   /* NULL: none */
    } table[] = {
        {"s3.eu-central-1.amazonaws.com", "eu-central-1"},
        {"s3-eu-west-1.amazonaws.com", "eu-west-1"},
        {"s3.dualstack.us-west-2.amazonaws.com", "us-west-2"},
        {"s3-fips.us-gov-west-1.amazonaws.com", "us-gov-west-1"},
        {"bucket.s3.ap-south-2.amazonaws.com", "ap-south-2"},
        {"s3.cn-north-1.amazonaws.com.cn", "cn-north-1"},
        {"s3.us-west-002.backblazeb2.com", "us-west-002"},
        {"s3.amazonaws.com", NULL},
        {"s3.wasabisys.com", NULL},
        {"minio.local", NULL},
        {"eu-central-1.example.com", NULL},
        {"10.0.0.1", NULL},
        {"", NULL},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(table); i++) {
        char region[ENDPOINT_REGION_BYTES] = "-";
        bool found = endpoint_region(span_of(table[i].host), region);
        if (found != (table[i].region != NULL) || (found && strcmp(region, table[i].region) != 0))
            fail_msg("%s: %s", table[i].host, region);
    }
    assert_true(region_is_name(span_of("us-east-1")));
    assert_true(region_is_name(span_of("auto")));
    assert_false(region_is_name(span_of("a/b")));
    assert_false(region_is_name(span_of("")));
    assert_false(region_is_name(span_of("x\r\ny")));
}

static void test_hosts_and_paths(void **state)
{
    static const struct {
        const char *endpoint, *bucket, *key, *host, *path;
    } table[] = {
        {"http://m:9000", "b", "k", "m:9000", "/b/k"},
        {"http://m:9000", "b", "", "m:9000", "/b"},
        {"http://m:9000", "", "", "m:9000", "/"},
        {"http://m:9000", "b", "/lead", "m:9000", "/b//lead"},
        {"http://m:9000", "b", "a//b/./../c/", "m:9000", "/b/a//b/./../c/"},
        {"http://m:9000", "b", "~!$&'()*,;=:@-_.", "m:9000",
            "/b/~%21%24%26%27%28%29%2A%2C%3B%3D%3A%40-_."},
        {"http://m:9000/base", "b", "a b+c", "m:9000", "/base/b/a%20b%2Bc"},
        {"https://s3.eu-west-1.amazonaws.com", "b.with.dots", "k/l",
            "b.with.dots.s3.eu-west-1.amazonaws.com", "/k/l"},
        {"https://s3.eu-west-1.amazonaws.com", "b", "", "b.s3.eu-west-1.amazonaws.com", "/"},
        {"https://s3.eu-west-1.amazonaws.com", "", "", "s3.eu-west-1.amazonaws.com", "/"},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(table); i++) {
        char host_memory[256], path_memory[256];
        struct text host, path;
        struct endpoint p;
        const char *why;
        assert_int_equal(endpoint_read(span_of(table[i].endpoint), CONF_PATH_STYLE_AUTO, &p, &why),
                         OK);
        text_init(&host, host_memory, sizeof(host_memory));
        text_init(&path, path_memory, sizeof(path_memory));
        endpoint_host(&p, span_of(table[i].bucket), &host);
        endpoint_path(&p, span_of(table[i].bucket), span_of(table[i].key), &path);
        assert_string_equal(host.at, table[i].host);
        assert_string_equal(path.at, table[i].path);
    }
}

static void test_private_addresses(void **state)
{
    static const struct {
        const char *text;
        bool private;
    } table[] = {
        {"127.0.0.1", true}, {"127.255.1.2", true}, {"10.1.2.3", true}, {"11.0.0.1", false},
            {"172.16.0.1", true},
        {"172.31.255.255", true}, {"172.32.0.1", false}, {"192.168.7.7", true},
            {"192.169.0.1", false},
        {"169.254.1.1", true}, {"100.64.0.1", true}, {"100.128.0.1", false}, {"8.8.8.8", false},
            {"0.0.0.0", false},
        {"::1", true}, {"fe80::1", true}, {"fd12::1", true}, {"fe00::1", false},
            {"2001:db8::1", false},
        {"::ffff:10.0.0.1", true}, {"::ffff:8.8.8.8", false}, {"::", false},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(table); i++) {
        struct sockaddr_in v4 = {.sin_family = AF_INET};
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
        bool is_v6 = strchr(table[i].text, ':') != NULL;
        assert_int_equal(is_v6 ? inet_pton(AF_INET6, table[i].text, &v6.sin6_addr)
                               : inet_pton(AF_INET, table[i].text, &v4.sin_addr), 1);
        if (address_is_private(is_v6 ? (void *)&v6 : (void *)&v4) != table[i].private)
            fail_msg("%s", table[i].text);
    }
    assert_false(address_is_private(&(struct sockaddr){.sa_family = AF_UNIX}));
}

static void test_no_store_stands_at_a_metadata_service(void **state)
{
    static const struct {
        const char *text;
        bool strange;
    } table[] = {
        {"169.254.169.254", true}, {"169.253.255.255", false}, {"169.255.0.0", false},
        {"0.0.0.0", true}, {"1.0.0.1", false}, {"224.0.0.1", true}, {"223.255.255.255", false},
        {"255.255.255.255", true}, {"127.0.0.1", false}, {"10.0.0.1", false},
        {"fe80::1", true}, {"fec0::1", false}, {"fd00:ec2::254", true}, {"fd00:ec3::254", false},
        {"::", true}, {"::1", false}, {"ff02::1", true}, {"2001:db8::1", false},
        {"::ffff:169.254.169.254", true}, {"::ffff:10.0.0.1", false},
    };
    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(table); i++) {
        struct sockaddr_in v4 = {.sin_family = AF_INET};
        struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
        bool is_v6 = strchr(table[i].text, ':') != NULL;
        assert_int_equal(is_v6 ? inet_pton(AF_INET6, table[i].text, &v6.sin6_addr)
                               : inet_pton(AF_INET, table[i].text, &v4.sin_addr), 1);
        if (address_is_strange(is_v6 ? (void *)&v6 : (void *)&v4) != table[i].strange)
            fail_msg("%s", table[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_urls), cmocka_unit_test(test_long_hosts_and_paths),
        cmocka_unit_test(test_directories),
            cmocka_unit_test(test_regions_in_names),
        cmocka_unit_test(test_hosts_and_paths), cmocka_unit_test(test_private_addresses),
        cmocka_unit_test(test_no_store_stands_at_a_metadata_service),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
