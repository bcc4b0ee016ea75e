/* The kernel as the server will find it: version, io_uring, limits, congestion control.
 *
 * Invariants:
 *  1. io_uring is asked with the flags that the server uses; what it answers here, as this user in
 * this container, it answers there.
 *  2. Limits are those of the running server where its process can be seen, else this shell's, and
 * it says which.
 *
 * Life: nothing outlives a check. Failure: what cannot be read is "-". */
/* SPDX-License-Identifier: Apache-2.0 */
#include "server/ctl/ctl.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "conf.h"
#include "units.h"

enum {
    PROBE_ENTRIES = 8,
    PROBE_BUFFERS = 8,               /* a power of two */
    PROBE_BYTES = 4 * KIB,           /* of their ring: a page */
    DESCRIPTORS_ASIDE = 256,         /* beside connections: listeners, disks, upstream */
};

/* ---- io_uring ---- */

static const char *fix_of(int error)
{
    switch (error) {
    case EPERM: return "In Docker add --security-opt seccomp=/usr/share/headpond/seccomp.json; in "
                       "Kubernetes use a Localhost seccomp profile with "
                       "io_uring_setup, io_uring_enter and io_uring_register; "
                       "elsewhere sysctl kernel.io_uring_disabled=0";
    case ENOSYS: return "This kernel has no io_uring, or a sandbox (gVisor) hides it: Linux 6.1 or "
                        "newer is needed";
    case ENOMEM: return "Raise LimitMEMLOCK (ulimit -l) or the memory limit of the container";
    case EINVAL: return "This kernel lacks SINGLE_ISSUER or DEFER_TASKRUN: Linux 6.1 or newer is "
                        "needed";
    default: return "See the error";
    }
}

/* Rings of provided buffers (Linux 5.19). */
static int probe_buffer_ring(int ring)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *memory = mmap(NULL, PROBE_BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED)
        return errno;
    struct io_uring_buf_reg reg = {
        .ring_addr = (uint64_t)(uintptr_t)memory,
        .ring_entries = PROBE_BUFFERS,
        .bgid = 1,
    };
    long done = syscall(SYS_io_uring_register, ring, IORING_REGISTER_PBUF_RING, &reg, 1);
    int error = done < 0 ? errno : 0;
    munmap(memory, PROBE_BYTES);
    return error;
}

void kernel_check(struct doctor *d)
{
    struct io_uring_params params = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE |
                 IORING_SETUP_CLAMP,
        .cq_entries = 8 * PROBE_ENTRIES,
    };
    struct utsname name;

    uname(&name);
    int ring = (int)syscall(SYS_io_uring_setup, PROBE_ENTRIES, &params);
    if (ring < 0) {
        int error = errno;
        doctor_say(d, GRADE_FAIL, "io_uring", "kernel %s, io_uring_setup: %s. %s", name.release,
                   strerrordesc_np(error), fix_of(error));
        return;
    }
    int error = probe_buffer_ring(ring);
    close(ring);
    if (error)
        doctor_say(d, GRADE_FAIL, "io_uring", "kernel %s, io_uring without buffer rings: %s. %s",
                   name.release, strerrordesc_np(error),
                   fix_of(error));
    else
        doctor_say(d, GRADE_OK, "io_uring", "kernel %s, io_uring with SINGLE_ISSUER, "
                                            "DEFER_TASKRUN, buffer rings, multishot", name.release);
}

/* ---- limits ---- */

struct limits {
    uint64_t memlock_bytes, descriptors; /* UINT64_MAX: unlimited */
    bool servers;
};

/* A line of /proc/PID/limits: name, soft limit, hard limit, unit. */
static bool read_limit(const char *line, const char *name, uint64_t *out)
{
    struct span rest = span_of(line);

    if (!span_starts(rest, span_of(name)))
        return false;
    rest = span_trim(span_from(rest, strlen(name)));
    struct span soft = span_cut(&rest, ' ');
    if (!span_is(soft, "unlimited"))
        return span_u64(soft, out) == OK;
    *out = UINT64_MAX;
    return true;
}

static bool read_server_limits(int pid, struct limits *out)
{
    char path[64], line[256];
    unsigned found = 0;

    snprintf(path, sizeof path, "/proc/%d/limits", pid);
    FILE *f = pid > 0 ? fopen(path, "re") : NULL;
    if (!f)
        return false;
    while (fgets(line, sizeof line, f)) {
        found += read_limit(line, "Max locked memory ", &out->memlock_bytes);
        found += read_limit(line, "Max open files ", &out->descriptors);
    }
    fclose(f);
    out->servers = true;
    return found == 2;
}

static uint64_t own_limit(int which)
{
    struct rlimit limit = {0};

    getrlimit(which, &limit);
    return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

/* What the configuration needs, or what its defaults do. */
static void read_needs(const struct doctor *d, struct limits *out)
{
    uint64_t connections = value_u64(json_object_get(d->config, "server"), "max_connections");

    out->descriptors = (connections ? connections : 8192) + DESCRIPTORS_ASIDE;
}

void kernel_check_limits(struct doctor *d)
{
    struct limits has = {0}, needs = {0};
    char text[2][64];
    struct text t[2];

    if (!read_server_limits(d->server_pid, &has))
        has = (struct limits){own_limit(RLIMIT_MEMLOCK), own_limit(RLIMIT_NOFILE), false};
    read_needs(d, &needs);
    text_init(&t[0], text[0], sizeof text[0]);
    text_init(&t[1], text[1], sizeof text[1]);
    if (has.memlock_bytes == UINT64_MAX)
        text_adds(&t[0], "unlimited");
    else
        units_bytes(&t[0], has.memlock_bytes);
    units_count(&t[1], has.descriptors);
    const char *whose = has.servers ? "of the server" : "of this shell";
    bool few = has.descriptors < needs.descriptors;
    if (!few)
        doctor_say(d, GRADE_OK, "limits", "memlock %s, %s files (%s)", text[0], text[1], whose);
    if (few)
        doctor_say(d, GRADE_WARN, "limits", "%s open files (%s), but server.max_connections wants "
                                            "%llu: set LimitNOFILE (ulimit -n)",
                   text[1], whose, (unsigned long long)needs.descriptors);
}

/* ---- congestion control ---- */

void kernel_check_congestion(struct doctor *d)
{
    char standard[64] = "";
    const char *configured = value_text(json_object_get(d->config, "server"), "congestion");
    FILE *f = fopen("/proc/sys/net/ipv4/tcp_congestion_control", "re");

    if (f && !fgets(standard, sizeof standard, f))
        standard[0] = '\0';
    if (f)
        fclose(f);
    standard[strcspn(standard, "\n")] = '\0';
    /* Without a server the default of server.congestion holds, which is not the system's. */
    bool ours = !d->config || configured[0];
    const char *used = configured[0] ? configured : d->config ? standard : "cubic";
    if (!used[0])
        doctor_say(d, GRADE_UNKNOWN, "congestion", "TCP congestion control cannot be read here");
    else if (strncmp(used, "bbr", 3) == 0)
        doctor_say(d, GRADE_WARN, "congestion", "TCP congestion control is %s; cubic uses half the "
                                                "CPU inside a rack: set server.congestion = "
                                                "\"cubic\"", used);
    else if (ours)
        doctor_say(d, GRADE_OK, "congestion", "TCP congestion control %s (server.congestion; the "
                                              "system's is %s)", used, standard);
    else
        doctor_say(d, GRADE_OK, "congestion", "TCP congestion control %s", used);
}
