/* The XML bodies of clients that we must understand: DeleteObjects and CompleteMultipartUpload.
 *
 * Invariants:
 *  1. The limits of xml.h hold; besides, bodies with comments, CDATA sections, instructions behind
 *     the declaration or an encoding other than UTF-8 are refused. No client sends such, and
 *     readers differ about them: what we judged would not be what the store reads.
 *  2. A verdict and what is reported do not depend on how the bytes were cut.
 *  3. The bytes are relayed as they came; this only tells what they say. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_XML_BODY_H
#define HEADPOND_XML_BODY_H

#include "xml.h"

enum {
    XML_DELETE_BYTES_MAX = 2 * MIB,
    XML_DELETE_OBJECTS_MAX = 1000,
    /* 10,000 parts with ETag and a SHA-512 checksum each are 2.3 MiB. */
    XML_COMPLETE_BYTES_MAX = 3 * MIB,
    XML_COMPLETE_PARTS_MAX = 10000,
};

/* One object to delete, in document order. key: its bytes as they are, not trimmed, references
 * resolved, CR and CRLF read as LF (XML 1.0 2.11), at least one byte; one longer than KEY_BYTES_MAX
 * may be cut, and names no object. version: "" = none given. Spans live until the return. False
 * stops with ERR_SYNTAX. */
typedef bool xml_delete_each(void *user, struct span key, struct span version);
/* One part. etag: without its quotes and blanks around it. */
typedef bool xml_complete_each(void *user, uint32_t number, struct span etag);

struct xml_body;
/* NULL: no memory (a reader takes about 150 KiB) */
must_check struct xml_body *xml_delete_open(xml_delete_each *each, void *user);
must_check struct xml_body *xml_complete_open(xml_complete_each *each, void *user);
/* Any piece of the body; 64 KiB keep a thread busy for some ms at most. ERR_SYNTAX: MalformedXML
 * (no such document, an object without a key, a part without a number or ETag, or with a number
 * outside 1..10000); ERR_TOO_LARGE: over a limit (MalformedXML, too); ERR_MEMORY. Final. */
must_check enum err xml_body_feed(struct xml_body *b, struct span bytes);
/* The body is over. Also ERR_SYNTAX if it names no object or part. */
must_check enum err xml_body_end(struct xml_body *b);
uint32_t xml_body_count(const struct xml_body *b); /* objects or parts so far */
bool xml_body_quiet(const struct xml_body *b);     /* <Quiet>true</Quiet>; after xml_body_end() */
void xml_body_close(struct xml_body *b);           /* NULL is fine */

#endif
