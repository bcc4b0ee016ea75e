/* Opening upstream: every refusal has words. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/origin/open.c"

#include "tests/lib/scripted.h"

/* ---- opening ---- */

static void test_refusals_have_words(void **state)
{
    (void)state;
    static const struct {
        const char *endpoint, *extra, *words;
    } table[] = {
        {"http://8.8.8.8", "", "public address"},
        {"https://127.0.0.1", "ca_file = \"/nonexistent\"", "ca_file"},
        {"file:///nonexistent-dir", "", "must exist"},
        {"https://127.0.0.1", "path_style = \"virtual\"", "needs a host name"},
        {"http://127.0.0.1", "region = \"not a region\"", "upstream.region"},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(table); i++) {
        char why[512] = "";
        assert_int_not_equal(open_origin(table[i].endpoint, table[i].extra, why), OK);
        if (!strstr(why, table[i].words))
            fail_msg("%s: \"%s\"", table[i].endpoint, why);
        settings_close(&server);
        conf_give((struct config *)(uintptr_t)server.config);
    }
    char why[512];
    assert_int_equal(open_origin("http://8.8.8.8", "insecure = true", why), OK);
    origin_close(server.origin[0]);
    settings_close(&server);
    conf_give((struct config *)(uintptr_t)server.config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_refusals_have_words, clean_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
