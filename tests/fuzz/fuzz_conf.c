/* Any bytes as a configuration file: no crash, no leak; what is accepted prints as a file that
 * reads back to the same text; what is refused has a mistake that is one printable line.
 *
 *   clang -std=gnu17 -g -O1 -D_GNU_SOURCE -Iinclude -I. -fsanitize=fuzzer,address,undefined \
 *       -fno-sanitize-recover=undefined tests/fuzz/fuzz_conf.c common/conf*.c common/toml.c \
 *       common/mem.c common/base.c -o build/fuzz_conf
 *   build/fuzz_conf -max_total_time=60 NEW_CORPUS_DIR tests/fuzz/corpus/conf */
/* SPDX-License-Identifier: Apache-2.0 */
#include "conf.h"

static struct conf_mistakes mistakes;
static char printed[4 * MIB], again[4 * MIB];

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void print(const struct config *c, char *memory, struct text *t)
{
    text_init(t, memory, sizeof printed);
    conf_print(c, t);
    must(!t->over);
}

static void check_mistakes(void)
{
    must(mistakes.count > 0);
    for (unsigned i = 0; i < mistakes.count && i < CONF_MISTAKES_MAX; i++) {
        struct span line = span_of(mistakes.item[i].text);
        must(span_starts(line, span_of("f:")));
        for (size_t at = 0, len; at < line.len; at += len) {
            len = span_utf8(span_from(line, at));
            must(len > 0 && (unsigned char)line.at[at] >= ' ' && line.at[at] != 0x7F);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config *c = NULL, *read_back = NULL;
    struct text first, second;

    enum err e = conf_parse(span_make(data, size), "f", NULL, NULL, 0, &c, &mistakes);
    if (e != OK) {
        must(!c && (e == ERR_CONFIG || e == ERR_MEMORY));
        if (e == ERR_CONFIG)
            check_mistakes();
        return 0;
    }
    must(mistakes.count == 0 && c->bucket_count >= 1);
    must(conf_bucket(c, span_of("bucket"), span_of("key")) != NULL);
    print(c, printed, &first);
    must(conf_parse(text_span(&first), "f", NULL, NULL, 0, &read_back, &mistakes) == OK);
    print(read_back, again, &second);
    must(span_eq(text_span(&first), text_span(&second)));
    conf_give(read_back);
    conf_give(c);
    return 0;
}
