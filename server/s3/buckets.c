/* The list of buckets for a key that may see only some: upstream's document is read, and one of our
 * own is printed. What is special about it in the machine of relay.c stands here.
 *
 * Invariants:
 *  1. Of the document only the owner, the buckets that the key may see, and the marks of a page go
 *     out; so nothing of upstream's that we do not know can name another bucket.
 *  2. The rights are those of the moment in which the bytes are read: they are looked up in the
 *     core's gate, and nothing of them is kept.
 *
 * Life: opened when upstream's head is known, closed with the relay.
 * Failure: ERR_SYNTAX, ERR_TOO_LARGE for what is no such list, ERR_MEMORY. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

#include "xml.h"

enum {
    DOCUMENT_BYTES_MAX = 8 * MIB,    /* of upstream: 10,000 buckets are 2 MiB */
    OUT_BYTES_MAX = 96 * KIB,        /* ours: a key has at most 64 scopes */
    FIELD_BYTES_MAX = 256,
};

struct kept {                        /* a text of upstream's document */
    char at[FIELD_BYTES_MAX];
    size_t len;
};

struct buckets {
    struct xml_reader *reader;
    struct req *req;
    struct text out;                 /* the <Bucket> elements */
    struct text tail;                /* what stands behind them */
    struct kept owner_id, owner_name, name, date, region, arn;
    bool list, no_room;
    char out_memory[OUT_BYTES_MAX], tail_memory[16 * KIB];
};

static void keep(struct kept *k, struct span text)
{
    k->len = min_u64(text.len, sizeof(k->at));
    memcpy(k->at, text.at, k->len);
}

static void add(struct text *t, const char *name, const struct kept *k)
{
    if (k->len > 0)
        xml_leaf_text(t, name, span_make(k->at, k->len));
}

static void end_bucket(struct buckets *b)
{
    struct span name = span_make(b->name.at, b->name.len);
    if (s3_may_see(s3_core_gate(b->req->core), &b->req->who, name)) {
        xml_open_tag(&b->out, "Bucket");
        add(&b->out, "Name", &b->name);
        add(&b->out, "CreationDate", &b->date);
        add(&b->out, "BucketRegion", &b->region);
        add(&b->out, "BucketArn", &b->arn);
        xml_close_tag(&b->out, "Bucket");
    }
    b->name.len = b->date.len = b->region.len = b->arn.len = 0;
}

static bool each(void *user, struct span path, struct span text)
{
    static const char root[] = "ListAllMyBucketsResult";
    struct buckets *b = user;
    const struct {
        const char *path;
        struct kept *to;
    } leaf[] = {
        {"/Owner/ID", &b->owner_id},
        {"/Owner/DisplayName", &b->owner_name},
        {"/Buckets/Bucket/Name", &b->name},
        {"/Buckets/Bucket/CreationDate", &b->date},
        {"/Buckets/Bucket/BucketRegion", &b->region},
        {"/Buckets/Bucket/BucketArn", &b->arn},
    };
    if (!span_starts(path, span_of(root)))
        return false;
    path = span_from(path, sizeof(root) - 1);
    for (unsigned i = 0; i < ARRAY_COUNT(leaf); i++)
        if (span_is(path, leaf[i].path))
            keep(leaf[i].to, text);
    if (span_is(path, "/Buckets/Bucket"))
        end_bucket(b);
    if (span_is(path, "/ContinuationToken"))
        xml_leaf_text(&b->tail, "ContinuationToken", text);
    if (span_is(path, "/Prefix"))
        xml_leaf_text(&b->tail, "Prefix", text);
    b->list = b->list || path.len == 0;
    b->no_room = b->out.over || b->tail.over;
    return !b->no_room;
}

struct buckets *buckets_open(struct req *r)
{
    struct buckets *b = mem_take(sizeof(*b));
    if (!b)
        return NULL;
    b->req = r;
    b->reader = xml_open(DOCUMENT_BYTES_MAX, each, b);
    text_init(&b->out, b->out_memory, sizeof(b->out_memory));
    text_init(&b->tail, b->tail_memory, sizeof(b->tail_memory));
    if (b->reader)
        return b;
    mem_give(b);
    return NULL;
}

enum err buckets_feed(struct buckets *b, struct span bytes)
{
    return xml_feed(b->reader, bytes);
}

/* Head and document. */
static void write_answer(struct buckets *b, struct text *out)
{
    struct req *r = b->req;
    char head_memory[KIB], owner_memory[KIB];
    struct text head, owner;
    text_init(&head, head_memory, sizeof(head_memory));
    xml_declaration(&head);
    xml_open_tag(&head, "ListAllMyBucketsResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"");
    text_init(&owner, owner_memory, sizeof(owner_memory));
    add(&owner, "ID", &b->owner_id);
    add(&owner, "DisplayName", &b->owner_name);
    if (owner.len > 0 && !owner.over) {
        xml_open_tag(&head, "Owner");
        text_add(&head, text_span(&owner));
        xml_close_tag(&head, "Owner");
    }
    xml_open_tag(&head, "Buckets");
    static const char middle[] = "</Buckets>", end[] = "</ListAllMyBucketsResult>";
    s3_reply_begin(out, 200, &r->stamp);
    text_adds(out, "Content-Type: application/xml\r\nx-cache: bypass\r\nContent-Length: ");
    text_addu(out, head.len + b->out.len + strlen(middle) + b->tail.len + strlen(end));
    text_adds(out, r->close ? "\r\nConnection: close\r\n\r\n" : "\r\n\r\n");
    text_add(out, text_span(&head));
    text_add(out, text_span(&b->out));
    text_adds(out, middle);
    text_add(out, text_span(&b->tail));
    text_adds(out, end);
    out->over = out->over || head.over;
}

enum err buckets_end(struct buckets *b, struct text *out)
{
    enum { ROOM = OUT_BYTES_MAX + 32 * KIB };
    enum err e = xml_end(b->reader);
    if (e != OK || !b->list)
        return e != OK ? e : ERR_SYNTAX;
    char *memory = arena_take(&b->req->arena, ROOM);
    if (!memory)
        return ERR_MEMORY;
    text_init(out, memory, ROOM);
    write_answer(b, out);
    return out->over ? ERR_TOO_LARGE : OK;
}

void buckets_close(struct buckets *b)
{
    if (!b)
        return;
    xml_close(b->reader);
    mem_give(b);
}
