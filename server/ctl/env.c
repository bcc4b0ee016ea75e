/* headpond env: variables that point S3 clients at this cache, for the shell that asks.
 *
 * Invariants:
 *  1. What a shell evaluates holds no character that means something to it: the URL is checked
 * byte by byte, whoever sent it.
 *  2. stdout is only what is to be evaluated; advice goes to stderr.
 *
 * Life: one question, one answer. Failure: no server 5; a URL that is none 1; an unknown shell 2.
 * */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "http.h"

enum { OUT_BYTES = 4 * KIB, URL_BYTES = 512 };

/* AWS_ENDPOINT_URL for tools older than the service's own variable, S3_ENDPOINT_URL for MosaicML
 * Streaming. */
static const char *const names[] = {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT_URL"};

static bool is_safe(const char *url)
{
    struct span text = span_of(url);
    const char *why;
    struct uri u;

    for (size_t i = 0; i < text.len; i++) {
        char c = text.at[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && (c == '\0' || !strchr(":/.-_[]", c)))
            return false;
    }
    return uri_parse(text, &u, &why) == OK && !span_is(u.scheme, "file");
}

/* Brackets of an IPv6 address are a pattern to some shells. */
static void add_shell_word(struct text *t, const char *url)
{
    const char *quote = strchr(url, '[') ? "'" : "";
    text_addf(t, "%s%s%s", quote, url, quote);
}

static void print_sh(struct text *t, const char *url)
{
    text_adds(t, "export");
    for (unsigned i = 0; i < ARRAY_COUNT(names); i++) {
        text_addf(t, " %s=", names[i]);
        add_shell_word(t, url);
    }
    text_addc(t, '\n');
}

static void print_fish(struct text *t, const char *url)
{
    for (unsigned i = 0; i < ARRAY_COUNT(names); i++) {
        text_addf(t, "set -gx %s ", names[i]);
        add_shell_word(t, url);
        text_adds(t, ";\n");
    }
}

static void print_python(struct text *t, const char *url)
{
    text_adds(t, "import os\nos.environ.update(");
    for (unsigned i = 0; i < ARRAY_COUNT(names); i++)
        text_addf(t, "%s%s=\"%s\"", i ? ", " : "", names[i], url);
    text_adds(t, ")\n");
}

static void print_docker(struct text *t, const char *url)
{
    for (unsigned i = 0; i < ARRAY_COUNT(names); i++)
        text_addf(t, "%s-e %s=%s", i ? " " : "", names[i], url);
    text_addc(t, '\n');
}

static void print_k8s(struct text *t, const char *url)
{
    text_adds(t, "env:\n");
    for (unsigned i = 0; i < ARRAY_COUNT(names); i++)
        text_addf(t, "  - name: %s\n    value: \"%s\"\n", names[i], url);
}

static const struct {
    const char *name;
    void (*print)(struct text *t, const char *url);
    bool elsewhere;                  /* evaluated in a container, with its own loopback */
} shells[] = {
    {"sh", print_sh, false},         {"fish", print_fish, false}, {"python", print_python, false},
    {"docker", print_docker, true}, {"k8s", print_k8s, true},
};

enum err env_print(const char *shell, const char *url, struct text *out)
{
    if (!is_safe(url))
        return ERR_SYNTAX;
    for (unsigned i = 0; i < ARRAY_COUNT(shells); i++) {
        if (strcmp(shells[i].name, shell) != 0)
            continue;
        shells[i].print(out, url);
        return OK;
    }
    return ERR_NOT_FOUND;
}

static bool is_elsewhere(const char *shell)
{
    for (unsigned i = 0; i < ARRAY_COUNT(shells); i++)
        if (strcmp(shells[i].name, shell) == 0)
            return shells[i].elsewhere;
    return false;
}

/* In a container 127.0.0.1 is the container. */
static void rename_loopback(const struct ctl *c, const json_t *status, char url[URL_BYTES])
{
    static const char loopback[] = "http://127.0.0.1:";
    char named[URL_BYTES];

    if (strncmp(url, loopback, strlen(loopback)) != 0)
        return;
    snprintf(named, sizeof named, "http://%s:%s", value_text(status, "name"),
             url + strlen(loopback));
    memcpy(url, named, sizeof named);
    if (is_safe(named))              /* else env_print() refuses it */
        ctl_say(c, "headpond: in a container 127.0.0.1 is the container itself; %s must be "
                   "reachable from there\n", named);
}

/* The dialect of the shell that will evaluate it, unless it was named. */
static const char *guess_shell(void)
{
    const char *shell = getenv("SHELL");
    return shell && span_ends(span_of(shell), span_of("/fish")) ? "fish" : "sh";
}

static int print_answer(struct ctl *c, const json_t *status, const char *server)
{
    char memory[OUT_BYTES], url[URL_BYTES];
    const char *shell = c->shell ? c->shell : guess_shell();
    struct text t;

    snprintf(url, sizeof url, "%s", value_text(status, "s3_url"));
    if (is_elsewhere(shell))
        rename_loopback(c, status, url);
    text_init(&t, memory, sizeof memory);
    if (env_print(shell, url, &t) != OK) {
        fprintf(stderr, "headpond: %s does not tell a usable address of its S3 port; see "
                        "server.listen there\n", server);
        return CTL_FAILED;
    }
    if (c->json) {
        json_t *line = json_pack("{s:i,s:s}", "v", 1, "s3_url", url);
        ctl_print_json(line);
        json_decref(line);
    } else {
        fputs(memory, stdout);
    }
    if (!is_elsewhere(shell) && !c->quiet)
        tools_warn(c, url);
    if (isatty(STDOUT_FILENO) && strcmp(shell, "sh") == 0)
        ctl_say(c, "# to set them in this shell: eval \"$(headpond env)\"\n");
    return CTL_DONE;
}

int env_run(struct ctl *c)
{
    struct reply r = {0};
    int code = CTL_DONE;
    json_t *status = client_json(c, "/v1/status", &r, &code);

    if (!status)
        return code;
    code = print_answer(c, status, r.server);
    json_decref(status);
    reply_free(&r);
    return code;
}
