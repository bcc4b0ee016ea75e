/* Forged requests: the input chooses a signed request and up to three changes of it; what is then
 * accepted means the same as what was signed. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "creds.h"
#include "server/s3/s3.h"

#include "tests/fuzz/fuzz.h"
#include "tests/lib/forge.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);

static struct keys *keys;
static struct s3_gate gate;
static struct arena arena;
static char arena_bytes[64 * KIB];
static struct forged base[ARRAY_COUNT(forge_shapes)];

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static struct conf_mistakes mistakes;
    (void)argc;
    (void)argv;
    demand(sign_setup_thread() == OK);
    demand(keys_parse(span_of(FORGE_ACCESS " " FORGE_SECRET " rw\n"), "keys", &keys,
                      &mistakes) == OK);
    arena_init(&arena, arena_bytes, sizeof(arena_bytes), 64 * KIB);
    s3_gate_open(&gate, keys, span_of(""), NULL, 900);
    for (unsigned i = 0; i < ARRAY_COUNT(base); i++)
        forge_make(&forge_shapes[i], &base[i]);
    return 0;
}

static unsigned roll(void *from, unsigned below)
{
    return feed_below(from, below);
}

static bool is_accepted(const struct http_head *head, struct s3_ask *ask)
{
    struct s3_error error = {0};
    struct s3_who who = {.now_s = FORGE_NOW_S};
    arena_reset(&arena);
    return s3_ask_read(head, "", &arena, ask, &error) == OK &&
           s3_authorize(&gate, head, ask, &who, &arena, &error) == OK && !who.anonymous;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char first[64 * KIB], second[64 * KIB];
    static struct http_head head;
    static struct forged f;
    struct feed feed = {data, size};
    struct text before, after;
    struct s3_ask ask;
    const struct forged *b = &base[feed_below(&feed, ARRAY_COUNT(base))];
    f = *b;
    for (unsigned i = feed_below(&feed, 4); i > 0; i--)
        forge_change(&f, roll, &feed);
    if (!forge_parse(&f, &head) || !is_accepted(&head, &ask))
        return 0;
    text_init(&after, second, sizeof(second));
    forge_meaning(&after, &head);
    demand(forge_parse(b, &head));
    text_init(&before, first, sizeof(first));
    forge_meaning(&before, &head);
    demand(!before.over && !after.over);
    demand(span_eq(text_span(&before), text_span(&after)));
    return 0;
}
