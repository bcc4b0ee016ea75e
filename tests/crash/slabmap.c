/* Which 4 KiB pages of a slab hold which bytes of which object: found by looking for the objects'
 * bytes, so nothing of the server's formats is known here.
 *
 * Invariants:
 *  1. A page is mapped only if all its bytes that belong to the object are right, and only if no
 *     other page holds the same: then damaging it is damaging what the server will read.
 *
 * Life: slabmap_make() over a file that nobody writes, slabmap_free(). Failure: NULL. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/crash/damage.h"

enum { WORD = 8 };

struct known {
    uint64_t word;                   /* the first eight bytes of a page of an object */
    unsigned thing;
    uint64_t offset;
};

static int by_word(const void *a, const void *b)
{
    const struct known *x = a, *y = b;

    return (x->word > y->word) - (x->word < y->word);
}

static struct known *list_known(const struct thing *t, unsigned things, const char *bucket,
                                size_t *count)
{
    size_t n = 0;

    for (unsigned i = 0; i < things; i++)
        n += (size_t)(t[i].size / SLAB_PAGE + 1);
    struct known *k = mem_take(n * sizeof *k);
    *count = 0;
    for (unsigned i = 0; k && i < things; i++) {
        uint64_t seed = bytes_seed(span_of(bucket), span_of(t[i].key), t[i].version);
        for (uint64_t at = 0; at + WORD <= t[i].size; at += SLAB_PAGE)
            k[(*count)++] = (struct known){bytes_word(seed, at / WORD), i, at};
    }
    if (k)
        qsort(k, *count, sizeof *k, by_word);
    return k;
}

static bool page_matches(const struct slabmap *m, const struct known *k, const uint8_t *page,
                         uint32_t *len)
{
    const struct thing *t = &m->thing[k->thing];
    uint64_t seed = bytes_seed(span_of(m->bucket), span_of(t->key), t->version);

    *len = (uint32_t)min_u64(SLAB_PAGE, t->size - k->offset);
    return bytes_check(seed, k->offset, page, *len) == *len;
}

/* Places of equal content are of no use: only one of them is the server's. */
static void drop_doubles(struct slabmap *m, const struct known *known, size_t count)
{
    uint16_t *seen = mem_take(count * sizeof *seen);
    unsigned kept = 0;

    must(seen);
    for (unsigned i = 0; i < m->count; i++)
        seen[m->place[i].known]++;
    for (unsigned i = 0; i < m->count; i++)
        if (seen[m->place[i].known] == 1)
            m->place[kept++] = m->place[i];
    m->count = kept;
    mem_give(seen);
    (void)known;
}

struct slabmap *slabmap_make(const char *slab, const struct thing *t, unsigned things,
                             const char *bucket)
{
    uint8_t page[SLAB_PAGE];
    struct slabmap *m = mem_take(sizeof *m);
    int fd = open(slab, O_RDONLY | O_CLOEXEC);
    size_t count;
    struct known *known = list_known(t, things, bucket, &count), wanted;
    struct stat st;

    must(m && known && fd >= 0 && fstat(fd, &st) == 0);
    m->thing = t;
    m->bucket = bucket;
    m->pages = (unsigned)(st.st_size / SLAB_PAGE);
    m->place = mem_take(m->pages * sizeof *m->place);
    must(m->place);
    for (unsigned n = 0; n < m->pages; n++) {
        if (pread(fd, page, sizeof page, (off_t)n * SLAB_PAGE) != SLAB_PAGE)
            break;
        memcpy(&wanted.word, page, WORD);
        struct known *k = bsearch(&wanted, known, count, sizeof *known, by_word);
        uint32_t len;
        if (k && page_matches(m, k, page, &len))
            m->place[m->count++] = (struct place){n, k->thing, (unsigned)(k - known), len,
                                                  k->offset};
    }
    close(fd);
    drop_doubles(m, known, count);
    mem_give(known);
    return m;
}

const struct place *slabmap_at(const struct slabmap *m, unsigned page)
{
    for (unsigned i = 0; i < m->count; i++)
        if (m->place[i].page == page)
            return &m->place[i];
    return NULL;
}

void slabmap_free(struct slabmap *m)
{
    mem_give(m->place);
    mem_give(m);
}
