/* Whether a cache of the size that somebody wrote leaves on each disk what must stay free there.
 *
 * Invariants:
 *  1. It is asked of a check only: a start takes what there is, if the size is in percent, and says
 *     by itself that a size in bytes does not fit.
 *  2. The default is nobody's mistake.
 *
 * Life: works on a loader and owns nothing. Failure: a disk that does not answer is not judged. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "conf_load.h"

#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum { WHOLE_LEAST = 100 };

/* "310 MiB": the largest unit in which it is whole, or has three digits. */
static void add_size(struct text *t, uint64_t bytes)
{
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    unsigned at = 0, best = 0;

    for (uint64_t of = 1; at < ARRAY_COUNT(unit) && bytes >= of; at++, of *= 1024)
        if (bytes % of == 0 || bytes / of >= WHOLE_LEAST)
            best = at;
    text_addf(t, "%llu %s", (unsigned long long)(bytes >> 10 * best), unit[best]);
}

/* Cuts the last part of a path; false: there is none. */
static bool go_up(char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash || path[1] == '\0')
        return false;
    slash[slash == path] = '\0';
    return true;
}

/* Where the file system is mounted that dir is on, or will be made on. */
static bool find_mount(const char *dir, char path[PATH_MAX])
{
    struct stat here, above;
    char up[PATH_MAX];

    snprintf(path, PATH_MAX, "%s", dir);
    while (stat(path, &here) != 0)
        if (!go_up(path))
            return false;
    memcpy(up, path, PATH_MAX);
    while (go_up(up) && stat(up, &above) == 0 && above.st_dev == here.st_dev)
        memcpy(path, up, PATH_MAX);
    return true;
}

static void judge(struct conf_loader *l, const char *dir)
{
    const struct config *c = l->config;
    char mount[PATH_MAX], memory[KIB];
    struct statvfs fs;
    struct text t;

    if (dir[0] != '/' || !find_mount(dir, mount) || statvfs(mount, &fs) != 0)
        return;
    double total = (double)fs.f_blocks * (double)fs.f_frsize;
    double wanted = c->cache_size.bytes > 0 ? (double)c->cache_size.bytes
                                            : total * c->cache_size.percent / 100;
    uint64_t left = total > wanted ? (uint64_t)(total - wanted) : 0;
    if (left >= c->cache_min_free)
        return;
    text_init(&t, memory, sizeof memory);
    text_adds(&t, "leaves ");
    add_size(&t, left);
    text_adds(&t, " on ");
    text_add_printable(&t, span_of(mount), 200);
    text_adds(&t, ", less than cache.min_free ");
    add_size(&t, c->cache_min_free);
    conf_mistake_value(l, l->size_at, &conf_options[CONF_AT_cache_size], span_of(l->size_text),
                       memory);
}

void conf_room_finish(struct conf_loader *l)
{
    const struct conf_list *dirs = &l->config->cache_dirs;

    for (unsigned i = 0; l->size_at.source && i < dirs->count; i++)
        judge(l, dirs->item[i]);
}
