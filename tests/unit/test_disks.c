/* What the command line says of disks.
 *
 * Life: pure functions only. Failure: an assertion names the line. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/disks.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* The parts of the program that are not linked here. */
json_t *client_json(const struct ctl *c, const char *path, struct reply *out, int *code)
{
    (void)c;
    (void)path;
    (void)out;
    *code = CTL_UNREACHABLE;
    return NULL;
}

json_t *client_change(const struct ctl *c, const struct request *ask, struct reply *out, int *code)
{
    assert_string_equal(ask->method, "POST");
    assert_string_equal(ask->path, "/v1/disks/fence?dir=/a%20b%26c");
    return client_json(c, ask->path, out, code);
}

void reply_free(struct reply *r)
{
    (void)r;
}

const char *ctl_paint(const struct ctl *c, const char *code)
{
    (void)c;
    (void)code;
    return "";
}

void ctl_print_json(const json_t *value)
{
    (void)value;
}

const char *value_text(const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "";
}

uint64_t value_u64(const json_t *object, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(object, name));
}

static void a_disk_tells_what_is_wrong_with_it(void **state)
{
    char memory[KIB];
    struct ctl c = {0};
    struct text t;
    json_t *up = json_pack("{s:s,s:s,s:I,s:I,s:I}", "dir", "/nvme0/headpond", "state", "up", "used",
                           (json_int_t)GIB, "capacity", (json_int_t)(4 * GIB), "slow",
                           (json_int_t)2);
    json_t *out = json_pack("{s:s,s:s,s:s,s:s,s:I,s:I,s:I}", "dir", "/n\x1b[31m", "state", "fenced",
                            "why", "it does not answer", "fix", "wait", "since_s", (json_int_t)75,
                            "stuck_ops", (json_int_t)3, "quarantined", (json_int_t)(3 * MIB));

    (void)state;
    text_init(&t, memory, sizeof memory);
    disk_text(&c, up, &t);
    assert_string_equal(memory,
                        "/nvme0/headpond                   up  1.00 of 4.00 GiB  0 errors, 2 "
                        "slow");
    text_init(&t, memory, sizeof memory);
    disk_text(&c, out, &t);
    assert_null(strchr(memory, '\x1b'));
    assert_non_null(strstr(memory, "  fenced for 1m 15s  "));
    assert_non_null(strstr(memory, "\n    it does not answer; wait"));
    assert_non_null(strstr(memory, "\n    3 operations hang and keep 3.00 MiB of memory"));
    json_decref(up);
    json_decref(out);
}

static void a_directory_is_named_as_it_is(void **state)
{
    struct ctl c = {.word = {"/a b&c"}, .word_count = 1};

    (void)state;
    assert_int_equal(disk_fence_run(&c), CTL_UNREACHABLE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_disk_tells_what_is_wrong_with_it),
        cmocka_unit_test(a_directory_is_named_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
