/* Answers of a store that knows a bucket by another name: the elements that tell the bucket's name
 * are changed while the document streams by.
 *
 * Invariants:
 *  1. Only elements directly below the root of the documents that S3 knows are changed: the name of
 *     the bucket in lists, in answers about multipart uploads and in errors, <Resource> of errors,
 *     <Location> of a completed upload. All other bytes pass as they are.
 *  2. What comes out does not depend on how the document was cut into pieces.
 *  3. A document with a DOCTYPE, or with more places to change than any that S3 knows, is refused.
 *     What does not begin as XML passes as it is, so does what has another root (a proxy's page,
 *     which is no XML, most likely). */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_XML_RENAME_H
#define HEADPOND_XML_RENAME_H

#include "base.h"

enum {
    XML_RENAME_TEXT_BYTES = 4 * KIB, /* longest text to put in */
    XML_RENAME_TAG_BYTES = 40,
    /* by how much the bytes that came out can be ahead of those that went in */
    XML_RENAME_GROWTH = 32 * KIB,
};

struct xml_rename {
    struct span from, to, location;  /* escaped; borrowed */
    uint8_t state, kind;             /* of the element whose text is held back; 0 = none */
    uint8_t changed;
    bool plain;                      /* no XML, or none of the documents: the rest passes */
    char quote, before[2];           /* of an attribute; the last two bytes of other markup */
    unsigned depth;
    uint8_t tag_len, root_len;
    char tag[XML_RENAME_TAG_BYTES], root[XML_RENAME_TAG_BYTES];
    uint32_t held_len;
    char held[2 * KIB];
};

/* from becomes to; location stands in for the text of <Location>. Each at most
 * XML_RENAME_TEXT_BYTES long. */
void xml_rename_open(struct xml_rename *r, struct span from, struct span to, struct span location);
/* The next bytes, into out; *len of them. The memories may be the same if out begins
 * XML_RENAME_GROWTH or more before the bytes, and out has room for that and for them. ERR_SYNTAX,
 * final. */
must_check enum err xml_rename_feed(struct xml_rename *r, struct span bytes, char *out,
                                    size_t *len);
/* The document is complete, or none of those that are changed. */
bool xml_rename_over(const struct xml_rename *r);

#endif
