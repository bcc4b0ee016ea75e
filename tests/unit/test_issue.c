/* Unit tests of server/origin/issue.c: where plain HTTP may go, and the form that STS gets. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/issue.c"

#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static struct sockaddr_storage address(const char *text)
{
    struct sockaddr_storage at = {.ss_family = strchr(text, ':') ? AF_INET6 : AF_INET};
    void *to = at.ss_family == AF_INET6
                   ? (void *)&((struct sockaddr_in6 *)(void *)&at)->sin6_addr
                   : (void *)&((struct sockaddr_in *)(void *)&at)->sin_addr;
    assert_int_equal(inet_pton(at.ss_family, text, to), 1);
    return at;
}

static void plain_http_goes_where_it_may(void **state)
{
    (void)state;
    static const struct {
        const char *at;
        bool container, instance;
    } row[] = {
        {"127.0.0.1", true, true},         {"127.9.9.9", true, true},
        {"::1", true, true},               {"::ffff:127.0.0.1", true, true},
        {"169.254.170.2", true, true},     {"169.254.170.23", true, true},
        {"fd00:ec2::23", true, true},      {"169.254.169.254", false, true},
        {"fd00:ec2::254", false, true},    {"169.254.170.3", false, true},
        {"10.0.0.1", false, true},         {"192.168.1.1", false, true},
        {"198.51.100.7", false, false},    {"8.8.8.8", false, false},
        {"2001:db8::1", false, false},     {"::ffff:8.8.8.8", false, false},
        {"128.0.0.1", false, false},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        struct sockaddr_storage at = address(row[i].at);
        if (container_ok((struct sockaddr *)&at) != row[i].container ||
            instance_ok((struct sockaddr *)&at) != row[i].instance)
            fail_msg("%s", row[i].at);
    }
}

static void the_form(void **state)
{
    (void)state;
    struct creds_step step = {.role = "arn:aws:iam::1:role/a b", .session = "n", .external_id = "",
                              .duration_s = 0};
    struct taking t = {.step = &step};
    char memory[KIB];
    struct text form;
    text_init(&form, memory, sizeof(memory));
    write_form(&t, "AssumeRole", NULL, &form);
    assert_string_equal(memory, "Action=AssumeRole&Version=2011-06-15&RoleArn="
                                "arn%3Aaws%3Aiam%3A%3A1%3Arole%2Fa%20b&RoleSessionName=n");
    step.external_id = "x&y=z";
    step.duration_s = 900;
    step.session = "";
    text_init(&form, memory, sizeof(memory));
    write_form(&t, "AssumeRoleWithWebIdentity", "to+ken", &form);
    assert_non_null(strstr(memory, "&RoleSessionName=headpond-1"));
    assert_non_null(strstr(memory, "&ExternalId=x%26y%3Dz&DurationSeconds=900&WebIdentityToken="
                                   "to%2Bken"));
}

static void words_of_metadata(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "a b", "a/b", "..\\a", "a?b", "a%2f", "a\nb", "a\x7f"};
    assert_true(is_word(span_of("node-role_1+=,.@"), ROLE_BYTES_MAX));
    for (unsigned i = 0; i < ARRAY_COUNT(bad); i++)
        assert_false(is_word(span_of(bad[i]), ROLE_BYTES_MAX));
    assert_false(is_word(span_of("abc"), 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_http_goes_where_it_may),
        cmocka_unit_test(the_form),
        cmocka_unit_test(words_of_metadata),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
