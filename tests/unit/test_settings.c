/* Unit tests of server/settings.c: settings that differ in credentials only, and who frees what. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/settings.c"

#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

static struct server server;
static char keys_path[] = "/tmp/headpond-test-keys-XXXXXX";

static struct config *parse(const char *upstream)
{
    static struct conf_mistakes mistakes;
    struct config *config = NULL;
    char *const env[] = {NULL};
    char text[1000];
    snprintf(text, sizeof(text), "[cache]\ndirs = [\"/tmp\"]\n[auth]\nkeys_file = \"%s\"\n"
                                 "[upstream]\nendpoint = \"http://127.0.0.1:1\"\n%s\n",
             keys_path, upstream);
    if (conf_parse(span_of(text), "test", env, NULL, 0, &config, &mistakes) != OK)
        fail_msg("%s", mistakes.item[0].text);
    return config;
}

static int open_settings(void **state)
{
    (void)state;
    static const char line[] = "AK secret ro\n";
    struct conf_mistakes *mistakes = mem_take(sizeof(*mistakes));
    int fd = mkstemp(keys_path);
    setenv("AWS_ACCESS_KEY_ID", "ENVAK", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "s", 1);
    setenv("AWS_CONFIG_FILE", "/nonexistent", 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    bool written = fd >= 0 && write(fd, line, sizeof(line) - 1) == sizeof(line) - 1;
    close(fd);
    pthread_mutex_init(&server.settings_lock, NULL);
    server.config = parse("");
    enum err e = settings_open(&server, mistakes);
    mem_give(mistakes);
    return written && e == OK ? 0 : -1;
}

static int close_settings(void **state)
{
    (void)state;
    settings_close(&server);
    conf_give((struct config *)(uintptr_t)server.config);
    return unlink(keys_path);
}

static const struct creds fresh = {.access_key = "NEW", .token = "t", .secret = {.len = 1},
                                   .source = "x", .expire_s = 5, .renewed = true};

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

/* A profile keeps its number while the process lives: requests outlive the settings that
 * authorised them. */
static void profiles_of_keys_keep_their_numbers(void **state)
{
    (void)state;
    static struct conf_mistakes mistakes;
    struct settings *one = NULL, *two = NULL;
    char file[] = "/tmp/headpond-test-profiles-XXXXXX";
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    close(fd);
    write_file(file, "[red]\naws_access_key_id = R\naws_secret_access_key = r\n"
                     "[blue]\naws_access_key_id = B\naws_secret_access_key = b\n");
    setenv("AWS_SHARED_CREDENTIALS_FILE", file, 1);
    write_file(keys_path, "A s ro profile=red\nB s rw\nC s ro x profile=blue\n");
    assert_int_equal(settings_make(&server, parse(""), &one, &mistakes), OK);
    assert_int_equal(one->profile_count, 3);
    unsigned red = keys_find(one->keys, span_of("A"))->profile_number;
    unsigned blue = keys_find(one->keys, span_of("C"))->profile_number;
    assert_int_equal(keys_find(one->keys, span_of("B"))->profile_number, 0);
    assert_string_equal(one->profile[red].creds->access_key, "R");
    assert_string_equal(one->profile[blue].creds->access_key, "B");
    assert_string_equal(one->creds->access_key, "ENVAK");
    write_file(keys_path, "C s ro x profile=blue\n");
    assert_int_equal(settings_make(&server, parse(""), &two, &mistakes), OK);
    assert_int_equal(keys_find(two->keys, span_of("C"))->profile_number, blue);
    assert_null(two->profile[red].creds);
    assert_false(two->profile[red].used);
    assert_null(settings_profile(two, "red"));
    settings_drop(one);
    settings_drop(two);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    unlink(file);
    write_file(keys_path, "AK secret ro\n");
}

static void a_key_whose_profile_is_nowhere_stops_a_start(void **state)
{
    (void)state;
    static struct conf_mistakes mistakes;
    struct settings *next = NULL;
    write_file(keys_path, "AK secret ro\nAK2 secret rw data profile=team\n");
    assert_int_equal(settings_make(&server, parse(""), &next, &mistakes), ERR_CREDENTIALS);
    assert_non_null(strstr(mistakes.item[0].text, keys_path));
    assert_non_null(strstr(mistakes.item[0].text, "profile \"team\" is neither in"));
    write_file(keys_path, "AK secret ro\n");
}

/* Each misspelt profile= took one of them until a restart. */
static void a_refused_configuration_takes_no_number_of_a_profile(void **state)
{
    (void)state;
    static struct conf_mistakes mistakes;
    struct settings *next = NULL;
    unsigned before = server.profile_names;
    for (unsigned i = 0; i < PROFILES_MAX + 4; i++) {
        char line[60];
        snprintf(line, sizeof(line), "K s ro x profile=typo%u\n", i);
        write_file(keys_path, line);
        assert_int_equal(settings_make(&server, parse(""), &next, &mistakes), ERR_CREDENTIALS);
        assert_int_equal(server.profile_names, before);
    }
    write_file(keys_path, "AK secret ro\n");
}

/* There are 71 in a process. */
static void a_refused_configuration_takes_no_names_in_metrics(void **state)
{
    (void)state;
    static struct conf_mistakes mistakes;
    struct settings *next = NULL;
    unsigned before = metric_name_label(NAMED_BUCKET, "before");
    write_file(keys_path, "no line of a keys file\n");
    assert_int_not_equal(
        settings_make(&server, parse("[[bucket]]\nmatch = \"typo\"\n"), &next, &mistakes), OK);
    assert_int_equal(metric_name_label(NAMED_BUCKET, "behind"), before + 1);
    write_file(keys_path, "AK secret ro\n");
}

/* Numbers are never given twice, so they run out; that is told, with the way out. */
static void profiles_run_out_clearly(void **state)
{
    (void)state;
    static struct conf_mistakes mistakes;
    struct settings *next = NULL;
    char text[2000] = "";
    for (unsigned i = 0; i < PROFILES_MAX + 1; i++)
        snprintf(text + strlen(text), sizeof(text) - strlen(text), "K%u s ro profile=p%u\n", i, i);
    write_file(keys_path, text);
    assert_int_not_equal(settings_make(&server, parse(""), &next, &mistakes), OK);
    bool told = false;
    for (unsigned i = 0; i < mistakes.count && i < CONF_MISTAKES_MAX; i++)
        told |= strstr(mistakes.item[i].text, "more than 16 profiles since the start") != NULL;
    assert_true(told);
    write_file(keys_path, "AK secret ro\n");
}

static void new_credentials_share_the_rest(void **state)
{
    (void)state;
    struct settings *first = settings_hold(&server), *second = NULL, *third = NULL;
    assert_int_equal(settings_again(&server, &second), OK);
    assert_string_equal(second->creds->access_key, "ENVAK");
    assert_ptr_not_equal(second->creds, first->creds);
    assert_int_equal(settings_set_creds(second, 0, &fresh, ""), OK);
    assert_string_equal(second->creds->access_key, "NEW");
    assert_string_equal(first->creds->access_key, "ENVAK");
    assert_ptr_equal(second->keys, first->keys);
    assert_ptr_equal(second->config, first->config);
    settings_publish(&server, second);
    assert_int_equal(settings_again(&server, &third), OK);
    assert_ptr_equal(third->root, first); /* no chain */
    assert_string_equal(third->creds->access_key, "NEW");
    settings_publish(&server, third);
    settings_drop(first);            /* the last holder but for those made from it */
    assert_int_equal(keys_count(third->keys), 1);
}

/* What schedules set lies over the same keys, credentials and certificate; credentials that are
 * renewed meanwhile lie over that. */
static void schedules_share_the_rest(void **state)
{
    (void)state;
    struct settings *base = NULL, *day = NULL, *renewed = NULL, *night = NULL, *both = NULL;
    struct conf_mistakes *mistakes = mem_take(sizeof(*mistakes));
    assert_int_equal(settings_make(&server,
                                   parse("[[schedule]]\nwhen = \"Mon\"\n\"cache.ttl\" = \"7s\"\n"
                                         "[[schedule]]\nwhen = \"Mon\"\n\"log.slow_ms\" = 5"),
                                   &base, mistakes),
                     OK);
    mem_give(mistakes);
    assert_int_equal(settings_schedule(base, 1, &day), OK);
    assert_int_equal(day->config->cache_ttl, 7000);
    assert_int_equal(base->config->cache_ttl, 60000);
    assert_ptr_equal(day->keys, base->keys);
    assert_ptr_equal(day->root, base);
    assert_string_equal(day->creds->access_key, "ENVAK");
    settings_publish(&server, day);
    assert_int_equal(settings_again(&server, &renewed), OK);
    assert_ptr_equal(renewed->config, day->config);
    assert_ptr_equal(renewed->root, day);
    assert_int_equal(settings_set_creds(renewed, 0, &fresh, ""), OK);
    settings_publish(&server, renewed); /* day lives on, as its configuration is in use */
    assert_int_equal(settings_schedule(renewed, 2, &both), OK);
    assert_ptr_equal(both->root, base); /* no longer chain */
    assert_int_equal(both->config->cache_ttl, 60000);
    assert_int_equal(both->config->log_slow_ms, 5);
    assert_string_equal(both->creds->access_key, "NEW");
    settings_publish(&server, both);
    assert_int_equal(settings_schedule(both, 0, &night), OK);
    assert_ptr_equal(night->config, base->config);
    settings_publish(&server, night);
    settings_drop(base);             /* the last holder but for those made from it */
    assert_int_equal(keys_count(night->keys), 1);
}

static void what_is_due_follows_the_clock(void **state)
{
    (void)state;
    struct settings *base = NULL, *next;
    struct conf_mistakes *mistakes = mem_take(sizeof(*mistakes));
    assert_int_equal(settings_make(&server, parse("[[schedule]]\nwhen = \"00:00-24:00\"\n"
                                                  "\"cache.ttl\" = \"7s\""), &base, mistakes), OK);
    mem_give(mistakes);
    assert_true(settings_are_due(base));
    next = settings_follow(base);
    assert_ptr_not_equal(next, base);
    assert_int_equal(next->config->cache_ttl, 7000);
    assert_false(settings_are_due(next));
    assert_ptr_equal(settings_follow(next), next);
    settings_publish(&server, next);
}

/* What a core still works with lives on, whoever came behind it. */
static void who_holds_the_old_ones_keeps_them(void **state)
{
    (void)state;
    struct settings *next = NULL, *made = NULL;
    struct conf_mistakes *mistakes = mem_take(sizeof(*mistakes));
    assert_int_equal(settings_make(&server, parse("sts_endpoint = \"http://127.0.0.1:2\""), &made,
                                   mistakes), OK);
    mem_give(mistakes);
    settings_publish(&server, made);
    assert_int_equal(settings_again(&server, &next), OK);
    settings_publish(&server, next);
    const struct settings *held = settings_hold(&server);
    struct settings *last = NULL;
    assert_int_equal(settings_again(&server, &last), OK);
    settings_publish(&server, last);
    assert_string_equal(held->config->upstream[0].sts_endpoint, "http://127.0.0.1:2");
    assert_int_equal(keys_count(held->keys), 1);
    settings_drop(held);
    assert_string_equal(last->config->upstream[0].sts_endpoint, "http://127.0.0.1:2");
}

/* One of them would have its token go where the other one trusts. */
static void who_shares_a_profile_and_its_sts_trusts_it_alike(void **state)
{
    static const struct {
        const char *sts, *other;
        bool good;
    } rows[] = {
        {"sts_endpoint = 'https://s'\n", "insecure = true", false},
        {"sts_endpoint = 'https://s'\n", "ca_file = '/ca.pem'", false},
        {"sts_endpoint = 'https://s'\n", "", true},
        {"", "insecure = true", true}, /* that of AWS is verified, whatever they say */
    };
    struct conf_mistakes *m = mem_take(sizeof(*m));

    (void)state;
    assert_non_null(m);
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        char *const env[] = {NULL};
        struct config *config = NULL;
        struct settings *made = NULL;
        char text[600];
        snprintf(text, sizeof(text), "[cache]\ndirs = [\"/tmp\"]\n"
                 "[[upstream]]\nname = 'a'\nendpoint = 'http://127.0.0.1:1'\n%s"
                 "[[upstream]]\nname = 'b'\nendpoint = 'http://127.0.0.1:2'\nmatch = ['b']\n%s%s\n",
                 rows[i].sts, rows[i].sts, rows[i].other);
        *m = (struct conf_mistakes){.count = 0};
        assert_int_equal(conf_parse(span_of(text), "test", env, NULL, 0, &config, m), OK);
        enum err e = settings_make(&server, config, &made, m);
        if ((e == OK) != rows[i].good || (e != OK && !strstr(m->item[0].text, "ca_file")))
            fail_msg("row %u: %s, %s", i, err_text(e), m->count ? m->item[0].text : "");
        if (made)
            settings_drop(made);
    }
    mem_give(m);
}

static void profiles_are_found_by_name(void **state)
{
    (void)state;
    struct settings *t = NULL;
    assert_int_equal(settings_again(&server, &t), OK);
    assert_non_null(settings_profile(t, ""));
    assert_ptr_equal(settings_profile(t, "")->creds, t->creds);
    assert_null(settings_profile(t, "other"));
    assert_false(settings_wait(t));
    assert_int_equal(settings_set_creds(t, 0, &(struct creds){.source = "x"}, "why"), OK);
    assert_true(settings_wait(t));
    assert_string_equal(settings_profile(t, "")->why, "why");
    assert_int_equal(settings_set_creds(t, 0, NULL, ""), OK);
    assert_null(t->creds);
    assert_false(settings_wait(t));  /* unsigned, by choice */
    settings_drop(t);
}

static void mistakes_of_credentials_stop_a_start(void **state)
{
    (void)state;
    struct conf_mistakes *mistakes = mem_take(sizeof(*mistakes));
    struct settings *made = NULL;
    char name[300];
    assert_int_equal(settings_make(&server, parse("profile = \"nobody\""), &made, mistakes),
                     ERR_CREDENTIALS);
    assert_non_null(strstr(mistakes->item[0].text, "upstream: profile \"nobody\" is neither in"));
    snprintf(name, sizeof(name), "profile = \"%0200d\"", 1);
    assert_int_equal(settings_make(&server, parse(name), &made, mistakes), ERR_CONFIG);
    assert_non_null(strstr(mistakes->item[0].text, "upstream.profile"));
    mem_give(mistakes);
}

/* ---- several upstreams ---- */

static struct config *parse_several(const char *sections)
{
    static struct conf_mistakes mistakes;
    struct config *config = NULL;
    char *const env[] = {NULL};
    char text[2000];
    snprintf(text, sizeof(text), "[cache]\ndirs = [\"/tmp\"]\n[auth]\nkeys_file = \"%s\"\n%s",
             keys_path, sections);
    if (conf_parse(span_of(text), "test", env, NULL, 0, &config, &mistakes) != OK)
        fail_msg("%s", mistakes.item[0].text);
    return config;
}

static void a_store_is_where_it_is_unless_it_is_alone_and_has_a_name(void **state)
{
    (void)state;
    static const struct {
        const char *sections, *store[4];
        unsigned count;
        uint8_t of[4];
    } rows[] = {
        {"[upstream]\nendpoint = 'https://S3.Example.com'\n", {"s3.example.com:443"}, 1, {0}},
        {"[upstream]\nname = 'x'\nendpoint = 'http://h:9000'\n", {"x"}, 1, {0}},
        {"[upstream]\nendpoint = 'http://h/'\n", {"h:80/"}, 1, {0}},
        {"[[upstream]]\nname = 'a'\nendpoint = 'http://h'\nmatch = ['a']\n"
         "[[upstream]]\nname = 'b'\nendpoint = 'file:///d/e'\nmatch = ['b']\n"
         "[[upstream]]\nname = 'c'\nendpoint = 'http://H:80'\n"
         "[[upstream]]\nname = 'd'\nendpoint = 'https://h'\nmatch = ['d']\n",
         {"h:80", ":80/d/e", "h:443"}, 3, {0, 0, 1, 2}},
        {"[[upstream]]\nname = 'a'\nendpoint = 'http://h/'\n"
         "[[upstream]]\nname = 'b'\nendpoint = 'http://h:80'\nmatch = ['b']\n"
         "[[upstream]]\nname = 'c'\nendpoint = 'file:///p'\nmatch = ['c']\n"
         "[[upstream]]\nname = 'd'\nendpoint = 'file:///p/'\nmatch = ['d']\n",
         {"h:80/", ":80/p"}, 2, {0, 0, 1, 1}},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(rows); i++) {
        static struct server s;
        s = (struct server){.config = parse_several(rows[i].sections)};
        assert_int_equal(server_name_stores(&s), OK);
        assert_int_equal(s.store_count, rows[i].count);
        for (unsigned k = 0; k < s.store_count; k++)
            assert_string_equal(s.store[k], rows[i].store[k]);
        assert_memory_equal(s.store_of, rows[i].of, s.config->upstream_count);
        conf_give((struct config *)(uintptr_t)s.config);
    }
}

static void each_upstream_has_its_profile(void **state)
{
    (void)state;
    static struct conf_mistakes mistakes;
    static struct server s;
    char file[] = "/tmp/headpond-test-profiles-XXXXXX";
    int fd = mkstemp(file);
    assert_true(fd >= 0);
    close(fd);
    write_file(file, "[red]\naws_access_key_id = R\naws_secret_access_key = r\n");
    setenv("AWS_SHARED_CREDENTIALS_FILE", file, 1);
    static const char two[] = "[[upstream]]\nname = 'a'\nendpoint = 'file:///d'\n"
                              "[[upstream]]\nname = 'b'\nendpoint = 'http://b'\nmatch = ['b']\n"
                              "profile = 'red'\n"
                              "[[upstream]]\nname = 'c'\nendpoint = 'http://c'\nmatch = ['c']\n";
    s = (struct server){.config = parse_several(two)};
    pthread_mutex_init(&s.settings_lock, NULL);
    assert_int_equal(settings_open(&s, &mistakes), OK);
    assert_null(settings_creds(s.settings, 0));
    assert_null(s.settings->creds);
    assert_string_equal(settings_creds(s.settings, 1)->access_key, "R");
    assert_string_equal(settings_creds(s.settings, 2)->access_key, "ENVAK");
    struct settings *again = NULL;
    assert_int_equal(settings_again(&s, &again), OK);
    assert_string_equal(settings_creds(again, 1)->access_key, "R");
    settings_drop(again);
    write_file(keys_path, "AK secret ro profile=red\n");
    assert_int_equal(settings_make(&s, parse_several(two), &again, &mistakes), ERR_CONFIG);
    assert_non_null(strstr(mistakes.item[0].text, "profile= is for servers with one upstream"));
    write_file(keys_path, "AK secret ro\n");
    settings_close(&s);
    conf_give((struct config *)(uintptr_t)s.config);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent", 1);
    unlink(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_credentials_share_the_rest),
        cmocka_unit_test(schedules_share_the_rest),
        cmocka_unit_test(what_is_due_follows_the_clock),
        cmocka_unit_test(who_holds_the_old_ones_keeps_them),
        cmocka_unit_test(who_shares_a_profile_and_its_sts_trusts_it_alike),
        cmocka_unit_test(profiles_are_found_by_name),
        cmocka_unit_test(mistakes_of_credentials_stop_a_start),
        cmocka_unit_test(profiles_of_keys_keep_their_numbers),
        cmocka_unit_test(a_key_whose_profile_is_nowhere_stops_a_start),
        cmocka_unit_test(a_refused_configuration_takes_no_number_of_a_profile),
        cmocka_unit_test(a_refused_configuration_takes_no_names_in_metrics),
        cmocka_unit_test(profiles_run_out_clearly),
        cmocka_unit_test(a_store_is_where_it_is_unless_it_is_alone_and_has_a_name),
        cmocka_unit_test(each_upstream_has_its_profile),
    };
    return cmocka_run_group_tests(tests, open_settings, close_settings);
}
