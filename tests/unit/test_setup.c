/* Libraries that start while memory is short: whichever allocation is refused, once or from then
 * on, the start says so or what it made can be used. A process for each, as libraries start
 * once. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "sign.h"
#include "xml.h"

#include <libxml/xmlmemory.h>
#include <openssl/crypto.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { EACH = 250, STEP = 29 };      /* OpenSSL's start has thousands of allocations, much alike */
enum outcome { STARTED, REFUSED, UNUSABLE, NOT_REACHED = 16 };

static struct {
    unsigned at, count;              /* which one is refused; 0: none */
    bool lasting;                    /* and all behind it */
    bool over;                       /* none any more */
} plan;

static bool refused(void)
{
    if (plan.over)
        return false;
    plan.count++;
    return plan.at > 0 && (plan.lasting ? plan.count >= plan.at : plan.count == plan.at);
}

static void *take(size_t bytes)
{
    return refused() ? NULL : malloc(bytes);
}

static void *grow(void *old, size_t bytes)
{
    return bytes > 0 && refused() ? NULL : realloc(old, bytes);
}

static char *copy(const char *text)
{
    return refused() ? NULL : strdup(text);
}

static void *crypto_take(size_t bytes, const char *file, int line)
{
    (void)file, (void)line;
    return bytes > 0 ? take(bytes) : NULL;
}

static void *crypto_grow(void *old, size_t bytes, const char *file, int line)
{
    (void)file, (void)line;
    return grow(old, bytes);
}

static void crypto_give(void *at, const char *file, int line)
{
    (void)file, (void)line;
    free(at);
}

/* Uses what has started: first while memory is refused as planned, when it may say no, then with
 * all memory, when it must work. */
static enum outcome use_twice(enum outcome (*use)(void))
{
    if (use() == UNUSABLE)
        return UNUSABLE;
    plan.over = true;
    return use();
}

static void *use_on_thread(void *use)
{
    enum outcome (*const *way)(void) = use;
    return (void *)(intptr_t)use_twice(*way);
}

static enum outcome use_elsewhere(enum outcome (*use)(void))
{
    void *result;
    pthread_t thread;
    if (pthread_create(&thread, NULL, use_on_thread, &use) != 0 ||
        pthread_join(thread, &result) != 0)
        return UNUSABLE;
    return (intptr_t)result == STARTED ? STARTED : UNUSABLE;
}

/* ---- OpenSSL ---- */
static enum outcome sum_nothing(void)
{
    static const uint8_t expected[MD5_BYTES] = {0xd4, 0x1d, 0x8c, 0xd9, 0x8f, 0x00, 0xb2, 0x04,
                                                0xe9, 0x80, 0x09, 0x98, 0xec, 0xf8, 0x42, 0x7e};
    uint8_t sum[MD5_BYTES];
    if (sign_setup_thread() != OK)
        return REFUSED;
    md5(span_of(""), sum);
    sign_end_thread();
    return memcmp(sum, expected, sizeof(sum)) == 0 ? STARTED : UNUSABLE;
}

static enum outcome start_openssl(void)
{
    if (CRYPTO_set_mem_functions(crypto_take, crypto_grow, crypto_give) != 1)
        return UNUSABLE;
    return sign_setup() == OK ? use_elsewhere(sum_nothing) : REFUSED;
}

/* ---- libxml2 ---- */
static bool see_leaf(void *user, struct span path, struct span text)
{
    bool *seen = user;
    *seen = span_is(path, "a") && span_is(text, "b");
    return true;
}

static enum outcome read_something(void)
{
    bool seen = false;
    struct xml_reader *r = xml_setup_thread() == OK ? xml_open(KIB, see_leaf, &seen) : NULL;
    enum err e = r ? xml_feed(r, span_of("<a>b</a>")) : ERR_MEMORY;
    if (e == OK)
        e = xml_end(r);
    xml_close(r);
    if (e == ERR_MEMORY)
        return REFUSED;
    return e == OK && seen ? STARTED : UNUSABLE;
}

static enum outcome start_libxml(void)
{
    if (xmlMemSetup(free, take, grow, copy) != 0)
        return UNUSABLE;
    return xml_setup() == OK ? use_elsewhere(read_something) : REFUSED;
}

/* ---- the rows ---- */
static int outcome_with(enum outcome (*start)(void), unsigned at, bool lasting)
{
    int status = -1;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);    /* cmocka's handlers would go on with the tests */
        signal(SIGABRT, SIG_DFL);
        plan.at = at;
        plan.lasting = lasting;
        enum outcome o = start();
        _exit(plan.count < at ? (int)o | NOT_REACHED : (int)o);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void refuse_each(enum outcome (*start)(void), bool lasting)
{
    unsigned refusals = 0;
    for (unsigned at = 1;; at += at < EACH ? 1 : STEP) {
        int status = outcome_with(start, at, lasting);
        if (!WIFEXITED(status) || (WEXITSTATUS(status) & ~NOT_REACHED) == UNUSABLE)
            fail_msg("allocation %u%s: status %#x", at, lasting ? " and on" : "",
                     (unsigned)status);
        if (WEXITSTATUS(status) & NOT_REACHED) {
            assert_int_equal(WEXITSTATUS(status), STARTED | NOT_REACHED);
            break;
        }
        refusals += WEXITSTATUS(status) == REFUSED;
    }
    assert_true(refusals > 0);
}

static void openssl_short_of_memory_says_so(void **state)
{
    (void)state;
    refuse_each(start_openssl, false);
    refuse_each(start_openssl, true);
}

static void libxml_short_of_memory_says_so(void **state)
{
    (void)state;
    refuse_each(start_libxml, false);
    refuse_each(start_libxml, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(openssl_short_of_memory_says_so),
        cmocka_unit_test(libxml_short_of_memory_says_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
