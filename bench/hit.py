#!/usr/bin/python3
"""`make bench BENCH=hit`: what a hit does not do: allocations, and calls into the kernel, per request, counted by the kernel.

    hit.py [CONNECTIONS=64] [REQUESTS=200000]

headpondd with one worker on core 0, store and client on core 1, in a network namespace of its own. Rows: 4 KiB and 64 KiB hits, the
same signed with SigV4, ranges of 1 and 8 MiB; each warmed with the same requests before. While the client sends them, `perf stat`
counts in all threads of the server: calls of malloc and its kin in any library (uprobes on libc), io_uring_enter, and all system
calls. What the other threads do, which look at the clock and tell the policy, is in it. No allocation per hit is demanded (at most
ALLOCATIONS_MOST, for those threads); and no call into the kernel but io_uring_enter and, from 64 KiB on, what lends pages to the
socket (server/loop/pages.c): a send of the head, and vmsplice and splice for each pipe that is filled, of 1 MiB.
Needs root, two cores, linux-perf. The last line is "hit: N passed, N failed". SPDX-License-Identifier: Apache-2.0"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
BUILD = os.path.join(TOP, "build/release")
sys.path.insert(0, os.path.join(TOP, "tests", "rgw"))
import procs                                     # noqa: E402

settings = {"CONNECTIONS": 64, "REQUESTS": 200_000}
ALLOCATIONS_MOST, BIG_SHARE = 0.001, 40
# Name, requests: REQUESTS over that, other calls into the kernel at most, what load asks.
ROWS = [
    ("4 KiB", 1, 0.02, "-k /bench/small/###@4K -n 1000"),
    ("4 KiB signed", 1, 0.02, "-k /bench/small/###@4K -n 1000 -S us-east-1"),
    ("64 KiB", 1, 3.02, "-k /bench/medium/###@64K -n 1000"),
    ("64 KiB signed", 1, 3.02, "-k /bench/medium/###@64K -n 1000 -S us-east-1"),
    ("1 MiB ranges", BIG_SHARE, 4, "-k /bench/big@256M -r 1M"),
    ("8 MiB ranges", BIG_SHARE, 26, "-k /bench/big@256M -r 8M"),
]
OBJECTS = ["bench/small/###@4K -n 1000", "bench/medium/###@64K -n 1000", "bench/big@256M"]
LIBC_CALLS = ["malloc", "calloc", "realloc", "posix_memalign", "aligned_alloc"]
PREFIX = "headpond_bench_"
KEYS = dict(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_REGION="us-east-1", AWS_EC2_METADATA_DISABLED="true")


def die(what):
    sys.exit(f"hit: {what}")


def run(argv, **more):
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **more)
    if done.returncode != 0:
        die(f"{' '.join(argv[:4])} ... failed: {done.stdout[-400:]}")
    return done.stdout


def libc():
    for line in open("/proc/self/maps"):
        if "libc.so" in line:
            return line.split()[-1]
    die("no libc.so is mapped here")


class Probes:
    """Uprobes on libc; they go when this ends."""

    def __enter__(self):
        self.__exit__()
        try:
            for call in LIBC_CALLS:
                run(["perf", "probe", "-q", "-x", libc(), "--add", f"{PREFIX}{call}={call}"])
            listed = run(["perf", "probe", "-l"])
            self.events = re.findall(rf"(\S+:{PREFIX}\w+)", listed)
            if len(self.events) < len(LIBC_CALLS):
                die(f"perf has not all probes: {listed}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        subprocess.run(["perf", "probe", "-q", "-d", f"*:{PREFIX}*"], stderr=subprocess.DEVNULL, check=False)


def is_ready(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


def count(probes, pid, argv):
    """Of each event, how often it came in that process while the command ran; and the command's words."""
    events = probes.events + ["syscalls:sys_enter_io_uring_enter", "raw_syscalls:sys_enter"]
    with tempfile.NamedTemporaryFile("r") as out:
        said = run(["perf", "stat", "-x", ";", "-o", out.name, "-e", ",".join(events), "-p", str(pid), "--", *argv])
        counted = dict((line.split(";")[2], int(line.split(";")[0])) for line in out if line.count(";") > 3)
    if len(counted) < len(events):
        die(f"perf did not count: {counted}")
    return counted, dict(re.findall(r"(\w+)=(\S+)", said))


class Verdicts:
    passed = failed = 0

    def say(self, good, text):
        self.passed += good
        self.failed += not good
        print(f"hit: {'passed' if good else 'FAILED'}: {text}", flush=True)


def measure(verdicts, probes, server, port):
    for name, share, others_most, words in ROWS:
        requests = settings["REQUESTS"] // share
        load = ["taskset", "-c", "1", f"{BUILD}/bench/load", "-a", f"127.0.0.1:{port}", *words.split(), "-N", str(requests),
                "-c", str(settings["CONNECTIONS"] // (4 if share > 1 else 1))]
        run(load)
        counted, said = count(probes, server.pid, load)
        enters = counted["syscalls:sys_enter_io_uring_enter"] / requests
        others = counted["raw_syscalls:sys_enter"] / requests - enters
        allocations = sum(counted[e] for e in probes.events) / requests
        verdicts.say(allocations <= ALLOCATIONS_MOST * share and others <= others_most,
                     f"{name}: {allocations:.5f} allocations, {enters:.3f} io_uring_enter, {others:.4f} other system calls per hit "
                     f"({said.get('rps', '?')} requests/s while counted)")


def bench(folder):
    verdicts = Verdicts()
    for words in OBJECTS:
        run([f"{BUILD}/bench/store", "-d", folder, "-m", *words.split()])
    store_port, port = procs.free_port(), procs.free_port()
    cache = os.path.join(folder, "cache")
    os.mkdir(cache, 0o700)
    store = procs.Process("store", ["taskset", "-c", "1", f"{BUILD}/bench/store", "-d", folder, "-p", str(store_port)],
                          os.path.join(folder, "store.log")).start()
    server = procs.Process("headpondd", ["taskset", "-c", "0", f"{BUILD}/headpondd", "--allow-root", "--upstream",
                                         f"http://127.0.0.1:{store_port}", "--cache", cache, "--size", "4GiB", "--listen",
                                         f"127.0.0.1:{port}", "--set", "server.workers=1", "--set", "cache.memory=1GiB",
                                         "--set", "cache.ttl=1d", "--set", "cache.min_free=0",
                                         "--set", f"admin.listen=unix:{folder}/admin.sock"],
                           os.path.join(folder, "log"), env=dict(os.environ, HEADPOND_CONFIG="/dev/null")).start()
    try:
        procs.wait_until("the server", lambda: is_ready(port), 30)
        with Probes() as probes:
            measure(verdicts, probes, server, port)
    finally:
        server.kill()
        store.kill()
    print(f"hit: {verdicts.passed} passed, {verdicts.failed} failed")
    return verdicts.failed


def main():
    for word in sys.argv[1:]:
        name, _, value = word.partition("=")
        if name not in settings:
            die(f'unknown setting "{word}"')
        settings[name] = int(value)
    if os.geteuid() != 0:
        die("needs root: it counts in the kernel (sudo make bench BENCH=hit)")
    if not shutil.which("perf"):
        die("needs perf (apt-get install linux-perf)")
    if os.environ.get("BENCH_INSIDE") != "1":
        os.execvpe("unshare", ["unshare", "-n", sys.executable, "-B", os.path.abspath(__file__), *sys.argv[1:]],
                   dict(os.environ, BENCH_INSIDE="1"))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # probes do not end with the process
    os.environ.update(KEYS)
    run(["ip", "link", "set", "lo", "mtu", "1500", "up"])
    with tempfile.TemporaryDirectory(prefix="headpond-hit-", dir="/var/tmp") as folder:
        return 1 if bench(folder) else 0


if __name__ == "__main__":
    sys.exit(main())
