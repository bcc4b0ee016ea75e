#!/usr/bin/python3
"""`make bench BENCH=warm`: what do readers notice of a prewarm, and how much of the upstream does a prewarm take?

    warm.py [FULL=1] [ROUNDS=5] [SAMPLES=10000] [ALONE=3] [PARTS="beside alone"] [DELAY=20] [HITS=1000] [MISSES=300] [CALM=1] [PROFILE=1]

beside  ROUNDS times, the two by turns who begins: an idle time, and one in which a prewarm of shards of 64 MiB takes all that upstream
        gives. In both of them the same clients read: MISSES requests a second for objects of 64 KiB that nobody asked for before, and
        HITS a second for objects of 64 KiB that are cached, SAMPLES misses and as many hits as that time has. Requests leave when
        they are due, whatever became of those before, and their time counts from when they were due. Beside the prewarm the p99 of
        the misses may be 1.2 times that of the idle time before or behind it, that of the hits 1.1 times; what counts is the median
        of the rounds' ratios. Void, and done once more, is a round in which upstream did not give 80 % of what it can, or a prewarm that
        ended too early.
alone   ALONE times, by turns: `headpond prewarm` of shards that are not here, and `aws s3 cp --recursive` of the same ones from the same
        upstream to the same disk, both from the command's begin to its end. A prewarm has to take 90 % of the upstream's rate, and less
        time than aws (medians).
The upstream is the scripted origin: 300 MB/s in all, shared evenly by whoever has something to send, and DELAY ms before each first
byte (always the same: so a p99 is no matter of the store's luck, and the allowance is small). What it gave is what it counted. Demand
takes 7 % of it. Method: a network namespace of its own, loopback MTU 1500, cubic by route attribute; the server has one worker, on core
0; upstream and clients are on core 1, clients before upstream (SCHED_FIFO), as a late client would be taken for a late server; `aws` may
use both. CALM=1 puts all programs of the bench before what else runs on the machine. FULL: 5 rounds of 10,000 misses and 3 pairs
of 6.4 GB (95 GB from upstream in all); else 2 of 2,000 and a pair of 1.6 GB. Needs root, two cores, 20 GB of disk, the packages of make test-deps.
The last line is "warm: N passed, N failed". SPDX-License-Identifier: Apache-2.0"""
import json
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
BUILD = os.path.join(TOP, "build/release")
sys.path.insert(0, os.path.join(TOP, "tests", "rgw"))
import procs                                     # noqa: E402

MB, KIB, MIB = 10 ** 6, 1 << 10, 1 << 20
RATE, MISS_BYTES, HIT_BYTES, HIT_COUNT, SHARD = 300 * MB, 64 * KIB, 64 * KIB, 1000, 64 * MIB
INSIDE = {"loop_delay_seconds": "a turn", "disk_read_seconds": "a read", "disk_write_seconds": "a write"}
MISSES_MAY, HITS_MAY, VOID_BELOW, LEAST_ALONE, EARLY_S = 1.2, 1.1, 0.80, 0.90, 4


def read_settings():
    full = "FULL=1" in sys.argv[1:] or os.environ.get("FULL") == "1"
    settings = {"FULL": "0", "ROUNDS": "5" if full else "2", "SAMPLES": "10000" if full else "2000", "ALONE": "3" if full else "1",
                "PARTS": "beside alone", "DELAY": "20", "HITS": "1000", "MISSES": "300", "CALM": "0", "PROFILE": "0", "SET": "",
                "BENCH_DIR": "/var/tmp"}
    settings = {name: os.environ.get(name, value) for name, value in settings.items()}
    for word in sys.argv[1:]:
        name, _, value = word.partition("=")
        if name not in settings:
            sys.exit(f"warm: {name} is not a setting")
        settings[name] = value
    for name, value in settings.items():
        if name not in ("PARTS", "BENCH_DIR", "SET"):
            settings[name] = int(value)
    return settings


def pinned(core, argv, *before):
    """On that core; by a program that gives it precedence."""
    return [*before, "taskset", "-c", core, *argv]


def calm(settings):
    return ["nice", "-n", "-19"] if settings["CALM"] else []


class Upstream:
    """The scripted origin. Its control port takes a line and answers it."""

    def __init__(self, folder, settings):
        log = f"{folder}/upstream.log"
        self.process = procs.Process("upstream", pinned("1", [f"{BUILD}/tests/origin"], *calm(settings)), log).start()
        ports = procs.wait_until("the upstream", lambda: re.search(r"port=(\d+) control=(\d+)", procs.tail(log)), 10)
        self.port, control = int(ports[1]), int(ports[2])
        self.line = socket.create_connection(("127.0.0.1", control), 10)
        self.heard = self.line.makefile("r", encoding="ascii")
        self.say("bucket b")
        self.say(f"set * delay={settings['DELAY']} total_rate={RATE}")

    def say(self, text):
        """What it answers, but for the last line, which is a verdict."""
        self.line.sendall(text.encode() + b"\n")
        said = []
        for line in self.heard:
            if line.startswith(("ok", "error")):
                break
            said.append(line)
        if not line.startswith("ok"):
            raise procs.Failure(f"upstream: {text}: {line}")
        return "".join(said)

    def shards(self, prefix, count):
        self.say(f"objects b {prefix}/shard-####.tar {count} size={SHARD}")

    def given(self):
        """Bytes of bodies, so far."""
        return int(re.search(r"body_bytes=(\d+)", self.say("stats"))[1])


class Server(procs.Told):
    def __init__(self, folder, upstream, settings, size):
        self.folder = folder
        os.makedirs(f"{folder}/cache", mode=0o700)
        self.port = procs.free_port()
        flags = {"server.listen": f"127.0.0.1:{self.port}", "server.workers": "1", "server.allow_root": "true",
                 "admin.listen": f"unix:{folder}/admin.sock", "cache.dirs": f"{folder}/cache",
                 "cache.size": f"{size // MIB}MiB", "cache.min_free": "256MiB", "cache.ttl": "1d",
                 "upstream.endpoint": f"http://127.0.0.1:{upstream.port}"}
        flags.update(word.split("=", 1) for word in settings["SET"].split())
        argv = [os.environ.get("HEADPONDD", f"{BUILD}/headpondd")] + [w for k, v in flags.items() for w in ("--set", f"{k}={v}")]
        env = procs.clean_environment(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_REGION="us-east-1",
                                      HEADPOND_CONFIG="/dev/null")
        self.process = procs.Process("headpondd", pinned("0", argv, *calm(settings)), f"{folder}/log", env).start()
        self.process.wait_ready(self.is_ready, 60)

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

    def admin_get(self, target, quiet=False):
        """As of Told, by the socket."""
        return procs.run(["curl", "-sf", "--unix-socket", f"{self.folder}/admin.sock", f"http://headpond{target}"], check=not quiet).stdout.decode()

    def histogram(self, name):
        """How many so far were at most so many seconds."""
        found = {}
        for line in self.admin_get("/metrics").splitlines():
            if seen := re.match(rf'headpond_{name}_bucket{{.*le="([^"]+)"}} (\d+)', line):
                found[float(seen[1])] = found.get(float(seen[1]), 0) + int(seen[2])
        return found

    def headpond(self, *words, timeout=600):
        done = procs.run([f"{BUILD}/headpond", "--server", f"unix:{self.folder}/admin.sock", *words], timeout=timeout)
        return done.stdout.decode()

    def job(self, number):
        return json.loads(self.headpond("--json", "job", "show", number))

    def forget(self, prefix):
        """Nothing of it is under way, and nothing of it is cached."""
        procs.wait_until("the end of all fetches", lambda: self.metric("fetches_in_flight") == 0, 60)
        self.headpond("evict", f"s3://b/{prefix}/", "--yes")

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
        return sum(int(n) for n in fields[11:13]) / os.sysconf("SC_CLK_TCK")


class Verdicts:
    passed = failed = 0

    def say(self, good, text):
        self.passed += good
        self.failed += not good
        print(f"warm: {'passed' if good else 'FAILED'}: {text}", flush=True)


# ---- beside ----
def client(server, key, count, rate, connections):
    """Begins requests for that many objects, in order, so many a second."""
    argv = [f"{BUILD}/bench/load", "-a", f"127.0.0.1:{server.port}", "-k", f"/b/{key}", "-n", str(min(count, 10 ** key.count("#"))), "-q",
            "-c", str(connections), "-N", str(count), "-R", str(rate)]
    return subprocess.Popen(pinned("1", argv, "chrt", "-f", "2"), stdout=subprocess.PIPE, text=True, env=procs.clean_environment())


def heard(who, what):
    told = who.communicate(timeout=600)[0]
    if who.returncode != 0:
        raise procs.Failure(f"the clients of {what}: exit {who.returncode}: {told}")
    return {k: float(v) for k, v in re.findall(r"(\w+)=([\d.]+)", told)}


def slowest(now, before):
    """The bound in milliseconds that all but a hundredth of what was new kept."""
    new = {bound: count - before.get(bound, 0) for bound, count in now.items()}
    return next((1000 * bound for bound in sorted(new) if new[bound] >= 0.99 * max(new.values())), 0)


def read_for_a_while(server, upstream, settings, name):
    """What the clients saw, and what was given meanwhile."""
    hits = round(settings["SAMPLES"] * settings["HITS"] / settings["MISSES"])
    inside, from_disk = {name: server.histogram(name) for name in INSIDE}, server.metric("sent_bytes_total", 'source="nvme"')
    began, given, cpu = time.monotonic(), upstream.given(), server.cpu()
    ones = client(server, f"cold-{name}/######@{MISS_BYTES // KIB}K", settings["SAMPLES"], settings["MISSES"], 128)
    others = client(server, f"held/###@{HIT_BYTES // KIB}K", hits, settings["HITS"], 32)
    row = {"misses": heard(ones, "misses"), "hits": heard(others, "hits")}
    took = time.monotonic() - began
    row["inside"] = {name: slowest(server.histogram(name), inside[name]) for name in INSIDE}
    row["from_disk"] = (server.metric("sent_bytes_total", 'source="nvme"') - from_disk) / max(hits * HIT_BYTES, 1)
    row["given"] = (upstream.given() - given) / took / RATE
    row["cpu"] = (server.cpu() - cpu) / took
    row["width"] = server.metric("upstream_prefetch_limit")
    return row


def beside_prewarm(server, upstream, settings, name):
    number = json.loads(server.headpond("--json", "prewarm", "s3://b/train/", "--detach"))["id"]
    at = [upstream.given()]

    def flows():
        time.sleep(0.25)
        at.append(upstream.given())
        return at[-1] - at[-2] > VOID_BELOW * RATE / 4
    procs.wait_until("a prewarm at full speed", flows, 30)
    sampler = sample(server) if settings["PROFILE"] else None
    row = read_for_a_while(server, upstream, settings, name)
    if sampler:
        sampler.send_signal(2)
        sampler.wait()
    row["ended"] = server.job(number)["state"] != "running"
    if not row["ended"]:
        server.headpond("job", "cancel", number)
    server.forget("train")
    return row


def sample(server):
    argv = ["perf", "record", "-q", "-g", "-e", "cpu-clock", "-F", "4000", "-p", str(server.process.pid), "-o", "/var/tmp/warm.perf", "--", "sleep", "600"]
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def tell(name, row):
    of = {kind: "  ".join(f"{mark} {row[kind][f'{mark}_us'] / 1000:.2f}" for mark in ("p50", "p99", "max")) for kind in ("hits", "misses")}
    inside = "  ".join(f"{what} {row['inside'][name]:.1f}" for name, what in INSIDE.items())
    print(f"warm: {name:9} hits {of['hits']} ms  misses {of['misses']} ms  upstream {row['given']:.0%}  server's core {row['cpu']:.0%}  "
          f"connections for jobs {row['width']:.0f}  hits from disk {row['from_disk']:.0%}  p99 in ms below: {inside}", flush=True)


def measure_beside(server, upstream, settings, verdicts):
    seconds = settings["SAMPLES"] / settings["MISSES"]
    upstream.shards("train", round((seconds + EARLY_S) * RATE / SHARD))
    for _ in range(2):                           # the first reading brings them, the second is of what stays
        heard(client(server, f"held/###@{HIT_BYTES // KIB}K", HIT_COUNT, settings["HITS"], 32), "hits")
    ratios, tries = {"hits": [], "misses": []}, 0
    while len(ratios["hits"]) < settings["ROUNDS"]:
        if tries == 2 * settings["ROUNDS"]:
            raise procs.Failure("void: too few rounds in which the prewarm ran at full speed to the end")
        tries += 1
        row = {}
        for which in ("idle", "beside") if tries % 2 else ("beside", "idle"):
            read = beside_prewarm if which == "beside" else read_for_a_while
            row[which] = read(server, upstream, settings, f"{which}-{tries}")
            server.forget(f"cold-{which}-{tries}")
            tell(f"{which} {tries}", row[which])
        if row["beside"]["given"] < VOID_BELOW or row["beside"]["ended"]:
            print(f"warm: void: upstream gave {row['beside']['given']:.0%}, the prewarm {'had ended' if row['beside']['ended'] else 'ran'}",
                  flush=True)
            continue
        for kind, ratio in ratios.items():
            ratio.append(row["beside"][kind]["p99_us"] / row["idle"][kind]["p99_us"])
    for kind, may in (("misses", MISSES_MAY), ("hits", HITS_MAY)):
        middle, seen = statistics.median(ratios[kind]), " ".join(f"{r:.2f}" for r in ratios[kind])
        verdicts.say(middle <= may, f"p99 of {kind} beside a prewarm: {middle:.2f} times idle, at most {may} (rounds: {seen})")


# ---- alone ----
def timed(run):
    began = time.monotonic()
    run()
    return time.monotonic() - began


def measure_alone(server, upstream, settings, verdicts):
    count = 96 if settings["FULL"] else 24
    bytes_, seconds, given = count * SHARD, {"prewarm": [], "aws": []}, []
    upstream.shards("alone", count)
    copy = f"{server.folder}/copy"
    env = procs.clean_environment(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_REGION="us-east-1", AWS_MAX_ATTEMPTS="1",
                                  PATH=os.environ["PATH"])
    argv = ["aws", "--endpoint-url", f"http://127.0.0.1:{upstream.port}", "s3", "cp", "--recursive", "--quiet", "s3://b/alone/", copy]
    for number in range(settings["ALONE"]):
        for who in ("prewarm", "aws") if number % 2 == 0 else ("aws", "prewarm"):
            before, cpu = upstream.given(), server.cpu()
            if who == "prewarm":
                took = timed(lambda: server.headpond("prewarm", "s3://b/alone/"))
                given.append((upstream.given() - before) / bytes_)
            else:
                took = timed(lambda: procs.run(argv, timeout=600, env=env))
            seconds[who].append(took)
            print(f"warm: {who:7} {bytes_ / MB:.0f} MB in {took:.2f} s, {bytes_ / took / MB:.0f} MB/s, of upstream's rate {bytes_ / took / RATE:.1%}"
                  f"; the server used {(server.cpu() - cpu) / (bytes_ / 1e9):.2f} CPU s/GB", flush=True)
            if who == "prewarm":
                server.forget("alone")
            shutil.rmtree(copy, ignore_errors=True)
    mine, theirs = statistics.median(seconds["prewarm"]), statistics.median(seconds["aws"])
    verdicts.say(bytes_ / mine / RATE >= LEAST_ALONE, f"alone a prewarm takes {bytes_ / mine / RATE:.1%} of upstream's rate, at least {LEAST_ALONE:.0%}")
    verdicts.say(mine < theirs, f"a prewarm took {mine:.2f} s, aws s3 cp --recursive {theirs:.2f} s")
    verdicts.say(max(given) <= 1.001, f"upstream gave {max(given):.4f} times what was prewarmed, at most 1.001")


def main():
    settings, verdicts = read_settings(), Verdicts()
    if os.environ.get("BENCH_INSIDE") != "1":
        os.environ["BENCH_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "-n", "--", sys.executable, "-B", *sys.argv])
    procs.run(["ip", "link", "set", "lo", "mtu", "1500", "up"])
    procs.run("ip route change local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1 congctl cubic".split())
    folder = tempfile.mkdtemp(prefix="headpond-warm-", dir=settings["BENCH_DIR"])
    server = upstream = None
    try:
        upstream = Upstream(folder, settings)
        server = Server(folder, upstream, settings, 13000 * MIB)
        if "beside" in settings["PARTS"].split():
            measure_beside(server, upstream, settings, verdicts)
        if "alone" in settings["PARTS"].split():
            measure_alone(server, upstream, settings, verdicts)
        server.process.stop()
    except procs.Failure as e:
        verdicts.say(False, str(e))
    finally:
        for each in (server, upstream):
            if each:
                each.process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    print(f"warm: {verdicts.passed} passed, {verdicts.failed} failed")
    return 1 if verdicts.failed else 0


if __name__ == "__main__":
    sys.exit(main())
