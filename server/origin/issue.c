/* Takes the steps of a credentials plan: asks the process, the container's endpoint, instance
 * metadata and STS, one after the other.
 *
 * Invariants:
 *  1. Only who was configured is asked, and plain HTTP goes where credentials may be readable: the
 *     machine itself, the addresses of container runtimes and of instance metadata, private
 *     networks for an STS of the operator's own.
 *  2. Instance metadata is asked in version 2 only: a session token first, always. Version 1 would
 *     give the role to whoever makes a proxy of this machine repeat a GET.
 *  3. Token files are read anew each time.
 *  4. Words for the operator show status and error code of an answer, nothing else of it.
 * Life: one blocking call; what it had in hand is wiped when it returns.
 * Failure: a sentence that begins with who was asked. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>

#include "creds.h"
#include "server/origin/inside.h"

enum {
    PROCESS_MS = 60 * 1000,
    STS_CONNECT_MS = 3000,
    STS_ANSWER_MS = 10 * 1000,
    NEAR_CONNECT_MS = 1000,          /* container and instance: on this machine or beside it */
    NEAR_ANSWER_MS = 2000,
    TOKEN_FILE_BYTES_MAX = 32 * KIB,
    METADATA_TOKEN_BYTES_MAX = 512,
    ROLE_BYTES_MAX = 128,
    FIELD_BYTES = 8 * KIB,
};

struct taking {
    const struct creds_plan *plan;
    const struct creds_step *step;
    struct text *why;
    struct creds *creds;             /* of the step before; then of this one */
};

static enum err fail(struct taking *t, const char *format, ...) printf_like(2, 3);
static enum err fail(struct taking *t, const char *format, ...)
{
    char memory[KIB];
    va_list more;
    va_start(more, format);
    vsnprintf(memory, sizeof(memory), format, more);
    va_end(more);
    text_adds(t->why, memory);
    return ERR_CREDENTIALS;
}

/* ---- where plain HTTP may go ---- */
static bool is_at(const struct sockaddr *at, const char *const *text, unsigned count)
{
    char name[INET6_ADDRSTRLEN] = "";
    if (at->sa_family == AF_INET)
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)at)->sin_addr, name,
                  sizeof(name));
    else if (at->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)at)->sin6_addr, name,
                  sizeof(name));
    for (unsigned i = 0; i < count; i++)
        if (strcmp(name, text[i]) == 0)
            return true;
    return false;
}

bool address_is_loopback(const struct sockaddr *at)
{
    if (at->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)at)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *a = &((const struct sockaddr_in6 *)(const void *)at)->sin6_addr;
    return at->sa_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(a) || (IN6_IS_ADDR_V4MAPPED(a) && a->s6_addr[12] == 127));
}

/* The SDKs' rule: the machine itself, ECS, EKS. */
static bool container_ok(const struct sockaddr *at)
{
    static const char *const runtime[] = {"169.254.170.2", "169.254.170.23", "fd00:ec2::23"};
    return address_is_loopback(at) || is_at(at, runtime, ARRAY_COUNT(runtime));
}

static bool instance_ok(const struct sockaddr *at)
{
    static const char *const service[] = {"169.254.169.254", "fd00:ec2::254"};
    return address_is_private(at) || is_at(at, service, ARRAY_COUNT(service));
}

/* ---- token files ---- */
/* Trimmed, printable: it goes into a header field or a form. Owned: mem_give_secret(at, *cap). */
static enum err read_token(struct taking *t, const char *path, char **out, size_t *cap)
{
    char memory[300];
    struct text sentence;
    size_t len = 0;
    text_init(&sentence, memory, sizeof(memory));
    enum err e = creds_file(path, false, out, &len, &sentence);
    if (e == ERR_MEMORY)
        return e;
    if (e != OK)
        return fail(t, "the token file cannot be read: %s", memory);
    *cap = len + 1;
    while (len > 0 && strchr(" \t\r\n", (*out)[len - 1]))
        (*out)[--len] = '\0';
    const char *mistake = len == 0 ? "is empty" : len > TOKEN_FILE_BYTES_MAX ? "is too long" : NULL;
    for (size_t i = 0; i < len && !mistake; i++)
        if ((*out)[i] <= ' ' || (*out)[i] > '~')
            mistake = "holds a blank or an impossible character";
    if (!mistake)
        return OK;
    mem_give_secret(*out, *cap);
    return fail(t, "the token file %s %s", path, mistake);
}

/* ---- answers ---- */
static enum err tell_status(struct taking *t, const char *who, const struct call_answer *a)
{
    char code[CREDS_CODE_BYTES];
    creds_answer_code(a->body, code);
    return fail(t, "%s answered %u%s%s", who, a->status, code[0] ? " " : "", code);
}

static enum err read_json(struct taking *t, const char *who, enum creds_form form,
                          struct span answer)
{
    char memory[200];
    struct text mistake;
    text_init(&mistake, memory, sizeof(memory));
    enum err e = creds_answer_json(form, answer, t->creds, &mistake);
    return e == OK || e == ERR_MEMORY ? e
                                      : fail(t, "the answer of %s cannot be used: %s", who, memory);
}

/* ---- process ---- */
static enum err take_process(struct taking *t)
{
    char memory[300];
    struct text mistake;
    char *answer = NULL;
    size_t len = 0;
    text_init(&mistake, memory, sizeof(memory));
    enum err e = process_run(t->step->command, PROCESS_MS, &answer, &len, &mistake);
    if (e != OK)
        return e == ERR_MEMORY ? e : fail(t, "credential_process: %s", memory);
    e = read_json(t, "credential_process", CREDS_OF_PROCESS, span_make(answer, len));
    mem_give_secret(answer, PROCESS_ANSWER_CAP);
    return e;
}

/* ---- container ---- */
static enum err add_authorization(struct taking *t, struct text *fields)
{
    const struct creds_step *s = t->step;
    char *token = NULL;
    size_t cap = 0;
    if (s->token_file[0]) {
        TRY(read_token(t, s->token_file, &token, &cap));
        text_addf(fields, "Authorization: %s\r\n", token);
        mem_give_secret(token, cap);
    } else if (s->token[0]) {        /* the plan has no control characters */
        text_addf(fields, "Authorization: %s\r\n", s->token);
    }
    return fields->over ? fail(t, "the container's authorization token is too long") : OK;
}

static enum err ask_container(struct taking *t, struct span fields)
{
    const char *who = "the container's credentials endpoint";
    char memory[400];
    struct text mistake;
    struct call_answer answer;
    const struct call call = {.url = t->step->url, .path = "", .method = HTTP_GET, .fields = fields,
                              .plain_ok = container_ok, .ca_file = "",
                              .connect_ms = NEAR_CONNECT_MS, .answer_ms = NEAR_ANSWER_MS};
    text_init(&mistake, memory, sizeof(memory));
    enum err e = call_make(&call, &answer, &mistake);
    if (e != OK && e != ERR_MEMORY)
        e = fail(t, "%s: %s", who, memory);
    else if (e == OK && answer.status != 200)
        e = tell_status(t, who, &answer);
    else if (e == OK)
        e = read_json(t, who, CREDS_OF_CONTAINER, answer.body);
    call_end(&answer);
    return e;
}

static enum err take_container(struct taking *t)
{
    struct text fields;
    char *memory = mem_take(TOKEN_FILE_BYTES_MAX + KIB);
    if (!memory)
        return ERR_MEMORY;
    text_init(&fields, memory, TOKEN_FILE_BYTES_MAX + KIB);
    enum err e = add_authorization(t, &fields);
    if (e == OK)
        e = ask_container(t, text_span(&fields));
    mem_give_secret(memory, TOKEN_FILE_BYTES_MAX + KIB);
    return e;
}

/* ---- instance metadata ---- */
static const char instance[] = "instance metadata";

/* One question; the caller ends the answer. */
static enum err ask_instance(struct taking *t, enum http_method method, const char *path,
                             const char *token, struct call_answer *out)
{
    char fields_memory[METADATA_TOKEN_BYTES_MAX + 64], memory[400];
    struct text fields, mistake;
    text_init(&fields, fields_memory, sizeof(fields_memory));
    text_init(&mistake, memory, sizeof(memory));
    if (token)
        text_addf(&fields, "X-aws-ec2-metadata-token: %s\r\n", token);
    else
        text_adds(&fields, "X-aws-ec2-metadata-token-ttl-seconds: 21600\r\n");
    const struct call call = {.url = t->step->url, .path = path, .method = method,
                              .fields = text_span(&fields), .plain_ok = instance_ok, .ca_file = "",
                              .connect_ms = NEAR_CONNECT_MS, .answer_ms = NEAR_ANSWER_MS};
    enum err e = call_make(&call, out, &mistake);
    explicit_bzero(fields_memory, sizeof(fields_memory));
    if (e == OK || e == ERR_MEMORY)
        return e;
    if (!out->connected) {
        fail(t, "%s: %s", instance, memory);
        return ERR_NOT_FOUND;
    }
    if (!token && (e == ERR_UPSTREAM_TIMEOUT || e == ERR_UPSTREAM_RESET))
        return fail(t, "%s took the connection and gave no session token (%s): in a container its "
                       "answer dies on the way unless the hop limit is 2: aws ec2 "
                       "modify-instance-metadata-options --http-put-response-hop-limit 2",
                    instance, memory);
    return fail(t, "%s: %s", instance, memory);
}

static bool is_word(struct span text, size_t most)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] <= ' ' || text.at[i] > '~' || strchr("/?#%\\", text.at[i]))
            return false;
    return text.len > 0 && text.len <= most;
}

static enum err get_session(struct taking *t, char out[METADATA_TOKEN_BYTES_MAX + 1])
{
    struct call_answer a;
    enum err e = ask_instance(t, HTTP_PUT, "/latest/api/token", NULL, &a);
    if (e == OK && a.status == 403)
        e = fail(t, "%s is switched off for this instance (403)", instance);
    else if (e == OK && a.status != 200)
        e = fail(t, "%s gave no session token but %u; version 1 is never used", instance, a.status);
    struct span token = e == OK ? span_trim(a.body) : (struct span){NULL, 0};
    bool good = token.len > 0 && token.len <= METADATA_TOKEN_BYTES_MAX;
    for (size_t i = 0; i < token.len && good; i++)
        good = token.at[i] > ' ' && token.at[i] <= '~';
    if (e == OK && !good)
        e = fail(t, "the session token of %s cannot be used", instance);
    if (e == OK) {
        memcpy(out, token.at, token.len);
        out[token.len] = '\0';
    }
    call_end(&a);
    return e;
}

static enum err get_role(struct taking *t, const char *token, char out[ROLE_BYTES_MAX + 1])
{
    struct call_answer a;
    enum err e =
        ask_instance(t, HTTP_GET, "/latest/meta-data/iam/security-credentials/", token, &a);
    if (e == OK && a.status == 404) {
        fail(t, "%s: no role is attached to this instance", instance);
        e = ERR_NOT_FOUND;
    } else if (e == OK && a.status != 200) {
        e = tell_status(t, instance, &a);
    }
    struct span rest = a.body, role = e == OK ? span_trim(span_cut(&rest, '\n')) : rest;
    if (e == OK && !is_word(role, ROLE_BYTES_MAX))
        e = fail(t, "the role of %s cannot be used", instance);
    if (e == OK) {
        memcpy(out, role.at, role.len);
        out[role.len] = '\0';
    }
    call_end(&a);
    return e;
}

static enum err get_keys(struct taking *t, const char *token, const char *role)
{
    char path[ROLE_BYTES_MAX + 64];
    struct call_answer a;
    snprintf(path, sizeof(path), "/latest/meta-data/iam/security-credentials/%s", role);
    enum err e = ask_instance(t, HTTP_GET, path, token, &a);
    if (e == OK && a.status != 200)
        e = tell_status(t, instance, &a);
    else if (e == OK)
        e = read_json(t, instance, CREDS_OF_INSTANCE, a.body);
    call_end(&a);
    return e;
}

static enum err take_instance(struct taking *t)
{
    char token[METADATA_TOKEN_BYTES_MAX + 1], role[ROLE_BYTES_MAX + 1];
    enum err e = get_session(t, token);
    if (e == OK)
        e = get_role(t, token, role);
    if (e == OK)
        e = get_keys(t, token, role);
    explicit_bzero(token, sizeof(token));
    /* Its name is all that an operator knows of it. */
    if (e == OK)
        snprintf(t->creds->source, sizeof(t->creds->source), "EC2 instance role %s", role);
    return e;
}

/* ---- STS ---- */
static void add_pair(struct text *form, const char *name, struct span value)
{
    if (form->len > 0)
        text_addc(form, '&');
    text_adds(form, name);
    text_addc(form, '=');
    uri_encode(form, value, false);
}

static void write_form(const struct taking *t, const char *action, const char *token,
                       struct text *form)
{
    const struct creds_step *s = t->step;
    char session[64];
    snprintf(session, sizeof(session), "headpond-%llu", (unsigned long long)clock_wall_s());
    add_pair(form, "Action", span_of(action));
    add_pair(form, "Version", span_of("2011-06-15"));
    add_pair(form, "RoleArn", span_of(s->role));
    add_pair(form, "RoleSessionName", span_of(s->session[0] ? s->session : session));
    if (s->external_id && s->external_id[0])
        add_pair(form, "ExternalId", span_of(s->external_id));
    if (s->duration_s) {
        char seconds[16];
        snprintf(seconds, sizeof(seconds), "%u", s->duration_s);
        add_pair(form, "DurationSeconds", span_of(seconds));
    }
    if (token)
        add_pair(form, "WebIdentityToken", span_of(token));
}

/* The fields of a form that is signed with the credentials in hand. */
static enum err sign_form(struct taking *t, struct span form, struct text *fields)
{
    char host_memory[300], hash[65] = "", date[17], authorization_memory[2 * KIB];
    uint8_t digest[SHA256_BYTES];
    struct text host, authorization;
    const struct creds *c = t->creds;
    text_init(&host, host_memory, sizeof(host_memory));
    text_init(&authorization, authorization_memory, sizeof(authorization_memory));
    TRY(call_host(t->step->url, &host));
    sha256(form, digest);
    hex_write(digest, sizeof(digest), hash);
    const struct http_field field[] = {
        {span_of("host"), text_span(&host)},
        {span_of("content-type"), span_of("application/x-www-form-urlencoded")},
        {span_of("x-amz-security-token"), span_of(c->token)},
    };
    const struct sign_request r = {.method = span_of("POST"), .path = span_of("/"),
                                   .field = field, .count = c->token[0] ? 3 : 2,
                                   .payload_hash = span_make(hash, 64), .service = span_of("sts")};
    const struct sign_credentials cred = {span_of(c->access_key), span_of(c->token), &c->secret};
    TRY(sign_v4(&r, &cred, span_of(t->step->region), clock_wall_s(), NULL, date, &authorization));
    if (c->token[0])
        text_addf(fields, "x-amz-security-token: %s\r\n", c->token);
    text_addf(fields, "x-amz-date: %s\r\nAuthorization: %s\r\n", date, authorization_memory);
    return fields->over ? ERR_TOO_LARGE : OK;
}

static enum err ask_sts(struct taking *t, const char *action, struct span form, struct span fields)
{
    const struct creds_step *s = t->step;
    const char *bundle = getenv("AWS_CA_BUNDLE");
    char memory[400];
    struct text mistake;
    struct call_answer a;
    const struct call call = {
        .url = s->url, .path = "", .method = HTTP_POST, .fields = fields, .body = form,
        .plain_ok = s->insecure ? NULL : address_is_private,
        .ca_file = s->ca_file[0] ? s->ca_file : bundle ? bundle : "", .insecure = s->insecure,
        .connect_ms = STS_CONNECT_MS, .answer_ms = STS_ANSWER_MS};
    text_init(&mistake, memory, sizeof(memory));
    enum err e = call_make(&call, &a, &mistake);
    if (e != OK && e != ERR_MEMORY) {
        e = fail(t, "STS (%s): %s", action, memory);
    } else if (e == OK && a.status != 200) {
        char who[64];
        snprintf(who, sizeof(who), "STS (%s)", action);
        e = tell_status(t, who, &a);
    } else if (e == OK) {
        e = creds_answer_sts(action, a.body, t->creds, &mistake);
        if (e == ERR_SYNTAX)
            e = fail(t, "the answer of STS (%s) cannot be used: %s", action, memory);
    }
    call_end(&a);
    return e;
}

static enum err take_role(struct taking *t, const char *action, const char *token)
{
    enum { FORM_BYTES = 3 * TOKEN_FILE_BYTES_MAX + 16 * KIB };
    struct text form, fields;
    char *memory = mem_take(FORM_BYTES + FIELD_BYTES);
    if (!memory)
        return ERR_MEMORY;
    text_init(&form, memory, FORM_BYTES);
    text_init(&fields, memory + FORM_BYTES, FIELD_BYTES);
    write_form(t, action, token, &form);
    text_adds(&fields, "Content-Type: application/x-www-form-urlencoded\r\n");
    enum err e = form.over ? ERR_TOO_LARGE : OK;
    if (e == OK && !token)
        e = sign_form(t, text_span(&form), &fields);
    if (e == OK)
        e = ask_sts(t, action, text_span(&form), text_span(&fields));
    else if (e != ERR_MEMORY)
        e = fail(t, "STS (%s): the request cannot be written: %s", action, err_text(e));
    mem_give_secret(memory, FORM_BYTES + FIELD_BYTES);
    return e;
}

static enum err take_web_identity(struct taking *t)
{
    char *token = NULL;
    size_t cap = 0;
    TRY(read_token(t, t->step->token_file, &token, &cap));
    enum err e = take_role(t, "AssumeRoleWithWebIdentity", token);
    mem_give_secret(token, cap);
    return e;
}

/* ---- all steps ---- */
static enum err take(struct taking *t)
{
    switch (t->step->kind) {
    case CREDS_STATIC:
        *t->creds = *creds_plan_first(t->plan);
        return OK;
    case CREDS_PROCESS:
        return take_process(t);
    case CREDS_WEB_IDENTITY:
        return take_web_identity(t);
    case CREDS_CONTAINER:
        return take_container(t);
    case CREDS_INSTANCE:
        return take_instance(t);
    case CREDS_ROLE:
        return take_role(t, "AssumeRole", NULL);
    }
    return ERR_UNSUPPORTED;
}

enum err issue_creds(const struct creds_plan *plan, struct creds *out, struct text *why)
{
    const struct creds_step *step;
    struct creds creds = {.expire_s = 0};
    struct taking t = {.plan = plan, .why = why, .creds = &creds};
    unsigned count = creds_plan_steps(plan, &step);
    enum err e = OK;
    for (unsigned n = 0; n < count && e == OK; n++) {
        t.step = &step[n];
        e = take(&t);
        if (e == OK && creds.expire_s && creds.expire_s <= clock_wall_s())
            e = fail(&t, "the credentials have already expired; is this host's clock right?");
    }
    if (e == OK) {
        creds.renewed = creds.expire_s != 0;
        if (!creds.source[0] || count > 1)
            snprintf(creds.source, sizeof(creds.source), "%s", creds_plan_source(plan));
        *out = creds;
    }
    creds_wipe(&creds);
    return e;
}
