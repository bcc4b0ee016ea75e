/* What the tests of the configuration share: what must stand in any, and how to read one. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_CONF_CASE_H
#define HEADPOND_CONF_CASE_H

#include "conf.h"

#define NEEDED "[upstream]\nendpoint = \"https://s3.example.com\"\n[cache]\ndirs = [\"/c\"]\n"

static struct conf_mistakes mistakes;

static struct config *load_with(const char *text, char *const *env, const struct conf_flag *flags,
                                unsigned flag_count)
{
    struct config *c = NULL;
    enum err e = conf_parse(span_of(text), "f", env, flags, flag_count, &c, &mistakes);

    if (e != OK)
        fail_msg("%s: %s", err_name(e), mistakes.count ? mistakes.item[0].text : "");
    assert_int_equal(mistakes.count, 0);
    return c;
}

static unused_ok struct config *load(const char *text)
{
    return load_with(text, NULL, NULL, 0);
}

/* Parses text, which must have exactly the mistake, or with NULL none. */
static unused_ok void check_only(const char *text, const char *mistake)
{
    struct config *c = NULL;
    enum err e = conf_parse(span_of(text), "f", NULL, NULL, 0, &c, &mistakes);

    if (!mistake) {
        assert_int_equal(e, OK);
        conf_give(c);
        return;
    }
    assert_int_equal(e, ERR_CONFIG);
    assert_null(c);
    assert_string_equal(mistakes.item[0].text, mistake);
    assert_int_equal(mistakes.count, 1);
}

#endif
