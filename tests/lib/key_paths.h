/* Where a key leads: the path that a remote store is asked for decodes to the key and nothing else,
 * and the file that a directory upstream would open lies below its bucket. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_KEY_PATHS_H
#define HEADPOND_TESTS_KEY_PATHS_H

#include "http.h"
#include "server/origin/inside.h"

/* How deep below the bucket a path ends; negative as soon as it is above. Written without the
 * server's helpers. */
static inline int key_depth(const char *path)
{
    int depth = 0;
    while (*path) {
        size_t n = strcspn(path, "/");
        if (n == 2 && path[0] == '.' && path[1] == '.') {
            if (--depth < 0)
                return depth;
        } else if (n > 0 && !(n == 1 && path[0] == '.')) {
            depth++;
        }
        path += n + (path[n] == '/');
    }
    return depth;
}

/* NULL, or what is wrong. */
static inline const char *key_path_differs(struct span bucket, struct span key)
{
    static const struct endpoint remote = {.path = "", .authority = "s3"};
    static char path[16 * KIB], back[16 * KIB], file[DIR_PATH_BYTES];
    size_t len = 0;
    struct text t;
    text_init(&t, path, sizeof(path));
    endpoint_path(&remote, bucket, key, &t);
    struct span wanted = span_from(text_span(&t), 1 + bucket.len + 1);
    if (t.over || !span_starts(span_from(text_span(&t), 1), bucket))
        return "the path upstream does not begin with the bucket";
    if (uri_decode(wanted, false, back, sizeof(back), &len) != OK ||
        !span_eq(span_make(back, len), key))
        return "the path upstream decodes to another key";
    for (size_t i = 0; i < t.len; i++)
        if (t.at[i] <= ' ' || t.at[i] >= 0x7f || strchr("?#\\", t.at[i]))
            return "a byte of the path upstream could be misread";
    if (!dir_bucket_name(bucket) || !dir_key_name(key))
        return NULL;                 /* a directory answers 404 without looking */
    text_init(&t, file, sizeof(file));
    text_add(&t, key);
    if (t.over || strlen(file) != t.len || file[0] == '/' || key_depth(file) < 1)
        return "the file's path leads out of the bucket";
    return NULL;
}

#endif
