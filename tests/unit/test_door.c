/* Sockets of the control plane, of server/admin/door.c. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/admin/door.c"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static char dir[64], path[128], why[WHY_BYTES];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/headpond-door-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/admin.sock", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(dir);
}

static void shut(struct door *d)
{
    close(d->fd);
    door_unlink(d);
}

static void a_socket_file_is_for_owner_and_group(void **state)
{
    struct door d = {.fd = -1};
    struct stat st;
    mode_t mask = umask(0077);       /* stricter than meant; the file must not stay so */

    (void)state;
    assert_int_equal(door_bind_unix(&d, span_of(path), why), OK);
    umask(mask);
    assert_int_equal(stat(path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 07777, 0660);
    shut(&d);
    assert_int_equal(access(path, F_OK), -1);
}

static void a_stale_socket_file_is_replaced(void **state)
{
    struct door dead = {.fd = -1}, d = {.fd = -1};
    char kept[140];

    (void)state;
    assert_int_equal(door_bind_unix(&dead, span_of(path), why), OK);
    close(dead.fd);                  /* the server was killed: its file stays */
    snprintf(kept, sizeof kept, "%s.old", path);
    assert_int_equal(link(path, kept), 0); /* so that the new file cannot get its inode */
    assert_int_equal(door_bind_unix(&d, span_of(path), why), OK);
    door_unlink(&dead);              /* not its file any more */
    assert_int_equal(access(path, F_OK), 0);
    unlink(kept);
    shut(&d);
}

/* File systems give an inode's number again at once; the time of its change tells them apart. */
static void a_file_with_the_inode_of_an_older_one_is_not_taken_for_it(void **state)
{
    struct door dead, d = {.fd = -1};

    (void)state;
    assert_int_equal(door_bind_unix(&d, span_of(path), why), OK);
    dead = d;
    dead.file.changed_ns--;
    door_unlink(&dead);
    assert_int_equal(access(path, F_OK), 0);
    shut(&d);
    assert_int_equal(access(path, F_OK), -1);
}

static void a_living_server_keeps_its_socket(void **state)
{
    struct door first = {.fd = -1}, second = {.fd = -1};

    (void)state;
    assert_int_equal(door_bind_unix(&first, span_of(path), why), OK);
    assert_int_equal(door_bind_unix(&second, span_of(path), why), ERR_LOCKED);
    assert_non_null(strstr(why, path));
    assert_int_equal(access(path, F_OK), 0);
    shut(&first);
}

static void other_files_are_left_alone(void **state)
{
    struct door d = {.fd = -1};
    int fd = open(path, O_CREAT | O_WRONLY, 0600);

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(door_bind_unix(&d, span_of(path), why), ERR_SYSTEM);
    assert_non_null(strstr(why, "no socket"));
    assert_int_equal(access(path, F_OK), 0);
    unlink(path);
}

static void paths_that_cannot_be_are_told(void **state)
{
    struct door d = {.fd = -1};
    char deep[200];

    (void)state;
    memset(deep, 'x', sizeof deep - 1);
    deep[0] = '/';
    deep[sizeof deep - 1] = '\0';
    assert_int_equal(door_bind_unix(&d, span_of(deep), why), ERR_TOO_LARGE);
    assert_int_equal(door_bind_unix(&d, span_of("/nonexistent/admin.sock"), why), ERR_SYSTEM);
    assert_non_null(strstr(why, "No such file"));
    assert_int_equal(d.fd, -1);
}

static void a_port_in_use_is_told_with_the_address(void **state)
{
    struct door first = {.fd = -1}, second = {.fd = -1};
    struct conf_listen at = {.addr = {127, 0, 0, 1}};
    struct sockaddr_in bound;
    socklen_t len = sizeof bound;

    (void)state;
    assert_int_equal(door_bind_tcp(&first, &at, "127.0.0.1:0", why), OK);
    assert_int_equal(getsockname(first.fd, (struct sockaddr *)&bound, &len), 0);
    at.port = ntohs(bound.sin_port);
    assert_int_equal(door_bind_tcp(&second, &at, "127.0.0.1:N", why), ERR_SYSTEM);
    assert_non_null(strstr(why, "127.0.0.1:N: Address already in use"));
    assert_int_equal(second.fd, -1);
    shut(&first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_socket_file_is_for_owner_and_group),
        cmocka_unit_test(a_stale_socket_file_is_replaced),
        cmocka_unit_test(a_file_with_the_inode_of_an_older_one_is_not_taken_for_it),
        cmocka_unit_test(a_living_server_keeps_its_socket),
        cmocka_unit_test(other_files_are_left_alone),
        cmocka_unit_test(paths_that_cannot_be_are_told),
        cmocka_unit_test(a_port_in_use_is_told_with_the_address),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
