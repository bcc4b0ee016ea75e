#!/usr/bin/env python3
"""What clients may cost the server: stalled, idle and dripping ones, descriptors, addresses, a small memory.

Each part starts a server of its own between a scripted store and crowds of clients (crowd.c), in a network namespace that this
script makes, so that the kernel's memory of its sockets can be counted. Numbers are small enough for `make check`; FULL=1 takes
those of the promises. The last line is "limits: N passed, N failed". SPDX-License-Identifier: Apache-2.0"""
import itertools
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(TOP, os.environ.get("B") or "build/release")
FULL = os.environ.get("FULL", "") not in ("", "0")
SLOW = "p99_us" if FULL else "p50_us"       # a pause of the machine is two of two hundred
KIB, MIB = 1024, 1024 * 1024
DIES = ["setpriv", "--pdeathsig", "KILL"]        # no failed run leaves a server behind
passed, failed = [], []


def check(what, good, seen=""):
    (passed if good else failed).append(what)
    print(f"{'ok    ' if good else 'FAILED'} {what}{f': {seen}' if seen != '' else ''}", flush=True)
    return good


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def until(condition, seconds):
    """Asks until it holds; its last answer."""
    end = time.monotonic() + seconds
    while not (answer := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return answer


class Origin:
    """A scripted store (tests/lib/origin.h)."""

    def __init__(self, script=""):
        control = free_port()
        self.process = subprocess.Popen([*DIES, f"{BUILD}/tests/origin", "-c", str(control)], stdout=subprocess.PIPE, text=True)
        said = self.process.stdout.readline()
        self.port, self.control = (int(n) for n in re.match(r"port=(\d+) control=(\d+)", said).groups())
        if script:
            self.say(script)

    def say(self, script):
        with socket.create_connection(("127.0.0.1", self.control)) as s:
            s.sendall(script.encode() + b"\n")
            s.shutdown(socket.SHUT_WR)
            return s.makefile().read()

    def stop(self):
        self.process.kill()
        self.process.wait()


class Server:
    """headpondd with a directory of its own."""

    def __init__(self, origin, under=(), starts=True, **settings):
        self.dir = tempfile.mkdtemp(prefix="headpond-limits-", dir=os.environ.get("TMPDIR") or "/var/tmp")
        self.port, self.admin = free_port(), free_port()
        flags = {"server.listen": f"127.0.0.1:{self.port}", "admin.listen": f"127.0.0.1:{self.admin}", "server.workers": 2,
                 "server.max_connections_per_address": 0, "cache.memory": "64MiB", "cache.size": "4GiB", "cache.min_free": "64MiB",
                 "cache.ttl": "1h", "cache.disk_timeout": "60s", "upstream.endpoint": f"http://127.0.0.1:{origin.port}", "log.level": "info",
                 "cache.dirs": f"{self.dir}/disk", "log.access": "off", "server.allow_root": "true"}
        flags |= {key.replace("__", "."): value for key, value in settings.items()}
        os.mkdir(f"{self.dir}/disk", 0o700)
        self.log = open(f"{self.dir}/log", "w+")
        env = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "HEADPOND_"))}
        env |= {"AWS_ACCESS_KEY_ID": "AKIDLIMITS", "AWS_SECRET_ACCESS_KEY": "secret-of-the-limits", "AWS_REGION": "us-east-1",
                "HOME": self.dir}
        command = [*DIES, *under, f"{BUILD}/headpondd", "--set", f"admin.listen=unix:{self.dir}/admin.sock"]
        for key, value in flags.items():
            command += ["--set", f"{key}={value}"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=env)
        if starts and not until(self.is_ready, 30):
            print(self.said())
            sys.exit("limits: the server did not start")

    def is_ready(self):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=2).status == 200
        except OSError:
            return False

    def said(self):
        with open(f"{self.dir}/log") as f:
            return f.read()

    def metric(self, name, **labels):
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/metrics", timeout=10).read().decode()
        total = 0
        for line in text.splitlines():
            if re.match(rf"headpond_{name}[ {{]", line) and all(f'{k}="{v}"' in line for k, v in labels.items()):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def rss(self, field="VmRSS"):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(field + r":\s+(\d+) kB", f.read())[1]) * KIB

    def rss_at_rest(self):
        """Once all of its pool is ready: as little as it has here is so before it is used."""
        until(lambda: self.metric("buffers_ready_bytes") >= self.metric("buffers_limit_bytes"), 30)
        return self.rss()

    def own_memory(self):
        """Resident, without the pool of buffers (the one mapping with advice for huge pages)."""
        total, rss = 0, 0
        with open(f"/proc/{self.process.pid}/smaps") as f:
            for line in f:
                if line.startswith("Rss:"):
                    rss = int(line.split()[1]) * KIB
                if line.startswith("VmFlags:") and " hg" not in line:
                    total += rss
        return total

    def cpu_s(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            words = f.read().rsplit(")", 1)[1].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def stop(self):
        """Ends it as an operator does; the exit must be clean."""
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = "none within 60 s"
        said = self.said()
        bad = [line for line in said.splitlines() if "Sanitizer" in line or "panic" in line or "runtime error" in line]
        if code != 0 or bad:
            check("the server ends cleanly", False, f"exit {code}; {bad[:3]}")
            print(said[-3000:])
        self.log.close()
        shutil.rmtree(self.dir)


class Crowd:
    """crowd.c behind a pipe."""

    def __init__(self, server, address="127.0.0.1"):
        self.process = subprocess.Popen([f"{BUILD}/tests/crowd", str(server.port), "b", address], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def say(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def hear(self):
        said = self.process.stdout.readline()
        answer = {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", said)}
        if late := re.match(r"(ok|late) (\d+)", said):
            answer |= {"ok": late[1] == "ok", "ms": int(late[2])}
        return answer

    def do(self, command):
        self.say(command)
        return self.hear()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def kernel_bytes(ends):
    """What the kernel holds for these ends of connections ("sport = :80")."""
    out = subprocess.run(["ss", "-tmnH", ends], capture_output=True, text=True, check=True).stdout
    total = 0
    for r, f, w, o, bl in re.findall(r"skmem:\(r(\d+),rb\d+,t\d+,tb\d+,f(\d+),w(\d+),o(\d+),bl(\d+)", out):
        total += int(r) + int(f) + int(w) + int(o) + int(bl)
    return total


def rate(answer):
    return answer["bytes"] / max(1, answer["reads"]) / max(1, answer["p50_us"])


def keys(prefix, count, size):
    return " ".join(f"{prefix}{i}@{size}" for i in range(count))


# ---- parts ----

def part_stalled():
    """Clients that ask and then take nothing: what each costs, that others do not feel it, and how they end."""
    count, timeout, first = (1000, 30, 100) if FULL else (600, 20, 100)
    hot, cold = keys("hot", 12, "4M"), keys("cold", count // 2, "2M")
    origin = Origin()
    server = Server(origin, server__send_timeout=f"{timeout}s")
    good, crowd = Crowd(server), Crowd(server)
    good.do(f"keep 40 {keys('fill', 40, '4M')}") # so that the pool's memory is there already
    good.do(f"keep 24 {hot}")
    crowd.do(f"get {first} 0 {hot}")       # what the first ones make for all is no cost of each
    until(lambda: server.metric("conn_stalled") == first, 60)
    before = server.own_memory()
    crowd.do(f"get {count // 2 - first} 0 {hot}")
    until(lambda: server.metric("conn_stalled") == count // 2, 60)
    user = (server.own_memory() - before) / (count // 2 - first)
    check("memory of the server per stalled client, KiB, at most 24", user <= 24 * KIB, round(user / KIB, 1))
    crowd.do(f"get {count - count // 2} 60K {cold}")
    until(lambda: server.metric("conn_stalled") == count, 60)
    began = time.monotonic()
    check("all are known as stalled", server.metric("conn_stalled") == count, server.metric("conn_stalled"))
    held = until(lambda: server.metric("buffers_held_bytes") == 0, 5) or server.metric("buffers_held_bytes") == 0
    check("they hold no buffer", held, server.metric("buffers_held_bytes"))
    check("resident memory within cache.memory + 64 MiB", server.rss() <= 128 * MIB, f"{server.rss() / MIB:.0f} MiB")
    kernel, theirs = kernel_bytes(f"sport = :{server.port}") / count, kernel_bytes(f"dport = :{server.port}") / count
    check("memory of the kernel per stalled client, at most 192 KiB", 0 < kernel <= 192 * KIB,
          f"{kernel / KIB:.0f} KiB, and {theirs / KIB:.0f} KiB at their end")
    seen = good.do("read 20 other0@1M other1@4M hot0@4M other2@64K")
    check("others are served, hits and misses", seen["failed"] == 0 and seen["most_us"] < 15000000, seen)
    stay = timeout - (time.monotonic() - began)
    if check("that took less than the deadline", stay > 1, f"{stay:.1f} s left"):
        seen = crowd.do(f"go {count // 2}")
        seen = crowd.do(f"until done {count // 2} 60000")
        check("who goes on gets the right bytes", seen["ok"] and seen["wrong"] == 0, seen)
    rest = count - count // 2
    seen = crowd.do(f"until closed {rest} {(timeout + 10) * 1000}")
    took = time.monotonic() - began
    check("the others are closed at server.send_timeout", seen["closed"] == rest and seen["wrong"] == 0 and took < timeout + 10,
          f"{seen}, {took:.1f} s")
    check("and counted", server.metric("deadline_total", which="send") == rest, server.metric("deadline_total", which="send"))
    gone = until(lambda: server.metric("conn_stalled") == 0 and server.metric("requests_in_flight") == 0, 5)
    check("nothing of them is left", gone and server.metric("buffers_held_bytes") == 0)
    check("resident memory throughout", server.rss() <= 128 * MIB, f"{server.rss() / MIB:.0f} MiB")
    good.end(), crowd.end(), server.stop(), origin.stop()


def part_neighbour():
    """The rate of one good reader with and without a crowd of stalled ones, taking turns. The rate of a phase is that of its
    median read, so that what else the machine does in between counts less."""
    count, rounds, ms, least = (1000, 11, 1500, 0.9) if FULL else (300, 5, 600, 0.6)
    hot = keys("hot", 6, "4M")
    origin = Origin()
    server = Server(origin)
    good, crowd = Crowd(server), Crowd(server)
    good.do(f"keep 24 {hot}")
    alone, among = [], []
    for _ in range(rounds):
        alone.append(rate(good.do(f"rate {ms} {hot}")))
        crowd.do(f"get {count} 0 {hot}")
        until(lambda: server.metric("conn_stalled") == count, 30)
        among.append(rate(good.do(f"rate {ms} {hot}")))
        crowd.do("drop")
        until(lambda: server.metric("conn_stalled") == 0, 30)
    ratio = statistics.median(among) / statistics.median(alone)
    check(f"a good reader among {count} stalled ones keeps its rate, at least {least}", ratio >= least,
          f"{ratio:.2f} of {statistics.median(alone):.0f} MB/s, {rounds} rounds")
    good.end(), crowd.end(), server.stop(), origin.stop()


def part_idle():
    """Connections that say nothing: their memory, and that newcomers find a place when there is none."""
    count = 10000 if FULL else 2000
    origin = Origin()
    server = Server(origin, server__max_connections=count + 100)
    good, crowd = Crowd(server), Crowd(server)
    good.do("read 50 k0@64K")
    before = server.rss_at_rest()
    crowd.do(f"idle {count}")
    until(lambda: server.metric("connections", state="idle") >= count, 20)
    each = (server.rss() - before) / count
    check(f"{count} idle connections, bytes each, at most 2048", 0 < each <= 2048, round(each))
    seen = good.do("read 200 k0@64K")
    check(f"new requests are answered, {SLOW} below 50 ms", seen["failed"] == 0 and seen[SLOW] < 50000, seen)
    good.end(), crowd.end(), server.stop()

    server = Server(origin, server__max_connections=200)
    good, crowd = Crowd(server), Crowd(server)
    good.do("read 1 k0@64K")
    crowd.do("idle 400")
    time.sleep(1.2)                              # idle for a second: they may have to go
    seen = good.do("read 100 k0@64K")
    check("at server.max_connections an idle one makes way for a newcomer",
          seen["failed"] == 0 and seen["p50_us"] < 100000, seen)
    used = server.metric("connections")
    check("and the limit holds", used <= 200 + 2, used)
    seen = crowd.do("count")
    check("those that made way were closed", seen["closed"] >= 100, seen)
    good.end(), crowd.end(), server.stop(), origin.stop()


def part_drip():
    """Bytes that trickle: deadlines are absolute."""
    count, limit = (2000, 10) if FULL else (400, 3)
    origin = Origin()
    server = Server(origin, server__header_timeout=f"{limit}s", server__send_timeout=f"{limit}s")
    good, heads, bodies, sips = (Crowd(server) for _ in range(4))
    good.do("read 10 k0@64K k1@4M k2@1M")
    before = server.rss_at_rest()
    began = time.monotonic()
    heads.do(f"head {count} 300")
    bodies.do(f"body {count // 10} 300 k0@64K")
    sips.do("sip 20 1000 k1@4M")
    for crowd in (heads, bodies, sips):          # their clocks go on while they wait
        crowd.say(f"until closed {20 if crowd is sips else count // 10 if crowd is bodies else count} {(limit + 20) * 1000}")
    seen = good.do("read 200 k0@64K k2@1M")
    check(f"new requests are answered, {SLOW} below 50 ms", seen["failed"] == 0 and seen[SLOW] < 50000, seen)
    check("memory of a dripping client, KiB, at most 32", server.rss() - before <= count * 32 * KIB + 8 * MIB,
          round((server.rss() - before) / count / KIB, 1))
    seen = heads.hear()
    took = time.monotonic() - began
    check(f"{count} heads at a byte each 0.3 s are closed at the deadline", seen["ok"] and limit * 0.9 <= took and seen["ms"] <= (limit + 5) * 1000,
          f"{seen}, {took:.1f} s")
    seen = bodies.hear()
    check("bodies that drip, too", seen["closed"] == count // 10, seen)
    seen = sips.hear()
    check("and readers of a byte a second", seen["closed"] == 20 and seen["wrong"] == 0, seen)
    for which, wanted in ("head", count), ("body", count // 10), ("send", 20):
        check(f"counted: {which}", server.metric("deadline_total", which=which) == wanted, server.metric("deadline_total", which=which))
    for crowd in (good, heads, bodies, sips):
        crowd.end()
    server.stop(), origin.stop()


def part_descriptors():
    """Few file descriptors: who gets them, and what a shortage costs."""
    origin = Origin()
    server = Server(origin, under=["prlimit", "--nofile=100:100"], starts=False)
    code = server.process.wait(20)
    check("too few to work at all: it says so and does not start",
          code == 1 and "LimitNOFILE" in server.said(), server.said().strip()[-200:])
    server.log.close()
    shutil.rmtree(server.dir)

    server = Server(origin, under=["prlimit", "--nofile=256:20000"], server__max_connections=1000)
    with open(f"/proc/{server.process.pid}/limits") as f:
        soft = int(re.search(r"Max open files\s+(\d+)", f.read())[1])
    check("the soft limit is raised to what is needed", soft > 1000, soft)
    server.stop()

    server = Server(origin, under=["prlimit", "--nofile=400:400"], upstream__connections=32)
    good, crowd = Crowd(server), Crowd(server)
    check("fewer than server.max_connections wants: said at the start, with the setting", "LimitNOFILE" in server.said())
    early = Crowd(server)
    early.do(f"get 3 1K {keys('big', 3, '96M')}")
    early.do("until paused 3 10000")
    crowd.do("head 600 100000")
    until(lambda: server.metric("connections") > 100, 10)
    until(lambda: server.metric("fetches_in_flight") == 0, 20)   # of the reads that pause
    used = server.metric("connections")
    cpu = server.cpu_s()
    time.sleep(1)                                # measured: what a full server does in a second
    check("a full server rests", server.cpu_s() - cpu < 0.2, f"{server.cpu_s() - cpu:.2f} CPU s in 1 s")
    check("accepting stops before the last descriptor", server.descriptors() < 400 and used < 330,
          f"{used:.0f} connections, {server.descriptors()} files")
    check("nobody met a failed accept", server.metric("fd_exhausted_total") == 0)
    origin.say("cut")                            # so that new connections are needed there
    early.do("go 3")
    seen = early.do("until done 3 20000")
    check("a full server still gets connections to upstream", seen["ok"] and seen["wrong"] == 0, seen)
    crowd.do("drop")
    seen = good.do("read 20 " + keys("cold", 20, "1M"))
    check("accepting goes on when they leave", seen["failed"] == 0, seen)

    crowd.do("idle 20")
    until(lambda: server.metric("connections", state="idle") >= 20, 10)
    files = server.descriptors()
    before = server.metric("fd_exhausted_total")
    subprocess.run(["prlimit", f"--pid={server.process.pid}", f"--nofile={files}:400"], check=True)
    cpu, began = server.cpu_s(), time.monotonic()
    crowd.do("idle 50")
    time.sleep(1)                                # measured: how often it tries
    cpu, took = server.cpu_s() - cpu, time.monotonic() - began
    subprocess.run(["prlimit", f"--pid={server.process.pid}", "--nofile=400:400"], check=True)
    tries = server.metric("fd_exhausted_total") - before
    check("a real shortage is counted and told", tries >= 1 and "too few file descriptors" in server.said(), tries)
    check("accepting pauses without spinning", tries <= 25 * took and cpu < 0.3 * took, f"{tries} tries, {cpu:.2f} CPU s in {took:.1f} s")
    seen = good.do("read 5 k0@64K")
    check("and goes on when there are some again", seen["failed"] == 0, seen)
    early.end(), good.end(), crowd.end(), server.stop(), origin.stop()


def part_address():
    """server.max_connections_per_address."""
    origin = Origin()
    server = Server(origin, server__max_connections_per_address=50, auth__anonymous="127.0.0.0/8")
    greedy, other = Crowd(server), Crowd(server, "127.0.0.2")
    greedy.do("idle 80")
    seen = greedy.do("until closed 30 5000")
    check("of 80 connections of one address 50 stay", seen["closed"] == 30 and seen["open"] == 50, seen)
    check("and the refused ones are counted and told", server.metric("connections_refused_total") == 30 and
          "peer=127.0.0.1" in server.said(), server.metric("connections_refused_total"))
    seen = other.do("read 60 k0@64K")
    check("another address is served", seen["failed"] == 0, seen)
    greedy.do("drop")
    until(lambda: server.metric("connections") <= 2, 5)
    seen = greedy.do("read 60 k0@64K")
    check("the first one, too, when it has closed some", seen["failed"] == 0, seen)
    greedy.end(), other.end(), server.stop(), origin.stop()


def part_memory():
    """Hundreds of readers and a small pool: nobody waits for ever, all bytes are right."""
    origin = Origin("set * rate=40M")
    server = Server(origin, cache__size="1GiB")
    crowd = Crowd(server)
    crowd.do(f"get 100 30K {keys('paused', 50, '4M')}")
    for what, count, size in ("misses and hits", 24, "8M"), ("hits, most of them from disk", 24, "8M"):
        names = [f"k{i}@{size}" for i in range(count)]
        out = subprocess.run([f"{BUILD}/tests/swarm", "-n", "300" if FULL else "120", "-g", "1200" if FULL else "360", "-r", "30",
                              "-w", "40", str(server.port), "b", *names], capture_output=True, text=True)
        check(f"{what}: every read ends, with the right bytes", out.returncode == 0, (out.stdout + out.stderr).strip()[:400])
    crowd.do("go 100")
    seen = crowd.do("until done 100 60000")
    check("the paused ones can go on", seen["ok"] and seen["wrong"] == 0, seen)
    check("resident memory within cache.memory + 64 MiB", server.rss() <= 128 * MIB, f"{server.rss() / MIB:.0f} MiB")
    crowd.end(), server.stop(), origin.stop()


def part_relay():
    """Clients of uncached answers that pause: they keep their connections to upstream until others need them."""
    origin = Origin("set b/raw etag=none")       # without an ETag nothing may be kept
    server = Server(origin, upstream__connections=4, server__send_timeout="60s")
    paused, good = Crowd(server), Crowd(server)
    paused.do(f"get 4 1K {keys('raw', 4, '16M')}")
    seen = paused.do("until paused 4 10000")
    check("four paused relays hold all four connections", seen["ok"], seen)
    time.sleep(1)                                # nobody waits: they may stay
    check("which they may while nobody waits", paused.do("count")["paused"] == 4)
    seen = good.do("read 1 k0@1M")
    check("one who needs a connection waits some ten seconds at most", seen["failed"] == 0 and seen["most_us"] < 14000000, seen)
    seen = paused.do("count")
    check("and only as many are cut as were in the way", seen["closed"] == 1 and seen["paused"] == 3, seen)
    check("which is counted", server.metric("deadline_total", which="relay") == 1)
    paused.do("go 3")
    seen = paused.do("until done 3 20000")
    check("the others go on and get the right bytes", seen["ok"] and seen["wrong"] == 0, seen)
    paused.end(), good.end(), server.stop(), origin.stop()


def push(server, key, *options):
    """An upload (bench/push.c); what it tells, and for how long it went on."""
    env = {**os.environ, "AWS_ACCESS_KEY_ID": "AKIDLIMITS", "AWS_SECRET_ACCESS_KEY": "secret-of-the-limits",
           "AWS_REGION": "us-east-1"}
    began = time.monotonic()
    out = subprocess.run([f"{BUILD}/bench/push", "-a", f"127.0.0.1:{server.port}", "-k", f"/b/{key}", *options],
                         capture_output=True, text=True, env=env, timeout=600)
    if out.returncode not in (0, 2):
        sys.exit(f"limits: push: {out.stderr}")
    return {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)(?= )", out.stdout)}, time.monotonic() - began


def stored(origin, key):
    """What the store has of uploads of that key: the object bytes of each, none for one that was not whole."""
    return [int(n) for n in re.findall(rf"body PUT /b/{re.escape(key.replace('@', '%40'))} .*object=(\d+) ", origin.say("requests"))]


def put_large(write, form, cache):
    """One body that is larger than the memory, and than the cache."""
    size = 5 << 30 if FULL else 512 * MIB
    origin = Origin("log on")
    server = Server(origin, cache__size=cache, cache__write=write)
    key, what = f"large@{size}", f"{size >> 20} MiB, {form}, {write}, cache.size {cache}"
    seen, _ = push(server, key, "-F", form, "-v", "7")
    check(f"{what}: stored, byte by byte", seen["ok"] == 1 and stored(origin, key) == [size], f"{seen} {stored(origin, key)}")
    check(f"{what}: resident memory throughout, at most cache.memory + 64 MiB", server.rss("VmHWM") <= 128 * MIB,
          f"{server.rss('VmHWM') / MIB:.0f} MiB")
    good = Crowd(server)
    origin.say(f"object b small@1M size=1M; bump b {key}")
    seen = good.do("read 3 small@1M")
    check(f"{what}: others are served behind it", seen["failed"] == 0, seen)
    good.end(), server.stop(), origin.stop()


def put_slow():
    """A store that takes slowly holds the clients back, not the memory."""
    clients, size, rate = (16, 256 * MIB, 16 * MIB) if FULL else (8, 16 * MIB, 4 * MIB)
    origin = Origin(f"set * body_rate={rate}")
    server = Server(origin)
    seen, took = push(server, f"slow##@{size}", "-n", str(clients), "-c", str(clients), "-N", str(clients), "-v", "3")
    least = size / rate * 0.5                    # half: what sockets hold is no time of the client's
    check(f"{clients} uploads to a slow store are held back", seen["ok"] == clients and took >= least, f"{seen}, {took:.1f} s")
    check("resident memory throughout, at most cache.memory + 64 MiB", server.rss("VmHWM") <= 128 * MIB,
          f"{server.rss('VmHWM') / MIB:.0f} MiB")
    server.stop(), origin.stop()


def nothing_is_left(what, server, origin, key, used):
    """Of an upload that broke off: the store has the old object, and so do we."""
    check(f"{what}: the store saw no whole body", stored(origin, key) == [], origin.say("requests"))
    back = until(lambda: server.metric("cache_used_bytes") <= used and server.metric("requests_in_flight") == 0, 15)
    check(f"{what}: its room in the cache is free again", back, f"{server.metric('cache_used_bytes'):.0f}, before {used:.0f}")
    check(f"{what}: so are its buffers", until(lambda: server.metric("buffers_held_bytes") == 0, 15))
    patient = Crowd(server)                      # a store that died often enough is down for a second
    readable = until(lambda: patient.do(f"keep 1 {key}")["failed"] == 0, 15)
    patient.end()
    crowd = Crowd(server)
    if check(f"{what}: the object of before can be read", readable):
        crowd.do(f"get 1 1G {key}")              # every byte compared with version 1
        seen = crowd.do("until done 1 10000")
        check(f"{what}: and it is that one", seen["ok"] and seen["wrong"] == 0, seen)
    crowd.end()


def put_broken():
    """Clients that leave, and stores that die, at each kind of moment."""
    origin = Origin("log on")
    server = Server(origin)
    number = 0
    sizes = (100 * KIB, 2 * MIB, 20 * MIB) if FULL else (300 * KIB, 9 * MIB)
    for form in "plain", "trailer":
        for size in sizes:
            for cut in 0, 70 * KIB, size // 2, size - 1:
                number += 1
                key, used = f"left{number}@{size}", server.metric("cache_used_bytes")
                seen, _ = push(server, key, "-F", form, "-v", "2", "-x", str(cut))
                check(f"client leaves at {cut} of {size}, {form}", seen["left"] == 1, seen)
                nothing_is_left(f"client leaves at {cut} of {size}, {form}", server, origin, key, used)
            for cut, how in itertools.product((0, 70 * KIB, size // 2, size - 1, size, 2 * size), ("", " reset=1")):
                number += 1
                key, used = f"died{number}@{size}", server.metric("cache_used_bytes")
                origin.say(f"next b/{key} method=PUT count=50 body_cut={cut}{how}")
                seen, _ = push(server, key, "-F", form, "-v", "2")
                what = f"store dies{how} at {cut} of {size}, {form}"
                check(f"{what}: an error, never a success", seen["refused"] + seen["broken"] == 1 and seen["status"] // 100 in (0, 5), seen)
                nothing_is_left(what, server, origin, key, used)
    server.stop(), origin.stop()


def ask_many(server, names):
    """Small ones over one connection, a hundred requests in front of their answers: how many were answered with which status."""
    seen = {}
    with socket.create_connection(("127.0.0.1", server.port)) as s, s.makefile("rb") as f:
        for at in range(0, len(names), 100):
            some = names[at:at + 100]
            s.sendall(b"".join(b"GET /b/%s HTTP/1.1\r\nHost: l\r\n\r\n" % name.encode() for name in some))
            for _ in some:
                head = b"".join(iter(f.readline, b"\r\n")).decode().lower()
                f.read(int(re.search(r"content-length: (\d+)", head)[1]))
                status = head.split(" ")[1]
                seen[status] = seen.get(status, 0) + 1
    return seen


def fetched(port, key, **headers):
    """Body and x-cache of an answer, by the server or by the store itself (then its ETag); (None, the status) of an error."""
    try:
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/b/{key}", headers=headers), timeout=60) as answer:
            return answer.read(), answer.headers["x-cache"] or answer.headers["etag"]
    except urllib.error.HTTPError as e:
        return None, e.code


def pin(server, verb):
    out = subprocess.run([f"{BUILD}/headpond", "--server", f"unix:{server.dir}/admin.sock", verb, "s3://b/full/"], capture_output=True,
                         text=True)
    check(f"{verb} of a prefix", out.returncode == 0, out.stderr)


def part_index():
    """What the index has no room for is upstream's to answer, as without a cache: nobody is refused for it."""
    count = 60000
    origin = Origin(f"set b/wide@1M header=\"x-amz-meta-wide: {'w' * 6000}\"\nset b/umlaut@1M header=\"x-amz-meta-name: \u00fc\"")
    server = Server(origin, cache__index_memory="64MiB")
    for key, ends in ("wide@1M", ["bypass", "bypass"]), ("umlaut@1M", ["miss", "hit"]):
        wanted, _ = fetched(origin.port, key)
        seen = [fetched(server.port, key) for _ in ends]
        check(f"{key.split('@')[0]} metadata: the right bytes", seen == [(wanted, end) for end in ends], [end for _, end in seen])
    key = "turned@1M"
    check("an object is here", [fetched(server.port, key)[1] for _ in range(2)] == ["miss", "hit"])
    origin.say(f"object b {key} size=1M; bump b {key}; set b/{key} header=\"x-amz-meta-wide: {'w' * 6000}\"")
    wanted, tag = fetched(origin.port, key)
    seen = [fetched(server.port, key, **{"If-Match": tag}), fetched(server.port, key)]
    check("known to be another one now, that cannot be kept: the old one is gone", seen == [(wanted, "bypass")] * 2, [end for _, end in seen])
    pin(server, "pin")
    seen = ask_many(server, [f"full/{i:0900}@1K" for i in range(count)])
    check("more of it than the index has room for: all come", seen == {"200": count}, seen)
    limit, used = server.metric("index_memory_limit_bytes"), server.metric("index_memory_bytes")
    check("the index is full", limit * 0.85 < used <= limit + 2 * MIB, f"{used / MIB:.1f} of {limit / MIB:.1f} MiB")
    names = [f"new/{i:0900}@64K" for i in range(100)]    # as long as those: what is shorter may find room between them
    wanted = [fetched(origin.port, name)[0] for name in names]
    origin.say("mark")
    began = time.monotonic()
    seen = [fetched(server.port, name) for name in names]
    most = 100 + 8 + (time.monotonic() - began) * 10 + 1    # eight in a row tell it, then it looks ten times a second
    check("new objects: the right bytes", [body for body, _ in seen] == wanted)
    ends = [end for _, end in seen]              # a chunk that a busy disk refused is no pinned one: its room may be found
    check("nearly all are passed through", ends.count("bypass") >= 90, {end: ends.count(end) for end in set(ends)})
    asked = int(re.search(r"requests=(\d+)", origin.say("stats"))[1])
    check("upstream is asked once for each, and now and then to see whether there is room", 100 <= asked <= most, asked)
    seen = ask_many(server, [f"full/{i:0900}@1K" for i in range(1000)])
    check("what is here is answered", seen == {"200": 1000}, seen)
    key = next(name for name in (f"full/{i:0900}@1K" for i in range(count)) if fetched(server.port, name)[1] == "hit")
    origin.say(f"set b/{key} header=\"x-amz-meta-new: 1\"")
    seen = fetched(server.port, key, **{"If-Match": "\"other\""})[1], fetched(server.port, key)[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/b/{key}") as answer:
        check("new metadata of what is here is learnt", seen == (412, "hit") and answer.headers["x-amz-meta-new"] == "1", seen)
    origin.say("mark\nlog on")
    told, _ = push(server, "up@3000000", "-F", "plain", "-v", "2")
    check("an upload goes through", stored(origin, "up@3000000") == [3000000], told)
    pin(server, "unpin")
    until(lambda: fetched(server.port, names[0])[1] == "hit", 10)
    check("once there is room it is kept", fetched(server.port, names[0]) == (wanted[0], "hit"))
    server.stop(), origin.stop()


def part_put():
    """Uploads: larger than memory and cache, to slow stores, broken off by either side."""
    for write, form, cache in ("through", "plain", "256MiB"), ("through", "trailer", "256MiB"), ("around", "plain", "4GiB"):
        put_large(write, form, cache)
    put_slow()
    put_broken()


PARTS = {name[5:]: part for name, part in list(globals().items()) if name.startswith("part_")}


def main():
    wanted = sys.argv[1:] or list(PARTS)
    if set(wanted) - set(PARTS):
        sys.exit(f"no such part: {' '.join(set(wanted) - set(PARTS))}; there are {' '.join(PARTS)}")
    if os.environ.get("LIMITS_INSIDE") != "1":
        os.environ["LIMITS_INSIDE"] = "1"
        try:
            os.execvp("unshare", ["unshare", "-n" if os.geteuid() == 0 else "-rn", "--", sys.executable, *sys.argv])
        except OSError as e:
            sys.exit(f"limits: no network namespace: {e}")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for name in wanted:
        began = time.monotonic()
        print(f"-- {name}", flush=True)
        PARTS[name]()
        print(f"-- {name}: {time.monotonic() - began:.1f} s", flush=True)
    print(f"limits: {len(passed)} passed, {len(failed)} failed")
    sys.exit(1 if failed or not passed else 0)


if __name__ == "__main__":
    main()
