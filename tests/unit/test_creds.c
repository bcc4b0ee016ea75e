/* Unit tests of common/creds.c: the order of the chain, ~/.aws files as they are written, and what
 * is refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/creds.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

/* ---- a home with ~/.aws ---- */
static char home[] = "/tmp/headpond-test-home-XXXXXX";
static char home_variable[64], credentials_path[64], config_path[64];

static int make_home(void **state)
{
    (void)state;
    char aws[64];
    if (!mkdtemp(home))
        return -1;
    snprintf(home_variable, sizeof(home_variable), "HOME=%s", home);
    snprintf(aws, sizeof(aws), "%s/.aws", home);
    snprintf(credentials_path, sizeof(credentials_path), "%s/.aws/credentials", home);
    snprintf(config_path, sizeof(config_path), "%s/.aws/config", home);
    return mkdir(aws, 0700);
}

static int remove_home(void **state)
{
    (void)state;
    char aws[64];
    unlink(credentials_path);
    unlink(config_path);
    snprintf(aws, sizeof(aws), "%s/.aws", home);
    return rmdir(aws) || rmdir(home);
}

static void write_file(const char *path, const char *bytes) /* NULL: no such file */
{
    unlink(path);
    if (!bytes)
        return;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(bytes, f);
    fclose(f);
}

enum { ENV_MAX = 8 };

struct found {
    enum err e;
    struct creds creds;
    char why[1000], region[CREDS_REGION_BYTES_MAX + 1];
    enum err region_err;
};

static struct found look(const char *const env[ENV_MAX], const char *profile)
{
    static struct found f;
    char *all[ENV_MAX + 2] = {home_variable};
    struct text why;
    for (unsigned i = 0; i < ENV_MAX && env && env[i]; i++)
        all[i + 1] = (char *)(uintptr_t)env[i];
    const struct creds_place place = {all, profile};
    f = (struct found){.e = OK};
    text_init(&why, f.region, 0);
    f.region_err = creds_region(&place, f.region, &why);
    text_init(&why, f.why, sizeof(f.why));
    f.e = creds_read(&place, &f.creds, &why);
    assert_true((f.e == OK) == (f.why[0] == '\0'));
    return f;
}

/* ---- INI ---- */
static void test_ini(void **state)
{
    (void)state;
    static const char text[] =
        "\xEF\xBB\xBF# comment\n\n[default]\r\n  region = nested\r\naws_access_key_id = AK \r\n"
        "s3 =\n  addressing_style = path\n; comment\n[ profile a ] # it\nx=y#z ; c\n"
        "empty = # nothing\nk==v\n[profile b];c\nlast=1";
    static const struct {
        const char *section, *name, *value;
        unsigned line;
    } row[] = {
        {"default", "aws_access_key_id", "AK", 5}, {"default", "s3", "", 6},
        {"profile a", "x", "y#z", 10},             {"profile a", "empty", "", 11},
        {"profile a", "k", "=v", 12},              {"profile b", "last", "1", 14},
    };
    struct ini ini;
    struct span name, value;
    ini_begin(&ini, span_of(text));
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        assert_int_equal(ini_next(&ini, &name, &value), OK);
        assert_true(span_is(ini.section, row[i].section));
        assert_true(span_is(name, row[i].name));
        assert_true(span_is(value, row[i].value));
        assert_int_equal(ini.line, row[i].line);
    }
    assert_int_equal(ini_next(&ini, &name, &value), ERR_NOT_FOUND);
}

static void test_ini_mistakes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned line, column;
    } row[] = {
        {"a = 1", 1, 1},     {"[a\nb = 1", 1, 3},     {"\n[a] b\nc=1", 2, 5},
        {"[a]\nword", 2, 1}, {"[a]\n#\n = 1\n=1", 4, 1},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        struct ini ini;
        struct span name, value;
        ini_begin(&ini, span_of(row[i].text));
        assert_int_equal(ini_next(&ini, &name, &value), ERR_SYNTAX);
        assert_int_equal(ini.line, row[i].line);
        assert_int_equal(ini.column, row[i].column);
        assert_non_null(ini.why);
    }
}

/* ---- the chain ---- */
static const char *const env_pair[ENV_MAX] = {"AWS_ACCESS_KEY_ID=ENVAK",
                                              "AWS_SECRET_ACCESS_KEY=envsecret"};

static void test_environment_first(void **state)
{
    (void)state;
    write_file(credentials_path,
               "[default]\naws_access_key_id=FILEAK\naws_secret_access_key=filesecret\n");
    write_file(config_path, NULL);
    struct found f = look(env_pair, NULL);
    assert_int_equal(f.e, OK);
    assert_string_equal(f.creds.access_key, "ENVAK");
    assert_int_equal(f.creds.secret.len, 9);
    assert_memory_equal(f.creds.secret.bytes, "envsecret", 9);
    assert_string_equal(f.creds.token, "");
    assert_string_equal(f.creds.source, "environment");
    const char *const with_token[ENV_MAX] = {env_pair[0], env_pair[1],
                                             "AWS_SESSION_TOKEN=tok/en=="};
    assert_string_equal(look(with_token, "").creds.token, "tok/en==");
    static const struct {
        const char *text;
        uint64_t expire_s;
    } row[] = {
        {"AWS_CREDENTIAL_EXPIRATION=2026-11-20T13:56:23Z", 1795182983},
        {"AWS_CREDENTIAL_EXPIRATION=2026-11-20T13:56:23+00:00", 1795182983},
        {"AWS_CREDENTIAL_EXPIRATION=2026-11-20T13:56:23+01:00", 0},
        {"AWS_CREDENTIAL_EXPIRATION=tomorrow", 0}, {"AWS_CREDENTIAL_EXPIRATION=", 0},
        {"X=y", 0},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        const char *const expiring[ENV_MAX] = {env_pair[0], env_pair[1], "AWS_SESSION_TOKEN=t",
                                               row[i].text};
        assert_int_equal(look(expiring, "").creds.expire_s, row[i].expire_s);
    }
    assert_string_equal(look(NULL, NULL).creds.access_key, "FILEAK");
}

/* As in boto3, the Go SDK and the command line: a profile named in code wins over keys in the
 * environment. */
static void test_configured_profile_beats_environment(void **state)
{
    (void)state;
    write_file(credentials_path,
               "[work]\naws_access_key_id=WORKAK\naws_secret_access_key=s\naws_session_token=t\n");
    write_file(config_path, NULL);
    struct found f = look(env_pair, "work");
    assert_int_equal(f.e, OK);
    assert_string_equal(f.creds.access_key, "WORKAK");
    assert_string_equal(f.creds.token, "t");
    assert_string_equal(f.creds.source, "shared credentials file");
    const char *const named[ENV_MAX] = {env_pair[0], env_pair[1], "AWS_PROFILE=work"};
    assert_string_equal(look(named, NULL).creds.access_key, "ENVAK");
    const char *const only_named[ENV_MAX] = {"AWS_PROFILE=work"};
    assert_string_equal(look(only_named, NULL).creds.access_key, "WORKAK");
    const char *const other[ENV_MAX] = {"AWS_PROFILE=other"};
    assert_string_equal(look(other, "work").creds.access_key, "WORKAK");
}

static void test_half_a_pair_is_an_error(void **state)
{
    (void)state;
    static const char *const env[][ENV_MAX] = {{"AWS_ACCESS_KEY_ID=AK"},
                                               {"AWS_SECRET_ACCESS_KEY=hidden"}};
    static const char *const file[] = {"[default]\naws_access_key_id=A\n",
                                       "[default]\naws_secret_access_key=hidden\n"};
    for (unsigned i = 0; i < 2; i++) {
        write_file(credentials_path,
                   "[default]\naws_access_key_id=FILEAK\naws_secret_access_key=s\n");
        write_file(config_path, NULL);
        struct found f = look(env[i], NULL);
        assert_int_equal(f.e, ERR_CREDENTIALS);
        assert_null(strstr(f.why, "hidden"));
        write_file(credentials_path, file[i]);
        f = look(NULL, NULL);
        assert_int_equal(f.e, ERR_CREDENTIALS);
        assert_null(strstr(f.why, "hidden"));
    }
}

static void test_nothing_configured(void **state)
{
    (void)state;
    write_file(credentials_path, NULL);
    write_file(config_path, NULL);
    struct found f = look(NULL, NULL);
    assert_int_equal(f.e, ERR_NOT_FOUND);
    assert_non_null(strstr(f.why, "AWS_ACCESS_KEY_ID"));
    assert_int_equal(f.region_err, ERR_NOT_FOUND);
    write_file(config_path, "[default]\nregion = eu-west-1\nendpoint_url = http://127.0.0.1:1\n");
    assert_int_equal(look(NULL, NULL).e, ERR_NOT_FOUND);
    /* No HOME, no files: still an answer, not a crash. */
    char *none[] = {NULL};
    char room[500];
    struct creds c;
    struct text why;
    text_init(&why, room, sizeof(room));
    assert_int_equal(creds_read(&(struct creds_place){none, NULL}, &c, &why), ERR_NOT_FOUND);
    assert_int_equal(creds_read(&(struct creds_place){NULL, NULL}, &c, &why), ERR_NOT_FOUND);
}

static void test_profile_that_does_not_exist(void **state)
{
    (void)state;
    write_file(credentials_path, "[default]\naws_access_key_id=A\naws_secret_access_key=s\n");
    write_file(config_path, "[worker]\nregion=x\n[profile works]\nregion=y\n");
    const char *const env[ENV_MAX] = {"AWS_PROFILE=work"};
    struct found f = look(env, NULL);
    assert_int_equal(f.e, ERR_CREDENTIALS);
    assert_non_null(strstr(f.why, "\"work\""));
    assert_non_null(strstr(f.why, credentials_path));
    /* "[worker]" is no profile of config */
    assert_int_equal(look(NULL, "worker").e, ERR_CREDENTIALS);
}

static void test_profiles_of_the_config_file(void **state)
{
    (void)state;
    write_file(credentials_path, "[a]\naws_access_key_id=A1\naws_secret_access_key=s\n");
    write_file(config_path,
               "[default]\naws_access_key_id=D\naws_secret_access_key=s\nregion=rd\n"
               "[profile a]\naws_access_key_id=A2\naws_secret_access_key=s\nregion = ra\n"
               "[profile \"b c\"]\nAWS_Access_Key_ID=BC\naws_secret_access_key=s\n"
               "[sso-session a]\nregion=wrong\n[services a]\nregion=wrong\n");
    struct found f = look(NULL, NULL);
    assert_string_equal(f.creds.access_key, "D");
    assert_string_equal(f.creds.source, "config file");
    assert_string_equal(f.region, "rd");
    f = look(NULL, "a");
    assert_string_equal(f.creds.access_key, "A1"); /* the credentials file wins */
    assert_string_equal(f.region, "ra");
    assert_string_equal(look(NULL, "b c").creds.access_key, "BC");
}

static void test_region_order(void **state)
{
    (void)state;
    write_file(credentials_path, NULL);
    write_file(config_path, "[default]\nregion = from-file\n[profile bad]\nregion = a/b\n");
    const char *const both[ENV_MAX] = {"AWS_DEFAULT_REGION=second", "AWS_REGION=first"};
    const char *const second[ENV_MAX] = {"AWS_DEFAULT_REGION=second"};
    const char *const empty[ENV_MAX] = {"AWS_DEFAULT_REGION=", "AWS_REGION="};
    assert_string_equal(look(both, NULL).region, "first");
    assert_string_equal(look(second, NULL).region, "second");
    assert_string_equal(look(empty, NULL).region, "from-file");
    assert_int_equal(look(NULL, "bad").region_err, ERR_CREDENTIALS);
}

static void test_places_of_the_files(void **state)
{
    (void)state;
    char variable[200];
    write_file(credentials_path, NULL);
    write_file(config_path, "[default]\naws_access_key_id=HERE\naws_secret_access_key=s\n");
    const char *const tilde[ENV_MAX] = {"AWS_SHARED_CREDENTIALS_FILE=~/.aws/config"};
    struct found f = look(tilde, NULL);
    assert_string_equal(f.creds.access_key, "HERE");
    assert_string_equal(f.creds.source, "shared credentials file");
    snprintf(variable, sizeof(variable), "AWS_CONFIG_FILE=%s/none", home);
    const char *const elsewhere[ENV_MAX] = {variable};
    assert_int_equal(look(elsewhere, NULL).e, ERR_NOT_FOUND);
    snprintf(variable, sizeof(variable), "AWS_CONFIG_FILE=%s", home);
    f = look(elsewhere, NULL);
    assert_int_equal(f.e, ERR_CREDENTIALS);
    assert_non_null(strstr(f.why, "is not a regular file"));
}

static void test_sources_of_later_versions(void **state)
{
    (void)state;
    static const struct {
        const char *config, *env, *named;
    } row[] = {
        {"[default]\nrole_arn=arn:x\nsource_profile=y\n", NULL, "role_arn in profile \"default\""},
        {"[default]\ncredential_process=/bin/x\n", NULL, "credential_process"},
        {"[default]\nsso_session=x\n", NULL, "sso_session"},
        {"[default]\nsso_start_url=x\n", NULL, "sso_start_url"},
        {"[default]\nweb_identity_token_file=/x\n", NULL, "web_identity_token_file"},
        {"", "AWS_WEB_IDENTITY_TOKEN_FILE=/x", "AWS_WEB_IDENTITY_TOKEN_FILE"},
        {"", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=/x", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"},
        {"", "AWS_CONTAINER_CREDENTIALS_FULL_URI=http://x", "AWS_CONTAINER_CREDENTIALS_FULL_URI"},
    };
    write_file(credentials_path, NULL);
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        const char *const env[ENV_MAX] = {row[i].env};
        write_file(config_path, row[i].config);
        struct found f = look(env, NULL);
        assert_int_equal(f.e, ERR_CREDENTIALS);
        assert_non_null(strstr(f.why, row[i].named));
        assert_non_null(strstr(f.why, "which this version does not support"));
        /* Keys in the environment come before all of them. */
        const char *const keys[ENV_MAX] = {env_pair[0], env_pair[1], row[i].env};
        assert_int_equal(look(keys, NULL).e, OK);
    }
}

static void test_static_keys_against_later_sources(void **state)
{
    (void)state;
    write_file(credentials_path, "[default]\naws_access_key_id=A\naws_secret_access_key=s\n");
    write_file(config_path, "[default]\ncredential_process=/bin/x\n");
    assert_int_equal(look(NULL, NULL).e, OK);
    write_file(config_path, "[default]\nrole_arn=arn:x\n");
    /* a role comes before keys, in every SDK */
    assert_int_equal(look(NULL, NULL).e, ERR_CREDENTIALS);
}

static void test_characters_that_cannot_be_sent(void **state)
{
    (void)state;
    static const char *const env[][ENV_MAX] = {
        {"AWS_ACCESS_KEY_ID=A\r\nX: y", "AWS_SECRET_ACCESS_KEY=s"},
        {"AWS_ACCESS_KEY_ID=A,B", "AWS_SECRET_ACCESS_KEY=s"},
        {"AWS_ACCESS_KEY_ID=A", "AWS_SECRET_ACCESS_KEY=s s"},
        {"AWS_ACCESS_KEY_ID=A", "AWS_SECRET_ACCESS_KEY=s", "AWS_SESSION_TOKEN=t\nX: y"},
        {"AWS_ACCESS_KEY_ID=A\x80", "AWS_SECRET_ACCESS_KEY=s"},
    };
    for (unsigned i = 0; i < ARRAY_COUNT(env); i++)
        assert_int_equal(look(env[i], NULL).e, ERR_CREDENTIALS);
    char access[200], secret[400];
    const char *const too_long[ENV_MAX] = {access, secret};
    snprintf(access, sizeof(access), "AWS_ACCESS_KEY_ID=%0128d", 1);
    snprintf(secret, sizeof(secret), "AWS_SECRET_ACCESS_KEY=%0256d", 1);
    assert_int_equal(look(too_long, NULL).e, OK);
    snprintf(access, sizeof(access), "AWS_ACCESS_KEY_ID=%0129d", 1);
    assert_int_equal(look(too_long, NULL).e, ERR_CREDENTIALS);
    snprintf(access, sizeof(access), "AWS_ACCESS_KEY_ID=1");
    snprintf(secret, sizeof(secret), "AWS_SECRET_ACCESS_KEY=%0257d", 1);
    assert_int_equal(look(too_long, NULL).e, ERR_CREDENTIALS);
}

static void test_malformed_file_is_named(void **state)
{
    (void)state;
    char want[200];
    write_file(credentials_path,
               "[default]\naws_access_key_id=A\naws_secret_access_key=s\nnonsense\n");
    write_file(config_path, NULL);
    struct found f = look(NULL, NULL);
    assert_int_equal(f.e, ERR_CREDENTIALS);
    snprintf(want, sizeof(want), "%s:4:1: ", credentials_path);
    assert_non_null(strstr(f.why, want));
    assert_int_equal(f.region_err, ERR_CREDENTIALS);
}

static void test_file_of_two_mib(void **state)
{
    (void)state;
    char *big = malloc(2 * MIB + 1);
    memset(big, '#', 2 * MIB);
    big[2 * MIB] = '\0';
    write_file(config_path, big);
    write_file(credentials_path, NULL);
    struct found f = look(NULL, NULL);
    assert_int_equal(f.e, ERR_CREDENTIALS);
    assert_non_null(strstr(f.why, "larger than 1 MiB"));
    free(big);
}

static void test_wipe(void **state)
{
    (void)state;
    struct creds c = {.access_key = "A", .secret = {1, "s"}, .token = "t", .source = "x"}, zero;
    memset(&zero, 0, sizeof(zero));
    creds_wipe(&c);
    assert_memory_equal(&c, &zero, sizeof(c));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ini),
        cmocka_unit_test(test_ini_mistakes),
        cmocka_unit_test(test_environment_first),
        cmocka_unit_test(test_configured_profile_beats_environment),
        cmocka_unit_test(test_half_a_pair_is_an_error),
        cmocka_unit_test(test_nothing_configured),
        cmocka_unit_test(test_profile_that_does_not_exist),
        cmocka_unit_test(test_profiles_of_the_config_file),
        cmocka_unit_test(test_region_order),
        cmocka_unit_test(test_places_of_the_files),
        cmocka_unit_test(test_sources_of_later_versions),
        cmocka_unit_test(test_static_keys_against_later_sources),
        cmocka_unit_test(test_characters_that_cannot_be_sent),
        cmocka_unit_test(test_malformed_file_is_named),
        cmocka_unit_test(test_file_of_two_mib),
        cmocka_unit_test(test_wipe),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
