/* Upstream credentials as every AWS tool finds them: what environment and profiles say, as a plan
 * of steps that somebody else takes.
 *
 * Invariants:
 *  1. The chain has the order of the SDKs (botocore's, credentials.py, create_credential_resolver):
 *     environment, role of the profile, web identity, SSO, keys of the credentials file, process,
 *     keys of the config file, container, instance metadata. The first that is configured ends the
 *     search, be it a plan or a mistake.
 *  2. What this server cannot do (SSO, codes of MFA devices) fails with a sentence that names the
 *     way around, so that nobody runs with other credentials than their tools would use.
 *  3. What reaches a request is printable ASCII without blanks: no file smuggles a header field in.
 *  4. A plan never changes. Its texts follow from what was read and nothing else, so that equal
 *     plans have equal bytes.
 * Life: files are read whole, looked through and wiped in one call; a plan belongs to whoever holds
 * it, and the last one wipes it.
 * Failure: missing files are no configuration; unreadable or malformed ones are told in a
 * sentence. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "creds.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <stdatomic.h>
#include <stdio.h>

#include "http.h"

enum {
    PATH_BYTES_MAX = 4 * KIB,
    ROOM_BYTES = 32 * KIB,           /* of a plan's texts: a command, a token, paths, roles */
    ROLES_MAX = CREDS_STEPS_MAX - 1,
    DURATION_S_MAX = 12 * 3600,      /* the longest that STS gives */
    DURATION_S_MIN = 15 * 60,
};

/* ---- what the files say about one profile ---- */
#define PROPERTIES(X)                                                                              \
    X(ACCESS_KEY, "aws_access_key_id") X(SECRET, "aws_secret_access_key")                          \
    X(TOKEN, "aws_session_token") X(REGION, "region") X(ROLE, "role_arn")                          \
    X(SOURCE_PROFILE, "source_profile") X(SOURCE, "credential_source")                             \
    X(EXTERNAL_ID, "external_id") X(SESSION, "role_session_name")                                  \
    X(DURATION, "duration_seconds") X(MFA, "mfa_serial")                                           \
    X(WEB_TOKEN, "web_identity_token_file") X(SSO, "sso_session") X(SSO_URL, "sso_start_url")      \
    X(LOGIN, "login_session") X(PROCESS, "credential_process")                                     \
    X(STS_ENDPOINTS, "sts_regional_endpoints") X(METADATA, "ec2_metadata_service_endpoint")        \
    X(METADATA_MODE, "ec2_metadata_service_endpoint_mode")

enum property {
#define X(name, text) PROP_##name,
    PROPERTIES(X)
#undef X
    PROP_COUNT
};
static const char *const property_name[PROP_COUNT] = {
#define X(name, text) text,
    PROPERTIES(X)
#undef X
};

enum file { FILE_CREDENTIALS, FILE_CONFIG, FILE_COUNT };

struct profile_file {
    char path[PATH_BYTES_MAX];       /* "" when there is no place for it */
    char *bytes;                     /* owned; NULL when there is no such file */
    size_t len;
};
struct profile {
    struct span name;
    bool known;                      /* some file has it */
    struct span property[FILE_COUNT][PROP_COUNT]; /* into the files' bytes; empty = not given */
};
struct search {
    const struct creds_place *place;
    struct text *why;
    struct span profile;             /* the first one's name */
    bool profile_configured;         /* named by our configuration */
    bool profile_named;              /* by that or by AWS_PROFILE */
    bool loaded;
    struct profile_file file[FILE_COUNT];
    struct profile first;            /* once loaded */
};

static const char *env_value(const struct search *s, const char *name)
{
    size_t len = strlen(name);
    for (char *const *e = s->place->environ_; e && *e; e++)
        if (strncmp(*e, name, len) == 0 && (*e)[len] == '=')
            return *e + len + 1;
    return "";
}

/* "[x]" in the credentials file; "[profile x]" in the other one, where only "default" may stand
 * alone. */
static bool is_section_of(struct span section, enum file f, struct span profile)
{
    struct span name = section;
    if (f == FILE_CONFIG) {
        if (span_starts(section, span_of("profile ")) || span_starts(section, span_of("profile\t")))
            name = span_trim(span_from(section, 8));
        else if (!span_is(section, "default"))
            return false;
    }
    if (name.len >= 2 && (name.at[0] == '"' || name.at[0] == '\'') &&
        name.at[name.len - 1] == name.at[0])
        name = span_make(name.at + 1, name.len - 2);
    return span_eq(name, profile);
}

static enum err find_in_file(struct search *s, enum file f, struct profile *p)
{
    struct profile_file *file = &s->file[f];
    struct span name, value;
    struct ini ini;
    enum err e;
    ini_begin(&ini, span_make(file->bytes ? file->bytes : "", file->len));
    while ((e = ini_next(&ini, &name, &value)) == OK) {
        if (!is_section_of(ini.section, f, p->name))
            continue;
        p->known = true;
        for (unsigned i = 0; i < PROP_COUNT; i++)
            if (span_is_nocase(name, property_name[i]))
                p->property[f][i] = value;
    }
    if (e == ERR_NOT_FOUND)
        return OK;
    text_addf(s->why, "%s:%u:%u: %s", file->path, ini.line, ini.column, ini.why);
    return ERR_CREDENTIALS;
}

static enum err find_profile(struct search *s, struct span name, struct profile *out)
{
    *out = (struct profile){.name = name};
    TRY(find_in_file(s, FILE_CREDENTIALS, out));
    return find_in_file(s, FILE_CONFIG, out);
}

static enum err set_path(struct search *s, enum file f)
{
    static const char *const variable[] = {"AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"};
    static const char *const standard[] = {"~/.aws/credentials", "~/.aws/config"};
    const char *path = env_value(s, variable[f]), *home = env_value(s, "HOME");
    bool below_home = false;
    struct text t;
    if (path[0] == '\0')
        path = standard[f];
    text_init(&t, s->file[f].path, PATH_BYTES_MAX);
    if (path[0] == '~' && path[1] == '/') {
        below_home = true;
        text_adds(&t, home);
    }
    if (!below_home || home[0] != '\0')
        text_adds(&t, path + below_home);
    if (!t.over)
        return OK;
    text_addf(s->why, "the path in %s is too long", variable[f]);
    return ERR_CREDENTIALS;
}

static enum err load_file(struct search *s, enum file f)
{
    struct profile_file *file = &s->file[f];
    char sentence[PATH_BYTES_MAX + 200];
    struct text why;
    TRY(set_path(s, f));
    if (!file->path[0])
        return OK;
    text_init(&why, sentence, sizeof(sentence));
    enum err e = creds_file(file->path, false, &file->bytes, &file->len, &why);
    if (e == OK || e == ERR_NOT_FOUND)
        return OK;                   /* a missing file is no configuration */
    text_add(s->why, text_span(&why));
    return e == ERR_MEMORY ? e : ERR_CREDENTIALS;
}

static void end_search(struct search *s)
{
    for (unsigned f = 0; f < FILE_COUNT; f++)
        if (s->file[f].bytes)
            mem_give_secret(s->file[f].bytes, s->file[f].len + 1);
    mem_give(s);
}

static enum err load_files(struct search *s)
{
    if (s->loaded)
        return OK;
    TRY(load_file(s, FILE_CREDENTIALS));
    TRY(load_file(s, FILE_CONFIG));
    s->loaded = true;
    return find_profile(s, s->profile, &s->first);
}

static enum err begin_search(const struct creds_place *place, struct text *why, struct search **out)
{
    struct search *s = mem_take(sizeof(*s));
    if (!s)
        return ERR_MEMORY;
    s->place = place;
    s->why = why;
    s->profile_configured = place->profile && place->profile[0] != '\0';
    s->profile = span_of(s->profile_configured ? place->profile : env_value(s, "AWS_PROFILE"));
    s->profile_named = s->profile.len > 0;
    if (!s->profile_named)
        s->profile = span_of("default");
    *out = s;
    return OK;
}

/* The credentials file wins, as in the SDKs' merge of both. */
static struct span property(const struct profile *p, enum property which)
{
    struct span first = p->property[FILE_CREDENTIALS][which];
    return first.len > 0 ? first : p->property[FILE_CONFIG][which];
}

/* ---- checking and taking over ---- */
static bool is_plain(struct span text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] <= ' ' || text.at[i] > '~')
            return false;
    return true;
}

const char *creds_set(struct creds *out, struct span access, struct span secret, struct span token)
{
    *out = (struct creds){.expire_s = 0};
    if (secret.len == 0)
        return access.len ? "there is an access key but no secret key" : "there is no access key";
    if (access.len == 0)
        return "there is a secret key but no access key";
    if (access.len > CREDS_ACCESS_BYTES_MAX || secret.len > SECRET_BYTES_MAX ||
        token.len > CREDS_TOKEN_BYTES_MAX)
        return "the access key, secret key or session token is too long";
    if (!is_plain(access) || !is_plain(secret) || !is_plain(token) ||
        span_find(access, ',') < access.len)
        return "the access key, secret key or session token has an impossible character";
    memcpy(out->access_key, access.at, access.len);
    memcpy(out->secret.bytes, secret.at, secret.len);
    out->secret.len = (uint16_t)secret.len;
    if (token.len > 0)
        memcpy(out->token, token.at, token.len);
    return NULL;
}

void creds_wipe(struct creds *c)
{
    OPENSSL_cleanse(c, sizeof(*c));
}

/* ---- plans ---- */
struct creds_plan {
    _Atomic unsigned holders;
    bool last_resort;
    unsigned count;
    struct creds_step step[CREDS_STEPS_MAX];
    struct creds first;
    struct text source;
    char source_memory[CREDS_SOURCE_BYTES];
    size_t used;
    char room[ROOM_BYTES];
};

struct creds_plan *creds_plan_hold(struct creds_plan *p)
{
    atomic_fetch_add_explicit(&p->holders, 1, memory_order_relaxed);
    return p;
}

void creds_plan_drop(struct creds_plan *p)
{
    if (p && atomic_fetch_sub_explicit(&p->holders, 1, memory_order_acq_rel) == 1)
        mem_give_secret(p, sizeof(*p));
}

unsigned creds_plan_steps(const struct creds_plan *p, const struct creds_step **out)
{
    *out = p->step;
    return p->count;
}

const struct creds *creds_plan_first(const struct creds_plan *p)
{
    return &p->first;
}

bool creds_plan_is_static(const struct creds_plan *p)
{
    return p->count == 1 && p->step[0].kind == CREDS_STATIC;
}

bool creds_plan_is_last_resort(const struct creds_plan *p)
{
    return p->last_resort;
}

const char *creds_plan_source(const struct creds_plan *p)
{
    return p->source_memory;
}

static bool same_pair(const struct creds *a, const struct creds *b)
{
    return strcmp(a->access_key, b->access_key) == 0 && strcmp(a->token, b->token) == 0 &&
           a->secret.len == b->secret.len && a->expire_s == b->expire_s &&
           equal_in_constant_time(a->secret.bytes, b->secret.bytes, a->secret.len);
}

bool creds_plan_same(const struct creds_plan *a, const struct creds_plan *b)
{
    if (a->count != b->count || a->used != b->used || a->last_resort != b->last_resort ||
        memcmp(a->room, b->room, a->used) != 0 ||
        strcmp(a->source_memory, b->source_memory) != 0 || !same_pair(&a->first, &b->first))
        return false;
    for (unsigned i = 0; i < a->count; i++)
        if (a->step[i].kind != b->step[i].kind || a->step[i].duration_s != b->step[i].duration_s ||
            a->step[i].own_sts != b->step[i].own_sts || a->step[i].insecure != b->step[i].insecure)
            return false;
    return true;
}

struct making {
    struct search *s;
    struct creds_plan *plan;
    struct creds_step role[ROLES_MAX]; /* outermost first */
    struct span visited[ROLES_MAX + 1];
    unsigned role_count, visited_count;
};

static enum err fail(struct making *m, const char *format, ...) printf_like(2, 3);
static enum err fail(struct making *m, const char *format, ...)
{
    char memory[KIB];
    va_list more;
    va_start(more, format);
    vsnprintf(memory, sizeof(memory), format, more);
    va_end(more);
    text_adds(m->s->why, memory);
    return ERR_CREDENTIALS;
}

enum { SHOWN_BYTES = 200 };
#define SHOW(span_) (int)min_u64((span_).len, SHOWN_BYTES), (span_).at ? (span_).at : ""

/* A terminated copy in the plan; control characters have no business in any of its texts. */
static enum err keep(struct making *m, struct span text, const char **out)
{
    struct creds_plan *p = m->plan;
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.at[i] < ' ' || text.at[i] == 0x7f)
            return fail(m, "a value of profile \"%.*s\" or of the environment has a control "
                           "character", SHOW(m->s->profile));
    if (text.len >= ROOM_BYTES - p->used)
        return fail(m, "the configuration of profile \"%.*s\" is too long", SHOW(m->s->profile));
    char *at = p->room + p->used;
    if (text.len > 0)
        memcpy(at, text.at, text.len);
    p->used += text.len + 1;         /* the plan was zeroed */
    *out = at;
    return OK;
}

static void set_source(struct making *m, const char *what, struct span name, struct span profile)
{
    struct text *t = &m->plan->source;
    if (t->len > 0)
        return;                      /* told by the outermost */
    text_adds(t, what);
    if (name.len > 0) {
        text_addc(t, ' ');
        text_add_printable(t, name, 60);
    }
    if (profile.len > 0) {
        text_adds(t, " (profile ");
        text_add_printable(t, profile, 40);
        text_addc(t, ')');
    }
}

/* Step 0: what the roles are taken with. */
static struct creds_step *base(struct making *m, enum creds_kind kind)
{
    struct creds_step *step = &m->plan->step[0];
    *step = (struct creds_step){.kind = kind, .command = "", .url = "", .token = "",
                                .token_file = "", .role = "", .session = "", .external_id = "",
                                .region = ""};
    m->plan->count = 1;
    return step;
}

static enum err use_pair(struct making *m, const struct span pair_and_token[3], const char *source)
{
    const char *mistake = creds_set(&m->plan->first, pair_and_token[0], pair_and_token[1],
                                    pair_and_token[2]);
    if (mistake)
        return fail(m, "%s (%s)", mistake, source);
    set_source(m, source, (struct span){NULL, 0}, (struct span){NULL, 0});
    base(m, CREDS_STATIC);
    return OK;
}

/* ---- providers: ERR_NOT_FOUND = not configured, look further ---- */
static enum err from_environment(struct making *m)
{
    struct search *s = m->s;
    struct span found[3] = {
        span_of(env_value(s, "AWS_ACCESS_KEY_ID")), span_of(env_value(s, "AWS_SECRET_ACCESS_KEY")),
        span_of(env_value(s, "AWS_SESSION_TOKEN")),
    };
    if (found[0].len == 0 && found[1].len == 0)
        return ERR_NOT_FOUND;
    TRY(use_pair(m, found, "environment"));
    if (found[2].len > 0)
        m->plan->first.expire_s = creds_time(span_of(env_value(s, "AWS_CREDENTIAL_EXPIRATION")));
    return OK;
}

static enum err from_file(struct making *m, const struct profile *p, enum file f,
                          const char *source)
{
    struct span found[3] = {
        p->property[f][PROP_ACCESS_KEY], p->property[f][PROP_SECRET], p->property[f][PROP_TOKEN],
    };
    if (found[0].len == 0 && found[1].len == 0)
        return ERR_NOT_FOUND;
    return use_pair(m, found, source);
}

static bool has_keys(const struct profile *p)
{
    return property(p, PROP_ACCESS_KEY).len > 0 || property(p, PROP_SECRET).len > 0;
}

/* ---- STS ---- */
static bool is_region(struct span text)
{
    for (size_t i = 0; i < text.len; i++)
        if (!isalnum((unsigned char)text.at[i]) && text.at[i] != '-')
            return false;
    return text.len > 0 && text.len <= CREDS_REGION_BYTES_MAX;
}

/* As the variable's old value meant it: these regions are asked at the global endpoint. */
static bool is_legacy_region(struct span region)
{
    static const char *const name[] = {
        "ap-northeast-1", "ap-south-1", "ap-southeast-1", "ap-southeast-2", "aws-global",
        "ca-central-1", "eu-central-1", "eu-north-1", "eu-west-1", "eu-west-2", "eu-west-3",
        "sa-east-1", "us-east-1", "us-east-2", "us-west-1", "us-west-2",
    };
    for (unsigned i = 0; i < ARRAY_COUNT(name); i++)
        if (span_is(region, name[i]))
            return true;
    return false;
}

static enum err check_own_sts(struct making *m, const char *url)
{
    const char *why = "it has a path";
    struct uri u;
    if (uri_parse(span_of(url), &u, &why) == OK && (u.path.len == 0 || span_is(u.path, "/"))) {
        if (span_is(u.scheme, "http") || span_is(u.scheme, "https"))
            return OK;
        why = "it is neither http:// nor https://";
    }
    return fail(m, "upstream.sts_endpoint \"%.200s\": %s", url, why);
}

static enum err set_sts(struct making *m, struct creds_step *step)
{
    struct search *s = m->s;
    char url[CREDS_REGION_BYTES_MAX + 64];
    const char *own = s->place->sts_endpoint, *style = env_value(s, "AWS_STS_REGIONAL_ENDPOINTS");
    struct span region = span_of(env_value(s, "AWS_REGION"));
    if (region.len == 0)
        region = span_of(env_value(s, "AWS_DEFAULT_REGION"));
    if (region.len == 0)
        region = property(&s->first, PROP_REGION);
    if (region.len == 0)
        region = span_of(s->place->region);
    if (region.len > 0 && !is_region(region))
        return fail(m, "the region of the environment or of profile \"%.*s\" is not a region name",
                    SHOW(s->profile));
    struct span mode = style[0] ? span_of(style) : property(&s->first, PROP_STS_ENDPOINTS);
    bool global = region.len == 0 || span_is(region, "aws-global") ||
                  (span_is_nocase(mode, "legacy") && is_legacy_region(region));
    step->own_sts = own && own[0];
    if (step->own_sts)
        TRY(check_own_sts(m, own));
    step->insecure = step->own_sts && s->place->insecure;
    TRY(keep(m, span_of(step->own_sts && s->place->ca_file ? s->place->ca_file : ""),
             &step->ca_file));
    if (global && !step->own_sts)
        region = span_of("us-east-1");
    snprintf(url, sizeof(url), global ? "https://sts.amazonaws.com" : "https://sts.%.*s.%s",
             (int)region.len, region.at,
             span_starts(region, span_of("cn-")) ? "amazonaws.com.cn" : "amazonaws.com");
    TRY(keep(m, region.len > 0 ? region : span_of("us-east-1"), &step->region));
    return keep(m, span_of(step->own_sts ? own : url), &step->url);
}

/* arn:aws:iam::123456789012:role/path/NAME -> NAME */
static struct span role_name(struct span arn)
{
    size_t from = arn.len;
    while (from > 0 && arn.at[from - 1] != '/' && arn.at[from - 1] != ':')
        from--;
    return span_from(arn, from);
}

static enum err add_role(struct making *m, const struct profile *p)
{
    if (m->role_count == ROLES_MAX)
        return fail(m, "profile \"%.*s\" leads over more than %d roles", SHOW(m->s->profile),
                    ROLES_MAX);
    struct creds_step *step = &m->role[m->role_count++];
    struct span duration = property(p, PROP_DURATION);
    uint64_t seconds = 0;
    *step = (struct creds_step){.kind = CREDS_ROLE, .command = "", .token = "", .token_file = ""};
    if (property(p, PROP_MFA).len > 0)
        return fail(m, "profile \"%.*s\" has mfa_serial, and nobody is there to type a code: use a "
                       "role without it, or credential_process with a tool that keeps the session",
                    SHOW(p->name));
    if (duration.len > 0 && (span_u64(duration, &seconds) != OK || seconds < DURATION_S_MIN ||
                             seconds > DURATION_S_MAX))
        return fail(m, "duration_seconds of profile \"%.*s\" is not between %d and %d",
                    SHOW(p->name), DURATION_S_MIN, DURATION_S_MAX);
    step->duration_s = (uint32_t)seconds;
    TRY(keep(m, property(p, PROP_ROLE), &step->role));
    TRY(keep(m, property(p, PROP_SESSION), &step->session));
    TRY(keep(m, property(p, PROP_EXTERNAL_ID), &step->external_id));
    set_source(m, "role", role_name(property(p, PROP_ROLE)), p->name);
    return set_sts(m, step);
}

/* Each of the three from the environment (unless a profile is named), else from the profile. */
static enum err from_web_identity(struct making *m, const struct profile *p, bool env)
{
    static const struct {
        const char *variable;
        enum property property;
    } place[3] = {{"AWS_WEB_IDENTITY_TOKEN_FILE", PROP_WEB_TOKEN}, {"AWS_ROLE_ARN", PROP_ROLE},
                  {"AWS_ROLE_SESSION_NAME", PROP_SESSION}};
    struct span value[3];
    for (unsigned i = 0; i < 3; i++) {
        value[i] = env ? span_of(env_value(m->s, place[i].variable)) : (struct span){NULL, 0};
        if (value[i].len == 0)
            value[i] = property(p, place[i].property);
    }
    if (value[0].len == 0)
        return ERR_NOT_FOUND;
    if (value[1].len == 0)
        return fail(m, "a web identity token file is configured, but no role (AWS_ROLE_ARN, or "
                       "role_arn in profile \"%.*s\")", SHOW(p->name));
    struct creds_step *step = base(m, CREDS_WEB_IDENTITY);
    TRY(keep(m, value[0], &step->token_file));
    TRY(keep(m, value[1], &step->role));
    TRY(keep(m, value[2], &step->session));
    set_source(m, "web identity role", role_name(value[1]), (struct span){NULL, 0});
    return set_sts(m, step);
}

static enum err from_sso(struct making *m, const struct profile *p)
{
    enum property which = property(p, PROP_SSO).len > 0 ? PROP_SSO : PROP_SSO_URL;
    if (property(p, PROP_LOGIN).len > 0)
        which = PROP_LOGIN;
    if (property(p, which).len == 0)
        return ERR_NOT_FOUND;
    return fail(m, "profile \"%.*s\" signs in with a browser (%s), which this server cannot: name "
                   "another profile that has credential_process = aws configure export-credentials "
                   "--profile %.*s",
                SHOW(p->name), property_name[which], SHOW(p->name));
}

static enum err from_process(struct making *m, const struct profile *p)
{
    struct span command = property(p, PROP_PROCESS);
    if (command.len == 0)
        return ERR_NOT_FOUND;
    set_source(m, "credential_process", (struct span){NULL, 0}, p->name);
    return keep(m, command, &base(m, CREDS_PROCESS)->command);
}

/* The address that the runtime of ECS answers at. */
static enum err from_container(struct making *m)
{
    char url[PATH_BYTES_MAX];
    const char *relative = env_value(m->s, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = env_value(m->s, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if (!relative[0] && !full[0])
        return ERR_NOT_FOUND;
    if (relative[0] && relative[0] != '/')
        return fail(m, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI does not begin with a slash");
    int n = snprintf(url, sizeof(url), "%s%s", relative[0] ? "http://169.254.170.2" : "",
                     relative[0] ? relative : full);
    if (n < 0 || (size_t)n >= sizeof(url))
        return fail(m, "the URL of the container's credentials is too long");
    struct creds_step *step = base(m, CREDS_CONTAINER);
    set_source(m, "container endpoint", (struct span){NULL, 0}, (struct span){NULL, 0});
    TRY(keep(m, span_of(url), &step->url));
    TRY(keep(m, span_of(env_value(m->s, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")),
             &step->token_file));
    return keep(m, span_of(env_value(m->s, "AWS_CONTAINER_AUTHORIZATION_TOKEN")), &step->token);
}

static enum err from_instance(struct making *m)
{
    struct search *s = m->s;
    struct span url = span_of(env_value(s, "AWS_EC2_METADATA_SERVICE_ENDPOINT"));
    struct span mode = span_of(env_value(s, "AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE"));
    if (span_is_nocase(span_of(env_value(s, "AWS_EC2_METADATA_DISABLED")), "true"))
        return ERR_NOT_FOUND;
    if (url.len == 0)
        url = property(&s->first, PROP_METADATA);
    if (mode.len == 0)
        mode = property(&s->first, PROP_METADATA_MODE);
    if (url.len == 0)
        url = span_of(span_is_nocase(mode, "ipv6") ? "http://[fd00:ec2::254]"
                                                   : "http://169.254.169.254");
    set_source(m, "EC2 instance metadata", (struct span){NULL, 0}, (struct span){NULL, 0});
    return keep(m, url, &base(m, CREDS_INSTANCE)->url);
}

/* ---- the chain ---- */
static enum err from_source(struct making *m, const struct profile *p)
{
    struct span source = property(p, PROP_SOURCE);
    enum err e;
    if (span_is_nocase(source, "Environment"))
        e = from_environment(m);
    else if (span_is_nocase(source, "EcsContainer"))
        e = from_container(m);
    else if (span_is_nocase(source, "Ec2InstanceMetadata"))
        e = from_instance(m);
    else
        return fail(m, "credential_source of profile \"%.*s\" is none of Environment, EcsContainer "
                       "and Ec2InstanceMetadata", SHOW(p->name));
    if (e != ERR_NOT_FOUND)
        return e;
    return fail(m, "profile \"%.*s\" takes its role with credentials of %.*s, and there are none",
                SHOW(p->name), SHOW(source));
}

static enum err from_own_files(struct making *m, const struct profile *p, bool env)
{
    enum err e = from_web_identity(m, p, env);
    if (e == ERR_NOT_FOUND)
        e = from_sso(m, p);
    if (e == ERR_NOT_FOUND)
        e = from_file(m, p, FILE_CREDENTIALS, "shared credentials file");
    if (e == ERR_NOT_FOUND)
        e = from_process(m, p);
    if (e == ERR_NOT_FOUND)
        e = from_file(m, p, FILE_CONFIG, "config file");
    return e;
}

static bool has_role(const struct profile *p)
{
    return property(p, PROP_ROLE).len > 0 && property(p, PROP_WEB_TOKEN).len == 0;
}

/* The profile whose credentials take the role: into *p. A profile may name itself: its own keys. */
static enum err go_to_source(struct making *m, struct profile *p)
{
    struct span source = property(p, PROP_SOURCE_PROFILE), from = p->name;
    m->visited[m->visited_count++] = from;
    for (unsigned i = 0; i < m->visited_count; i++)
        if (span_eq(m->visited[i], source) && !(span_eq(source, from) && has_keys(p)))
            return fail(m, "source_profile of profile \"%.*s\" leads in a circle", SHOW(from));
    TRY(find_profile(m->s, source, p));
    if (p->known)
        return OK;
    return fail(m, "source_profile of profile \"%.*s\" names \"%.*s\", which is in neither file",
                SHOW(from), SHOW(source));
}

static enum err from_profile(struct making *m)
{
    struct profile p = m->s->first;
    bool source = false;             /* another profile takes its role with this one's */
    bool env = !m->s->profile_configured;
    while (has_role(&p) && !(source && has_keys(&p))) {
        if (!source && env && env_value(m->s, "AWS_WEB_IDENTITY_TOKEN_FILE")[0] &&
            property(&p, PROP_SOURCE_PROFILE).len == 0 && property(&p, PROP_SOURCE).len == 0)
            break;
        bool by_profile = property(&p, PROP_SOURCE_PROFILE).len > 0;
        if (by_profile == (property(&p, PROP_SOURCE).len > 0))
            return fail(m, "profile \"%.*s\" has role_arn and needs one of source_profile and "
                           "credential_source, not both", SHOW(p.name));
        TRY(add_role(m, &p));
        if (!by_profile)
            return from_source(m, &p);
        TRY(go_to_source(m, &p));
        source = true;
    }
    enum err e = from_own_files(m, &p, env && !source);
    if (e == ERR_NOT_FOUND && source)
        return fail(m, "profile \"%.*s\" takes its role with profile \"%.*s\", which has no "
                       "credentials", SHOW(m->s->profile), SHOW(p.name));
    return e;
}

static enum err check_profile(struct making *m)
{
    const struct search *s = m->s;
    if (!s->profile_named || s->first.known)
        return OK;
    return fail(m, "profile \"%.*s\" is neither in %.300s nor in %.300s", SHOW(s->profile),
                s->file[FILE_CREDENTIALS].path, s->file[FILE_CONFIG].path);
}

static enum err walk(struct making *m)
{
    struct search *s = m->s;
    enum err e = s->profile_configured ? ERR_NOT_FOUND : from_environment(m);
    if (e != ERR_NOT_FOUND)
        return e;
    TRY(load_files(s));
    TRY(check_profile(m));
    e = from_profile(m);
    if (e == ERR_NOT_FOUND)
        e = from_container(m);
    if (e == ERR_NOT_FOUND) {
        e = from_instance(m);
        m->plan->last_resort = e == OK;
    }
    if (e == ERR_NOT_FOUND)
        text_addf(
            s->why,
            "no upstream credentials: neither AWS_ACCESS_KEY_ID nor keys, a role or a process "
            "of profile \"%.*s\" in ~/.aws/credentials or ~/.aws/config are set",
            SHOW(s->profile));
    return e;
}

enum err creds_find(const struct creds_place *place, struct creds_plan **out, struct text *why)
{
    struct making m = {.s = NULL};
    TRY(begin_search(place, why, &m.s));
    m.plan = mem_take(sizeof(*m.plan));
    enum err e = m.plan ? OK : ERR_MEMORY;
    if (e == OK) {
        atomic_init(&m.plan->holders, 1);
        text_init(&m.plan->source, m.plan->source_memory, sizeof(m.plan->source_memory));
        e = walk(&m);
    }
    end_search(m.s);
    if (e != OK) {
        creds_plan_drop(m.plan);
        return e;
    }
    while (m.role_count > 0)         /* the innermost is taken first */
        m.plan->step[m.plan->count++] = m.role[--m.role_count];
    memcpy(m.plan->first.source, m.plan->source_memory, CREDS_SOURCE_BYTES);
    *out = m.plan;
    return OK;
}

/* ---- region ---- */
static enum err find_region(struct search *s, struct span *out)
{
    *out = span_of(env_value(s, "AWS_REGION"));
    if (out->len == 0)
        *out = span_of(env_value(s, "AWS_DEFAULT_REGION"));
    if (out->len > 0)
        return OK;
    TRY(load_files(s));
    *out = property(&s->first, PROP_REGION);
    return out->len > 0 ? OK : ERR_NOT_FOUND;
}

enum err creds_region(const struct creds_place *place, char out[CREDS_REGION_BYTES_MAX + 1],
                      struct text *why)
{
    struct search *s = NULL;
    struct span region;
    TRY(begin_search(place, why, &s));
    enum err e = find_region(s, &region);
    if (e == OK && (region.len > CREDS_REGION_BYTES_MAX || !is_plain(region) ||
                    span_find(region, '/') < region.len)) {
        text_addf(why,
                  "the region of the environment or of profile \"%.*s\" is not a region name",
                  SHOW(s->profile));
        e = ERR_CREDENTIALS;
    }
    if (e == OK) {
        memcpy(out, region.at, region.len);
        out[region.len] = '\0';
    }
    end_search(s);
    return e;
}
