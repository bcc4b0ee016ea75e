/* The command line: completion scripts and manual pages, made from its tables. What shells and
 * readers of pages make of them is looked at by make conf-check. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/ctl_case.h"

static void completion_offers_what_there_is(void **state)
{
    (void)state;
    assert_int_equal(RUN("completion", "bash"), CTL_DONE);
    shows("'') words='setup status env doctor ready disk ls du top hist pin unpin pins config ");
    shows("'job') words=' show wait pause resume retry cancel bandwidth' options=' --server");
    shows("'config') words=' show reload' options=' --server");
    shows("'completion'|'completion '*) words=' bash zsh fish' options=' --server");
    shows("'job wait'|'job wait '*) words='' options=' --timeout --server");
    shows("--shell) COMPREPLY=($(compgen -W ' sh fish python docker k8s'");
    assert_int_equal(RUN("completion", "zsh"), CTL_DONE);
    assert_memory_equal(out_text, "#compdef headpond\n", 18);
    assert_int_equal(RUN("completion", "fish"), CTL_DONE);
    shows("complete -c headpond -n '__headpond_is status' -l watch");
    shows("complete -c headpond -n '__headpond_is job wait' -l timeout");
}

static void verbs_that_are_missing_are_not_offered(void **state)
{
    static const char *const scripts[] = {"bash", "zsh", "fish"};

    (void)state;
    for (unsigned k = 0; k < ARRAY_COUNT(scripts); k++) {
        assert_int_equal(RUN("completion", scripts[k]), CTL_DONE);
        for (unsigned i = 0; i < ctl_verb_count(); i++) {
            char quoted[64];
            snprintf(quoted, sizeof quoted, "'%s'|", ctl_verbs[i].name);
            if (k < 2)
                assert_int_equal(strstr(out_text, quoted) != NULL, ctl_verbs[i].run != NULL);
        }
    }
}

/* Options that are followed by a value stand once in the list of those, whoever shares the name. */
static void a_value_is_no_verb(void **state)
{
    (void)state;
    assert_int_equal(RUN("completion", "bash"), CTL_DONE);
    shows("            --server|--timeout|--token-file|");
    shows("|--unread-for|");
    shows("|--include|--exclude|");
    const char *first = strstr(out_text, "--timeout|");
    assert_non_null(first);
    assert_null(strstr(first + 1, "--timeout|"));
    assert_null(strstr(out_text, "--watch|"));
}

static void pages_tell_all_that_the_tables_hold(void **state)
{
    (void)state;
    assert_int_equal(RUN("man", "headpond"), CTL_DONE);
    shows(".TH headpond 1 ");
    for (unsigned i = 0; i < ctl_verb_count(); i++) {
        char bold[80];
        snprintf(bold, sizeof bold, "\n\\fB%s\\fR", ctl_verbs[i].name);
        assert_int_equal(strstr(out_text, bold) != NULL, ctl_verbs[i].run != NULL);
    }
    shows("\n\\fB124\\fR\nwaited too long\n");
    shows("\\fB\\-\\-token\\-file\\fR \\fIFILE\\fR\n");
    shows("\\fB\\-\\-watch\\fR[=\\fITIME\\fR]\n");
    assert_int_equal(RUN("man", "headpondd"), CTL_DONE);
    shows("\n\\fB\\-\\-allow\\-root\\fR\n");
    shows("\n\\fBdisk fenced\\fR \\fIerror\\fR\n");
    assert_int_equal(RUN("man", "headpond.toml"), CTL_DONE);
    for (unsigned i = 0; i < CONF_OPTIONS; i++) {
        char bold[80];
        snprintf(bold, sizeof bold, "\n\\fB%s\\fR = ", conf_options[i].key);
        shows(bold);
    }
    shows("#[[bucket]]\n");
    assert_int_equal(RUN("man", "headpond.conf"), CTL_USAGE);
}

static void text_cannot_command_roff(void **state)
{
    (void)state;
    struct capture out = capture_begin(stdout);
    say(".so /etc/passwd \\n 'x");
    capture_end(&out, out_text);
    assert_string_equal(out_text, "\\&.so /etc/passwd \\en \\(aqx\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completion_offers_what_there_is),
        cmocka_unit_test(verbs_that_are_missing_are_not_offered),
        cmocka_unit_test(a_value_is_no_verb),
        cmocka_unit_test(pages_tell_all_that_the_tables_hold),
        cmocka_unit_test(text_cannot_command_roff),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
