/* The kernel as the server will find it: version, io_uring, limits, congestion control.
 *
 * Invariants:
 *  1. io_uring is asked with the flags and sizes that the server uses; what it answers here, as
 *     this user in this container, it answers there.
 *  2. Limits are those of the running server where its process can be seen, else this shell's, and
 *     it says which.
 *  3. Of a running server counts what it has, not what it was told to have.
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
    SQ_ENTRIES = 1024,               /* as a worker's ring */
    CQ_ENTRIES = 8192,
    BUFFERS = 1024,
    RING_KIB = 224,                  /* of locked memory, where the kernel counts rings so */
    WORKERS_MAX = 256,
    SETTING_BYTES = 256,
    DESCRIPTORS_ASIDE = 256,         /* beside connections: listeners, disks, upstream */
};

/* ---- io_uring ---- */

static const char *fix_of(int error)
{
    switch (error) {
    case EPERM: return "In Docker add --security-opt seccomp=" HEADPOND_PREFIX
                       "/share/headpond/seccomp.json; in Kubernetes use a Localhost seccomp "
                       "profile with io_uring_setup, io_uring_enter and io_uring_register; "
                       "elsewhere sysctl kernel.io_uring_disabled=0";
    case ENOSYS: return "This kernel has no io_uring, or a sandbox (gVisor) hides it: Linux 6.1 or "
                        "newer is needed";
    case EINVAL: return "This kernel lacks SINGLE_ISSUER or DEFER_TASKRUN: Linux 6.1 or newer is "
                        "needed";
    default: return "See the error";
    }
}

/* A ring as a worker has it, closed by the caller: so large that what it takes of limits is what
 * the server's takes. -1 with *error. */
static int make_ring(int *error, const char **call)
{
    struct io_uring_params params = {
        .flags = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_CQSIZE |
                 IORING_SETUP_CLAMP,
        .cq_entries = CQ_ENTRIES,
    };
    int ring = (int)syscall(SYS_io_uring_setup, SQ_ENTRIES, &params);

    *error = ring < 0 ? errno : 0;
    *call = "io_uring_setup";
    return ring;
}

/* Rings of provided buffers (Linux 5.19). Their memory is unmapped with the ring's end. */
static int provide_buffers(int ring)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    size_t bytes = BUFFERS * sizeof(struct io_uring_buf);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (memory == MAP_FAILED)
        return errno;
    struct io_uring_buf_reg reg = {
        .ring_addr = (uint64_t)(uintptr_t)memory,
        .ring_entries = BUFFERS,
        .bgid = 1,
    };
    long done = syscall(SYS_io_uring_register, ring, IORING_REGISTER_PBUF_RING, &reg, 1);
    int error = done < 0 ? errno : 0;
    munmap(memory, bytes);           /* the kernel holds its pages */
    return error;
}

/* As many rings as the server will have. The number that could be made; *error of the next. */
static unsigned probe_rings(unsigned count, int *error, const char **call)
{
    int ring[WORKERS_MAX];
    unsigned made = 0;

    *error = 0;
    while (made < count && !*error) {
        ring[made] = make_ring(error, call);
        if (ring[made] < 0)
            break;
        *error = provide_buffers(ring[made]);
        if (*error)
            *call = "io_uring_register";
        made++;
    }
    for (unsigned i = 0; i < made; i++)
        close(ring[i]);
    return *error && made > 0 ? made - 1 : made;
}

/* A running server has its rings already; without one, all that it would make are tried. */
static unsigned rings_wanted(const struct doctor *d)
{
    uint64_t workers = value_u64(json_object_get(d->config, "server"), "workers");
    long processors = sysconf(_SC_NPROCESSORS_ONLN);

    if (d->status)
        return 1;
    if (workers == 0)
        workers = processors > 0 ? (uint64_t)processors : 1;
    return (unsigned)min_u64(workers, WORKERS_MAX);
}

static void say_no_memory(struct doctor *d, const char *call, unsigned made, unsigned wanted)
{
    struct rlimit limit = {0};

    getrlimit(RLIMIT_MEMLOCK, &limit);
    unsigned long long kib = limit.rlim_cur / KIB;
    if (limit.rlim_cur == RLIM_INFINITY)
        doctor_say(d, GRADE_FAIL, "io_uring",
                   "%s: no memory for the ring of worker %u of %u: raise "
                   "the memory limit of the container or service",
                   call, made + 1, wanted);
    else if (d->status)              /* its own limit is another one, and was enough */
        doctor_say(d, GRADE_UNKNOWN, "io_uring", "io_uring cannot be tried from this shell: its "
                                                 "RLIMIT_MEMLOCK is %llu KiB; the server runs",
                   kib);
    else
        doctor_say(d, GRADE_FAIL, "io_uring",
                   "%s: no memory for the ring of worker %u of %u: "
                   "RLIMIT_MEMLOCK is %llu KiB for all processes of this "
                   "user, and each worker takes %u KiB of it: set "
                   "LimitMEMLOCK=infinity in the unit, --ulimit "
                   "memlock=-1 in Docker, ulimit -l in a shell, or fewer "
                   "server.workers; else raise the memory limit of the "
                   "container",
                   call, made + 1, wanted, kib, RING_KIB);
}

void kernel_check(struct doctor *d)
{
    struct utsname name;
    const char *call = "";
    int error;
    unsigned wanted = rings_wanted(d), made = probe_rings(wanted, &error, &call);

    uname(&name);
    if (error == ENOMEM)
        say_no_memory(d, call, made, wanted);
    else if (error)
        doctor_say(d, GRADE_FAIL, "io_uring", "kernel %s, %s: %s. %s", name.release, call,
                   strerrordesc_np(error), fix_of(error));
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

/* One line of /proc/sys/net/ipv4/; "" if it cannot be read. */
static struct span read_setting(const char *name, char out[SETTING_BYTES])
{
    char path[128];

    snprintf(path, sizeof path, "/proc/sys/net/ipv4/%s", name);
    FILE *f = fopen(path, "re");
    if (!f || !fgets(out, SETTING_BYTES, f))
        out[0] = '\0';
    if (f)
        fclose(f);
    out[strcspn(out, "\n")] = '\0';
    return span_of(out);
}

static bool is_listed(const char *setting, const char *name)
{
    char text[SETTING_BYTES];
    struct span rest = read_setting(setting, text);

    while (rest.len)
        if (span_is(span_cut(&rest, ' '), name))
            return true;
    return false;
}

static const char *fix_of_congestion(const char *name)
{
    return is_listed("tcp_available_congestion_control", name)
               ? "add it to sysctl net.ipv4.tcp_allowed_congestion_control"
               : "load its module (modprobe tcp_NAME), or set server.congestion = \"\"";
}

/* No server to ask: the default of server.congestion, for a user who is not root. */
static void foresee_congestion(struct doctor *d)
{
    static const char standard[] = "cubic";

    if (is_listed("tcp_allowed_congestion_control", standard))
        doctor_say(d, GRADE_OK, "congestion", "TCP congestion control %s is allowed", standard);
    else
        doctor_say(d, GRADE_WARN, "congestion",
                   "TCP congestion control %s (server.congestion) will "
                   "be refused: %s",
                   standard, fix_of_congestion(standard));
}

void kernel_check_congestion(struct doctor *d)
{
    const char *wanted = value_text(json_object_get(d->config, "server"), "congestion");
    const char *used = value_text(d->status, "congestion");

    if (!d->status)
        foresee_congestion(d);
    else if (!used[0])
        doctor_say(d, GRADE_UNKNOWN, "congestion", "TCP congestion control: this server does not "
                                                   "tell which one it has");
    else if (wanted[0] && strcmp(used, wanted) != 0)
        doctor_say(d, GRADE_WARN, "congestion", "TCP congestion control is %s: the kernel refused "
                                                "server.congestion = \"%s\": %s", used, wanted,
                   fix_of_congestion(wanted));
    else if (strncmp(used, "bbr", 3) == 0)
        doctor_say(d, GRADE_WARN, "congestion", "TCP congestion control is %s; cubic uses half the "
                                                "CPU inside a rack: set server.congestion = "
                                                "\"cubic\"", used);
    else
        doctor_say(d, GRADE_OK, "congestion", "TCP congestion control %s (%s)", used,
                   wanted[0] ? "server.congestion" : "the system's");
}
