/* CompleteMultipartUpload bodies: whatever comes, whole or in pieces, gives one verdict and, if
 * accepted, the same parts. The first byte chooses the size of the pieces. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/xml_body.c"

#include "tests/fuzz/fuzz.h"

struct seen {
    uint64_t hash;
    uint32_t count;
};

static bool note(void *user, uint32_t number, struct span etag)
{
    struct seen *seen = user;
    demand(number >= 1 && number <= XML_COMPLETE_PARTS_MAX && etag.len > 0 &&
           etag.len <= DETAIL_BYTES_MAX);
    seen->hash = fuzz_mix(seen->hash + number, etag);
    seen->count++;
    return true;
}

static enum err read_in(struct span in, size_t piece, struct seen *seen)
{
    struct xml_body *b = xml_complete_open(note, seen);
    enum err e = OK;
    demand(b != NULL);
    while (in.len > 0 && e == OK) {
        size_t n = (size_t)min_u64(in.len, piece);
        char *copy = exact_copy(in.at, n);
        e = xml_body_feed(b, span_make(copy, n));
        exact_give(copy);
        in = span_from(in, n);
    }
    enum err end = xml_body_end(b);
    demand(e == OK || end == e);
    demand(end != OK || (xml_body_count(b) == seen->count && seen->count > 0));
    demand(seen->count <= XML_COMPLETE_PARTS_MAX);
    xml_body_close(b);
    return end;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    if (!ready)
        must(xml_setup() == OK);
    ready = true;
    if (size == 0)
        return 0;
    struct span in = span_make(data + 1, size - 1);
    struct seen whole = {0}, cut = {0}, bytes = {0};
    enum err e = read_in(in, size, &whole);
    demand(read_in(in, data[0] + 1u, &cut) == e && read_in(in, 1, &bytes) == e);
    if (e == OK)
        demand(cut.hash == whole.hash && bytes.hash == whole.hash);
    return 0;
}
