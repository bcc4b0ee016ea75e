/* Requests made from rows of the table of operations, for tests that go through all of them. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TEST_S3_ROWS_H
#define HEADPOND_TEST_S3_ROWS_H

#include "server/s3/s3.h"

/* A request made from a row alone. */
static void write_request(const struct s3_operation_row *row, bool equals, struct text *target,
                          struct text *fields)
{
    static const char *const place[] = {"/", "/bucket", "/bucket/dir/key"};
    struct span keys = span_of(row->keys), names = span_of(row->header);
    if (keys.len && keys.at[0] == '/') {
        struct span path = span_cut(&keys, '|');
        bool below = path.len > 1 && path.at[path.len - 1] == '/';
        text_add(target, path);
        text_adds(target, below ? "p7" : "");
        keys = span_of("");
    } else {
        text_adds(target, place[row->level]);
    }
    for (unsigned i = 0; keys.len > 0; i++) {
        struct span key = span_cut(&keys, '&');
        text_adds(target, i ? "&" : "?");
        text_add(target, key);
        bool needs_value = i > 0 || span_is(key, "uploadId");
        if (needs_value && span_find(key, '=') == key.len)
            text_adds(target, "=7");
        else if (equals && span_find(key, '=') == key.len)
            text_adds(target, "=");
    }
    while (names.len > 0) {
        struct span value = span_cut(&names, ','), name = span_cut(&value, '=');
        text_add(fields, name);
        text_adds(fields, ": ");
        text_add(fields, value.len ? value : span_of("value"));
        text_adds(fields, "\r\n");
    }
    assert_false(target->over || fields->over);
}

/* Names that share everything with another row are found under that one. */
static enum s3_operation shown_as(enum s3_operation op)
{
    switch (op) {
    case GetBucketLifecycle: return GetBucketLifecycleConfiguration;
    case PutBucketLifecycle: return PutBucketLifecycleConfiguration;
    case GetBucketNotification: return GetBucketNotificationConfiguration;
    case PutBucketNotification: return PutBucketNotificationConfiguration;
    default: return op;
    }
}

#endif
