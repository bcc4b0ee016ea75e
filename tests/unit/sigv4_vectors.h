/* What the tests of sign.c and sign_claim.c share: vector files and a lenient reader of requests,
 * as the published suites use raw blanks in targets and folded lines, which our parser refuses. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_SIGV4_VECTORS_H
#define HEADPOND_TESTS_SIGV4_VECTORS_H

#include "http.h"
#include "mem.h"

#include <stdio.h>
#include <stdlib.h>

#define VECTORS "tests/data/sigv4"
enum { VECTOR_BYTES_MAX = 32 * KIB };

struct vector_request {
    char bytes[VECTOR_BYTES_MAX];
    struct http_head head;
    struct span body;
};

/* The file's bytes without '\r', terminated; false when there is none. */
static inline bool vector_file(const char *path, char out[VECTOR_BYTES_MAX])
{
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    size_t n = 0;
    for (int c; n + 1 < VECTOR_BYTES_MAX && (c = fgetc(f)) != EOF;)
        if (c != '\r')
            out[n++] = (char)c;
    out[n] = '\0';
    fclose(f);
    return true;
}

/* Reads r->bytes in place: "METHOD target HTTP/1.1\nName:value\n...\n\nbody"; folded lines become
 * one. */
static inline bool vector_read(struct vector_request *r)
{
    struct http_head *h = &r->head;
    char *end = strstr(r->bytes, "\n\n");
    r->body = span_of(end ? end + 2 : "");
    if (end)
        *end = '\0';
    for (char *c = r->bytes; *c; c++)
        if (c[0] == '\n' && c[1] == ' ')
            c[0] = ' ';
    struct span rest = span_of(r->bytes), line = span_cut(&rest, '\n');
    char *version = strstr(r->bytes, " HTTP/1.1");
    if (!version)
        return false;
    *h = (struct http_head){.minor = 1};
    h->method_text = span_cut(&line, ' ');
    h->target = span_make(line.at, (size_t)(version - line.at));
    while (rest.len > 0) {
        line = span_cut(&rest, '\n');
        if (line.len == 0)
            continue;
        struct http_field *f = &h->field[h->count++];
        f->name = span_cut(&line, ':');
        f->value = span_trim(line);
    }
    h->host = http_find(h, "host");
    return true;
}

#endif
