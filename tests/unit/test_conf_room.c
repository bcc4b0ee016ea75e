/* What a check says of a cache.size that leaves too little on a disk: as the manual has it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cmocka.h>

#include "base.h"

/* Disks at /nvme0 (6 TiB) and /nvme1 (6200 MiB); all else is of one more. */
static unsigned disk_of(const char *path)
{
    return strncmp(path, "/nvme0", 6) == 0 ? 1 : strncmp(path, "/nvme1", 6) == 0 ? 2 : 0;
}

static int fake_stat(const char *path, struct stat *out)
{
    memset(out, 0, sizeof *out);
    out->st_dev = disk_of(path);
    return strstr(path, "absent") ? -1 : 0;
}

static int fake_statvfs(const char *path, struct statvfs *out)
{
    static const uint64_t mib[] = {100 * 1024, 6 * 1024 * 1024, 6200};

    memset(out, 0, sizeof *out);
    out->f_frsize = 4096;
    out->f_blocks = mib[disk_of(path)] * MIB / 4096;
    out->f_bavail = 1;               /* what is free now is not asked for */
    return 0;
}

#define stat(path_, out_) fake_stat(path_, out_)
#define statvfs(path_, out_) fake_statvfs(path_, out_)
#include "common/conf_room.c"
#undef stat
#undef statvfs

static struct conf_mistakes said;

static void load(const char *text, bool disks, enum err wants)
{
    struct config *c = NULL;

    said.disks = disks;
    assert_int_equal(conf_parse(span_of(text), "/etc/headpond/headpond.toml", NULL, NULL, 0, &c,
                                &said), wants);
    if (wants == OK)
        conf_give(c);
}

#define NEEDED "[upstream]\nendpoint = \"http://store\"\n"

static void the_sample_of_the_manual(void **state)
{
    static const char sample[] =
        NEEDED "\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n\n[cache]\n"
        "dirs         = [\"/nvme0/headpond\", \"/nvme1/headpond\"]\n"
        "size         = \"95 %\"\n\n\n\nverfiy = \"send\"\n";

    (void)state;
    load(sample, true, ERR_CONFIG);
    assert_int_equal(said.count, 2);
    assert_string_equal(said.item[0].text, "/etc/headpond/headpond.toml:31:1: unknown key "
                                           "\"verfiy\" in [cache]; did you mean \"verify\"?");
    assert_string_equal(said.item[1].text,
                        "/etc/headpond/headpond.toml:27:16: cache.size \"95 %\" leaves 310 MiB on "
                        "/nvme1, less than cache.min_free 2 GiB");
}

static void only_a_check_asks_and_only_of_what_was_written(void **state)
{
    (void)state;
    load(NEEDED "[cache]\ndirs = [\"/nvme1/x\"]\nsize = \"95%\"\n", false, OK);
    load(NEEDED "[cache]\ndirs = [\"/nvme1/x\"]\n", true, OK);
    load(NEEDED "[cache]\ndirs = [\"/nvme1/x\"]\nsize = \"60%\"\n", true, OK);
    load(NEEDED "[cache]\ndirs = [\"/nvme1/x\"]\nsize = \"95%\"\nmin_free = \"300MiB\"\n", true,
         OK);
    load(NEEDED "[cache]\ndirs = [\"/nvme1/absent/x\"]\nsize = \"5GiB\"\n", true, ERR_CONFIG);
    assert_non_null(strstr(said.item[0].text, "cache.size \"5GiB\" leaves 1080 MiB on /nvme1,"));
    load(NEEDED "[cache]\ndirs = [\"/nvme1/x\"]\nsize = \"1TiB\"\n", true, ERR_CONFIG);
    assert_non_null(strstr(said.item[0].text, "leaves 0 B on /nvme1, less than"));
    load(NEEDED "[cache]\ndirs = [\"/srv/x\"]\nsize = \"100%\"\nmin_free = \"1536MiB\"\n", true,
         ERR_CONFIG);
    assert_non_null(strstr(said.item[0].text, "on /, less than cache.min_free 1536 MiB"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sample_of_the_manual),
        cmocka_unit_test(only_a_check_asks_and_only_of_what_was_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
