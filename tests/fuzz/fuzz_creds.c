/* Fuzzes the two files that operators write: ~/.aws INI (first byte even) and keys_file (odd). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "creds.h"

#include "tests/fuzz/fuzz.h"

static void read_ini(struct span bytes)
{
    struct ini ini;
    struct span name, value;
    enum err e;
    unsigned line = 0;
    ini_begin(&ini, bytes);
    while ((e = ini_next(&ini, &name, &value)) == OK) {
        demand(name.len > 0 && ini.section.at && ini.line > line);
        demand(value.len == 0 || value.at + value.len <= bytes.at + bytes.len);
        demand(span_find(name, '\n') == name.len && span_find(value, '\n') == value.len);
        line = ini.line;
    }
    demand(e == ERR_NOT_FOUND || (ini.why && ini.column > 0));
}

static void read_keys(struct span bytes)
{
    static struct conf_mistakes mistakes;
    struct keys *k = NULL;
    enum err e = keys_parse(bytes, "keys", &k, &mistakes);
    demand((e == OK) == (mistakes.count == 0));
    if (e != OK)
        return;
    demand(keys_count(k) > 0 && keys_count(k) <= KEYS_MAX);
    /* Each word of the file that names a key finds it. */
    while (bytes.len > 0) {
        struct span line = span_cut(&bytes, '\n');
        const struct key *key = keys_find(k, span_cut(&line, ' '));
        if (!key)
            continue;
        demand(key->index < keys_count(k) && key->secret.len > 0);
        for (unsigned i = 0; i < key->scope_count; i++) {
            demand(keys_allow(key, false, key->scope[i].bucket, key->scope[i].prefix));
            demand(keys_allow_bucket(key, key->scope[i].bucket));
        }
        bool read = keys_allow(key, false, span_of("b"), span_of("k"));
        demand(keys_allow(key, true, span_of("b"), span_of("k")) == (key->write && read));
    }
    keys_give(k);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct span bytes = span_make(data + 1, size - 1);
    if (data[0] % 2 == 0)
        read_ini(bytes);
    else
        read_keys(bytes);
    return 0;
}
