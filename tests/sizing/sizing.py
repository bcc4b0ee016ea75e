#!/usr/bin/env python3
"""Is it true what `status --sizing` says of other sizes of the cache?

The same reads go through servers whose caches differ in size only, each with sockets, a disk directory and a scripted store of its
own. What the server of size 1 forecasts for another size is held against what the store was asked for by the server of that size,
with the weights that the forecast has: a read counts half when as much was read since as the forecast names. The last line is
"sizing: N passed, N failed". FULL=1: both policies, four times as much of all, half and four times the size
as well. Words choose among the traces. SPDX-License-Identifier: Apache-2.0"""
import bisect
import http.client
import itertools
import json
import os
import queue
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(TOP, os.environ.get("B") or "build/release")
FULL = os.environ.get("FULL", "") not in ("", "0")
KIB, MIB = 1024, 1024 * 1024
DIES = ["setpriv", "--pdeathsig", "KILL"]        # no failed run leaves a server behind
# That a forecast may be off. Half the size has so few pages that what is free among them counts. LRU has all of a loop as soon as it
# fits, or nothing: close to that a little room is many points. Datasets that share a cache are small samples, each at the others' expense.
POINTS = {"ehd": {0.5: 5.0, 1: 3.0, 2: 3.0, 4: 5.0}, "lru": {0.5: 5.0, 1: 8.0, 2: 3.0, 4: 12.0}}
POINTS_SEEN = 3.0                                # and what a server counts itself
POINTS_BESIDE = 10.0
READERS = 2
# And how large the traces are. What a small disk lets go of the memory still has: of a quarter of it that would be worth points (of
# epochs and popular objects, which the quick tier reads, and ehd, less than two).
POLICIES = {"ehd": 4, "lru": 4} if FULL else {"ehd": 1}
passed, failed = [], []


def check(what, good, seen=""):
    (passed if good else failed).append(what)
    print(f"{'ok    ' if good else 'FAILED'} {what}{f': {seen}' if seen != '' else ''}", flush=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(condition, seconds):
    end = time.monotonic() + seconds
    while not (answer := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return answer


# ---- the reads: lists of (key, bytes), the same in every run ----

def epochs(seed, prefix, shards, size, count):
    """A dataset of equal shards, read whole in a new order each time."""
    draw = random.Random(seed)
    keys = [f"{prefix}/shard-{n:04}@{size}" for n in range(shards)]
    for _ in range(count):
        draw.shuffle(keys)
        yield from ((key, size) for key in keys)


def popular(seed, prefix, objects, size, count, alpha=0.8):
    """Small objects, a few of them read often; one read in eight is of an object that nobody read before."""
    draw = random.Random(seed)
    below = list(itertools.accumulate((n + 1) ** -alpha for n in range(objects)))
    for n in range(count):
        once = draw.randrange(8) == 0
        number = f"once-{n:06}" if once else f"{bisect.bisect(below, draw.random() * below[-1]):05}"
        yield f"{prefix}/{number}@{size}", size


def mixed(seed, *traces):
    """Each step is one of a trace chosen at random."""
    draw, left = random.Random(seed), [iter(t) for t in traces]
    while left:
        t = draw.choice(left)
        if (read := next(t, None)) is None:
            left.remove(t)
        else:
            yield read


def traces(large):
    """Name, bytes of the cache at size 1, reads. The working set is many times cache.memory, of which forecasts know nothing, and an
    object is one chunk: what is read ahead here would leave so small a memory before its reader comes, and be fetched twice.
    large: so many times as much of all."""
    more = 2 if FULL else 1
    size, draws = large * 256 * MIB, large * 2000
    yield "epochs", size, epochs(1, "train", large * 256, 4 * MIB, 5 * more)
    yield "popular", size, popular(2, "images", large * 600, 2 * MIB, draws * more)
    if FULL:
        yield "mixed", size, mixed(3, epochs(4, "train", large * 200, 4 * MIB, 8), epochs(5, "eval", large * 40, 4 * MIB, 40),
                                   popular(6, "images", large * 600, 2 * MIB, draws))


# ---- the programs ----

class Origin:
    """A scripted store (tests/lib/origin.h): a key ending in @SIZE is there."""

    def __init__(self):
        control = free_port()
        self.process = subprocess.Popen([*DIES, f"{BUILD}/tests/origin", "-c", str(control)], stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline()
        self.port, self.control = (int(n) for n in re.match(r"port=(\d+) control=(\d+)", said).groups())
        self.say("log off")

    def say(self, script):
        with socket.create_connection(("127.0.0.1", self.control)) as s:
            s.sendall(script.encode() + b"\n")
            s.shutdown(socket.SHUT_WR)
            return s.makefile().read()

    def sent(self):
        return int(re.search(r"body_bytes=(\d+)", self.say("stats"))[1])

    def stop(self):
        self.process.kill()
        self.process.wait()


class Server:
    """headpondd with a directory of its own."""

    def __init__(self, origin, size, policy):
        self.dir = tempfile.mkdtemp(prefix="headpond-sizing-", dir=os.environ.get("TMPDIR") or "/var/tmp")
        self.port, self.admin = free_port(), free_port()
        flags = {"server.listen": f"127.0.0.1:{self.port}", "admin.listen": f"127.0.0.1:{self.admin}", "server.workers": 2,
                 "cache.memory": "64MiB", "cache.index_memory": "64MiB", "cache.size": str(size), "cache.min_free": "64MiB",
                 "cache.ttl": "1h", "cache.policy": policy, "cache.dirs": f"{self.dir}/disk",
                 "upstream.endpoint": f"http://127.0.0.1:{origin.port}", "log.access": "off", "server.allow_root": "true"}
        os.mkdir(f"{self.dir}/disk", 0o700)
        self.log = open(f"{self.dir}/log", "w+")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HEADPOND_"))}
        env |= {"AWS_ACCESS_KEY_ID": "AKIDSIZING", "AWS_SECRET_ACCESS_KEY": "secret-of-sizing", "AWS_REGION": "us-east-1",
                "HOME": self.dir}
        command = [*DIES, f"{BUILD}/headpondd"]
        for key, value in flags.items():
            command += ["--set", f"{key}={value}"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=env)
        if not until(self.is_ready, 60):
            with open(f"{self.dir}/log") as f:
                print(f.read()[-3000:])
            sys.exit("sizing: the server did not start")

    def is_ready(self):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=2).status == 200
        except OSError:
            return False

    def sizing(self):
        """As people ask for it."""
        said = subprocess.run([f"{BUILD}/headpond", "--server", f"http://127.0.0.1:{self.admin}", "--json", "status", "--sizing"],
                              capture_output=True, text=True, check=False, timeout=60)
        return json.loads(said.stdout)

    def text(self):
        return subprocess.run([f"{BUILD}/headpond", "--server", f"http://127.0.0.1:{self.admin}", "status", "--sizing"],
                              capture_output=True, text=True, check=False, timeout=60).stdout

    def metric(self, name):
        said = urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=10).read().decode()
        return float(re.search(rf"^headpond_{re.escape(name)} (\S+)$", said, re.M)[1])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "none within 60 s"
        if code != 0:
            check("the server ends cleanly", False, f"exit {code}")
        self.log.close()
        shutil.rmtree(self.dir)


# ---- one run ----

class Readers:
    """Read what is put in, in that order, a few at a time."""

    def __init__(self, port):
        self.todo, self.wrong = queue.Queue(8 * READERS), []
        self.threads = [threading.Thread(target=self.read, args=(port,), daemon=True) for _ in range(READERS)]
        for t in self.threads:
            t.start()

    def read(self, port):
        conn, room = http.client.HTTPConnection("127.0.0.1", port, timeout=120), bytearray(MIB)
        while (one := self.todo.get()) is not None:
            key, size = one
            try:
                conn.request("GET", f"/data/{key}")
                answer, got = conn.getresponse(), 0
                while n := answer.readinto(room):
                    got += n
                if answer.status != 200 or got != size:
                    self.wrong.append(f"{key}: {answer.status}, {got} of {size} bytes")
            except (OSError, http.client.HTTPException) as e:
                self.wrong.append(f"{key}: {e}")
                conn.close()
            self.todo.task_done()


class Run:
    """A trace through a server of one size: its forecast, and what the store was asked for."""

    def __init__(self, name, size, reads, policy):
        began = time.monotonic()
        self.origin = Origin()
        self.server = Server(self.origin, size, policy)
        self.steps = []                          # bytes read, bytes of the store, since the step before
        try:
            self.play(reads)
            self.forecast = self.wait_for(sum(size for _, size in reads))
            self.shown = self.server.text()
            self.double = self.server.metric('sizing_hit_bytes{size="2"}') / max(self.server.metric("sizing_read_bytes"), 1)
            self.took = time.monotonic() - began
        finally:
            self.server.stop()
            self.origin.stop()
        self.real = self.weighted()

    def play(self, reads):
        readers, began, total = Readers(self.server.port), self.origin.sent(), sum(size for _, size in reads)
        step = 0
        for key, size in reads:
            readers.todo.put((key, size))
            step += size
            if step >= total / 64:
                readers.todo.join()
                sent = self.origin.sent()
                self.steps.append((step, sent - began))
                step, began = 0, sent
        readers.todo.join()
        self.steps.append((step, self.origin.sent() - began))
        for _ in readers.threads:
            readers.todo.put(None)
        if readers.wrong:
            check("every read is answered", False, readers.wrong[:3])

    def wait_for(self, total):
        """The policy's thread comes four times a second."""
        until(lambda: self.server.sizing()["all"]["asked"] >= total, 30)
        return self.server.sizing()

    def weighted(self):
        """The share of bytes that the store was not asked for, in the forecast's window."""
        half, window = self.forecast["half_life"], self.forecast["all"]["window"]
        read = stored = age = 0
        for n, asked in reversed(self.steps):
            weight = 2 ** -((age + n / 2) / half)
            part = min(1, max(0, window - read) / (n * weight)) if n else 0
            read, stored, age = read + n * weight * part, stored + asked * weight * part, age + n
        return 1 - stored / read


# ---- what is checked ----

def shown(ratio):
    return f"{100 * ratio:.1f} %"


def compare(name, policy, size, reads):
    factors = (0.5, 1, 2, 4) if FULL else (1, 2)
    runs = {f: Run(name, int(size * f), reads, policy) for f in factors}
    base = runs[1].forecast
    print(runs[1].shown, end="")
    check(f"{name}, {policy}: there is a forecast", base["all"]["state"] == "ready", base["all"])
    if base["all"]["state"] != "ready":
        return
    at = [s["factor"] for s in base["sizes"]]
    for f in factors:
        forecast, real = base["all"]["predicted"][at.index(f)], runs[f].real
        check(f"{name}, {policy}: {f} times the size", abs(forecast - real) * 100 <= POINTS[policy][f],
              f"forecast {shown(forecast)}, a server of that size {shown(real)}")
        measured = runs[f].forecast["all"]["measured"]
        check(f"{name}, {policy}: what the server of {f} times the size measured of itself",
              abs(measured - real) * 100 <= POINTS_SEEN, f"{shown(measured)}, by the store's count {shown(real)}")
    check(f"{name}, {policy}: the metric says the same", abs(runs[1].double - base["all"]["predicted"][at.index(2)]) < 0.001,
          shown(runs[1].double))
    compare_groups(name, policy, runs, at)


def compare_groups(name, policy, runs, at):
    """Of each prefix, too, as the larger servers measured it themselves."""
    base = {g["prefix"]: g for g in runs[1].forecast["groups"] if g["state"] == "ready" and g["prefix"]}
    for f in runs:
        points = POINTS_BESIDE if len(base) > 1 else POINTS[policy][f]
        other = {g["prefix"]: g for g in runs[f].forecast["groups"] if g["state"] == "ready"}
        for prefix in sorted(base.keys() & other.keys()):
            forecast, real = base[prefix]["predicted"][at.index(f)], other[prefix]["measured"]
            check(f"{name}, {policy}: {prefix} at {f} times the size", abs(forecast - real) * 100 <= points,
                  f"forecast {shown(forecast)}, a server of that size {shown(real)}")


def main():
    for policy, large in POLICIES.items():
        for name, size, reads in traces(large):
            if not sys.argv[1:] or name in sys.argv[1:]:
                compare(name, policy, size, list(reads))
    print(f"sizing: {len(passed)} passed, {len(failed)} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
