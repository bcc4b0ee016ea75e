/* A scripted, fault-injecting S3 upstream for tests and benches: synthetic objects, every answer
 * bendable, everything counted.
 *
 * Objects: any key "...@SIZE" exists in every bucket (bytes.h makes its bytes), further ones come
 * from `object` lines.
 *
 * Script, one statement a line (words.h); the same in a file, in a play's `origin { }` and on the
 * control port. WHERE is * or bucket/key-prefix.
 *
 *   object BUCKET KEY [size=64K] [version=N] [etag=TEXT] [modified=UNIX] [header="Name: value"]...
 *   objects BUCKET KEY COUNT [size=..]  the '#'s in KEY become 0, 1, 2, ... with leading zeros
 *   bucket BUCKET          once one is named here, unnamed ones are NoSuchBucket
 *   bump BUCKET KEY [by=N] replaces the object: next version, new Last-Modified
 *   delete BUCKET KEY      404 from now on; `object` brings it back
 *   set WHERE knob=value...       later lines win, knob by knob
 *   unset WHERE            forgets the `set` lines of exactly that WHERE
 *   next WHERE [method=GET] [count=N] [skip=N] knob=value...
 *                          bends the next N (1) matching requests; first come, first used
 *   clear                  forgets every set and next
 *   listen on|off          off: connections are refused
 *   log on|off             keep the list of requests
 *   mark                   counters and list of requests begin again
 *   cut                    resets every connection now
 *   stats [BUCKET KEY]     "requests=.. get=.. head=.. list=.. other=.. body_bytes=.. ..
 *                          taken_bytes=..": of requests' bodies
 *   requests               one line each: "GET /b/k range=bytes=0-9 if-match=\"..\""
 *
 * Knobs (0 or "" = off, but for cut and stall, where 0 means behind the head):
 *
 *   delay=MS               before the first byte
 *   rate=BYTES             per connection and second; total_rate=BYTES of the whole origin
 *   most=N                 503 SlowDown while N requests are being answered
 *   status=N               an error answer; code=TEXT its S3 code, retry_after=S a field on it
 *   redirect=URL           307 with Location (status= overrides 307)
 *   cut=N                  closes behind N body bytes; cut_left=N: N bytes before the body's end
 *   head_cut=N             closes behind N bytes of the head (with stall= falls silent there)
 *   tail=BYTES             sent at the cut or stall, in place of what should come there
 *   reset=1                by a reset instead; without cut: before the head
 *   stall=N                falls silent behind N body bytes and holds the connection
 *   silent=1               reads the request, never answers
 *   length=N|+N|-N|none    Content-Length is made up, or left out
 *   content_range=TEXT|none
 *   ignore_range=1         200 and the whole object
 *   half=1                 206 with the first half of what was asked, also to an unranged request
 *   shift=N                206 with a range N bytes behind the asked one
 *   total=+N|-N            another total size in Content-Range
 *   ignore_match=1         If-Match and If-None-Match are ignored
 *   ignore_version=1       versionId is: what is current answers
 *   extra=N                N body bytes more than announced
 *   etag=TEXT|none
 *   replace=MS             version = time / MS; bump=1: each GET or HEAD replaces
 *   vary=N                 size + version % 7 * N
 *   corrupt=N              the body's byte at object offset N-1 is wrong
 *   chunked=1
 *   close=1                Connection: close
 *   drip=1                 the head byte by byte; pad=N (to 200000): N bytes more of it
 *   fields=N               N header fields more; flood=N: N bytes of them, as many as it takes
 *   raw=BYTES              instead of an answer; before=BYTES in front of it (1xx heads),
 *                          after=BYTES behind it; interim=N: N 1xx heads in front of it
 *   document=TEXT          the whole text of an error's document
 *   clock=+S|-S            the origin's clock is wrong by so many seconds: Date tells it, and a
 *                          request signed more than 15 min away is 403 RequestTimeTooSkewed
 *   only=ACCESS            403 AccessDenied for what another access key signed checksum="name:
 *   value" sent like S3 does: only if asked for by x-amz-checksum-mode sum=KIND
 *   crc32, crc32c, crc64nvme, sha1, sha256, sha512: a true one of the object,
 *                          of type FULL_OBJECT, with whole answers that are asked for it; md5: the
 *                          ETag is it
 *   versioning=1           x-amz-version-id: VERSION
 *   header="Name: value"   any number of times, 16 in all
 *
 * Requests that write: PUT of an object takes its body, which must be the bytes of one version of
 * that key (bytes.h, versions 1 to 1000), plain or aws-chunked: then the object has that version
 * and the body's size; any other byte is 400 BadDigest. If-Match and If-None-Match: * are looked
 * at. DELETE of an object is 204; with a query, it takes nothing away. A PUT with a query (but for
 * x-id=PutObject), or one that copies, is 200 with whatever body, a POST is 200 with document= and
 * else 501.
 * "Expect: 100-continue" is answered by 100, or by the final status where
 * that is an error. Knobs of theirs, besides those above:
 *
 *   mute=1                 never says 100
 *   early=N                answers (with status=...) behind N body bytes (0: before any, without a
 *                          100), and reads no more; close=1 closes then, reset=1 resets
 *   body_cut=N             closes behind N body bytes, without an answer; reset=1 by a reset
 *   body_stall=N           reads nothing more behind N body bytes, and holds the connection
 *   body_rate=BYTES        reads so many a second
 *   discard=1              takes any bytes, unseen, and stores nothing
 *   blanks=N               of an answer with document=: the head, chunked, then N blanks, and then
 *   blank_ms=MS            the document; the pause before each blank and the document
 *
 * In the list of requests their lines end with " length=N", " expect" and each x-* and content-*
 * field as " name=value", but for date and token, and " signed" if there is an Authorization.
 * When a body is over a line of its own tells: "body PUT /b/k bytes=N of=M", the body on the wire,
 * and " object=N version=V" of what was stored, " trailer=name:value" for each trailer of
 * aws-chunked.
 *
 * Invariants:
 *  1. An answer is planned in one step under the lock: version, size, ETag and bytes always belong
 *     together, unless a knob says otherwise.
 *  2. body_bytes counts what the socket took, and while a send waits what it was given: never less
 *     than the client has read.
 *  3. Nothing of the server under test is linked in: no shared parser, no shared mistake. */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HEADPOND_TESTS_ORIGIN_H
#define HEADPOND_TESTS_ORIGIN_H

#include "mem.h"
#include "tests/lib/words.h"

struct origin;

struct origin_options {
    const char *address;             /* NULL = 127.0.0.1 */
    uint16_t port;                   /* 0 = any */
    bool control;                    /* open a control port on 127.0.0.1 */
    uint16_t control_port;           /* 0 = any */
    bool quiet;                      /* no list of requests (log off) */
};

struct origin_stats {
    uint64_t requests, get, head, list, other;
    uint64_t body_bytes;
    uint64_t put, taken_bytes;       /* of other: PUTs; bytes of requests' bodies */
    uint64_t connections, max_connections; /* open now; most at once since the mark */
    uint64_t running, max_running;   /* requests that are being answered, likewise */
};

/* NULL with why filled. */
must_check struct origin *origin_start(const struct origin_options *options, char why[200]);
uint16_t origin_port(const struct origin *o);
uint16_t origin_control_port(const struct origin *o);
/* One statement of the script. false: *answer tells why; true: *answer holds the lines asked for,
 * or "". */
bool origin_do(struct origin *o, const struct statement *st, struct text *answer);
/* A whole script; stops at the first mistake. */
bool origin_script(struct origin *o, struct span text, struct text *answer);
/* Since the last mark. */
void origin_stats(struct origin *o, struct origin_stats *out);
bool origin_key_stats(struct origin *o, struct span bucket, struct span key, uint64_t *requests,
                      uint64_t *body_bytes);
/* Requests in the list since the mark that contain the text; *first = index of the first one. */
unsigned origin_saw(struct origin *o, struct span text, unsigned *first);
/* Ends every connection and thread, then frees. */
void origin_stop(struct origin *o);

#endif
