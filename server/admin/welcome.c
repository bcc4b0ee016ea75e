/* Who may ask the control plane what.
 *
 * Invariants:
 *  1. A UNIX socket is guarded by its file mode alone: who could open it may do everything.
 *  2. Over TCP a request of a browser for someone else is refused (Origin, Host), and a change
 *     needs the token; without a token nothing can be changed there.
 *  3. The token is compared in constant time, and told to nobody.
 *
 * Life: the token is read once, when the control plane opens.
 * Failure: each refusal says what to do. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <microhttpd.h>
#include <stdio.h>

#include "creds.h"
#include "log.h"
#include "server/admin/admin.h"
#include "sign.h"

enum { WHY_BYTES = 512 };

/* ---- the token ---- */
static bool is_token(struct span text)
{
    if (text.len < TOKEN_BYTES_MIN || text.len > TOKEN_BYTES_MAX)
        return false;
    for (size_t i = 0; i < text.len; i++)
        if (text.at[i] <= ' ' || text.at[i] >= 0x7f)
            return false;
    return true;
}

enum err token_read(struct admin *a, const char *path, char why[WHY_BYTES])
{
    char *bytes = NULL;
    size_t len = 0;
    struct text t;

    if (!path[0])
        return OK;
    text_init(&t, why, WHY_BYTES);
    text_adds(&t, "admin.token_file: ");
    enum err e = creds_file(path, true, &bytes, &len, &t);
    if (e != OK)                     /* nobody else brings it, as credentials may be brought */
        return e == ERR_MEMORY ? e : ERR_CONFIG;
    struct span rest = span_make(bytes, len), token = span_cut(&rest, '\n');
    token = span_trim(token.len && token.at[token.len - 1] == '\r'
                          ? span_make(token.at, token.len - 1) : token);
    bool fits = is_token(token);
    if (fits)
        memcpy(a->token, token.at, token.len);
    else
        text_addf(&t,
                  "%s holds no token of %d to %d printable characters: openssl rand -hex 32 > %s",
                  path, TOKEN_BYTES_MIN, TOKEN_BYTES_MAX, path);
    mem_give_secret(bytes, len + 1);
    return fits ? OK : ERR_CONFIG;
}

bool token_is(const char *token, struct span field)
{
    struct span scheme = span_cut(&field, ' ');
    struct span said = span_trim(field);

    return token[0] && span_is_nocase(scheme, "Bearer") && said.len == strlen(token) &&
        equal_in_constant_time(token, said.at, said.len);
}

/* ---- judging ---- */
static void report(const struct visit *a, const char *why, const char *value)
{
    log_event(EVENT_ADMIN, "why=%s path=%s value=%s", why, log_value(span_of(a->path)),
              log_value(span_of(value)));
}

static bool refuse_change(const struct visit *a, struct admin_answer *out, const char *field)
{
    report(a, "method", a->method);
    if (a->door->metrics_only || !a->door->server->admin->token[0]) {
        memcpy(out->allow, "GET, HEAD", sizeof "GET, HEAD");
        answer_refuse(out, MHD_HTTP_METHOD_NOT_ALLOWED, "read_only",
                      "over TCP the control plane is read-only",
                      "use the UNIX socket (headpond --server unix:PATH, curl --unix-socket), or "
                      "set admin.token_file");
    } else if (!field) {
        answer_refuse(out, MHD_HTTP_UNAUTHORIZED, "unauthorized",
                      "over TCP a change needs the token of admin.token_file",
                      "say Authorization: Bearer TOKEN (headpond: --token-file FILE), or use the "
                      "UNIX socket");
    } else {
        answer_refuse(out, MHD_HTTP_FORBIDDEN, "forbidden", "the token is not the right one",
                      "compare it with admin.token_file of this server; a new one needs a restart");
    }
    return false;
}

/* Over TCP anyone's browser may be the one who asks; the UNIX socket is guarded by its mode. */
bool is_welcome(const struct visit *a, struct admin_answer *out)
{
    const struct admin *admin = a->door->server->admin;
    const char *names[] = {a->door->server->name, admin->host};
    const char *origin = MHD_lookup_connection_value(a->connection, MHD_HEADER_KIND, "Origin");
    const char *host = MHD_lookup_connection_value(a->connection, MHD_HEADER_KIND, "Host");
    const char *token = MHD_lookup_connection_value(a->connection, MHD_HEADER_KIND,
                                                    "Authorization");
    bool reads = strcmp(a->method, "GET") == 0 || strcmp(a->method, "HEAD") == 0;

    if (a->door->local)
        return true;
    if (origin) {
        report(a, "origin", origin);
        answer_refuse(out, MHD_HTTP_FORBIDDEN, "forbidden",
                      "a page of another site may not ask here", "leave out the Origin field");
        return false;
    }
    if (host && !guard_host(span_of(host), names, ARRAY_COUNT(names))) {
        report(a, "host", host);
        answer_refuse(out, MHD_HTTP_FORBIDDEN, "forbidden", "the Host field names someone else",
                      "ask by address, or set server.name to the name that you use");
        return false;
    }
    if (reads || (!a->door->metrics_only && token && token_is(admin->token, span_of(token))))
        return true;
    return refuse_change(a, out, token);
}
