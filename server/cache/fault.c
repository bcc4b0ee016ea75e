/* Work on a mapped file that may be damaged: what would kill the process ends the work instead.
 *
 * A page of the index that cannot be read is a SIGBUS, a page number gone wild a SIGSEGV, a broken
 * invariant of LMDB's an abort. None of them may cost more than the index.
 *
 * Invariants:
 *  1. Only a fault in a thread that is between fault_begin() and fault_end() is taken; all others
 *     go to whoever was responsible before, hence they kill.
 *  2. Whoever comes back by a fault never touches the library's handle again: its locks and its
 *     memory are left as they are.
 *
 * Life: fault_setup() before the first thread; the handlers stay.
 * Failure: none; without handlers a fault kills, and the next starts count it. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <signal.h>

#include "server/cache/inside.h"

static _Thread_local struct fault *current;
static struct sigaction before_segv, before_bus;

static void on_fault(int number)
{
    struct fault *f = current;

    if (f) {
        current = NULL;
        siglongjmp(f->back, 1);
    }
    /* The instruction runs again and meets who was there before us. */
    sigaction(number, number == SIGBUS ? &before_bus : &before_segv, NULL);
}

void fault_setup(void)
{
    struct sigaction take = {.sa_handler = on_fault}, now;

    sigemptyset(&take.sa_mask);
    if (sigaction(SIGSEGV, NULL, &now) == 0 && now.sa_handler != on_fault)
        sigaction(SIGSEGV, &take, &before_segv);
    if (sigaction(SIGBUS, NULL, &now) == 0 && now.sa_handler != on_fault)
        sigaction(SIGBUS, &take, &before_bus);
}

void fault_begin(struct fault *f)
{
    must(!current);
    current = f;
}

void fault_end(void)
{
    current = NULL;
}

int fault_run(int (*work)(void *arg), void *arg, int faulted)
{
    volatile int result = faulted;
    struct fault fault;

    fault_begin(&fault);
    if (sigsetjmp(fault.back, 1) == 0)
        result = work(arg);
    fault_end();
    return result;
}

_Noreturn void fault_raise(void)
{
    struct fault *f = current;

    must(f != NULL);
    current = NULL;
    siglongjmp(f->back, 1);
}
