/* Scenarios of changes as clients make them: uploads, small and streamed, broken off, refused,
 * deletes, a CompleteMultipartUpload whose document comes late.
 *
 * Invariants:
 *  1. What was answered 200 is what is read from then on.
 *  2. An upload whose client went away in the middle is not stored.
 *
 * Life: tables that torture.c walks. Failure: stage_fail(). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <isa-l.h>
#include <openssl/evp.h>
#include <stdio.h>

#include "mem.h"
#include "tests/lib/bytes.h"
#include "tests/sim/scenes.h"

/* tests/flow/sigv4.c */
void sigv4_add(struct text *head, const char *method, struct span target, const char *access,
               const char *secret);

enum { HEAD_BYTES = 4 * KIB, PIECE_BYTES = 16 * KIB, NEW_VERSION = 2, AWS_CHUNK = 64 * KIB };

/* ---- requests with a body ---- */

struct sending {
    const char *method, *query, *fields;
    uint64_t length;                 /* announced */
};

static void send_head(struct stage *s, const struct sending *w)
{
    char memory[HEAD_BYTES], target[STAGE_KEY_BYTES + 64];
    struct text t;

    snprintf(target, sizeof target, "/b/%s%s", s->key, w->query);
    text_init(&t, memory, sizeof memory);
    text_addf(&t, "%s %s HTTP/1.1\r\nHost: sim\r\n%s", w->method, target, w->fields);
    if (w->length != ANY_LENGTH)
        text_addf(&t, "Content-Length: %llu\r\n", (unsigned long long)w->length);
    sigv4_add(&t, w->method, span_of(target), "AKIDSIMULATION", "secretofthesimulation");
    text_adds(&t, "\r\n");
    must(!t.over);
    asker_put(&s->a, t.at, t.len);
}

/* Bytes of the new version, up to `end`. */
static bool send_object(struct stage *s, uint64_t from, uint64_t end)
{
    char room[PIECE_BYTES];
    uint64_t seed = bytes_seed(span_of("b"), span_of(s->key), NEW_VERSION);

    for (uint64_t at = from; at < end;) {
        size_t n = min_u64(end - at, sizeof room);
        bytes_make(seed, at, room, n);
        if (!asker_put(&s->a, room, n))
            return false;
        at += n;
    }
    return true;
}

static void judge_written(struct stage *s, int status, uint64_t length)
{
    asker_close(&s->a);
    stage_judge(s, status, length);
}

/* What was acknowledged is what is read. */
static void read_back(struct stage *s)
{
    bool stored = s->r.complete && s->r.status == 200;

    stage_get_all(s);
    if (stored && s->r.complete && s->r.status == 200 && s->r.version != NEW_VERSION)
        stage_fail(s, "version %llu is read behind an upload that was acknowledged",
                   (unsigned long long)s->r.version);
}

static void put_with(struct stage *s, const char *fields)
{
    uint64_t size = stage_size(s);

    asker_open(&s->a);
    send_head(s, &(struct sending){"PUT", "", fields, size});
    send_object(s, 0, size);
    asker_read(&s->a, NULL, NULL, false, &s->r);
    judge_written(s, 200, 0);
    read_back(s);
}

static void put_plain(struct stage *s)
{
    put_with(s, "");
}

/* The body waits for the 100; another answer comes instead of it. */
static void put_patiently(struct stage *s)
{
    uint64_t size = stage_size(s);

    asker_open(&s->a);
    send_head(s, &(struct sending){"PUT", "", "Expect: 100-continue\r\n", size});
    if (asker_may_send(&s->a))
        send_object(s, 0, size);
    asker_read(&s->a, NULL, NULL, false, &s->r);
    judge_written(s, 200, 0);
    read_back(s);
}

static void put_refused(struct stage *s)
{
    uint64_t size = stage_size(s);

    asker_open(&s->a);
    send_head(s, &(struct sending){"PUT", "", "", size});
    send_object(s, 0, size);
    asker_read(&s->a, NULL, NULL, false, &s->r);
    judge_written(s, 403, ANY_LENGTH);
    stage_get_all(s);
}

/* aws-chunked with a checksum behind it. */
static void put_chunks(struct stage *s)
{
    char line[100];
    unsigned char text[16];
    uint64_t size = stage_size(s), seed = bytes_seed(span_of("b"), span_of(s->key), NEW_VERSION);
    uint64_t lines = (size + AWS_CHUNK - 1) / AWS_CHUNK, at = 0;
    uint32_t crc = 0;
    static char room[AWS_CHUNK];
    char fields[300];

    must(size % AWS_CHUNK == 0);     /* so that all chunks' lines are alike */
    snprintf(fields, sizeof fields,
             "x-amz-content-sha256: STREAMING-UNSIGNED-PAYLOAD-TRAILER\r\n"
             "Content-Encoding: aws-chunked\r\nx-amz-trailer: x-amz-checksum-crc32\r\n"
             "x-amz-decoded-content-length: %llu\r\n", (unsigned long long)size);
    asker_open(&s->a);
    send_head(s, &(struct sending){"PUT", "", fields, size + lines * strlen("10000\r\n\r\n") +
                                   strlen("0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n")});
    for (bool good = true; good && at < size; at += AWS_CHUNK) {
        bytes_make(seed, at, room, AWS_CHUNK);
        crc = crc32_gzip_refl(crc, (const uint8_t *)room, AWS_CHUNK);
        good = asker_put(&s->a, "10000\r\n", 7) && asker_put(&s->a, room, AWS_CHUNK) &&
               asker_put(&s->a, "\r\n", 2);
    }
    uint8_t sum[4] = {(uint8_t)(crc >> 24), (uint8_t)(crc >> 16), (uint8_t)(crc >> 8),
                      (uint8_t)crc};
    EVP_EncodeBlock(text, sum, 4);
    int n = snprintf(line, sizeof line, "0\r\nx-amz-checksum-crc32:%s\r\n\r\n", (char *)text);
    asker_put(&s->a, line, (size_t)n);
    asker_read(&s->a, NULL, NULL, false, &s->r);
    judge_written(s, 200, 0);
    read_back(s);
}

/* In the middle of the body. */
static void put_and_leave(struct stage *s)
{
    uint64_t size = stage_size(s);

    asker_open(&s->a);
    send_head(s, &(struct sending){"PUT", "", "", size});
    send_object(s, 0, size - 1 - sim_below(size - 1));
    sim_wait_ms(sim_below(20));
    asker_close(&s->a);
    stage_get_all(s);
    if (s->r.complete && s->r.status == 200 && s->r.version != 1)
        stage_fail(s, "half an upload was stored");
}

/* The deadline of the body ends it. */
static void put_and_stall(struct stage *s)
{
    uint64_t size = stage_size(s);

    asker_open(&s->a);
    send_head(s, &(struct sending){"PUT", "", "", size});
    send_object(s, 0, size / 2);
    asker_read(&s->a, NULL, NULL, false, &s->r);
    judge_written(s, 400, ANY_LENGTH);
    stage_get_all(s);
}

static void put_twice(struct stage *s)
{
    uint64_t size = stage_size(s);

    asker_open(&s->a);
    for (unsigned i = 0; i < 2; i++) {
        send_head(s, &(struct sending){"PUT", "", "", size});
        send_object(s, 0, size);
        asker_read(&s->a, NULL, NULL, false, &s->r);
        stage_judge(s, 200, 0);
        if (!s->r.complete || s->r.closes)
            break;
    }
    asker_close(&s->a);
    read_back(s);
}

static void put_or_read(struct stage *s)
{
    if (sim_one_in(2)) {
        put_plain(s);
        return;
    }
    stage_get_all(s);
}

static void put_beside_readers(struct stage *s)
{
    stage_together(s, 4, put_or_read);
}

/* ---- other changes ---- */

/* Upstream may have heard what the client has no answer to. */
static void read_removed(struct stage *s, bool told)
{
    char target[STAGE_KEY_BYTES + 4];

    snprintf(target, sizeof target, "/b/%s", s->key);
    stage_ask(s, "GET", target, "");
    bool missing = s->r.complete && s->r.status == 404;
    stage_judge(s, told || missing ? 404 : 200, ANY_LENGTH);
    if (told && s->r.complete && s->r.status == 200)
        stage_fail(s, "a deleted object is read");
}

static void remove_it(struct stage *s)
{
    asker_open(&s->a);
    send_head(s, &(struct sending){"DELETE", "", "", ANY_LENGTH});
    asker_read(&s->a, NULL, NULL, false, &s->r);
    judge_written(s, 204, 0);
    read_removed(s, s->r.complete && s->r.status == 204);
}

static void bring_back(struct stage *s)
{
    store_do("object b %s size=%llu", s->key, (unsigned long long)stage_size(s));
    sim_wait_ms(3000);               /* the 404 was remembered */
    stage_get_all(s);
}

static void post(struct stage *s, const char *target, const char *document)
{
    char memory[HEAD_BYTES];
    struct text t;

    text_init(&t, memory, sizeof memory);
    text_addf(&t, "POST %s HTTP/1.1\r\nHost: sim\r\nContent-Length: %zu\r\n", target,
              strlen(document));
    sigv4_add(&t, "POST", span_of(target), "AKIDSIMULATION", "secretofthesimulation");
    text_addf(&t, "\r\n%s", document);
    must(!t.over);
    asker_open(&s->a);
    asker_put(&s->a, t.at, t.len);
    asker_read(&s->a, NULL, NULL, false, &s->r);
}

/* The store changes before it answers, as it may. */
static void remove_list(struct stage *s)
{
    char list[1000];

    snprintf(list, sizeof list, "<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Object>"
             "<Key>%s</Key></Object><Object><Key>a&amp;b</Key><VersionId>3</VersionId></Object>"
             "<Object><Key>c</Key></Object></Delete>", s->key);
    store_do("delete b %s", s->key);
    post(s, "/b?delete", list);
    judge_written(s, 200, ANY_LENGTH);
    read_removed(s, s->r.complete && s->r.status == 200);
}

static void complete_parts(struct stage *s)
{
    char target[STAGE_KEY_BYTES + 40];

    snprintf(target, sizeof target, "/b/%s?uploadId=u1", s->key);
    store_do("bump b %s", s->key);
    post(s, target, "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"x\"</ETag>"
         "</Part></CompleteMultipartUpload>");
    judge_written(s, 200, ANY_LENGTH);
    if (s->r.complete && s->r.status == 200 && !strstr(s->r.body, "Result>"))
        stage_fail(s, "a document that does not end: %.100s", s->r.body);
    read_back(s);
}

/* ... and leaves while upstream works on it. */
static void complete_and_leave(struct stage *s)
{
    char target[STAGE_KEY_BYTES + 40], memory[HEAD_BYTES];
    struct text t;

    snprintf(target, sizeof target, "/b/%s?uploadId=u1", s->key);
    text_init(&t, memory, sizeof memory);
    text_addf(&t, "POST %s HTTP/1.1\r\nHost: sim\r\nContent-Length: 0\r\n", target);
    sigv4_add(&t, "POST", span_of(target), "AKIDSIMULATION", "secretofthesimulation");
    text_adds(&t, "\r\n");
    asker_open(&s->a);
    asker_put(&s->a, t.at, t.len);
    sim_wait_ms(sim_below(700));
    asker_close(&s->a);
    stage_get_all(s);
}

static void change_policy(struct stage *s)
{
    static const char target[] = "/b?policy", document[] = "<Policy/>";
    char memory[HEAD_BYTES];
    struct text t;

    text_init(&t, memory, sizeof memory);
    text_addf(&t, "PUT %s HTTP/1.1\r\nHost: sim\r\nContent-Length: %zu\r\n", target,
              strlen(document));
    sigv4_add(&t, "PUT", span_of(target), "AKIDSIMULATION", "secretofthesimulation");
    text_addf(&t, "\r\n%s", document);
    store_do("bump b %s", s->key);
    asker_open(&s->a);
    asker_put(&s->a, t.at, t.len);
    asker_read(&s->a, NULL, NULL, false, &s->r);
    judge_written(s, 200, ANY_LENGTH);
    read_back(s);
}

#define RESULT                                                                                     \
    "document=\"<CompleteMultipartUploadResult><ETag>&quot;x-1&quot;</ETag>"                       \
    "</CompleteMultipartUploadResult>\""

static const struct life sealed_both = {
    .set = {{"server.tls_cert", "sim-cert"}, {"server.tls_key", "sim-key"},
            {"upstream.endpoint", "sim-https"}, {"upstream.ca_file", "sim-cert"}}};

const struct scene scenes_write[] = {
    {"upload", .set_up = stage_fill_disk, .play = put_plain, .size = "3000"},
    {"upload-new", .play = put_plain, .size = "3000"},
    {"upload-again", .play = put_plain, .size = "3000",
     .script = "next b/upload-again method=PUT status=503"},
    {"upload-stream", .set_up = stage_fill_disk, .play = put_plain, .size = "600000"},
    {"upload-waits", .set_up = stage_fill_disk, .play = put_patiently, .size = "1200000"},
    {"upload-waits-mute", .play = put_patiently, .size = "1200000",
     .script = "set b/upload-waits-mute mute=1"},
    {"upload-waits-small", .play = put_patiently, .size = "2000"},
    {"upload-chunks", .play = put_chunks, .size = "393216"},
    {"upload-early", .set_up = stage_fill_disk, .play = put_refused, .size = "600000",
     .script = "next b/upload-early method=PUT early=100000 status=403 close=1"},
    {"upload-leaves", .set_up = stage_fill_disk, .play = put_and_leave, .size = "600000"},
    {"upload-leaves-small", .set_up = stage_fill_disk, .play = put_and_leave, .size = "20000"},
    {"upload-stalls", .play = put_and_stall, .size = "600000"},
    {"upload-kept", .play = put_twice, .size = "300000"},
    {"upload-readers", .set_up = stage_fill_disk, .play = put_beside_readers, .size = "600000",
     .loose = true},
    {"upload-tls", .play = put_plain, .size = "600000", .life = &sealed_both},
    {"delete", .set_up = stage_fill_disk, .play = remove_it, .size = "3000", .after = bring_back},
    {"delete-list", .set_up = stage_fill_disk, .play = remove_list, .size = "3000",
     .script = "set b document=\"<DeleteResult/>\"", .after = bring_back},
    {"complete", .set_up = stage_fill_disk, .play = complete_parts, .size = "3000",
     .script = "set b/complete " RESULT},
    {"complete-late", .set_up = stage_fill_disk, .play = complete_parts, .size = "3000",
     .script = "set b/complete-late blanks=4 blank_ms=150 " RESULT},
    {"complete-leaves", .set_up = stage_fill_disk, .play = complete_and_leave, .size = "3000",
     .script = "set b/complete-leaves blanks=4 blank_ms=150 " RESULT},
    {"policy", .set_up = stage_fill_disk, .play = change_policy, .size = "3000",
     .script = "set b document=\" \""},
    {0},
};
