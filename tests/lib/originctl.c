/* The test origin as a program: a scripted S3 upstream on a port, for benches and for trying things
 * by hand.
 *
 *   origin [-p PORT] [-c CONTROL_PORT] [-a ADDRESS] [-l] [SCRIPT]...
 *
 * Prints "port=N control=N" when it listens. SCRIPT files (- = standard input, line by line while
 * it runs) hold the
 * statements of origin.h; the control port takes the same lines. -l keeps the list of requests.
 * SIGTERM or SIGINT ends it.
 *
 * Invariants:
 *  1. What was printed can be connected to.
 *
 * Life: until a signal. Failure: exit 1 with a sentence on standard error. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/lib/origin.h"

enum { SCRIPT_BYTES_MAX = 16 * MIB, ANSWER_MAX = 1 * MIB };

static bool run_text(struct origin *o, struct span text, const char *where)
{
    struct text answer;
    char *room = mem_take(ANSWER_MAX);

    must(room);
    text_init(&answer, room, ANSWER_MAX);
    bool good = origin_script(o, text, &answer);
    if (!good)
        fprintf(stderr, "origin: %s: %s\n", where, answer.at);
    else if (answer.len > 0)
        fwrite(answer.at, 1, answer.len, stdout);
    fflush(stdout);
    mem_give(room);
    return good;
}

static bool run_file(struct origin *o, const char *path)
{
    FILE *f = fopen(path, "re");
    char *text = mem_take(SCRIPT_BYTES_MAX);

    must(text);
    if (!f) {
        perror(path);
        mem_give(text);
        return false;
    }
    size_t len = fread(text, 1, SCRIPT_BYTES_MAX, f);
    bool good = run_text(o, span_make(text, len), path);
    fclose(f);
    mem_give(text);
    return good;
}

/* Standard input, a line at a time; a mistake is told and the next line read. */
static void *run_stdin(void *argument)
{
    char line[16 * KIB];

    while (fgets(line, sizeof line, stdin))
        (void)run_text(argument, span_of(line), "standard input");
    return NULL;
}

static uint16_t read_port(const char *text)
{
    uint64_t n;

    if (size_read(span_of(text), &n) != OK || n > 65535) {
        fprintf(stderr, "origin: not a port: %s\n", text);
        exit(1);
    }
    return (uint16_t)n;
}

static void read_options(int argc, char **argv, struct origin_options *out)
{
    int c;

    *out = (struct origin_options){.control = true, .quiet = true};
    while ((c = getopt(argc, argv, "p:c:a:l")) != -1) {
        if (c == 'p')
            out->port = read_port(optarg);
        else if (c == 'c')
            out->control_port = read_port(optarg);
        else if (c == 'a')
            out->address = optarg;
        else if (c == 'l')
            out->quiet = false;
        else
            exit(1);
    }
}

static void raise_descriptors(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

int main(int argc, char **argv)
{
    struct origin_options options;
    char why[200];
    sigset_t ends;
    pthread_t reader;
    bool good = true;
    int got;

    read_options(argc, argv, &options);
    raise_descriptors();
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    struct origin *o = origin_start(&options, why);
    if (!o) {
        fprintf(stderr, "origin: %s\n", why);
        return 1;
    }
    for (int i = optind; good && i < argc; i++) {
        if (strcmp(argv[i], "-") == 0)
            good = pthread_create(&reader, NULL, run_stdin, o) == 0;
        else
            good = run_file(o, argv[i]);
    }
    printf("port=%u control=%u\n", origin_port(o), origin_control_port(o));
    fflush(stdout);
    if (good)
        sigwait(&ends, &got);
    /* The reader may stand in fgets(): the process ends, its threads need not be joined. */
    if (good && (optind == argc || strcmp(argv[argc - 1], "-") != 0))
        origin_stop(o);
    return good ? 0 : 1;
}
