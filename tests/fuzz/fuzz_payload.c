/* Bodies of uploads: whatever comes gives one verdict and the same object bytes at any cut; what
 * was built well is accepted, goes upstream as long as was announced, and is read back; heads of
 * any kind. The first byte chooses which. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "common/payload_decode.c"

#include "tests/fuzz/fuzz.h"
#include "tests/lib/payload_case.h"

enum { ROOM = 64 * KIB };
#define SEED_SIGNATURE "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9"
static char memory[ROOM], object[ROOM], head_memory[ROOM];
static struct payload_decoder decoder;
static struct payload_seed seed;
static struct case_signer signer;

struct outcome {
    enum err e;
    const char *code;
    uint64_t got, hash;
};

static struct outcome decode(const struct payload_facts *f, struct span in, size_t piece)
{
    struct outcome o = {.hash = 7};
    enum err e = payload_begin(&decoder, f, &seed, PAYLOAD_CHECK_ALL);
    while (in.len > 0 && e == OK) {
        size_t n = (size_t)min_u64(piece, in.len), got;
        char *copy = exact_copy(in.at, n);
        e = payload_decode(&decoder, copy, n, &got);
        demand(got <= n && (e == OK || got == 0));
        for (size_t i = 0; i < got; i++)
            o.hash = (o.hash ^ (uint8_t)copy[i]) * 1099511628211u;
        o.got += got;
        demand(o.got <= f->bytes && (f->bytes == 0 || payload_sendable(&decoder) < f->bytes));
        exact_give(copy);
        in = span_from(in, n);
    }
    o.e = payload_end(&decoder);
    demand(e == OK || o.e == e);
    demand((o.e == OK) == decoder.ended && (o.e == OK) == (decoder.no.code == NULL));
    demand(o.e != OK || (o.got == f->bytes && payload_sendable(&decoder) == f->bytes));
    o.code = decoder.no.code;
    return o;
}

static struct outcome decode_at_cuts(const struct payload_facts *f, struct span in, size_t piece)
{
    struct outcome whole = decode(f, in, ROOM);
    for (unsigned i = 0; i < 2; i++) {
        struct outcome cut = decode(f, in, i ? 1 : piece);
        demand(cut.e == whole.e && cut.code == whole.code);
        demand(whole.e != OK || (cut.got == whole.got && cut.hash == whole.hash));
    }
    return whole;
}

static struct payload_facts feed_facts(struct feed *f)
{
    struct payload_facts facts = {.form = (enum payload_form)feed_below(f, 5)};
    facts.bytes = feed_below(f, 65536);
    enum payload_kind kind = (enum payload_kind)feed_below(f, PAYLOAD_KIND_COUNT);
    if (facts.form == PAYLOAD_TRAILER || facts.form == PAYLOAD_SIGNED_TRAILER) {
        facts.sum = kind;
        facts.sum_in_trailer = kind != PAYLOAD_NO_SUM;
    }
    if (facts.form == PAYLOAD_HASH)
        memcpy(facts.hash, sign_empty_sha256, sizeof(facts.hash));
    return facts;
}

static void check_any(struct feed *f)
{
    struct payload_facts facts = feed_facts(f);
    size_t piece = feed_below(f, 256) + 1;
    decode_at_cuts(&facts, span_make(f->at, f->left), piece);
}

/* A body as the facts have it, of chunks as the input has them. */
static struct span build(struct payload_facts *facts, struct feed *f)
{
    struct case_signer by = signer, *chunks = payload_is_signed(facts->form) ? &by : NULL;
    struct text t;
    size_t at = 0;
    facts->bytes = min_u64(facts->bytes, ROOM / 2);
    for (size_t i = 0; i < facts->bytes; i++)
        object[i] = (char)(i < f->left ? f->at[i] : i);
    text_init(&t, memory, sizeof(memory));
    while (at < facts->bytes) {
        size_t n = (size_t)min_u64(CHUNK_BYTES_MIN + feed_below(f, 20000), facts->bytes - at);
        case_chunk(&t, chunks, span_make(object + at, n));
        at += n;
    }
    case_chunk(&t, chunks, span_of(""));
    case_trailer(&t, facts->form == PAYLOAD_SIGNED_TRAILER ? &by : NULL,
                 facts->sum_in_trailer ? facts->sum : PAYLOAD_NO_SUM,
                 span_make(object, facts->bytes), feed_below(f, 2) ? "\n\r\n" : "\r\n");
    demand(!t.over);
    return text_span(&t);
}

static void check_upstream(const struct payload_facts *facts)
{
    static char wire[ROOM];
    struct payload_plan plan;
    struct payload_upstream to = {.trailers = true};
    struct payload_facts theirs = *facts;
    struct text t;
    payload_plan_stream(&plan, facts, &to);
    text_init(&t, wire, sizeof(wire));
    text_add(&t, span_make(plan.prefix, plan.prefix_len));
    text_add(&t, span_make(object, facts->bytes));
    payload_suffix(&plan, &decoder, &t);
    demand(!t.over && t.len == plan.wire_bytes);
    theirs.form = plan.framed ? PAYLOAD_TRAILER : PAYLOAD_UNSIGNED;
    demand(decode(&theirs, text_span(&t), ROOM).e == OK);
    payload_plan_whole(&plan, &decoder, span_make(object, facts->bytes), &to);
    demand(plan.wire_bytes == facts->bytes && plan.checks == 0);
}

static void check_built(struct feed *f)
{
    struct payload_facts facts = feed_facts(f);
    if (!payload_is_chunked(facts.form))
        return;
    size_t piece = feed_below(f, 5000) + 1, change = feed_below(f, 65536);
    struct span body = build(&facts, f);
    demand(decode(&facts, body, piece).e == OK);
    check_upstream(&facts);
    if (payload_is_signed(facts.form)) {
        memory[change % body.len] ^= 1;
        demand(decode(&facts, body, piece).e != OK);
    }
}

static void check_head(struct feed *f)
{
    static struct http_head head;
    struct payload_facts facts;
    struct payload_refusal no = {0};
    struct payload_plan plan;
    struct text t;
    size_t used;
    bool trailers = feed_below(f, 2);
    text_init(&t, head_memory, sizeof(head_memory));
    text_adds(&t, feed_below(f, 2) ? "PUT " : "POST ");
    text_add(&t, feed_line(f));
    text_adds(&t, " HTTP/1.1\r\nHost: a\r\n");
    while (f->left > 0) {
        text_add(&t, feed_line(f));
        text_adds(&t, "\r\n");
    }
    text_adds(&t, "\r\n");
    if (t.over || http_parse_request(t.at, t.len, &head, &used) != HTTP_OK)
        return;
    if (payload_read(&head, true, &facts, &no) != OK) {
        demand(no.code && no.why && no.status >= 400);
        return;
    }
    demand(!no.code && facts.bytes <= INT64_MAX);
    payload_plan_stream(&plan, &facts, &(struct payload_upstream){.trailers = trailers});
    demand(plan.wire_bytes >= facts.bytes && plan.hash[0]);
    for (unsigned i = 0; i < plan.add_count; i++)
        demand(plan.add[i].value.len > 0);
    for (unsigned i = 0; i < head.count; i++)
        payload_relays(&plan, &facts, head.field[i].name);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct feed f = {data, size};
    if (!signer.key[0]) {
        case_signer_make(&signer, CASE_SECRET, "20261122T004018Z", SEED_SIGNATURE);
        case_seed_make(&seed, &signer, CASE_SECRET);
    }
    unsigned mode = feed_below(&f, 256) % 3;
    if (mode == 0)
        check_any(&f);
    else if (mode == 1)
        check_built(&f);
    else
        check_head(&f);
    return 0;
}
