#!/usr/bin/env python3
"""A dataset of many small objects, twice through the server: an upstream that needs 10 ms for each answer, over 8 connections, and
32 clients, which are as many as it takes to keep a disk busy.

The objects have 4 to 70 KiB, as the samples of an image dataset do; one mix has all sizes alike, the other as many small ones as
large ones by ratio. The clients (tests/lib/swarm.c) check every byte. The first epoch asks upstream for each object; the second
one, in another order, must not ask for any, and be many times as fast; the cache's memory is too small for the dataset, so it comes
from disk. Space is what the slab's pages take, with the slots in them that are free. FULL=1: 200,000 objects of each mix, and the
ratio that is promised; without it fewer objects, and a ratio that holds on a busy machine. SPDX-License-Identifier: Apache-2.0"""
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(TOP, "tests", "rgw"))
from procs import Failure, Process, Told, clean_environment, free_port, run, wait_until  # noqa: E402

BUILD = os.path.join(TOP, os.environ.get("B") or "build/release")
FULL = os.environ.get("FULL", "") not in ("", "0")
KIB, MIB = 1024, 1024 * 1024
LEAST, MOST = 4 * KIB, 70 * KIB
OBJECTS = 200000 if FULL else 5000
CLIENTS, CONNECTIONS, DELAY_MS = 32, 8, 10
TIMES = 20 if FULL else 5            # as fast as the first epoch
SPACE = 1.35                         # of the payload
PAGES = 40 * 8 * MIB                 # one begun page of each size class: of a large dataset it is nothing
REPEATS = 3                          # the best of so many second epochs counts
passed, failed = [], []


def check(what, good, seen=""):
    (passed if good else failed).append(what)
    print(f"{'ok    ' if good else 'FAILED'} {what}{f': {seen}' if seen != '' else ''}", flush=True)


def sizes_uniform(dice):
    return dice.randint(LEAST, MOST)


def sizes_logarithmic(dice):
    return round(math.exp(dice.uniform(math.log(LEAST), math.log(MOST))))


MIXES = {"uniform": sizes_uniform, "log-uniform": sizes_logarithmic}


class World(Told):
    """An upstream and a server with an empty cache, in a directory of their own."""

    def __init__(self, name):
        self.dir = tempfile.mkdtemp(prefix="headpond-small-", dir=os.environ.get("TMPDIR") or "/var/tmp")
        os.mkdir(f"{self.dir}/disk", 0o700)
        with open(f"{self.dir}/script", "w") as f:
            f.write(f"set * delay={DELAY_MS}\n")
        self.store, self.control = free_port(), free_port()
        self.port, self.admin = free_port(), free_port()
        self.origin = Process("origin", [f"{BUILD}/tests/origin", "-p", str(self.store), "-c", str(self.control),
                                         f"{self.dir}/script"], f"{self.dir}/origin.log").start()
        flags = {"server.listen": f"127.0.0.1:{self.port}", "admin.listen": f"127.0.0.1:{self.admin}",
                 "upstream.endpoint": f"http://127.0.0.1:{self.store}", "upstream.connections": CONNECTIONS,
                 "cache.dirs": f"{self.dir}/disk", "cache.size": "16GiB" if FULL else "2GiB",
                 "cache.memory": "1GiB" if FULL else "64MiB", "cache.min_free": "64MiB", "cache.ttl": "1h",
                 "cache.disk_timeout": "60s", "log.access": "off", "server.allow_root": "true"}
        argv = [f"{BUILD}/headpondd"] + [word for key, value in flags.items() for word in ("--set", f"{key}={value}")]
        self.server = Process(name, argv, f"{self.dir}/log", env=clean_environment(
            AWS_ACCESS_KEY_ID="AKIDSMALL", AWS_SECRET_ACCESS_KEY="secret-of-small-objects", AWS_REGION="us-east-1"))
        self.server.start()
        self.server.wait_ready(lambda: self.admin_get("/readyz", quiet=True), 60)

    def epoch(self, names, order):
        """Every object once, by all clients together; (objects per second, what went wrong)."""
        random.Random(order).shuffle(names)
        with open(f"{self.dir}/keys", "w") as f:
            f.writelines(f"{name}\n" for name in names)
        done = run([f"{BUILD}/tests/swarm", "-e", "-n", str(CLIENTS), "-g", str(len(names)), "-k", f"{self.dir}/keys",
                    str(self.port), "small"], timeout=3600, check=False)
        said = {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", done.stdout.decode())}
        wrong = "" if done.returncode == 0 and said["reads"] == len(names) else (done.stdout + done.stderr).decode()[-500:]
        return said.get("reads", 0) * 1e6 / max(1, said.get("us", 1)), wrong

    def index_bytes(self):
        return sum(os.stat(os.path.join(where, name)).st_blocks * 512
                   for where, _, names in os.walk(f"{self.dir}/disk/index") for name in names)

    def warnings(self):
        """What the server complained of, but for what all tests have."""
        with open(f"{self.dir}/log") as f:
            return [line[:200].rstrip() for line in f if " l=info " not in line and "upstream without TLS" not in line][-5:]

    def end(self):
        code = self.server.stop(120)
        self.origin.kill()
        shutil.rmtree(self.dir)
        return code


def run_mix(mix):
    dice = random.Random(f"small {mix}")
    sizes = [MIXES[mix](dice) for _ in range(OBJECTS)]
    payload = sum(sizes)
    names = [f"{mix}/{number:06}@{size}" for number, size in enumerate(sizes)]
    world = World(mix)
    first, wrong = world.epoch(names, 1)
    check(f"{mix}: the first epoch of {OBJECTS} objects, every byte right", not wrong, wrong or f"{first:.0f} objects/s")
    kept = f"{mix}: all of them are kept"
    try:
        wait_until(kept, lambda: world.metric("cache_objects") == OBJECTS, 10)
    except Failure:
        pass
    count = world.metric("cache_objects")
    check(kept, count == OBJECTS, f"{count:.0f} {world.warnings() or ''}")
    slots, pages = world.metric("cache_used_bytes"), world.metric("cache_pages_bytes")
    check(f"{mix}: slots take at most {SPACE} x the payload", payload <= slots <= SPACE * payload, f"{slots / payload:.3f}")
    check(f"{mix}: so do pages" + ("" if FULL else ", but for the ones that are begun"),
          slots <= pages <= SPACE * payload + (0 if FULL else PAGES), f"{pages / payload:.3f}")
    print(f"       index: {world.index_bytes() / OBJECTS:.0f} bytes of disk per object; "
          f"{world.server.memory_kib('VmRSS') // KIB} MiB resident", flush=True)
    asked, read = world.metric("upstream_requests_total"), world.metric("disk_read_bytes_total")
    best = 0
    for number in range(REPEATS):
        rate, wrong = world.epoch(names, 2 + number)
        check(f"{mix}: epoch {2 + number}, every byte right", not wrong, wrong or f"{rate:.0f} objects/s")
        best = max(best, rate)
    check(f"{mix}: nothing more was asked of upstream", world.metric("upstream_requests_total") == asked)
    read = world.metric("disk_read_bytes_total") - read
    check(f"{mix}: most of it came from disk", read > payload * REPEATS / 2, f"{read / payload / REPEATS:.2f} x the payload")
    check(f"{mix}: at least {TIMES} times as fast as the first epoch", best >= TIMES * first, f"{best / first:.1f} times")
    code = world.end()
    check(f"{mix}: the server ends cleanly", code == 0, f"exit {code}")


def main():
    for mix in sys.argv[1:] or MIXES:
        try:
            run_mix(mix)
        except (Failure, OSError, subprocess.SubprocessError) as e:
            check(f"{mix}: to its end", False, e)
    print(f"small: {len(passed)} passed, {len(failed)} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
