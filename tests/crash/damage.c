/* Part damage: every trial restores a filled cache, damages it once, starts the server and reads
 * everything, twice.
 *
 * Invariants:
 *  1. Every byte is right at the first reading (what was damaged is fetched again within the same
 *     answer) and held at the second.
 *  2. Each damaged block is counted once by its checksum, or by a read that failed; whatever else
 *     had to be fetched again is explained by a counter, and by a line of the log.
 *  3. The server neither dies nor hangs, takes new objects afterwards, and ends with exit 0.
 *
 * Life: lanes are threads; their directories stand on a tmpfs of this process's mount namespace. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/crash/damage.h"

enum { LANES = 3, SLAB_MIB = 256, RUN_BYTES = MIB, NEW_THINGS = 12 };

static struct patient patients[LANES];
static _Atomic uint64_t hits, moved, dropped, mended;

/* ---- the pristine cache ---- */
static void make_things(struct patient *p)
{
    /* Few sizes, so that few pages of the slab are begun; no page holds less than the eight bytes
     * by which it is found. */
    static const uint64_t sizes[] = {
        9,      4095, 4200,     9000,        60000,       128 * KIB,   128 * KIB + 9,
        300000, MIB,  MIB + 90, 3 * MIB + 8, 8 * MIB - 1, 8 * MIB + 8, 12 * MIB};

    for (unsigned i = 0; i < DAMAGE_THINGS; i++) {
        struct thing *t = &p->thing[i];
        t->size = sizes[i % (i < 14 ? 14 : 10)];
        t->version = 1;
        pthread_mutex_init(&t->lock, NULL);
        snprintf(t->key, sizeof t->key, "o%02u@%llu", i, (unsigned long long)t->size);
    }
}

static bool read_all(struct patient *p, const char *when, uint64_t *fetched)
{
    struct reader r;
    struct got got;
    bool good = reader_make(&r, p->server.port);

    *fetched = 0;
    for (unsigned i = 0; good && i < DAMAGE_THINGS; i++) {
        struct thing *t = &p->thing[i];
        struct ask a = {.thing = t, .bucket = p->bucket};
        uint64_t before = origin_body_bytes(p->bucket, t->key);
        enum outcome out = reader_ask(&r, &a, &got);
        good = out == OUT_WHOLE;
        if (!good)
            tell("lane %u %s: %s: outcome %d, status %u %s", p->server.number, when, t->key, out,
                 got.status, out == OUT_WRONG || out == OUT_LATE ? r.why : "");
        *fetched += origin_body_bytes(p->bucket, t->key) - before;
    }
    reader_end(&r);
    return good;
}

/* Objects that nobody asked for before: the index has to be written. */
static bool read_new(struct patient *p)
{
    struct reader r;
    struct got got;
    bool good = reader_make(&r, p->server.port);

    for (unsigned i = 0; good && i < NEW_THINGS; i++) {
        struct thing t = {.size = 5000, .version = 1, .lock = PTHREAD_MUTEX_INITIALIZER};
        struct ask a = {.thing = &t, .bucket = p->bucket};
        snprintf(t.key, sizeof t.key, "new%u@5000", p->fresh++);
        good = reader_ask(&r, &a, &got) == OUT_WHOLE;
    }
    reader_end(&r);
    return good;
}

static bool prepare(struct patient *p)
{
    struct daemon *d = &p->server;
    char home[PATH_BYTES], path[PATH_BYTES * 2];
    uint64_t fetched;

    snprintf(home, sizeof home, "%.140s/shm/lane%u", world.root, d->number);
    snprintf(p->pristine, sizeof p->pristine, "%s/pristine", home);
    snprintf(p->older, sizeof p->older, "%s/older.mdb", home);
    make_things(p);
    if (!daemon_make(d, home) || daemon_start(d) != START_READY || !read_new(p) ||
        !daemon_settles(d))
        return false;
    snprintf(path, sizeof path, "%s/index/data.mdb", d->dir[0]);
    if (!copy_file(path, p->older) || !read_all(p, "first", &fetched) || !daemon_settles(d) ||
        !daemon_end(d, SIGTERM) || !copy_tree(d->dir[0], p->pristine))
        return false;
    snprintf(path, sizeof path, "%s/slab", p->pristine);
    p->map = slabmap_make(path, p->thing, DAMAGE_THINGS, p->bucket);
    return p->map->count > 0;
}

/* ---- restoring ---- */
static void restore_slab(struct patient *p)
{
    uint8_t *run = mem_take(RUN_BYTES);
    char from[PATH_BYTES * 2], to[PATH_BYTES * 2];
    struct stat st;

    snprintf(from, sizeof from, "%s/slab", p->pristine);
    snprintf(to, sizeof to, "%s/slab", p->server.dir[0]);
    int source = open(from, O_RDONLY | O_CLOEXEC);
    int target = open(to, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    must(run && source >= 0 && target >= 0 && fstat(source, &st) == 0);
    must(ftruncate(target, st.st_size) == 0);
    /* Whole runs around what is in use; what was never used may keep what stands there. */
    for (unsigned i = 0; i < p->map->count; i++) {
        off_t at = (off_t)p->map->place[i].page * SLAB_PAGE & ~(off_t)(RUN_BYTES - 1);
        must(pread(source, run, RUN_BYTES, at) == RUN_BYTES);
        must(pwrite(target, run, RUN_BYTES, at) == RUN_BYTES);
        while (i + 1 < p->map->count &&
               (off_t)p->map->place[i + 1].page * SLAB_PAGE < at + RUN_BYTES)
            i++;
    }
    close(source);
    close(target);
    mem_give(run);
}

static void restore(struct patient *p)
{
    static const char *const gone[] = {"starts", "index/lock.mdb", "headpond.id.new"};
    static const char *const copied[] = {"headpond.id", "index/data.mdb"};
    char from[PATH_BYTES * 2], to[PATH_BYTES * 2];

    for (unsigned n = 1; n <= 4; n++) {
        snprintf(to, sizeof to, "%s/index.damaged-%u", p->server.dir[0], n);
        remove_tree(to);
    }
    for (unsigned i = 0; i < ARRAY_COUNT(gone); i++) {
        snprintf(to, sizeof to, "%s/%s", p->server.dir[0], gone[i]);
        unlink(to);
    }
    snprintf(to, sizeof to, "%s/index", p->server.dir[0]);
    mkdir(to, 0700);
    for (unsigned i = 0; i < ARRAY_COUNT(copied); i++) {
        snprintf(from, sizeof from, "%s/%s", p->pristine, copied[i]);
        snprintf(to, sizeof to, "%s/%s", p->server.dir[0], copied[i]);
        must(copy_file(from, to));
    }
    restore_slab(p);
}

/* ---- judging ---- */
struct counts {
    double checksums, reads, dropped, moved;
};

static struct counts count(struct patient *p)
{
    char *page = daemon_page(&p->server, "/metrics");
    struct counts c = {-1, -1, -1, -1};

    if (page)
        c = (struct counts){metric_sum(page, "headpond_checksum_failures_total", ""),
                            metric_sum(page, "headpond_disk_errors_total", "op=\"read\""),
                            metric_sum(page, "headpond_index_dropped_total", ""),
                            metric_sum(page, "headpond_index_moved_total", "")};
    mem_give(page);
    return c;
}

static bool is_logged(const struct patient *p, const struct counts *c)
{
    const struct daemon *d = &p->server;

    return (c->checksums == 0 || daemon_logged(d, "checksum mismatch") > 0) &&
           (c->reads == 0 || daemon_logged(d, "disk error") > 0) &&
           (c->dropped == 0 || daemon_logged(d, "index record dropped") > 0) &&
           (c->moved == 0 || daemon_logged(d, "index moved aside") +
                                     daemon_logged(d, "index lost") > 0);
}

static const char *judge(struct patient *p, const struct effect *e, uint64_t fetched)
{
    struct counts c = count(p);
    double blocks = c.checksums + c.reads, all = blocks + c.dropped + c.moved;

    atomic_fetch_add(&mended, (uint64_t)blocks);
    atomic_fetch_add(&dropped, (uint64_t)c.dropped);
    atomic_fetch_add(&moved, (uint64_t)c.moved);
    atomic_fetch_add(&hits, all > 0);
    if (c.checksums < 0)
        return "no metrics";
    if (fetched > 0 && all == 0)
        return "something was lost, and nothing counted it";
    if (!is_logged(p, &c))
        return "a counted damage was not logged";
    if (e->any)
        return NULL;
    if (c.dropped + c.moved > 0)
        return "the index was sound, but something of it was dropped";
    if (e->exactly && blocks != e->blocks)
        return "not each damaged block was counted once";
    if (e->blocks > 0 && (blocks < e->blocks || fetched == 0))
        return "damaged blocks were not noticed";
    return NULL;
}

static const char *treat(struct patient *p, const struct effect *e)
{
    struct daemon *d = &p->server;
    uint64_t fetched, again;
    enum start start = daemon_start(d);

    if (e->refused)
        return start == START_REFUSED && daemon_logged(d, "no cache directory") ? NULL
                                                                              : "not refused";
    if (start != START_READY)
        return start == START_DIED ? "the server died at the start" : "no start";
    if (e->running)
        damage_running(p, e);
    if (!read_all(p, "damaged", &fetched))
        return "not every answer was right";
    if (e->running && !read_new(p))
        return "new objects cannot be read";
    const char *why = judge(p, e, fetched);
    if (why)
        return why;
    if (!read_all(p, "again", &again) || again > 0)
        return "what was fetched again is not held";
    if (!read_new(p) || !daemon_settles(&p->server))
        return "nothing new can be kept";
    return daemon_end(d, SIGTERM) ? NULL : "no proper end";
}

/* What a damage leaves behind may not hurt the start after the next either. */
static const char *revisit(struct patient *p)
{
    uint64_t fetched;

    if (daemon_start(&p->server) != START_READY)
        return "no second start";
    if (!read_all(p, "revisited", &fetched))
        return "not every answer was right after the second start";
    return daemon_end(&p->server, SIGTERM) ? NULL : "no proper end after the second start";
}

static bool trial(struct patient *p, unsigned number)
{
    struct effect e;

    restore(p);
    damage_do(p, number, &e);
    const char *why = treat(p, &e);
    if (!why && !e.refused && (e.running || dice(&p->dice, 4) == 0))
        why = revisit(p);
    verdict(!why, "damage trial %u, lane %u, %s: %s (%s): %s", number, p->server.number, e.what,
            why ? why : "", daemon_ending(), p->server.home);
    if (p->server.pid)
        daemon_end(&p->server, SIGKILL);
    if (why) {
        char kept[PATH_BYTES + 32];
        daemon_show_log(&p->server);
        snprintf(kept, sizeof kept, "%s/kept%u", world.root, p->server.number);
        tell("# files of the trial: %s%s", kept,
             copy_tree(p->server.dir[0], kept) ? "" : " (incomplete)");
    }
    return !why;
}

static void *run_lane(void *at)
{
    struct patient *p = at;

    if (!prepare(p)) {
        verdict(false, "damage lane %u cannot be filled", p->server.number);
        daemon_show_log(&p->server);
        return NULL;
    }
    for (unsigned n = p->server.number; n < world.rounds; n += LANES)
        if (!trial(p, n))
            break;
    slabmap_free(p->map);
    return NULL;
}

void part_damage(void)
{
    char shm[PATH_BYTES + 8];

    snprintf(shm, sizeof shm, "%s/shm", world.root);
    if (mkdir(shm, 0700) != 0 || mount("tmpfs", shm, "tmpfs", 0, "size=2g,mode=0700") != 0) {
        verdict(false, "no tmpfs for the trials");
        return;
    }
    for (unsigned i = 0; i < LANES; i++) {
        struct patient *p = &patients[i];
        p->dice = dice_of(world.seed, 200 + i);
        p->server = (struct daemon){.number = i, .dirs = 1, .workers = 1, .slab_mib = SLAB_MIB,
                                    .memory_mib = 64, .ttl_ms = 3600000};
        snprintf(p->bucket, sizeof p->bucket, "b%u", i);
        must(pthread_create(&p->thread, NULL, run_lane, p) == 0);
    }
    for (unsigned i = 0; i < LANES; i++)
        pthread_join(patients[i].thread, NULL);
    tell("# damage: %u trials; %llu told by counters: %llu blocks mended, %llu records dropped, "
         "%llu indexes moved aside", world.rounds, (unsigned long long)atomic_load(&hits),
         (unsigned long long)atomic_load(&mended), (unsigned long long)atomic_load(&dropped),
         (unsigned long long)atomic_load(&moved));
    if (world.failed == 0)
        umount2(shm, MNT_DETACH);
}
