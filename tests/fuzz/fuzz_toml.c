/* The TOML reader alone: it ends, each item has its place in the file, texts are UTF-8 without
 * a NUL, and what is not a mistake reads as the same with other blanks around it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/toml.c"

#include "tests/fuzz/fuzz.h"

static bool bytes_are_bad;          /* told as a mistake, ahead of the items */

static void check_name(struct span s)
{
    if (bytes_are_bad)
        return;
    demand(s.at && !memchr(s.at, 0, s.len));
    for (size_t at = 0, n; at < s.len; at += n) {
        n = span_utf8(span_from(s, at));
        demand(n > 0);
    }
}

static void check_text(struct span s)
{
    check_name(s);
    demand(s.at[s.len] == 0);
}

static uint64_t check_value(uint64_t hash, const struct toml_value *v)
{
    hash = fuzz_mix(hash, span_make(&v->kind, sizeof(v->kind)));
    switch (v->kind) {
    case TOML_STRING:
        check_text(v->text);
        return fuzz_mix(hash, v->text);
    case TOML_INTEGER:
        return fuzz_mix(hash, span_make(&v->integer, sizeof(v->integer)));
    case TOML_BOOL:
        return hash * 3 + v->flag;
    case TOML_LIST:
        demand(v->count <= TOML_LIST_MAX);
        for (unsigned i = 0; i < v->count; i++) {
            check_text(v->item[i]);
            hash = fuzz_mix(hash, v->item[i]);
        }
    }
    return hash;
}

/* A hash of all that was said; *mistakes of them. */
static uint64_t read_all(struct span bytes, struct arena *arena, unsigned *mistakes)
{
    static struct toml_item item;
    struct toml t;
    uint64_t hash = 1;
    unsigned line = 1;
    enum toml_event e;
    *mistakes = 0;
    bytes_are_bad = false;
    toml_open(&t, bytes, arena);
    for (size_t events = 0; (e = toml_next(&t, &item)) != TOML_END; events++) {
        demand(events <= bytes.len);
        if (e == TOML_NO_MEMORY)
            return 0;
        hash = hash * 31 + e;
        if (e == TOML_MISTAKE) {
            ++*mistakes;
            bytes_are_bad |= strstr(item.mistake, "control character") ||
                             strstr(item.mistake, "is not UTF-8");
            demand(item.mistake[0] && strlen(item.mistake) < sizeof(item.mistake));
            continue;
        }
        demand(item.place.line >= line && item.place.column > 0);
        demand(item.parts > 0 && item.parts <= TOML_PARTS_MAX);
        line = item.place.line;
        for (unsigned i = 0; i < item.parts; i++) {
            check_name(item.part[i]);
            hash = fuzz_mix(hash, item.part[i]);
        }
        if (e == TOML_PAIR)
            hash = check_value(hash, &item.value);
        else
            hash = hash * 3 + item.array;
    }
    return hash;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char first[64 * KIB], spaced[64 * KIB];
    struct arena arena;
    struct text t;
    unsigned mistakes, others;
    if (size > 16 * KIB)
        return 0;
    char *bytes = exact_copy(data, size);
    arena_init(&arena, first, sizeof(first), 4 * MIB);
    uint64_t hash = read_all(span_make(bytes, size), &arena, &mistakes);
    if (hash && mistakes == 0) {
        text_init(&t, spaced, sizeof(spaced));
        text_adds(&t, "\n  # begins\n\t\n");
        if (span_starts(span_make(bytes, size), span_of("\xef\xbb\xbf")))
            text_add(&t, span_make(bytes + 3, size - 3));
        else
            text_add(&t, span_make(bytes, size));
        text_adds(&t, "\n\n# ends");
        demand(read_all(text_span(&t), &arena, &others) == hash && others == 0);
    }
    arena_reset(&arena);
    exact_give(bytes);
    return 0;
}
