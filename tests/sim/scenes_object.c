/* Scenarios of objects: misses and hits of every shape, conditions, ranges, and what upstream does
 * to a fill.
 *
 * Invariants:
 *  1. A scenario's requests end before its play does.
 *
 * Life: tables that torture.c walks. Failure: stage_fail(). */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/cache/cache.h"
#include "tests/sim/scenes.h"

static void target_of(const struct stage *s, char out[STAGE_KEY_BYTES + 4])
{
    snprintf(out, STAGE_KEY_BYTES + 4, "/b/%s", s->key);
}

/* ---- ranges ---- */

static void get_range(struct stage *s)
{
    stage_get(s, "Range: bytes=100-199\r\n", 206, 100);
}

static void get_two_blocks(struct stage *s)
{
    stage_get(s, "Range: bytes=1000000-1100000\r\n", 206, 100001);
}

/* Of a store that ignores ranges. Without a fetch it is relayed, and the client has all. */
static void get_unranged(struct stage *s)
{
    char target[STAGE_KEY_BYTES + 4];

    target_of(s, target);
    stage_ask(s, "GET", target, "Range: bytes=1000000-1100000\r\n");
    bool relayed = inject_fired() && s->r.status == 200;
    stage_judge(s, relayed ? 200 : 206, relayed ? stage_size(s) : 100001);
}

static void get_summed(struct stage *s)
{
    stage_get(s, "x-amz-checksum-mode: ENABLED\r\n", 200, stage_size(s));
}

static void get_from(struct stage *s)
{
    stage_get(s, "Range: bytes=2097152-\r\n", 206, stage_size(s) - 2097152);
}

static void get_suffix(struct stage *s)
{
    stage_get(s, "Range: bytes=-500\r\n", 206, 500);
}

static void get_beyond(struct stage *s)
{
    stage_get(s, "Range: bytes=5000000-\r\n", 416, ANY_LENGTH);
}

/* ---- HEAD and conditions ---- */

static void head(struct stage *s)
{
    char target[STAGE_KEY_BYTES + 4];

    target_of(s, target);
    stage_ask(s, "HEAD", target, "");
    stage_judge(s, 200, 0);
    if (s->r.complete && s->r.status == 200 && s->r.length != stage_size(s))
        stage_fail(s, "HEAD tells %llu bytes", (unsigned long long)s->r.length);
}

static void fill_note_tag(struct stage *s)
{
    stage_fill(s);
    snprintf(s->note, sizeof s->note, "%s", s->r.etag);
}

static void get_not_modified(struct stage *s)
{
    char field[160];

    snprintf(field, sizeof field, "If-None-Match: %s\r\n", s->note);
    stage_get(s, field, 304, 0);
}

static void get_failed_condition(struct stage *s)
{
    stage_get(s, "If-Match: \"0123456789abcdef\"\r\n", 412, ANY_LENGTH);
}

static void get_if_range(struct stage *s)
{
    char field[200];

    snprintf(field, sizeof field, "Range: bytes=0-9\r\nIf-Range: %s\r\n", s->note);
    stage_get(s, field, 206, 10);
}

/* ---- time ---- */

static void fill_and_age(struct stage *s)
{
    stage_fill(s);
    sim_wait_ms(61 * 1000);
}

static void fill_and_age_early(struct stage *s)
{
    stage_fill(s);
    sim_wait_ms(50 * 1000);
}

static void fill_and_replace(struct stage *s)
{
    stage_fill(s);
    store_do("bump b \"%s\"", s->key);
    sim_wait_ms(61 * 1000);
}

static void fill_and_vanish(struct stage *s)
{
    stage_fill(s);
    store_do("delete b \"%s\"", s->key);
    sim_wait_ms(61 * 1000);
}

static void get_gone(struct stage *s)
{
    stage_get(s, "", 404, ANY_LENGTH);
}

static void get_twice(struct stage *s)
{
    stage_get_all(s);
    stage_get_all(s);
}

/* ---- upstream ---- */

static void be_missing(struct stage *s)
{
    store_do("delete b \"%s\"", s->key);
}

static void get_missing_twice(struct stage *s)
{
    get_gone(s);
    get_gone(s);
}

static void bring_back(struct stage *s)
{
    store_do("object b \"%s\" size=300", s->key);
    sim_wait_ms(2000);
    stage_get_all(s);
}

static void go_away(struct stage *s)
{
    (void)s;
    store_do("listen off\ncut");
}

static void fill_age_go_away(struct stage *s)
{
    fill_and_age(s);
    go_away(s);
}

static void get_away(struct stage *s)
{
    stage_get(s, "", 503, ANY_LENGTH);
}

static void come_back(struct stage *s)
{
    store_do("listen on");
    sim_wait_ms(5000);
    stage_get_all(s);
}

static void fill_and_cut_links(struct stage *s)
{
    stage_fill(s);
    store_do("cut");
    stage_new_key(s, "301");
}

/* ---- disk ---- */

static void fill_and_damage(struct stage *s)
{
    stage_fill_disk(s);
    life_damage("b", s->key);
}

static void fill_pool_only(struct stage *s)
{
    stage_fill(s);
}

/* ---- who asks ---- */

static void get_together(struct stage *s)
{
    stage_together(s, 4, stage_get_all);
}

static void get_parts(struct stage *s)
{
    uint64_t at = sim_below(stage_size(s)), len = 1 + sim_below(stage_size(s) - at);
    char field[80];

    snprintf(field, sizeof field, "Range: bytes=%llu-%llu\r\n", (unsigned long long)at,
             (unsigned long long)(at + len - 1));
    stage_get(s, field, 206, len);
}

static void get_parts_together(struct stage *s)
{
    stage_together(s, 4, get_parts);
}

static unsigned far_parts;

/* Blocks of one chunk that are far from each other, the last ones first; then of another chunk. */
static void get_far_part(struct stage *s)
{
    static const unsigned first_mib[] = {15, 13, 9, 11, 3, 7};
    uint64_t at = (uint64_t)first_mib[far_parts++ % 6] * MIB + sim_below(MIB);
    char field[80];

    snprintf(field, sizeof field, "Range: bytes=%llu-%llu\r\n", (unsigned long long)at,
             (unsigned long long)at + 9999);
    stage_get(s, field, 206, 10000);
}

static void get_far_parts(struct stage *s)
{
    stage_together(s, 6, get_far_part);
}

/* Takes some of the body and goes without a word. */
static void leave_early(struct stage *s)
{
    char bytes[4096];

    asker_open(&s->a);
    asker_send(&s->a, "GET /b/%s HTTP/1.1\r\nHost: sim\r\n\r\n", s->key);
    for (unsigned i = 0; i < 3 && s->a.fd >= 0; i++) {
        if (wire_take(s->a.fd, bytes, sizeof bytes, false) == 0)
            break;
        sim_wait_ms(1);
    }
    asker_close(&s->a);
}

static void leave_before_head(struct stage *s)
{
    asker_open(&s->a);
    asker_send(&s->a, "GET /b/%s HTTP/1.1\r\nHo", s->key);
    sim_wait_ms(1);
    asker_close(&s->a);
}

static void stay_and_leave(struct stage *s)
{
    if (sim_one_in(2))
        leave_early(s);
    else
        stage_get_all(s);
}

static void some_leave(struct stage *s)
{
    stage_together(s, 4, stay_and_leave);
}

/* Takes nothing for some seconds, then all. */
static void pause_inside(struct stage *s)
{
    asker_open(&s->a);
    asker_send(&s->a, "GET /b/%s HTTP/1.1\r\nHost: sim\r\n\r\n", s->key);
    sim_wait_ms(5000);
    asker_read(&s->a, "b", s->key, false, &s->r);
    asker_close(&s->a);
    stage_judge(s, 200, stage_size(s));
}

/* ---- writes through the server ---- */

static void act_bump(void *stage)
{
    store_do("bump b \"%s\"", ((struct stage *)stage)->key);
}

static void write_now(struct stage *s)
{
    life_write(&(struct life_change){.key = s->key}, act_bump, s);
}

static void get_written(struct stage *s)
{
    stage_get_all(s);
    if (s->r.status == 200 && s->r.etag[0] && s->r.version < 2)
        stage_fail(s, "version %llu behind a write of version 2",
                   (unsigned long long)s->r.version);
}

static void write_and_get(struct stage *s)
{
    write_now(s);
    get_written(s);
    get_written(s);
}

static void write_bucket_and_get(struct stage *s)
{
    life_write(&(struct life_change){0}, act_bump, s);
    get_written(s);
}

static void act_delete(void *stage)
{
    store_do("delete b \"%s\"", ((struct stage *)stage)->key);
}

static void delete_and_get(struct stage *s)
{
    life_write(&(struct life_change){.key = s->key, .gone = true}, act_delete, s);
    get_gone(s);
}

static unsigned writers;

/* One of them writes, the others read across it. */
static void read_or_write(struct stage *s)
{
    if (writers++ % 4 == 1)
        write_and_get(s);
    else
        stage_get_all(s);
}

static void read_across_a_write(struct stage *s)
{
    stage_together(s, 4, read_or_write);
}

static void put_and_get(struct stage *s)
{
    struct life_body b = {.version = 2, .size = stage_size(s), .sent = stage_size(s)};

    life_write(&(struct life_change){.key = s->key, .body = &b}, act_bump, s);
    get_written(s);
    get_written(s);
}

/* What was put is served from the disk, once upstream was asked by a HEAD. */
static void be_put(struct stage *s)
{
    uint64_t before;

    struct life_body b = {.version = 2, .size = stage_size(s), .sent = stage_size(s)};
    life_write(&(struct life_change){.key = s->key, .body = &b}, act_bump, s);
    if (!life_settle(60 * 1000) || !life_on_disk("b", s->key))
        stage_fail(s, "what was put is not on disk");
    before = store_requests();
    get_written(s);
    if (strcmp(s->r.x_cache, "hit") != 0 || store_requests() != before + 1)
        stage_fail(s, "x-cache is %s, %llu requests", s->r.x_cache,
                   (unsigned long long)(store_requests() - before));
}

static void put_in_part(struct stage *s)
{
    struct life_body b = {.version = 2, .size = stage_size(s), .sent = stage_size(s) - 1};

    life_write(&(struct life_change){.key = s->key, .body = &b}, act_bump, s);
    stage_get_all(s);
}

static void act_read(void *stage)
{
    stage_get_all(stage);
}

static void read_within_a_write(struct stage *s)
{
    life_write(&(struct life_change){.key = s->key}, act_read, s);
    stage_get_all(s);
}

#define CUT(at) "next b/ cut=" at
/* ---- a disk that hangs ---- */

/* The simulated network took 0 to 115 ms for an answer that met no disk. */
enum { MET_MS = 1300, PASSED_BY_MS = 400 };

/* In time, while nothing else went wrong. */
static void get_within(struct stage *s, uint64_t most_ms)
{
    uint64_t began_us = world.now_us;

    stage_get_all(s);
    uint64_t took_ms = (world.now_us - began_us) / 1000;
    if (!inject_fired() && took_ms > most_ms)
        stage_fail(s, "the answer took %llu ms", (unsigned long long)took_ms);
}

static void thaw(struct stage *s)
{
    world.frozen = false;
    life_mend();
    stage_get_all(s);
}

/* The deadline once, then as if there were no disk; what it held is a hit when it is back. */
static void read_frozen(struct stage *s)
{
    world.frozen = true;
    get_within(s, MET_MS);
    life_forget_memory();
    get_within(s, PASSED_BY_MS);
    if (!inject_fired() && life_disk_state() == DISK_UP)
        stage_fail(s, "the disk is still used");
    thaw(s);
    life_forget_memory();
    stage_get_all(s);
    if (!inject_fired() && strcmp(s->r.x_cache, "hit") != 0)
        stage_fail(s, "what the disk held is a %s", s->r.x_cache);
}

static void fill_frozen(struct stage *s)
{
    world.frozen = true;
    get_within(s, MET_MS);
    stage_new_key(s, "1200000");
    get_within(s, MET_MS);
    stage_new_key(s, "1200000");
    get_within(s, PASSED_BY_MS);
    thaw(s);
}

static void put_frozen(struct stage *s)
{
    world.frozen = true;
    put_and_get(s);
    world.frozen = false;
    life_mend();
    get_written(s);
}

/* The client is gone before the disk answers. */
static void leave_frozen(struct stage *s)
{
    world.frozen = true;
    leave_early(s);
    sim_wait_ms(2000);
    thaw(s);
}

const struct scene scenes_object[] = {
    {"cold", .play = stage_get_all},
    {"cold-3m", .play = stage_get_all, .size = "3000000"},
    {"cold-empty", .play = stage_get_all, .size = "0"},
    {"cold-range", .play = get_range, .size = "3000000"},
    {"cold-two-blocks", .play = get_two_blocks, .size = "3000000"},
    {"cold-from", .play = get_from, .size = "3000000"},
    {"cold-suffix", .play = get_suffix, .size = "1500000"},
    {"cold-beyond", .play = get_beyond, .size = "3000"},
    {"cold-head", .play = head, .size = "3000"},
    {"summed", .play = get_summed, .size = "1200000", .script = "set b/ sum=crc64nvme"},
    {"summed-wrong", .play = get_summed, .size = "3000000", .loose = true,
     .script = "next b/ method=HEAD checksum=\"x-amz-checksum-crc32: NhCmhg==\""},
    {"cold-17m", .play = stage_get_all, .size = "17M", .heavy = true},
    {"hit-memory", .set_up = fill_pool_only, .play = stage_get_all, .size = "1200000"},
    {"hit-disk", .set_up = stage_fill_disk, .play = stage_get_all, .size = "1200000"},
    {"hit-disk-small", .set_up = stage_fill_disk, .play = stage_get_all},
    {"hit-disk-range", .set_up = stage_fill_disk, .play = get_range, .size = "1200000"},
    {"hit-lent", .set_up = stage_fill_disk, .play = get_twice, .size = "1200000"},
    {"hit-head", .set_up = fill_pool_only, .play = head},
    {"not-modified", .set_up = fill_note_tag, .play = get_not_modified},
    {"if-match", .set_up = fill_pool_only, .play = get_failed_condition},
    {"if-range", .set_up = fill_note_tag, .play = get_if_range},
    {"revalidated", .set_up = fill_and_age, .play = stage_get_all},
    {"refreshed-early", .set_up = fill_and_age_early, .play = get_twice},
    {"replaced", .set_up = fill_and_replace, .play = stage_get_all, .size = "1200000"},
    {"vanished", .set_up = fill_and_vanish, .play = get_gone, .after = bring_back},
    {"missing", .set_up = be_missing, .play = get_missing_twice, .after = bring_back},
    {"away", .set_up = go_away, .play = get_away, .after = come_back},
    {"stale", .set_up = fill_age_go_away, .play = stage_get_all, .after = come_back},
    {"stale-link", .set_up = fill_and_cut_links, .play = stage_get_all},
    {"slow-down", .play = stage_get_all, .script = "next b/ status=503 retry_after=1"},
    {"failing", .play = stage_get_all, .script = "next b/ status=500 count=2"},
    {"reset-before-head", .play = stage_get_all, .script = "next b/ reset=1"},
    {"short-body", .play = stage_get_all, .size = "1500000", .script = CUT("1100000")},
    {"reset-body", .play = stage_get_all, .size = "1500000", .script = CUT("500") " reset=1"},
    {"stalled-body", .play = stage_get_all, .size = "1500000", .script = "next b/ stall=1200000"},
    {"silent", .play = stage_get_all, .script = "next b/ silent=1"},
    {"range-ignored", .play = get_unranged, .size = "3000000",
     .script = "next b/ ignore_range=1"},
    {"chunked-fill", .play = stage_get_all, .size = "1500000", .script = "next b/ chunked=1"},
    {"changed-in-fill", .play = stage_get_all, .size = "9M", .loose = true, .heavy = true,
     .script = "next b/ skip=1 bump=1"},
    {"damaged", .set_up = fill_and_damage, .play = stage_get_all, .size = "1200000"},
    {"frozen-hit", .set_up = stage_fill_disk, .play = read_frozen, .size = "1200000"},
    {"frozen-fill", .play = fill_frozen, .size = "3000000"},
    {"frozen-put", .play = put_frozen, .size = "2500000", .after = get_written},
    {"frozen-leaves", .set_up = stage_fill_disk, .play = leave_frozen, .size = "3000000"},
    {"coalesced", .play = get_together, .size = "1500000"},
    {"parts-together", .play = get_parts_together, .size = "3000000"},
    {"parts-unknown", .play = get_far_parts, .size = "17M", .heavy = true},
    {"parts-known", .set_up = get_range, .play = get_far_parts, .size = "17M", .heavy = true},
    {"parts-changed", .set_up = get_range, .play = get_far_parts, .size = "17M", .heavy = true,
     .loose = true, .script = "next b/ skip=4 bump=1"},
    {"parts-broken", .set_up = get_range, .play = get_far_parts, .size = "17M", .heavy = true,
     .script = "next b/ skip=3 cut=300000"},
    {"leaves", .play = leave_early, .size = "3000000"},
    {"leaves-in-head", .play = leave_before_head},
    {"some-leave", .play = some_leave, .size = "1500000"},
    {"written", .set_up = stage_fill_disk, .play = write_and_get, .size = "1200000",
     .after = get_written},
    {"written-bucket", .set_up = stage_fill_disk, .play = write_bucket_and_get,
     .after = get_written},
    {"written-unknown", .play = write_and_get, .after = get_written},
    {"deleted", .set_up = stage_fill_disk, .play = delete_and_get, .after = bring_back},
    {"put", .play = put_and_get, .size = "2500000", .after = get_written},
    {"put-over", .set_up = stage_fill_disk, .play = put_and_get, .size = "1200000",
     .after = get_written},
    {"put-hit", .set_up = be_put, .play = get_written, .size = "3500000"},
    {"put-cut", .set_up = stage_fill_disk, .play = put_in_part, .size = "1200000"},
    {"read-in-write", .set_up = stage_fill_disk, .play = read_within_a_write, .size = "1200000"},
    {"read-in-write-cold", .play = read_within_a_write, .size = "1200000"},
    {"read-across-write", .play = read_across_a_write, .size = "9M", .loose = true,
     .heavy = true},
    {"pauses", .set_up = stage_fill_disk, .play = pause_inside, .size = "3000000"},
    {0},
};
