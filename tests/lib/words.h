/* The text that plays and origin scripts are written in: statements of words, with blocks.
 *
 *   word "quoted words" name="partly quoted"   # a comment
 *   statement word ; another on the same line
 *   statement word { statements }
 *
 * A statement ends at the end of the line or at ';'. A block opens with a '{' that is a word of its
 * own and closes with
 * such a '}'. In quotes: \r \n \t \0 \\ \" \xHH. `\` at the end of a line joins the next one.
 *
 * Invariants:
 *  1. Statements stand in one array in the order of the text; a block is the range up to `end` of
 *     its owner. So
 *     interpreters need no recursion.
 *  2. Words are terminated, and may contain NUL bytes (from \0): len counts. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_WORDS_H
#define HEADPOND_TESTS_WORDS_H

#include "base.h"

struct statement {
    unsigned line;
    unsigned count;
    struct span *word;               /* word[0] names it */
    unsigned end;                    /* index behind its block; its own index + 1 without one */
    bool block;
};

struct script {
    struct statement *statement;
    unsigned count;
    struct span *words;              /* owned, shared by the statements */
    char *text;                      /* owned: the words' bytes */
};

/* ERR_SYNTAX (why names the line), ERR_MEMORY. */
must_check enum err script_read(struct span text, struct script *out, char why[200]);
void script_free(struct script *s);

/* "64K", "8MiB", "1M+1", "8M-1", "300": K M G T are powers of 1024. ERR_SYNTAX. */
must_check enum err size_read(struct span text, uint64_t *out);
/* The size that a key announces behind its last '@'; false if it does not. */
bool size_of_key(struct span key, uint64_t *out);
/* name=value: true when word begins with name and '='; *value is the rest. */
bool word_value(struct span word, const char *name, struct span *value);

#endif
