/* headpond plan load, show, drop: what is asked of the server, and what is shown. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ctl_case.h"

static const char *file_of(const char *text)
{
    static char path[300];
    FILE *f;

    snprintf(path, sizeof path, "%s/plan", dir);
    f = fopen(path, "we");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    return path;
}

static void a_plan_is_sent_as_it_stands(void **state)
{
    static const char document[] =
        "{\"job\":\"j\",\n \"epoch\":1,\"prefix\":\"b\",\"streams\":[[\"k\"]]}\n";
    static const char lines[] =
        "{\"job\":\"j\",\"epoch\":1,\"prefix\":\"b\"}\n{\"stream\":0,\"keys\":[\"k\"]}\n";
    struct fake f;

    (void)state;
    fake_start(&f, dir, BODY "{\"v\":1,\"id\":\"p7\",\"objects\":1281,\"bytes\":1073741824,"
                             "\"cached_bytes\":1024,\"unknown\":0,\"first_unknown\":[]}", 3);
    assert_int_equal(RUN("--server", f.url, "plan", "load", file_of(document)), CTL_DONE);
    shows("p7: 1 281 objects, 1.00 GiB, 1.00 KiB already here\n");
    assert_non_null(strstr(f.asked, "POST /v1/plans HTTP/1.1\r\n"));
    assert_non_null(strstr(f.asked, "application/json"));
    assert_non_null(strstr(f.asked, document));
    assert_int_equal(RUN("--server", f.url, "plan", "load", file_of(lines)), CTL_DONE);
    assert_non_null(strstr(f.asked, "application/x-ndjson"));
    assert_non_null(strstr(f.asked, lines));
    assert_int_equal(RUN("--server", f.url, "--json", "plan", "load", file_of(lines)), CTL_DONE);
    shows("\"id\":\"p7\"");
    fake_end(&f);
    assert_int_equal(unlink(file_of("")), 0);
    assert_int_equal(RUN("plan", "load", "/nowhere/at/all"), CTL_USAGE);
    assert_non_null(strstr(err_text_, "No such file"));
    assert_int_equal(RUN("plan", "load"), CTL_USAGE);
}

#define PLAN "{\"v\":1,\"id\":\"p7\",\"job\":\"night\",\"epoch\":4,\"prefix\":\"b/\\u001b[31m\"," \
             "\"state\":\"running\",\"objects\":{\"entries\":1281,\"read\":204,\"late\":8," \
             "\"skipped\":2,\"unknown\":1,\"failed\":0},\"lead_s\":4.21,\"note\":\"waits\"," \
             "\"first_unknown\":[\"b/gone\"]}"

static void plans_are_shown_and_dropped(void **state)
{
    struct fake f;

    (void)state;
    fake_start(&f, dir, BODY "{\"v\":1,\"plans\":[" PLAN "]}", 1);
    assert_int_equal(RUN("--server", f.url, "plan", "show"), CTL_DONE);
    shows("p7 night epoch 4 running, 204 of 1 281 read, 8 late, 2 left out, 1 object not to be "
          "had, 4.2 s ahead, b/");
    assert_null(strchr(out_text, '\033'));
    assert_non_null(strstr(f.asked, "GET /v1/plans HTTP"));
    fake_end(&f);
    fake_start(&f, dir, BODY PLAN, 1);
    assert_int_equal(RUN("--server", f.url, "plan", "show", "p7"), CTL_DONE);
    shows("  waits\n  not in the store: b/gone\n");
    assert_non_null(strstr(f.asked, "GET /v1/plans/p7 HTTP"));
    fake_end(&f);
    fake_start(&f, dir, BODY "{\"v\":1,\"id\":\"p7\",\"dropped\":true}", 1);
    assert_int_equal(RUN("--server", f.url, "plan", "drop", "p/7"), CTL_DONE);
    assert_non_null(strstr(f.asked, "DELETE /v1/plans/p%2F7 HTTP"));
    fake_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_is_sent_as_it_stands),
        cmocka_unit_test(plans_are_shown_and_dropped),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
