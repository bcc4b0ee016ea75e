/* What goes wrong: refused allocations and replaced completions, the n-th one after arming.
 *
 * Invariants:
 *  1. Only the server's own threads are refused memory, and not while they run code of the
 *     simulation. What libraries allocate for them is theirs: malloc is defined here for the whole
 *     process.
 *  2. A replaced completion is one of the kernel's possible answers; where an outcome is none (an
 *     open that gives descriptor 0), another error takes its place.
 *
 * Life: armed before a scenario, disarmed behind it. Failure: that is the point. */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdlib.h>

#include "server/loop/loop.h"
#include "tests/sim/sim.h"

/* AddressSanitizer's own; the names without prefix are ours below. */
void *__interceptor_malloc(size_t bytes);
void *__interceptor_calloc(size_t count, size_t bytes);
void *__interceptor_realloc(void *old, size_t bytes);
int __interceptor_posix_memalign(void **out, size_t align, size_t bytes);
void *__interceptor_aligned_alloc(size_t align, size_t bytes);

static struct {
    struct inject plan;
    bool armed, fired;
    uint64_t allocs, ops;
    unsigned op_rate, alloc_rate;
    unsigned dead;                   /* kind of operation on files that fails from now on */
} state;

void inject_arm(const struct inject *plan)
{
    state.plan = *plan;
    state.fired = false;
    state.allocs = state.ops = state.dead = 0;
    state.armed = true;
}

void inject_disarm(void)
{
    state.armed = false;
}

bool inject_fired(void)
{
    return state.fired;
}

void inject_rates(unsigned ops, unsigned allocs)
{
    state.op_rate = ops;
    state.alloc_rate = allocs;
}

uint64_t inject_allocs(void)
{
    return state.allocs;
}

uint64_t inject_ops(void)
{
    return state.ops;
}

/* ---- memory ---- */

static bool refused(void)
{
    const struct fiber *f;

    if (!state.armed || !world.active || !(f = sim_self()) || !f->server || f->inside > 0)
        return false;
    state.allocs++;
    bool now = (state.plan.kind == INJECT_ALLOC && state.allocs == state.plan.at) ||
               (state.plan.kind == INJECT_ALLOCS && state.allocs >= state.plan.at) ||
               (state.alloc_rate > 0 && sim_below(1000) < state.alloc_rate);
    state.fired |= now;
    return now;
}

void *malloc(size_t bytes)
{
    return refused() ? NULL : __interceptor_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return refused() ? NULL : __interceptor_calloc(count, bytes);
}

void *realloc(void *old, size_t bytes)
{
    return bytes > 0 && refused() ? NULL : __interceptor_realloc(old, bytes);
}

int posix_memalign(void **out, size_t align, size_t bytes)
{
    return refused() ? ENOMEM : __interceptor_posix_memalign(out, align, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    return refused() ? NULL : __interceptor_aligned_alloc(align, bytes);
}

/* ---- operations ---- */

static const struct {
    const char *name;
    int32_t res;
} outcomes[INJECT_OUTCOMES] = {
    {"EIO", -EIO}, {"ENOSPC", -ENOSPC}, {"EAGAIN", -EAGAIN}, {"EINTR", -EINTR},
    {"ECANCELED", -ECANCELED}, {"ENOBUFS", -ENOBUFS}, {"0", 0}, {"short", 1},
};

const char *inject_outcome_name(unsigned outcome)
{
    return outcomes[outcome].name;
}

static bool transfers(unsigned kind)
{
    switch ((enum op_kind)kind) {
    case OPK_READ:
    case OPK_WRITE:
    case OPK_RECV:
    case OPK_RECV_POOL:
    case OPK_SEND:
    case OPK_SENDMSG:
    case OPK_SEND_PAGES: return true;
    default: return false;
    }
}

static bool is_file_op(const struct op *op)
{
    return (op->kind == OPK_READ || op->kind == OPK_WRITE || op->kind == OPK_OPENAT2 ||
            op->kind == OPK_STATX) && !sim_is_fd(op->fd);
}

/* Is it this one's turn? */
static bool is_due(const struct op *op, unsigned *outcome)
{
    state.ops++;
    *outcome = state.plan.outcome;
    if (state.op_rate > 0 && sim_below(1000) < state.op_rate) {
        *outcome = (unsigned)sim_below(INJECT_OUTCOMES);
        return true;
    }
    if (state.plan.kind == INJECT_DISK && state.ops == state.plan.at && is_file_op(op))
        state.dead = op->kind;
    return (state.plan.kind == INJECT_OP && state.ops == state.plan.at) ||
           (state.dead == op->kind && is_file_op(op));
}

bool inject_op(const struct op *op, uint32_t len, int32_t *res, uint32_t *part)
{
    unsigned outcome;

    if (!state.armed || !is_due(op, &outcome))
        return false;
    state.fired = true;
    *res = outcomes[outcome].res;
    *part = 0;
    if (*res >= 0 && !transfers(op->kind))
        *res = -EIO;                 /* a descriptor 0, a connection without a connection: no */
    if (*res == 1) {
        *part = (uint32_t)max_u64(1, len / 2);
        *res = (int32_t)*part;
    }
    return true;
}
