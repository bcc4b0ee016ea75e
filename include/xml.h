/* XML: a bounded push reader on libxml2's SAX2, and a writer that escapes.
 *
 * Invariants:
 *  1. The reader stops at a DOCTYPE, at depth 16, at markup (a CDATA section is some) longer than 8
 *     KiB and at the caller's size limit, *before* libxml2 sees those bytes (a linear pre-scan of
 *     each feed); entities beyond the five predefined and character references are errors. No DOM,
 *     no network (one element with 100,000 attributes costs libxml2 13.6 s without it).
 *  2. The writer never emits a byte that XML 1.0 forbids: such bytes are replaced by U+FFFD. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_XML_H
#define HEADPOND_XML_H

#include "base.h"
#include "mem.h"

struct xml_reader;
/* Called at each end tag: path is "Root/Child/Leaf" (namespaces dropped), text the character data
 * directly inside it (untrimmed, cut at 8 KiB). Return false to stop with ERR_SYNTAX. */
typedef bool xml_leaf(void *user, struct span path, struct span text);

/* NULL: no memory */
must_check struct xml_reader *xml_open(uint64_t limit_bytes, xml_leaf *leaf, void *user);
/* ERR_SYNTAX, ERR_TOO_LARGE, ERR_MEMORY; final once failed */
must_check enum err xml_feed(struct xml_reader *r, struct span bytes);
/* the document is complete, or ERR_SYNTAX */
must_check enum err xml_end(struct xml_reader *r);
void xml_close(struct xml_reader *r);
/* Call once at start-up, on the main thread, before any reader. ERR_MEMORY is final: libxml2 lacks
 * what it makes only once. */
must_check enum err xml_setup(void);
/* Call on each other thread that reads, before it does: libxml2 keeps a state per thread and cannot
 * do without, also when memory is short later. ERR_MEMORY. */
must_check enum err xml_setup_thread(void);

/* ---- writing ---- */
void xml_declaration(struct text *t);                 /* <?xml version="1.0" encoding="UTF-8"?>\n */
void xml_open_tag(struct text *t, const char *name);  /* <name> ; name may carry attributes */
void xml_close_tag(struct text *t, const char *name);
void xml_escape(struct text *t, struct span value);
void xml_leaf_text(struct text *t, const char *name, struct span value);
void xml_leaf_u64(struct text *t, const char *name, uint64_t value);

/* The fields of an S3 error document that we act on (Code, Message, Region, Endpoint, RequestId,
 * ActualObjectSize). Strings are cut to fit. ERR_SYNTAX if it is not an <Error> document. */
struct xml_s3_error {
    char code[64], message[256], region[64], request_id[64];
    uint64_t actual_size;
    bool has_actual_size;
};
must_check enum err xml_s3_error_read(struct span document, struct xml_s3_error *out);

#endif
