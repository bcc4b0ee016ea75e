/* Micro bench of the head of an answer: of a range that is a hit, of a whole object with what its
 * upload said of it, of an error.
 *
 * Invariants:
 *  1. A call writes all that is new in each answer, its ids too; dates of objects and of the second
 *     are at hand as in a core.
 *
 * Life: one run. Failure: must(). */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/micro/micro.h"
#include "server/s3/s3.h"

static const char etag[] = "\"d41d8cd98f00b204e9800998ecf8427e-16\"";
static const char kept[] = "Content-Type: application/x-tar\r\n"
                           "x-amz-storage-class: INTELLIGENT_TIERING\r\n"
                           "x-amz-server-side-encryption: AES256\r\n"
                           "x-amz-meta-dataset: imagenet-1k\r\n"
                           "x-amz-version-id: 3sL4kqtJlcpXroDTDmJ.rmSpXd3dIbrHY\r\n";
static char out_memory[S3_ERROR_BYTES + KIB];
static uint64_t requests;
static struct s3_ask ask;
static struct s3_reply part = {.status = 206, .from = 8388608, .to = 16777215, .size = 134217728,
                               .x_cache = "hit", .has_age = true, .age_s = 86400};
static struct s3_reply whole = {.status = 200, .size = 4096, .x_cache = "hit"};

static struct s3_stamp stamp_of_next(void)
{
    struct s3_stamp stamp;

    s3_stamp_make(&stamp, "Fri, 20 Nov 2026 10:00:00 GMT", ++requests * 0x9E3779B97F4A7C15u);
    return stamp;
}

static void object_head(const struct s3_reply *r, struct span headers)
{
    struct s3_stamp stamp = stamp_of_next();
    struct text out;

    text_init(&out, out_memory, sizeof out_memory);
    must(s3_reply_object(&out, r, &stamp, &ask, span_of(etag), 1700000000, headers) == OK);
}

static void range_of_plain_object(void)
{
    object_head(&part, span_of("Content-Type: application/octet-stream\r\n"));
}

static void range_with_fields_kept(void)
{
    object_head(&part, span_of(kept));
}

static void small_whole_object(void)
{
    object_head(&whole, span_of("Content-Type: application/octet-stream\r\n"));
}

static void error_document(void)
{
    struct s3_error e = {.status = 404, .code = "NoSuchKey",
                         .message = "The specified key does not exist.",
                         .key = span_of("imagenet/train/shard-000123.tar")};
    struct s3_stamp stamp = stamp_of_next();
    struct text out;

    text_init(&out, out_memory, sizeof out_memory);
    s3_reply_error(&out, &e, &stamp, false, false);
    must(!out.over);
}

int main(void)
{
    micro_run("reply_head_whole", small_whole_object, 0);
    micro_run("reply_head_range", range_of_plain_object, 0);
    micro_run("reply_head_range_5_fields", range_with_fields_kept, 0);
    micro_run("reply_error", error_document, 0);
    return 0;
}
