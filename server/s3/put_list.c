/* The objects that the body of a DeleteObjects names: may the client delete each of them, and what
 * of ours becomes doubtful.
 *
 * Invariants:
 *  1. The body is read whole before any of it leaves; what we cannot read is refused, so that
 *     upstream deletes nothing that we do not know of.
 *  2. Every key is looked at with the rights of the key that signed.
 *
 * Life: called once per request, from put_doubt(); the memory is the struct put's.
 * Failure: MalformedXML, AccessDenied, ERR_MEMORY. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/s3/s3.h"

#include "xml_body.h"

struct reading {
    struct relay *l;
    unsigned changes;
    bool denied, begins;             /* second pass: the changes begin */
};

static bool each(void *user, struct span key, struct span version)
{
    struct reading *d = user;
    struct req *r = container_of(d->l, struct req, relay);
    if (d->begins) {
        put_doubt_object(d->l, r->route.bucket, key, version);
        return true;
    }
    d->changes++;
    d->denied = !s3_may_change(s3_core_gate(r->core), &r->who, r->ask.bucket, key);
    return !d->denied;
}

static enum err read_body(struct reading *d)
{
    struct put *p = d->l->put;
    struct xml_body *b = xml_delete_open(each, d);
    if (!b)
        return ERR_MEMORY;
    enum err e = xml_body_feed(b, span_make(p->whole, p->whole_len));
    if (e == OK)
        e = xml_body_end(b);
    xml_body_close(b);
    return e;
}

enum err put_doubt_list(struct relay *l)
{
    struct put *p = l->put;
    struct reading d = {.l = l};
    enum err e = read_body(&d);
    if (e == ERR_SYNTAX && !d.denied) { /* so libxml2 calls some failures of memory, too */
        d.changes = 0;
        e = read_body(&d);
    }
    if (e == ERR_MEMORY)
        return e;
    if (e != OK) {
        put_refuse(l, d.denied ? 403 : 400, d.denied ? "AccessDenied" : "MalformedXML",
                   d.denied
                       ? "Access Denied. The key may not delete every object of the list; "
                         "none was deleted."
                       : "The XML you provided was not well-formed or did not validate against "
                         "our published schema.");
        return ERR_SYNTAX;
    }
    p->change = mem_take(d.changes * sizeof(*p->change));
    if (!p->change) {
        p->change = p->few;
        return ERR_MEMORY;
    }
    p->change_room = d.changes;
    d.begins = true;
    return read_body(&d) == OK ? OK : ERR_MEMORY; /* it was good before */
}
