/* Unit tests of common/creds.c: the order of the chain, ~/.aws files as they are written, and what
 * is refused. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/creds.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
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
    struct creds creds;              /* of the first step */
    unsigned count;
    struct creds_step step[CREDS_STEPS_MAX];
    bool last_resort;
    char why[1000], region[CREDS_REGION_BYTES_MAX + 1];
    enum err region_err;
};

static struct creds_plan *plan;       /* of the last look */

static void keep_plan(struct found *f)
{
    const struct creds_step *step;
    f->creds = *creds_plan_first(plan);
    f->count = creds_plan_steps(plan, &step);
    memcpy(f->step, step, f->count * sizeof(*step));
    f->last_resort = creds_plan_is_last_resort(plan);
    assert_string_equal(f->creds.source, creds_plan_source(plan));
}

static const char *sts_endpoint = "", *upstream_region = "", *sts_ca_file = "";
static bool sts_insecure;

/* Without instance metadata, but for its own tests. */
static struct found look(const char *const env[ENV_MAX], const char *profile)
{
    static struct found f;
    char *all[ENV_MAX + 3] = {home_variable};
    struct text why;
    unsigned n = 1;
    for (unsigned i = 0; i < ENV_MAX && env && env[i]; i++)
        all[n++] = (char *)(uintptr_t)env[i];
    all[n] = "AWS_EC2_METADATA_DISABLED=true";
    const struct creds_place place = {all, profile, upstream_region, sts_endpoint, sts_ca_file,
                                      sts_insecure};
    f = (struct found){.e = OK};
    text_init(&why, f.region, 0);
    f.region_err = creds_region(&place, f.region, &why);
    text_init(&why, f.why, sizeof(f.why));
    creds_plan_drop(plan);
    plan = NULL;
    f.e = creds_find(&place, &plan, &why);
    assert_true((f.e == OK) == (f.why[0] == '\0'));
    if (f.e == OK)
        keep_plan(&f);
    return f;
}

/* ---- INI ---- */
static void test_ini(void **state)
{
    (void)state;
    static const char text[] =
        "\xEF\xBB\xBF# comment\n\n[default]\r\n  region = indented\r\naws_access_key_id = AK \r\n"
        "s3 =\n  addressing_style = path\n; comment\n[ profile a ] # it\nx=y#z ; c\n"
        "empty = # nothing\nk==v\n[profile b];c\nlast=1\n[c]\n\t ; deep\n\tid = 1\n\n"
        "\t\tmore = 2\n\tkey = 3\nouter = 4";
    static const struct {
        const char *section, *name, *value;
        unsigned line;
    } row[] = {
        {"default", "region", "indented", 4}, {"default", "aws_access_key_id", "AK", 5},
        {"default", "s3", "", 6},             {"profile a", "x", "y#z", 10},
        {"profile a", "empty", "", 11},       {"profile a", "k", "=v", 12},
        {"profile b", "last", "1", 14},       {"c", "id", "1", 17},
        {"c", "key", "3", 20},                {"c", "outer", "4", 21},
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
        {"[a]\nword", 2, 1}, {"[a]\n#\n = 1\n=1", 3, 2},
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
static void test_indented_properties(void **state)
{
    (void)state;
    write_file(credentials_path,
               "[default]\n  aws_access_key_id = IN\n  aws_secret_access_key = s\n");
    write_file(config_path, NULL);
    struct found f = look(NULL, NULL);
    assert_int_equal(f.e, OK);
    assert_string_equal(f.creds.access_key, "IN");
}

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
        {"AWS_CREDENTIAL_EXPIRATION=2026-11-20T13:56:23+01:00", 1795182983 - 3600},
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
    char *none[] = {"AWS_EC2_METADATA_DISABLED=TRUE", NULL};
    char room[500];
    struct creds_plan *made = NULL;
    struct text why;
    text_init(&why, room, sizeof(room));
    assert_int_equal(creds_find(&(struct creds_place){.environ_ = none}, &made, &why),
                     ERR_NOT_FOUND);
    assert_int_equal(creds_find(&(struct creds_place){.environ_ = NULL}, &made, &why), OK);
    assert_true(creds_plan_is_last_resort(made));
    creds_plan_drop(made);
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

/* ---- those who have to be asked ---- */
static void test_what_cannot_be_done(void **state)
{
    (void)state;
    static const struct {
        const char *config, *words;
    } row[] = {
        {"sso_session=x\n", "aws configure export-credentials --profile default"},
        {"sso_start_url=x\n", "sso_start_url"},
        {"login_session=x\n", "login_session"},
        {"role_arn=r\nsource_profile=default\naws_access_key_id=A\naws_secret_access_key=s\n"
         "mfa_serial=m\n", "mfa_serial"},
        {"role_arn=r\n", "needs one of"},
        {"role_arn=r\nsource_profile=a\ncredential_source=Environment\n", "not both"},
        {"role_arn=r\nsource_profile=nobody\n", "in neither file"},
        {"role_arn=r\nsource_profile=default\n", "in a circle"},
        {"role_arn=r\nsource_profile=a\n[profile a]\nrole_arn=q\nsource_profile=default\n",
         "in a circle"},
        {"role_arn=r\nsource_profile=a\n[profile a]\nregion=x\n", "has no credentials"},
        {"role_arn=r\ncredential_source=Moon\n", "credential_source"},
        {"role_arn=r\ncredential_source=Environment\n", "there are none"},
        {"role_arn=r\ncredential_source=EcsContainer\n", "there are none"},
        {"role_arn=r\ncredential_source=Environment\nduration_seconds=899\n", "duration_seconds"},
        {"role_arn=r\ncredential_source=Environment\nduration_seconds=43201\n",
         "duration_seconds"},
        {"role_arn=r\ncredential_source=Environment\nregion=a.b\n", "not a region name"},
        {"role_arn=r\x01\ncredential_source=Environment\n", "control character"},
        {"web_identity_token_file=/t\n", "but no role"},
    };
    write_file(credentials_path, NULL);
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        char text[1000];
        snprintf(text, sizeof(text), "[default]\n%s", row[i].config);
        write_file(config_path, text);
        struct found f = look(NULL, NULL);
        assert_int_equal(f.e, ERR_CREDENTIALS);
        if (!strstr(f.why, row[i].words))
            fail_msg("%s: %s", row[i].config, f.why);
        /* Keys in the environment come before all of them. */
        assert_int_equal(look(env_pair, NULL).e, OK);
    }
}

static void test_a_role_with_a_source_profile(void **state)
{
    (void)state;
    write_file(credentials_path, "[base]\naws_access_key_id=BASE\naws_secret_access_key=s\n");
    write_file(config_path,
               "[default]\nrole_arn = arn:aws:iam::1:role/a/reader\nsource_profile = base\n"
               "region = eu-west-1\nexternal_id = e\nrole_session_name = n\n"
               "duration_seconds = 900\naws_access_key_id=NOT\naws_secret_access_key=s\n"
               "[profile deep]\nrole_arn = arn:deep\nsource_profile = middle\n"
               "[profile middle]\nrole_arn = arn:middle\nsource_profile = base\n"
               "[profile self]\nrole_arn = arn:self\nsource_profile = self\n"
               "aws_access_key_id=SELF\naws_secret_access_key=s\n"
               /* as a source a profile gives its keys, not its role */
               "[profile keys]\nrole_arn = arn:keys\nsource_profile = default\n");
    struct found f = look(NULL, NULL);
    assert_int_equal(f.e, OK);
    assert_int_equal(f.count, 2);
    assert_int_equal(f.step[0].kind, CREDS_STATIC);
    assert_string_equal(f.creds.access_key, "BASE");
    assert_int_equal(f.step[1].kind, CREDS_ROLE);
    assert_string_equal(f.step[1].role, "arn:aws:iam::1:role/a/reader");
    assert_string_equal(f.step[1].external_id, "e");
    assert_string_equal(f.step[1].session, "n");
    assert_int_equal(f.step[1].duration_s, 900);
    assert_string_equal(f.step[1].url, "https://sts.eu-west-1.amazonaws.com");
    assert_string_equal(f.step[1].region, "eu-west-1");
    assert_string_equal(f.creds.source, "role reader (profile default)");
    assert_false(creds_plan_is_static(plan));
    f = look(NULL, "deep");
    assert_int_equal(f.count, 3);
    assert_string_equal(f.step[1].role, "arn:middle");
    assert_string_equal(f.step[2].role, "arn:deep");
    f = look(NULL, "self");
    assert_int_equal(f.count, 2);
    assert_string_equal(f.creds.access_key, "SELF");
    f = look(NULL, "keys");
    assert_int_equal(f.count, 2);
    assert_string_equal(f.creds.access_key, "NOT");
}

static void test_too_many_roles(void **state)
{
    (void)state;
    char text[1000];
    struct text t;
    write_file(credentials_path, "[p9]\naws_access_key_id=A\naws_secret_access_key=s\n");
    text_init(&t, text, sizeof(text));
    for (unsigned i = 0; i < 9; i++)
        text_addf(&t, "[profile p%u]\nrole_arn=r%u\nsource_profile=p%u\n", i, i, i + 1);
    write_file(config_path, text);
    assert_int_equal(look(NULL, "p5").count, 5);
    struct found f = look(NULL, "p4");
    assert_int_equal(f.e, ERR_CREDENTIALS);
    assert_non_null(strstr(f.why, "more than 4 roles"));
}

static void test_where_sts_is(void **state)
{
    (void)state;
    static const struct {
        const char *env, *own, *upstream_region, *url, *region;
    } row[] = {
        {NULL, "", "", "https://sts.amazonaws.com", "us-east-1"},
        {NULL, "", "eu-south-2", "https://sts.eu-south-2.amazonaws.com", "eu-south-2"},
        {"AWS_REGION=cn-north-1", "", "", "https://sts.cn-north-1.amazonaws.com.cn", "cn-north-1"},
        {"AWS_DEFAULT_REGION=eu-west-1", "", "x", "https://sts.eu-west-1.amazonaws.com",
         "eu-west-1"},
        {"AWS_REGION=eu-west-1", "https://sts.here:1/", "", "https://sts.here:1/", "eu-west-1"},
        {NULL, "http://127.0.0.1:1", "", "http://127.0.0.1:1", "us-east-1"},
    };
    write_file(credentials_path, NULL);
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        write_file(config_path, "[default]\nrole_arn=r\ncredential_source=Environment\n"
                                "[profile keys]\n");
        const char *const env[ENV_MAX] = {env_pair[0], env_pair[1], row[i].env};
        sts_endpoint = row[i].own;
        upstream_region = row[i].upstream_region;
        sts_ca_file = "/ca.pem";
        sts_insecure = true;
        struct found f = look(env, "default");
        assert_int_equal(f.e, OK);
        assert_string_equal(f.creds.access_key, "ENVAK");
        assert_string_equal(f.step[1].url, row[i].url);
        assert_string_equal(f.step[1].region, row[i].region);
        bool own = row[i].own[0] != '\0';
        assert_int_equal(f.step[1].own_sts, own);
        assert_int_equal(f.step[1].insecure, own); /* that of AWS is verified, always */
        assert_string_equal(f.step[1].ca_file, own ? "/ca.pem" : "");
    }
    sts_endpoint = upstream_region = sts_ca_file = "";
    sts_insecure = false;
    const char *const legacy[ENV_MAX] = {env_pair[0], env_pair[1], "AWS_REGION=eu-west-1",
                                         "AWS_STS_REGIONAL_ENDPOINTS=legacy"};
    assert_string_equal(look(legacy, "default").step[1].url, "https://sts.amazonaws.com");
    static const char *const bad[] = {"sts.here", "http://a/path", "file:///x", "ftp://a"};
    for (unsigned i = 0; i < ARRAY_COUNT(bad); i++) {
        sts_endpoint = bad[i];
        struct found f = look(env_pair, "default");
        assert_int_equal(f.e, ERR_CREDENTIALS);
        assert_non_null(strstr(f.why, "upstream.sts_endpoint"));
    }
    sts_endpoint = "";
}

static void test_web_identity(void **state)
{
    (void)state;
    write_file(credentials_path, "[default]\naws_access_key_id=A\naws_secret_access_key=s\n");
    write_file(config_path, "[profile web]\nweb_identity_token_file=/t\nrole_arn=arn:r/web\n"
                            "source_profile=ignored\n");
    const char *const env[ENV_MAX] = {"AWS_WEB_IDENTITY_TOKEN_FILE=/e", "AWS_ROLE_ARN=arn:e",
                                      "AWS_ROLE_SESSION_NAME=n"};
    struct found f = look(env, NULL);
    assert_int_equal(f.e, OK);
    assert_int_equal(f.count, 1);
    assert_int_equal(f.step[0].kind, CREDS_WEB_IDENTITY);
    assert_string_equal(f.step[0].token_file, "/e");
    assert_string_equal(f.step[0].role, "arn:e");
    assert_string_equal(f.step[0].session, "n");
    f = look(env, "web");            /* a profile that is named: no environment */
    assert_string_equal(f.step[0].token_file, "/t");
    assert_string_equal(f.step[0].role, "arn:r/web");
    assert_string_equal(f.creds.source, "web identity role web");
    const char *const keys_first[ENV_MAX] = {env_pair[0], env_pair[1], env[0], env[1]};
    assert_string_equal(look(keys_first, NULL).creds.access_key, "ENVAK");
}

static void test_process_container_instance(void **state)
{
    (void)state;
    write_file(credentials_path, NULL);
    write_file(config_path, "[default]\ncredential_process = /bin/x \"a b\" # note\n");
    struct found f = look(NULL, NULL);
    assert_int_equal(f.step[0].kind, CREDS_PROCESS);
    assert_string_equal(f.step[0].command, "/bin/x \"a b\"");
    write_file(config_path, NULL);
    const char *const relative[ENV_MAX] = {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=/v2/x",
                                           "AWS_CONTAINER_CREDENTIALS_FULL_URI=http://no",
                                           "AWS_CONTAINER_AUTHORIZATION_TOKEN=t"};
    f = look(relative, NULL);
    assert_int_equal(f.step[0].kind, CREDS_CONTAINER);
    assert_string_equal(f.step[0].url, "http://169.254.170.2/v2/x");
    assert_string_equal(f.step[0].token, "t");
    const char *const crooked[ENV_MAX] = {"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI=.evil/x"};
    assert_int_equal(look(crooked, NULL).e, ERR_CREDENTIALS);
    const char *const split[ENV_MAX] = {"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://localhost/x",
                                        "AWS_CONTAINER_AUTHORIZATION_TOKEN=a\r\nHost: x"};
    assert_int_equal(look(split, NULL).e, ERR_CREDENTIALS);
    const char *const file[ENV_MAX] = {"AWS_CONTAINER_CREDENTIALS_FULL_URI=http://localhost/x",
                                       "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=/f"};
    f = look(file, NULL);
    assert_string_equal(f.step[0].url, "http://localhost/x");
    assert_string_equal(f.step[0].token_file, "/f");
}

static void test_instance_metadata_is_the_last_resort(void **state)
{
    (void)state;
    static const struct {
        char *env, *url;
    } row[] = {
        {"X=y", "http://169.254.169.254"},
        {"AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE=IPv6", "http://[fd00:ec2::254]"},
        {"AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:5", "http://127.0.0.1:5"},
        {"AWS_EC2_METADATA_V1_DISABLED=true", "http://169.254.169.254"},
        {"AWS_EC2_METADATA_DISABLED=false", "http://169.254.169.254"},
    };
    char room[500];
    struct text why;
    write_file(credentials_path, NULL);
    write_file(config_path, NULL);
    for (unsigned i = 0; i < ARRAY_COUNT(row); i++) {
        char *env[] = {home_variable, row[i].env, NULL};
        const struct creds_step *step;
        struct creds_plan *made = NULL;
        text_init(&why, room, sizeof(room));
        const struct creds_place place = {.environ_ = env, .profile = "", .region = ""};
        assert_int_equal(creds_find(&place, &made, &why), OK);
        assert_true(creds_plan_is_last_resort(made));
        assert_int_equal(creds_plan_steps(made, &step), 1);
        assert_int_equal(step[0].kind, CREDS_INSTANCE);
        assert_string_equal(step[0].url, row[i].url);
        creds_plan_drop(made);
    }
}

static void test_equal_plans(void **state)
{
    (void)state;
    static const char *const config[] = {
        "[default]\nrole_arn=r\nsource_profile=b\n",
        "[default]\nrole_arn=r\nsource_profile=b\nexternal_id=x\n",
        "[default]\nrole_arn=r\nsource_profile=b\nduration_seconds=900\n",
        "[default]\nrole_arn=q\nsource_profile=b\n",
        "[default]\ncredential_process=r\n",
    };
    write_file(credentials_path, "[b]\naws_access_key_id=A\naws_secret_access_key=s\n");
    for (unsigned i = 0; i < ARRAY_COUNT(config); i++)
        for (unsigned j = 0; j < ARRAY_COUNT(config); j++) {
            write_file(config_path, config[i]);
            (void)look(NULL, NULL);
            struct creds_plan *first = creds_plan_hold(plan);
            write_file(config_path, config[j]);
            (void)look(NULL, NULL);
            assert_int_equal(creds_plan_same(first, plan), i == j);
            creds_plan_drop(first);
        }
    write_file(config_path, config[0]);
    (void)look(NULL, NULL);
    struct creds_plan *first = creds_plan_hold(plan);
    write_file(credentials_path, "[b]\naws_access_key_id=A\naws_secret_access_key=t\n");
    (void)look(NULL, NULL);
    assert_false(creds_plan_same(first, plan)); /* another secret */
    creds_plan_drop(first);
}

static void test_static_keys_against_other_sources(void **state)
{
    (void)state;
    write_file(credentials_path, "[default]\naws_access_key_id=A\naws_secret_access_key=s\n");
    write_file(config_path, "[default]\ncredential_process=/bin/x\n");
    assert_true(look(NULL, NULL).e == OK && creds_plan_is_static(plan));
    write_file(config_path, "[default]\nrole_arn=arn:x\nsource_profile=default\n");
    /* a role comes before keys, in every SDK */
    assert_int_equal(look(NULL, NULL).count, 2);
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
        cmocka_unit_test(test_indented_properties),
        cmocka_unit_test(test_configured_profile_beats_environment),
        cmocka_unit_test(test_half_a_pair_is_an_error),
        cmocka_unit_test(test_nothing_configured),
        cmocka_unit_test(test_profile_that_does_not_exist),
        cmocka_unit_test(test_profiles_of_the_config_file),
        cmocka_unit_test(test_region_order),
        cmocka_unit_test(test_places_of_the_files),
        cmocka_unit_test(test_what_cannot_be_done),
        cmocka_unit_test(test_a_role_with_a_source_profile),
        cmocka_unit_test(test_too_many_roles),
        cmocka_unit_test(test_where_sts_is),
        cmocka_unit_test(test_web_identity),
        cmocka_unit_test(test_process_container_instance),
        cmocka_unit_test(test_instance_metadata_is_the_last_resort),
        cmocka_unit_test(test_equal_plans),
        cmocka_unit_test(test_static_keys_against_other_sources),
        cmocka_unit_test(test_characters_that_cannot_be_sent),
        cmocka_unit_test(test_malformed_file_is_named),
        cmocka_unit_test(test_file_of_two_mib),
        cmocka_unit_test(test_wipe),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
