/* Upstream credentials as every AWS tool finds them: environment, then the profile's files.
 *
 * Invariants:
 *  1. The chain is the table `provider`, in the order of the SDKs; the first row that finds
 *     something ends the search, be it credentials or a mistake. A further source is a further row.
 *  2. Rows for what this version cannot do look like the others and fail with a sentence, so that
 *     nobody runs with other credentials than their tools would use.
 *  3. What reaches a request is printable ASCII without blanks: no file smuggles a header field in.
 * Life: files are read whole, looked through and wiped in one call; the result is the caller's.
 * Failure: missing files are no configuration; unreadable or malformed ones are told in a sentence.
 * Limits: no role_arn, SSO, web identity, credential_process, container or EC2 metadata yet. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "creds.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = MIB, PATH_BYTES_MAX = 4 * KIB };

/* ---- files ---- */
static enum err errno_to_err(int number)
{
    if (number == ENOENT || number == ENOTDIR)
        return ERR_NOT_FOUND;
    return number == EACCES || number == EPERM ? ERR_DENIED : ERR_SYSTEM;
}

static enum err check_file(int fd, const char *path, bool private, struct text *why)
{
    struct stat s;
    if (fstat(fd, &s) != 0) {
        text_addf(why, "%s: %s", path, strerrordesc_np(errno));
        return ERR_SYSTEM;
    }
    if (!S_ISREG(s.st_mode)) {
        text_addf(why, "%s is not a regular file", path);
        return ERR_DENIED;
    }
    if (private && (s.st_mode & 0177) != 0) {
        text_addf(why, "%s has mode %04o and must not be wider than 0600: chmod 600 %s", path,
                  (unsigned)s.st_mode & 07777, path);
        return ERR_DENIED;
    }
    return OK;
}

/* Reads to the end whatever size stat told, as the file may be growing. */
static enum err read_all(int fd, const char *path, char *to, size_t *len, struct text *why)
{
    size_t sum = 0;
    while (sum <= FILE_BYTES_MAX) {
        ssize_t n = read(fd, to + sum, FILE_BYTES_MAX + 1 - sum);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            text_addf(why, "%s: %s", path, strerrordesc_np(errno));
            return ERR_SYSTEM;
        }
        if (n == 0) {
            to[sum] = '\0';
            *len = sum;
            return OK;
        }
        sum += (size_t)n;
    }
    text_addf(why, "%s is larger than 1 MiB", path);
    return ERR_TOO_LARGE;
}

enum err creds_file(const char *path, bool private, char **out, size_t *len, struct text *why)
{
    char *whole = NULL;
    size_t n = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        int number = errno;
        text_addf(why, "%s: %s", path, strerrordesc_np(number));
        return errno_to_err(number);
    }
    char *room = mem_take(FILE_BYTES_MAX + 1);
    enum err e = room ? check_file(fd, path, private, why) : ERR_MEMORY;
    if (e == OK)
        e = read_all(fd, path, room, &n, why);
    if (e == OK) {
        whole = mem_take(n + 1);
        e = whole ? OK : ERR_MEMORY;
    }
    if (e == OK) {
        memcpy(whole, room, n);
        *out = whole;
        *len = n;
    }
    if (room)
        mem_give_secret(room, FILE_BYTES_MAX + 1);
    close(fd);
    return e;
}

/* ---- INI ---- */
void ini_begin(struct ini *i, struct span bytes)
{
    static const char bom[] = "\xEF\xBB\xBF";
    *i = (struct ini){.rest = bytes};
    if (span_starts(bytes, span_of(bom)))
        i->rest = span_from(bytes, 3);
}

/* Blanks then '#' or ';' end a value; without a blank they belong to it. */
static struct span cut_comment(struct span text)
{
    for (size_t at = 1; at < text.len; at++)
        if ((text.at[at] == '#' || text.at[at] == ';') &&
            (text.at[at - 1] == ' ' || text.at[at - 1] == '\t'))
            return span_make(text.at, at);
    return text;
}

static enum err ini_fail(struct ini *i, size_t at, const char *why)
{
    i->column = (unsigned)at + 1;
    i->why = why;
    return ERR_SYNTAX;
}

static enum err ini_section(struct ini *i, struct span line)
{
    size_t end = span_find(line, ']');
    if (end == line.len)
        return ini_fail(i, line.len, "']' is missing");
    struct span behind = span_trim(span_from(line, end + 1));
    if (behind.len > 0 && behind.at[0] != '#' && behind.at[0] != ';')
        return ini_fail(i, (size_t)(behind.at - line.at), "nothing but a comment may follow ']'");
    i->section = span_trim(span_make(line.at + 1, end - 1));
    return OK;
}

enum err ini_next(struct ini *i, struct span *name, struct span *value)
{
    while (i->rest.len > 0) {
        struct span line = span_cut(&i->rest, '\n');
        i->line++;
        if (line.len > 0 && line.at[line.len - 1] == '\r')
            line.len--;
        /* An indented line continues or nests the property above it; both are of no use to us. */
        if (line.len == 0 || span_trim(line).len == 0 || strchr(" \t#;", line.at[0]))
            continue;
        if (line.at[0] == '[') {
            TRY(ini_section(i, line));
            continue;
        }
        size_t equals = span_find(line, '=');
        if (equals == line.len)
            return ini_fail(i, 0, "neither \"name = value\" nor \"[section]\"");
        if (!i->section.at)
            return ini_fail(i, 0, "a property before the first [section]");
        *name = span_trim(span_make(line.at, equals));
        *value = span_trim(cut_comment(span_from(line, equals)));
        *value = span_trim(span_from(*value, 1));
        if (name->len == 0)
            return ini_fail(i, 0, "a value without a name");
        return OK;
    }
    return ERR_NOT_FOUND;
}

/* ---- what the files say about one profile ---- */
#define PROPERTIES(X)                                                                              \
    X(ACCESS_KEY, "aws_access_key_id") X(SECRET, "aws_secret_access_key")                          \
    X(TOKEN, "aws_session_token") X(REGION, "region") X(ROLE, "role_arn")                          \
    X(WEB_TOKEN, "web_identity_token_file") X(SSO, "sso_session") X(SSO_URL, "sso_start_url")      \
    X(PROCESS, "credential_process")

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
    bool has_profile;
    struct span property[PROP_COUNT]; /* into bytes; empty = not given */
};
struct search {
    const struct creds_place *place;
    struct text *why;
    const char *profile;
    bool profile_configured;         /* named by our configuration */
    bool profile_named;              /* by that or by AWS_PROFILE */
    struct profile_file file[FILE_COUNT];
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
static bool is_section_of(struct span section, enum file f, const char *profile)
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
    return span_is(name, profile);
}

static enum err find_properties(struct search *s, enum file f)
{
    struct profile_file *file = &s->file[f];
    struct span name, value;
    struct ini ini;
    enum err e;
    ini_begin(&ini, span_make(file->bytes, file->len));
    while ((e = ini_next(&ini, &name, &value)) == OK) {
        if (!is_section_of(ini.section, f, s->profile))
            continue;
        file->has_profile = true;
        for (unsigned i = 0; i < PROP_COUNT; i++)
            if (span_is_nocase(name, property_name[i]))
                file->property[i] = value;
    }
    if (e == ERR_NOT_FOUND)
        return OK;
    text_addf(s->why, "%s:%u:%u: %s", file->path, ini.line, ini.column, ini.why);
    return ERR_CREDENTIALS;
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
    TRY(set_path(s, f));
    if (file->path[0] == '\0')
        return OK;
    char sentence[PATH_BYTES_MAX + 200];
    struct text why;
    text_init(&why, sentence, sizeof(sentence));
    enum err e = creds_file(file->path, false, &file->bytes, &file->len, &why);
    if (e == OK)
        return find_properties(s, f);
    if (e == ERR_NOT_FOUND)
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
    TRY(load_file(s, FILE_CREDENTIALS));
    return load_file(s, FILE_CONFIG);
}

static enum err begin_search(const struct creds_place *place, struct text *why, struct search **out)
{
    struct search *s = mem_take(sizeof(*s));
    if (!s)
        return ERR_MEMORY;
    s->place = place;
    s->why = why;
    s->profile_configured = place->profile && place->profile[0] != '\0';
    s->profile = s->profile_configured ? place->profile : env_value(s, "AWS_PROFILE");
    s->profile_named = s->profile[0] != '\0';
    if (!s->profile_named)
        s->profile = "default";
    *out = s;
    return OK;
}

static struct span property(const struct search *s, enum file f, enum property p)
{
    return s->file[f].property[p];
}

/* The credentials file wins, as in the SDKs' merge of both. */
static struct span either(const struct search *s, enum property p)
{
    struct span first = property(s, FILE_CREDENTIALS, p);
    return first.len > 0 ? first : property(s, FILE_CONFIG, p);
}

/* ---- checking and taking over ---- */
static bool is_plain(struct span text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] <= ' ' || text.at[i] > '~')
            return false;
    return true;
}

static enum err unusable(struct search *s, const char *source, const char *what)
{
    text_addf(s->why, "%s (%s)", what, source);
    return ERR_CREDENTIALS;
}

static enum err take_over(struct search *s, const struct span pair_and_token[3], const char *source,
                          struct creds *out)
{
    struct span access = pair_and_token[0], secret = pair_and_token[1], token = pair_and_token[2];
    if (secret.len == 0)
        return unusable(s, source, "there is an access key but no secret key");
    if (access.len == 0)
        return unusable(s, source, "there is a secret key but no access key");
    if (access.len > CREDS_ACCESS_BYTES_MAX || secret.len > SECRET_BYTES_MAX ||
        token.len > CREDS_TOKEN_BYTES_MAX)
        return unusable(s, source, "the access key, secret key or session token is too long");
    if (!is_plain(access) || !is_plain(secret) || !is_plain(token) ||
        span_find(access, ',') < access.len)
        return unusable(s, source,
                        "the access key, secret key or session token has an impossible character");
    *out = (struct creds){.source = source};
    memcpy(out->access_key, access.at, access.len);
    memcpy(out->secret.bytes, secret.at, secret.len);
    out->secret.len = (uint16_t)secret.len;
    if (token.len > 0)
        memcpy(out->token, token.at, token.len);
    return OK;
}

void creds_wipe(struct creds *c)
{
    OPENSSL_cleanse(c, sizeof(*c));
}

/* ---- providers: ERR_NOT_FOUND = not configured, look further ---- */

/* As tools that hand out tokens write it, in UTC: 2026-11-20T18:00:00Z or +00:00. 0: unreadable. */
static uint64_t read_expiry(const char *text)
{
    struct tm at = {0};
    const char *zone = strptime(text, "%Y-%m-%dT%H:%M:%S", &at);
    bool utc = zone && (strcmp(zone, "Z") == 0 || strcmp(zone, "+00:00") == 0);
    time_t s = utc ? timegm(&at) : 0;
    return s > 0 ? (uint64_t)s : 0;
}

static enum err from_environment(struct search *s, struct creds *out)
{
    struct span found[3] = {
        span_of(env_value(s, "AWS_ACCESS_KEY_ID")), span_of(env_value(s, "AWS_SECRET_ACCESS_KEY")),
        span_of(env_value(s, "AWS_SESSION_TOKEN")),
    };
    if (s->profile_configured || (found[0].len == 0 && found[1].len == 0))
        return ERR_NOT_FOUND;
    TRY(take_over(s, found, "environment", out));
    if (found[2].len > 0)
        out->expire_s = read_expiry(env_value(s, "AWS_CREDENTIAL_EXPIRATION"));
    return OK;
}

static enum err from_file(struct search *s, enum file f, const char *source, struct creds *out)
{
    struct span found[3] = {
        property(s, f, PROP_ACCESS_KEY), property(s, f, PROP_SECRET), property(s, f, PROP_TOKEN),
    };
    if (found[0].len == 0 && found[1].len == 0)
        return ERR_NOT_FOUND;
    return take_over(s, found, source, out);
}

static enum err from_credentials_file(struct search *s, struct creds *out)
{
    return from_file(s, FILE_CREDENTIALS, "shared credentials file", out);
}

static enum err from_config_file(struct search *s, struct creds *out)
{
    return from_file(s, FILE_CONFIG, "config file", out);
}

static enum err not_in_this_version(struct search *s, const char *what)
{
    text_addf(s->why,
              "%s is configured, which this version does not support: set AWS_ACCESS_KEY_ID and "
              "AWS_SECRET_ACCESS_KEY, or name a profile with static keys",
              what);
    return ERR_CREDENTIALS;
}

static enum err no_property(struct search *s, enum property p)
{
    char what[400];
    if (either(s, p).len == 0)
        return ERR_NOT_FOUND;
    snprintf(what, sizeof(what), "%s in profile \"%.200s\"", property_name[p], s->profile);
    return not_in_this_version(s, what);
}

static enum err no_variable(struct search *s, const char *name)
{
    return env_value(s, name)[0] == '\0' ? ERR_NOT_FOUND : not_in_this_version(s, name);
}

static enum err from_role(struct search *s, struct creds *out)
{
    (void)out;
    return no_property(s, PROP_ROLE);
}

static enum err from_web_identity(struct search *s, struct creds *out)
{
    (void)out;
    enum err e = ERR_NOT_FOUND;
    if (!s->profile_configured)
        e = no_variable(s, "AWS_WEB_IDENTITY_TOKEN_FILE");
    return e == ERR_NOT_FOUND ? no_property(s, PROP_WEB_TOKEN) : e;
}

static enum err from_sso(struct search *s, struct creds *out)
{
    (void)out;
    enum err e = no_property(s, PROP_SSO);
    return e == ERR_NOT_FOUND ? no_property(s, PROP_SSO_URL) : e;
}

static enum err from_process(struct search *s, struct creds *out)
{
    (void)out;
    return no_property(s, PROP_PROCESS);
}

static enum err from_container(struct search *s, struct creds *out)
{
    (void)out;
    enum err e = no_variable(s, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    return e == ERR_NOT_FOUND ? no_variable(s, "AWS_CONTAINER_CREDENTIALS_FULL_URI") : e;
}

/* botocore's order (credentials.py, create_credential_resolver). EC2 metadata would be the last
 * row; it cannot be seen in a configuration, so the sentence of the end names it. */
static const struct provider {
    enum err (*find)(struct search *s, struct creds *out);
    bool needs_files;
} provider[] = {
    {from_environment, false},
    {from_role, true},
    {from_web_identity, true},
    {from_sso, true},
    {from_credentials_file, true},
    {from_process, true},
    {from_config_file, true},
    {from_container, true},
};

static enum err check_profile(struct search *s)
{
    if (!s->profile_named || s->file[FILE_CREDENTIALS].has_profile ||
        s->file[FILE_CONFIG].has_profile)
        return OK;
    text_addf(s->why, "profile \"%.200s\" is neither in %s nor in %s", s->profile,
              s->file[FILE_CREDENTIALS].path, s->file[FILE_CONFIG].path);
    return ERR_CREDENTIALS;
}

static enum err walk(struct search *s, struct creds *out)
{
    bool loaded = false;
    for (unsigned i = 0; i < ARRAY_COUNT(provider); i++) {
        if (provider[i].needs_files && !loaded) {
            TRY(load_files(s));
            TRY(check_profile(s));
            loaded = true;
        }
        enum err e = provider[i].find(s, out);
        if (e != ERR_NOT_FOUND)
            return e;
    }
    text_addf(s->why,
              "no upstream credentials: neither AWS_ACCESS_KEY_ID nor keys of profile \"%.200s\" "
              "in ~/.aws/credentials or ~/.aws/config are set (EC2 instance roles are not "
              "supported in this version)",
              s->profile);
    return ERR_NOT_FOUND;
}

enum err creds_read(const struct creds_place *place, struct creds *out, struct text *why)
{
    struct search *s = NULL;
    TRY(begin_search(place, why, &s));
    enum err e = walk(s, out);
    end_search(s);
    return e;
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
    *out = either(s, PROP_REGION);
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
                  "the region of the environment or of profile \"%.200s\" is not a region name",
                  s->profile);
        e = ERR_CREDENTIALS;
    }
    if (e == OK) {
        memcpy(out, region.at, region.len);
        out[region.len] = '\0';
    }
    end_search(s);
    return e;
}
