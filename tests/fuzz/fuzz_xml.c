/* XML: whatever comes, whole or in pieces, gives one verdict and, if accepted, the same leaves;
 * what is written is read back. The first byte chooses the size of the pieces. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/xml.c"

#include "tests/fuzz/fuzz.h"

static uint64_t mix(uint64_t hash, struct span s)
{
    for (size_t i = 0; i < s.len; i++)
        hash = (hash ^ (uint8_t)s.at[i]) * 1099511628211u;
    return (hash ^ 0x1ff) * 1099511628211u;
}

static bool note(void *user, struct span path, struct span text)
{
    uint64_t *hash = user;
    demand(path.len > 0 && path.len <= PATH_BYTES_MAX && text.len <= TEXT_BYTES_MAX);
    *hash = mix(mix(*hash, path), text);
    return true;
}

static enum err read_in(struct span in, size_t piece, uint64_t *hash)
{
    struct xml_reader *r = xml_open(64 * KIB, note, hash);
    enum err e = OK;
    demand(r != NULL);
    while (in.len && e == OK) {
        size_t n = (size_t)min_u64(in.len, piece);
        e = xml_feed(r, span_make(in.at, n));
        in = span_from(in, n);
    }
    enum err end = xml_end(r);
    demand(e == OK || end == e);
    xml_close(r);
    return end;
}

static bool same_text(void *user, unused_ok struct span path, struct span text)
{
    struct span *want = user;
    return span_eq(*want, text);
}

/* Text that XML can hold comes back as it was; other text at least comes back. */
static void check_writer(struct span in)
{
    static char memory[8 * KIB];
    struct text t;
    bool legal = true;
    if (in.len > KIB)
        return;
    text_init(&t, memory, sizeof(memory));
    xml_leaf_text(&t, "a b='1'", in);
    demand(!t.over);
    for (size_t i = 0, n; i < in.len && legal; i += n) {
        n = character(span_from(in, i));
        legal = n > 0;
    }
    uint64_t hash = 0;
    struct xml_reader *r = legal ? xml_open(64 * KIB, same_text, &in)
                                 : xml_open(64 * KIB, note, &hash);
    demand(r != NULL);
    demand(xml_feed(r, text_span(&t)) == OK && xml_end(r) == OK);
    xml_close(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static bool ready;
    if (!ready)
        demand(xml_setup() == OK);
    ready = true;
    if (len == 0)
        return 0;
    size_t piece = data[0] + 1u;
    char *text = malloc(len);
    demand(text != NULL);
    memcpy(text, data, len);
    struct span in = span_make(text + 1, len - 1);
    uint64_t whole_hash = 1, piece_hash = 1, byte_hash = 1;
    enum err whole = read_in(in, SIZE_MAX, &whole_hash);
    enum err pieces = read_in(in, piece, &piece_hash);
    enum err bytes = len < 2000 ? read_in(in, 1, &byte_hash) : whole;
    demand((whole == OK) == (pieces == OK) && (whole == OK) == (bytes == OK));
    demand(whole != OK || whole_hash == piece_hash);
    demand(whole != OK || len >= 2000 || whole_hash == byte_hash);
    struct xml_s3_error e;
    if (xml_s3_error_read(in, &e) == OK)
        demand(strlen(e.code) < sizeof(e.code) && strlen(e.message) < sizeof(e.message));
    check_writer(in);
    free(text);
    return 0;
}
