/* Walks through the statements of a play: loops and variables, so that interpreters see only what
 * is to be done.
 *
 * Invariants:
 *  1. Blocks are ranges of one array (words.h): a loop is a jump, nothing recurses.
 *  2. frame.now and its words live until the next frame_next().
 *
 * Life: one frame per interpreter; it borrows the play's script.
 * Failure: text that does not fit, an unknown variable or too many loops fail the play. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>

#include "tests/flow/play.h"

void frame_init(struct frame *f, struct play *p, unsigned at, unsigned end)
{
    f->play = p;
    f->at = at;
    f->end = end;
    f->depth = 0;
    f->variables = 0;
    f->now = (struct statement){0};
}

void frame_enter(struct frame *f, const struct frame *outer)
{
    frame_init(f, outer->play, outer->index + 1, outer->now.end);
    memcpy(f->variable, outer->variable, sizeof f->variable);
    f->variables = outer->variables;
}

void frame_set(struct frame *f, const char *name, const char *value)
{
    unsigned i = 0;

    while (i < f->variables && strcmp(f->variable[i].name, name) != 0)
        i++;
    must(i < FRAME_VARS_MAX);
    f->variables += i == f->variables;
    snprintf(f->variable[i].name, sizeof f->variable[i].name, "%s", name);
    snprintf(f->variable[i].value, sizeof f->variable[i].value, "%s", value);
}

static void set_number(struct frame *f, const char *name, uint64_t n)
{
    char text[24];

    snprintf(text, sizeof text, "%llu", (unsigned long long)n);
    frame_set(f, name, text);
}

/* The value of the longest variable whose name begins the text; NULL if there is none. */
static const char *find_variable(const struct frame *f, struct span rest, size_t *len)
{
    const char *value = NULL;

    *len = 0;
    for (unsigned i = 0; i < f->variables; i++) {
        struct span name = span_of(f->variable[i].name);
        if (name.len > *len && rest.len >= name.len && memcmp(rest.at, name.at, name.len) == 0) {
            *len = name.len;
            value = f->variable[i].value;
        }
    }
    return value;
}

static bool expand_word(struct frame *f, struct span in, struct text *t)
{
    for (size_t i = 0; i < in.len; i++) {
        if (in.at[i] != '$') {
            text_addc(t, in.at[i]);
            continue;
        }
        size_t len;
        const char *value = find_variable(f, span_make(in.at + i + 1, in.len - i - 1), &len);
        if (!value)
            return play_fail(f->play, &f->now, "unknown variable in %s", in.at);
        text_adds(t, value);
        i += len;
    }
    return true;
}

static bool expand(struct frame *f, const struct statement *st)
{
    size_t used = 0;

    f->now = *st;
    f->now.word = f->word;
    for (unsigned i = 0; i < st->count; i++) {
        struct text t;
        text_init(&t, f->text + used, FRAME_TEXT_BYTES - used);
        if (!expand_word(f, st->word[i], &t))
            return false;
        if (t.over || used + t.len + 1 >= FRAME_TEXT_BYTES || i == FRAME_WORDS_MAX)
            return play_fail(f->play, st, "the statement is too long");
        f->word[i] = text_span(&t);
        used += t.len + 1;
    }
    return true;
}

/* Puts in the variables of a round. */
static void begin_round(struct frame *f, const struct loop *l)
{
    const struct statement *st = &f->play->script.statement[l->head];
    char name[32];

    set_number(f, "n", l->round);
    if (!span_is(st->word[0], "repeat")) {
        snprintf(name, sizeof name, "%s", st->word[1].at);
        frame_set(f, name, st->word[2 + l->round].at);
    }
    f->at = l->head + 1;
}

static bool push_loop(struct frame *f)
{
    const struct statement *st = &f->now;
    struct loop l = {.head = f->index, .end = st->end};

    if (span_is(st->word[0], "for"))
        l.count = st->count - 2;
    else if (st->count != 2 || size_read(st->word[1], &l.count) != OK)
        return play_fail(f->play, st, "repeat N { }");
    f->at = st->end;
    if (l.count == 0 || l.end == l.head + 1)
        return true;
    if (f->depth == FRAME_LOOPS_MAX)
        return play_fail(f->play, st, "too many loops inside each other");
    f->loop[f->depth++] = l;
    begin_round(f, &l);
    return true;
}

static void close_loops(struct frame *f)
{
    while (f->depth > 0 && f->at == f->loop[f->depth - 1].end) {
        struct loop *l = &f->loop[f->depth - 1];
        if (++l->round < l->count) {
            begin_round(f, l);
            return;
        }
        f->depth--;
    }
}

bool frame_next(struct frame *f)
{
    for (;;) {
        close_loops(f);
        if (f->at >= f->end || f->play->failed)
            return false;
        f->index = f->at;
        const struct statement *st = &f->play->script.statement[f->at];
        if (!expand(f, st))
            return false;
        bool loop = st->block && ((span_is(st->word[0], "for") && st->count > 2) ||
                                  span_is(st->word[0], "repeat"));
        if (!loop) {
            f->at = st->end;
            return true;
        }
        if (!push_loop(f))
            return false;
    }
}
