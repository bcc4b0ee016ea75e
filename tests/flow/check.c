/* `expect` of a client: facts of the last answer, one word each.
 *
 * Invariants:
 *  1. Every word is understood or fails the play: a misspelt expectation never passes.
 *
 * Life: stateless. Failure: the first word that does not hold is told with what was seen. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include "tests/flow/play.h"

enum { CLOSED_WITHIN_MS = 5000 };

/* a|b|c */
static bool one_of(struct span wanted, struct span have)
{
    while (wanted.len > 0)
        if (span_eq(span_cut(&wanted, '|'), have))
            return true;
    return false;
}

bool check_closed(struct client *c, uint64_t within_ms)
{
    uint64_t deadline = clock_us() + within_ms * 1000;
    char byte;

    if (c->ended || c->fd < 0)
        return true;
    if (c->used < c->have)
        return client_fail(c, "%zu unread bytes instead of a close", c->have - c->used);
    if (client_wait(c, deadline) == 0)
        return client_fail(c, "not closed within %llu ms", (unsigned long long)within_ms);
    ssize_t n = wire_recv(c, &byte, 1, 0);
    if (n > 0)
        return client_fail(c, "bytes instead of a close");
    c->ended = true;
    return true;
}

static bool check_open(struct client *c)
{
    char byte;

    if (c->ended || c->fd < 0 || c->got.close)
        return client_fail(c, "the connection is not kept open");
    ssize_t n = wire_recv(c, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK))
        return client_fail(c, "the connection was closed");
    return true;
}

/* The text between <Code> and </Code>. */
static struct span error_code(const struct answered *a)
{
    const char *at = strstr(a->shown, "<Code>");
    const char *end = at ? strstr(at, "</Code>") : NULL;

    return end ? span_make(at + 6, (size_t)(end - at - 6)) : span_of("");
}

static bool check_header(struct client *c, struct span word)
{
    struct span wanted = word;
    char name[100];
    struct span n = span_cut(&wanted, '=');

    snprintf(name, sizeof name, "%.*s", (int)n.len, n.at);
    struct span have = answer_header(&c->got, name);
    if (!have.at)
        return client_fail(c, "no field %s", name);
    if (n.len == word.len || span_eq(wanted, have))
        return true;
    return client_fail(c, "%s: %.*s", name, (int)have.len, have.at);
}

static bool check_absent(struct client *c, struct span name)
{
    struct span have = answer_header(&c->got, name.at);

    return !have.at || client_fail(c, "%s: %.*s", name.at, (int)have.len, have.at);
}

/* status=, xcache=, code=, bytes=, body~. *known: the word is one of these. */
static bool check_text(struct client *c, struct span word, bool *known)
{
    struct answered *a = &c->got;
    struct span value, have;
    char status[16];

    *known = true;
    if (word_value(word, "status", &value)) {
        snprintf(status, sizeof status, "%u", a->status);
        return one_of(value, span_of(status)) ||
               client_fail(c, "status %u, code %.*s", a->status, (int)error_code(a).len,
                           error_code(a).at);
    }
    if (word_value(word, "xcache", &value)) {
        have = answer_header(a, "x-cache");
        return one_of(value, have) || client_fail(c, "x-cache: %.*s", (int)have.len,
                                                  have.at ? have.at : "");
    }
    if (word_value(word, "code", &value)) {
        have = error_code(a);
        return one_of(value, have) || client_fail(c, "code %.*s", (int)have.len, have.at);
    }
    if (word_value(word, "bytes", &value))
        return (span_is(value, "ok") && a->checked) || client_fail(c, "the bytes were not checked");
    if (span_starts(word, span_of("body~")))
        return strstr(a->shown, word.at + 5) || client_fail(c, "body: %.300s", a->shown);
    *known = false;
    return false;
}

static bool check_number(struct client *c, struct span word, bool *known)
{
    const struct answered *a = &c->got;
    const struct {
        const char *name;
        uint64_t value;
    } facts[] = {
        {"length", a->body_bytes}, {"version", a->version}, {"interim", a->interim},
        {"first_ms", a->first_ms}, {"ms", a->ms}, {"announced", a->length},
    };
    for (size_t i = 0; i < ARRAY_COUNT(facts); i++) {
        bool holds = watch_compare(word, facts[i].name, facts[i].value, known);
        if (*known)
            return holds || client_fail(c, "%s is %llu", facts[i].name,
                                        (unsigned long long)facts[i].value);
    }
    return false;
}

static bool check_same(struct client *c);

static bool check_connection(struct client *c, struct span word, bool *known)
{
    const struct statement *st = &c->frame.now;
    uint64_t within = CLOSED_WITHIN_MS;
    struct span value;

    *known = true;
    for (unsigned i = 1; i < st->count; i++)
        if (word_value(st->word[i], "within", &value) && size_read(value, &within) != OK)
            return client_fail(c, "within=MS");
    if (word_value(word, "within", &value))
        return true;
    if (span_is(word, "closed"))
        return check_closed(c, within);
    if (span_is(word, "notified"))
        return (c->ended && !c->unclean) || client_fail(c, "an end without close_notify");
    if (span_is(word, "resumed"))
        return wire_resumed(c) || client_fail(c, "a full handshake");
    if (word_value(word, "certificate", &value))
        return wire_shown(c, value) || client_fail(c, "another certificate");
    if (span_is(word, "open"))
        return check_open(c);
    if (span_is(word, "same"))
        return check_same(c);
    if (span_is(word, "cut"))
        return c->got.cut || client_fail(c, "the body is whole");
    if (span_is(word, "whole"))
        return (!c->got.cut && (c->got.until_close || c->got.no_body || c->got.chunked ||
                                c->got.body_bytes == c->got.length)) ||
               client_fail(c, "the body is not whole");
    *known = false;
    return false;
}

/* Fields and elements that no two answers share. */
static bool is_of_one_answer(struct span line)
{
    static const char *const names[] = {"x-amz-request-id:", "x-amz-id-2:", "Date:"};

    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (span_starts(line, span_of(names[i])))
            return true;
    return false;
}

static void blank_element(char *body, const char *name)
{
    char *at = strstr(body, name), *end = at ? strstr(at, "</") : NULL;

    for (char *c = at ? at + strlen(name) : NULL; end && c < end; c++)
        *c = '.';
}

/* Head and shown body of the last answer, to be freed. */
static char *normal_answer(const struct client *c)
{
    const struct answered *a = &c->got;
    struct span head = span_make(a->head, a->head_len);
    char *room = mem_take(HEAD_BYTES + BODY_SHOWN_BYTES);
    struct text t;

    must(room);
    text_init(&t, room, HEAD_BYTES + BODY_SHOWN_BYTES);
    while (head.len > 0) {
        struct span line = span_cut(&head, '\n');
        if (!is_of_one_answer(line))
            text_addf(&t, "%.*s\n", (int)line.len, line.at);
    }
    text_adds(&t, a->shown);
    blank_element(room, "<RequestId>");
    blank_element(room, "<HostId>");
    return room;
}

bool check_keep(struct client *c)
{
    mem_give(c->play->kept);
    c->play->kept = normal_answer(c);
    return true;
}

static bool check_same(struct client *c)
{
    char *now = normal_answer(c);
    const char *kept = c->play->kept;
    bool good = kept && strcmp(kept, now) == 0;

    if (!good)
        client_fail(c, "another answer than the kept one:\n%.400s\n%.400s", kept ? kept : "(none)",
                    now);
    mem_give(now);
    return good;
}

bool check_expect(struct client *c)
{
    static bool (*const checks[])(struct client *, struct span, bool *) = {
        check_text, check_number, check_connection};
    const struct statement *st = &c->frame.now;

    for (unsigned i = 1; i < st->count; i++) {
        struct span word = st->word[i];
        bool known = false, good = false;
        if (span_is(word, "header") || span_is(word, "no")) {
            if (++i == st->count)
                return client_fail(c, "a field name is missing");
            good = span_is(word, "no") ? check_absent(c, st->word[i])
                                       : check_header(c, st->word[i]);
            known = true;
        }
        for (size_t k = 0; !known && k < ARRAY_COUNT(checks); k++)
            good = checks[k](c, word, &known);
        if (!known)
            return client_fail(c, "unknown expectation %s", word.at);
        if (!good)
            return false;
    }
    return true;
}
