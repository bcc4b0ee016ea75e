/* The damages themselves: what is done to which file, and what must come of it.
 *
 * Invariants:
 *  1. One damage a trial, at a place the dice choose.
 *  2. For slabs it is known which bytes of which object are hit; for indexes it is not, but nothing
 *     may then be missing without having been counted.
 *
 * Life: pure functions of the dice and the files. Failure: a file that cannot be changed ends the
 * run. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/crash/damage.h"

enum { INDEX_PAGE = 4096, RUN_PAGES_MAX = 40, META_BYTES = 160 };

static int open_file(const struct patient *p, const char *name, off_t *bytes)
{
    char path[PATH_BYTES * 2];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", p->server.dir[0], name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    must(fd >= 0 && fstat(fd, &st) == 0);
    *bytes = st.st_size;
    return fd;
}

static void flip(int fd, off_t at, unsigned bit)
{
    uint8_t byte;

    must(pread(fd, &byte, 1, at) == 1);
    byte ^= (uint8_t)(1u << bit);
    must(pwrite(fd, &byte, 1, at) == 1);
}

static void fill(int fd, off_t at, size_t len, uint64_t *state, bool zero)
{
    uint8_t page[SLAB_PAGE];

    for (size_t i = 0; i < len && i < sizeof page; i++)
        page[i] = zero ? 0 : (uint8_t)dice(state, 256);
    must(pwrite(fd, page, min_u64(len, sizeof page), at) >= 0);
}

/* ---- slabs ---- */
static const struct place *any_place(struct patient *p)
{
    return &p->map->place[dice(&p->dice, p->map->count)];
}

static unsigned block_of(const struct place *at)
{
    return (unsigned)(at->offset / BLOCK_BYTES);
}

/* Different blocks of objects among the pages from..to-1, each counted once. */
static unsigned blocks_in(const struct patient *p, unsigned from, unsigned to)
{
    unsigned count = 0, thing = UINT32_MAX, block = 0;

    for (unsigned i = 0; i < p->map->count; i++) {
        const struct place *at = &p->map->place[i];
        if (at->page < from || at->page >= to || (at->thing == thing && block_of(at) == block))
            continue;
        thing = at->thing;
        block = block_of(at);
        count++;
    }
    return count;
}

static void slab_bit(struct patient *p, struct effect *e)
{
    const struct place *at = any_place(p);
    uint64_t byte = dice(&p->dice, at->len);
    off_t bytes;
    int fd = open_file(p, "slab", &bytes);

    flip(fd, (off_t)at->page * SLAB_PAGE + (off_t)byte, (unsigned)dice(&p->dice, 8));
    close(fd);
    e->blocks = 1;
    e->exactly = true;
    snprintf(e->what, sizeof e->what, "a bit of slab page %u: %s at %llu", at->page,
             p->thing[at->thing].key, (unsigned long long)(at->offset + byte));
}

static void slab_pages(struct patient *p, struct effect *e)
{
    unsigned first = any_place(p)->page, count = 1 + (unsigned)dice(&p->dice, RUN_PAGES_MAX);
    bool zero = dice(&p->dice, 2);
    off_t bytes;
    int fd = open_file(p, "slab", &bytes);

    count = (unsigned)min_u64(count, (uint64_t)bytes / SLAB_PAGE - first);
    for (unsigned i = 0; i < count; i++)
        fill(fd, (off_t)(first + i) * SLAB_PAGE, SLAB_PAGE, &p->dice, zero);
    close(fd);
    e->blocks = blocks_in(p, first, first + count);
    e->exactly = true;
    snprintf(e->what, sizeof e->what, "%u slab pages from %u %s", count, first,
             zero ? "zeroed" : "randomised");
}

static void slab_swap(struct patient *p, struct effect *e)
{
    const struct place *a = any_place(p), *b = any_place(p);
    uint8_t one[SLAB_PAGE], other[SLAB_PAGE];
    bool both = dice(&p->dice, 2);
    off_t bytes;
    int fd = open_file(p, "slab", &bytes);

    must(pread(fd, one, sizeof one, (off_t)a->page * SLAB_PAGE) == SLAB_PAGE);
    must(pread(fd, other, sizeof other, (off_t)b->page * SLAB_PAGE) == SLAB_PAGE);
    must(pwrite(fd, one, sizeof one, (off_t)b->page * SLAB_PAGE) == SLAB_PAGE);
    if (both)
        must(pwrite(fd, other, sizeof other, (off_t)a->page * SLAB_PAGE) == SLAB_PAGE);
    close(fd);
    bool same = a->thing == b->thing && block_of(a) == block_of(b);
    e->blocks = a == b ? 0 : both && !same ? 2 : 1;
    e->exactly = true;
    snprintf(e->what, sizeof e->what, "slab pages %u and %u %s", a->page, b->page,
             both ? "swapped" : "equal: an older block came back");
}

static void slab_cut(struct patient *p, struct effect *e)
{
    off_t bytes;
    int fd = open_file(p, "slab", &bytes);
    off_t keep = (off_t)dice(&p->dice, (uint64_t)bytes);

    must(ftruncate(fd, keep) == 0);
    close(fd);
    e->blocks = blocks_in(p, (unsigned)(keep / SLAB_PAGE) + 1, UINT32_MAX);
    e->any = keep == 0;
    snprintf(e->what, sizeof e->what, "slab cut to %lld bytes", (long long)keep);
}

/* Where nothing stands nothing may happen. */
static void slab_unused(struct patient *p, struct effect *e)
{
    unsigned page = 0;
    off_t bytes;
    int fd = open_file(p, "slab", &bytes);

    do
        page = (unsigned)dice(&p->dice, p->map->pages);
    while (blocks_in(p, page, page + 1) > 0);
    fill(fd, (off_t)page * SLAB_PAGE, SLAB_PAGE, &p->dice, false);
    close(fd);
    e->exactly = true;
    snprintf(e->what, sizeof e->what, "unused slab page %u randomised", page);
}

static void slab_running(struct patient *p, struct effect *e)
{
    (void)p;
    e->running = true;
    e->any = true;
    snprintf(e->what, sizeof e->what, "slab damaged while the server runs");
}

/* ---- indexes ---- */
static void index_bits(struct patient *p, struct effect *e)
{
    off_t bytes;
    int fd = open_file(p, "index/data.mdb", &bytes);
    unsigned count = dice(&p->dice, 2) ? 1 : 16;
    off_t at = (off_t)dice(&p->dice, (uint64_t)bytes - count);

    for (unsigned i = 0; i < count; i++)
        flip(fd, at + i, (unsigned)dice(&p->dice, 8));
    close(fd);
    e->any = true;
    snprintf(e->what, sizeof e->what, "%u index bits at %lld", count, (long long)at);
}

static void index_meta(struct patient *p, struct effect *e)
{
    off_t bytes;
    int fd = open_file(p, "index/data.mdb", &bytes);
    off_t at = (off_t)(dice(&p->dice, 2) * INDEX_PAGE + dice(&p->dice, META_BYTES));

    flip(fd, at, (unsigned)dice(&p->dice, 8));
    close(fd);
    e->any = true;
    snprintf(e->what, sizeof e->what, "a bit of an index meta page at %lld", (long long)at);
}

static void index_page(struct patient *p, struct effect *e)
{
    off_t bytes;
    int fd = open_file(p, "index/data.mdb", &bytes);
    off_t page = (off_t)dice(&p->dice, (uint64_t)bytes / INDEX_PAGE);
    bool zero = dice(&p->dice, 2);

    fill(fd, page * INDEX_PAGE, INDEX_PAGE, &p->dice, zero);
    close(fd);
    e->any = true;
    snprintf(e->what, sizeof e->what, "index page %lld %s", (long long)page,
             zero ? "zeroed" : "randomised");
}

/* What only who writes there looks at: the kind of a page, its free space, how many pages
 * follow. */
static void index_head(struct patient *p, struct effect *e)
{
    uint8_t word[2];
    off_t bytes;
    int fd = open_file(p, "index/data.mdb", &bytes);
    off_t at = (off_t)dice(&p->dice, (uint64_t)bytes / INDEX_PAGE) * INDEX_PAGE + 10 +
               (off_t)dice(&p->dice, 3) * 2;

    for (unsigned i = 0; i < sizeof word; i++)
        word[i] = (uint8_t)dice(&p->dice, 256);
    must(pwrite(fd, word, sizeof word, at) == sizeof word);
    close(fd);
    e->any = true;
    snprintf(e->what, sizeof e->what, "the head of an index page at %lld", (long long)at);
}

static void index_cut(struct patient *p, struct effect *e)
{
    off_t bytes;
    int fd = open_file(p, "index/data.mdb", &bytes);
    off_t keep = (off_t)dice(&p->dice, (uint64_t)bytes);

    if (dice(&p->dice, 2))
        keep &= ~(off_t)(INDEX_PAGE - 1);
    must(ftruncate(fd, keep) == 0);
    close(fd);
    e->any = true;
    snprintf(e->what, sizeof e->what, "index cut to %lld of %lld bytes", (long long)keep,
             (long long)bytes);
}

/* A page takes another's place, or an older one its own: each of them is well-formed. */
static void index_stale(struct patient *p, struct effect *e)
{
    uint8_t page[INDEX_PAGE];
    off_t bytes;
    int fd = open_file(p, "index/data.mdb", &bytes);
    int older = open(p->older, O_RDONLY | O_CLOEXEC);
    unsigned pages = (unsigned)(bytes / INDEX_PAGE);
    off_t to = (off_t)dice(&p->dice, pages);
    bool from_older = dice(&p->dice, 2);
    off_t from = from_older ? to : (off_t)dice(&p->dice, pages);

    must(older >= 0);
    ssize_t got = pread(from_older ? older : fd, page, sizeof page, from * INDEX_PAGE);
    if (got == INDEX_PAGE)
        must(pwrite(fd, page, sizeof page, to * INDEX_PAGE) == INDEX_PAGE);
    close(older);
    close(fd);
    e->any = true;
    snprintf(e->what, sizeof e->what, "index page %lld replaced by %s %lld", (long long)to,
             from_older ? "its older self" : "page", (long long)from);
}

static void index_running(struct patient *p, struct effect *e)
{
    (void)p;
    e->running = true;
    e->any = true;
    snprintf(e->what, sizeof e->what, "index damaged while the server runs");
}

/* ---- the other files ---- */
static void header_bits(struct patient *p, struct effect *e)
{
    off_t bytes;
    int fd = open_file(p, "headpond.id", &bytes);

    if (dice(&p->dice, 3) == 0)
        must(ftruncate(fd, (off_t)dice(&p->dice, (uint64_t)bytes)) == 0);
    else
        flip(fd, (off_t)dice(&p->dice, (uint64_t)bytes), (unsigned)dice(&p->dice, 8));
    close(fd);
    e->any = true;
    snprintf(e->what, sizeof e->what, "headpond.id damaged");
}

static void header_gone(struct patient *p, struct effect *e)
{
    char path[PATH_BYTES * 2];

    snprintf(path, sizeof path, "%s/headpond.id", p->server.dir[0]);
    must(unlink(path) == 0);
    e->refused = true;
    snprintf(e->what, sizeof e->what, "headpond.id removed");
}

static void lock_garbage(struct patient *p, struct effect *e)
{
    static const char *const names[] = {"lock", "index/lock.mdb", "starts", "headpond.id.new"};
    const char *name = names[dice(&p->dice, ARRAY_COUNT(names))];
    char path[PATH_BYTES * 2];

    snprintf(path, sizeof path, "%s/%s", p->server.dir[0], name);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(fd >= 0);
    fill(fd, 0, 1 + dice(&p->dice, SLAB_PAGE), &p->dice, false);
    close(fd);
    e->any = true;
    snprintf(e->what, sizeof e->what, "garbage in %s", name);
}

/* ---- the choice ---- */
static void (*const kinds[])(struct patient *p, struct effect *e) = {
    slab_bit,    index_bits,  slab_pages, index_meta,   slab_swap,   index_page,
    slab_cut,    index_cut,   index_bits, slab_running, index_stale, header_bits,
    slab_unused, lock_garbage, index_head, index_page,   slab_pages,  index_running,
    index_meta,  header_gone};

unsigned damage_kinds(void)
{
    return ARRAY_COUNT(kinds);
}

void damage_do(struct patient *p, unsigned number, struct effect *out)
{
    *out = (struct effect){0};
    kinds[number % ARRAY_COUNT(kinds)](p, out);
}

void damage_running(struct patient *p, const struct effect *e)
{
    struct effect done = {0};
    static void (*const ways[])(struct patient *, struct effect *) = {index_page, index_cut,
                                                                      index_stale, index_bits};

    if (strstr(e->what, "slab")) {
        if (dice(&p->dice, 4) == 0)
            slab_cut(p, &done);
        else
            slab_pages(p, &done);
    } else {
        ways[dice(&p->dice, ARRAY_COUNT(ways))](p, &done);
    }
}
