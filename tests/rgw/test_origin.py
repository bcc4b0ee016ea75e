# What needs another upstream than RGW: an object of 4 GiB, hours of reading in minutes, objects
# that never stand still.
#
# The upstream is tests/lib/origin.h, whose bytes anyone can check.
#
# SPDX-License-Identifier: Apache-2.0
import hashlib

from corpus import MIB
from lab import Headpondd, Origin, Proxy
from wire import Wire, path_of

GIB = 1 << 30
CHUNK = 8 * MIB
BUCKET = "synthetic"


class Bench:
    """Scripted upstream, counting proxy, server with an empty cache."""

    def __init__(self, lab, name, **settings):
        self.lab = lab
        self.origin = lab.begin(Origin(lab, f"origin-{name}"))
        self.proxy = lab.begin(Proxy(lab, f"proxy-{name}", self.origin.port))
        self.server = lab.begin(Headpondd(lab, name, self.proxy.port, **settings).empty())

    def end(self):
        self.server.finish()
        self.proxy.stop()
        self.origin.stop()
        return self.lab.log_problems(self.server)


def tail(lab):
    """The end of 4 GiB that nobody has read: the bytes asked for first, and at most their chunk."""
    b = Bench(lab, "tail")
    with lab.report.test("1 MiB at the end of a cold object of 4 GiB") as problems:
        path, size = path_of(BUCKET, "big@4G"), 4 * GIB
        text = f"bytes={size - MIB}-{size - 1}"
        direct = Wire(b.origin.port).ask("GET", path, headers={"Range": text})
        answer = Wire(b.server.port).ask("GET", path, headers={"Range": text})
        if (answer.status, answer.sha256) != (206, direct.sha256):
            problems.append(f"status {answer.status}, {answer.body_bytes} bytes")
        b.server.wait_committed()
        stats = b.proxy.stats()
        if not MIB <= stats["object_bytes"] <= CHUNK:
            problems.append(f"{stats['object_bytes']} bytes from upstream")
        gets = [r for r in b.proxy.requests() if r.startswith("GET ")]
        if not gets or f"range={text} " not in gets[0] + " ":
            problems.append(f"upstream was first asked {gets[:1]}, not {text}")
        if hashlib.sha256(b"").hexdigest() == answer.sha256:
            problems.append("nothing came")
        problems += b.end()


def soak(lab, total):
    """Memory stays within what was configured while more than the cache holds goes through it. LRU keeps all that comes, and lets go of
    as much; the other policy soon lets nothing in of what is read at random, so that most only passes through."""
    for policy in ("ehd", "lru"):
        soak_policy(lab, total, policy)


def soak_policy(lab, total, policy):
    memory, slack, disk = 256 * MIB, 64 * MIB, min(4, total // GIB // 4)
    b = Bench(lab, f"soak-{policy}", cache__memory="256MiB", cache__size=f"{disk}GiB", cache__policy=policy)
    name = f"{total >> 30} GiB by 200 clients through {disk} GiB, {policy}: memory"
    with lab.report.test(name) as problems:
        keys = [f"small-{i:04}@{64 + i % 7 * 31}K" for i in range(400)]
        keys += [f"shard-{i:04}@{20 + i % 9}M+{i}" for i in range(200)]
        keys += [f"large-{i}@{100 + i}M" for i in range(12)]
        got, told = lab.swarm("-n", 200, "-e", "-r", 30, "-t", total, b.server.port, BUCKET, *keys,
                              timeout=1800)
        problems += told
        if got["bytes"] < total:
            problems.append(f"only {got['bytes']} bytes were read")
        peak = b.server.memory_kib("VmHWM") << 10
        print(f"# {got['reads']} reads, peak memory {peak >> 20} MiB, {memory >> 20} MiB configured")
        if policy == "lru" and not sum(v for k, v in b.server.metrics().items() if "cache_evicted_bytes_total" in k):
            problems.append("nothing was evicted: that was no test")
        if peak > memory + slack:
            problems.append(f"peak memory {peak >> 20} MiB, configured {memory >> 20} MiB")
        problems += b.end()


def replace(lab, reads):
    """Objects that are replaced every few milliseconds: every read ends, and is of one version."""
    b = Bench(lab, "replace", cache__ttl="0s", cache__immutable=False)
    b.origin.do("set * replace=3")
    for key, count in (("small@64K", reads * 9 // 10), ("large@24M", reads // 10)):
        with lab.report.test(f"{count} reads of {key}, replaced every 3 ms") as problems:
            got, told = lab.swarm("-n", 8, "-e", "-r", 25, "-g", count, b.server.port, BUCKET, key)
            problems += told
            if got["reads"] != count:
                problems.append(f"{got['reads']} of {count} reads completed")
            if got["versions"] < 20:
                problems.append(f"only {got['versions']} versions seen: the object stood still")
    with lab.report.test("and the server's log is clean") as problems:
        problems += b.end()


def run_all(lab, soak_bytes):
    tail(lab)
    replace(lab, 2000)
    soak(lab, soak_bytes)
