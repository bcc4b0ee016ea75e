/* trial */
/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include "mem.h"
#include "tests/sim/sim.h"
#include <time.h>

int __real_clock_gettime(clockid_t clock, struct timespec *out);
static double real(void)
{
    struct timespec t;
    __real_clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static struct asker a;
static struct reply r;

static void trial(int i)
{
    char key[64];
    snprintf(key, sizeof key, "t%d@%s", i, i % 2 ? "300" : "2M");
    asker_open(&a);
    asker_send(&a, "GET /b/%s HTTP/1.1\r\nHost: x\r\n\r\n", key);
    asker_read(&a, "b", key, false, &r);
    asker_close(&a);
    if (i < 4)
    printf("%d: %d complete=%d got=%lu wrong=%s %s at %lu us\n", i, r.status, r.complete, r.got, r.wrong, r.x_cache, world.now_us);
    char m[1000];
    struct text t;
    text_init(&t, m, sizeof m);
    bool s = life_settle(60000);
    life_accounts(&t);
    if (!s || t.len) printf("settled %d: %s\n", s, t.at);
}

int main(int argc, char **argv)
{
    sim_start(argc > 1 ? strtoull(argv[1], NULL, 10) : 1);
    setenv("AWS_ACCESS_KEY_ID", "AKIASIM", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "simsimsim", 1);
    store_start();
    struct life l = {0};
    double t0 = real();
    life_begin(&l);
    printf("birth %f\n", real() - t0);
    t0 = real();
    for (int i = 0; i < 200; i++)
        trial(i);
    printf("200 in %f, steps %lu\n", real() - t0, world.steps);
    life_end();
    life_remove_files();
    store_stop();
    return 0;
}
