#!/usr/bin/python3
"""`make bench BENCH=epoch`: do GPUs wait? Loader workers read an epoch through headpondd from a store that is far away.

    epoch.py [FULL=1] [WORKERS=4] [EACH=1] [SIZE=252MiB] [SLOWER=1] [RUNS="demand cold warm plan ranges"]

FULL: 8 workers who read 96 objects of 252 MiB, shuffled, each one GET at a time, and use 50 MB/s each; the store gives 960 MB/s in all
and 28 MB/s to a connection, and answers after 30 ms (log-normal, sigma 0.5; one in a hundred ten times as late). Without it WORKERS of
them, EACH objects each, with as many eighths of the store's rate and of prefetch.inflight; SLOWER=N divides all rates and multiplies
all times by N, for machines that cannot keep up. Ratios stay as they are. Before a run of which the
cache is empty as much is read of other objects as the server has memory for: memory that was never touched costs a virtual machine more
than a disk. Runs:
  demand   prefetch.readahead = "off", by ranged GETs of 8 MiB one after the other (of a whole object the GET itself wants the next 8
           MiB). Void is everything unless utilisation lands between 40 and 60 % here: then there is something to hide, and it can be.
  cold     read-ahead, whole objects. At least 93 % utilisation; bytes that the store gave beyond those that were read at most 2 %.
  warm     two epochs after cold, in other orders. At least 99.5 %.
  plan     cold once more, and the loader has said in which order it will read (POST /v1/plans): at least 98 %, as the start of each
           object is no surprise any more. It is told when the workers start, so their first bytes still are.
  ranges   cold once more, by ranged GETs as in demand: what is behind a range has to be guessed.
Utilisation is the share of the workers' time in which they used bytes. The server's stall_seconds_total is held against the time in
which workers would have taken bytes and none came: within 5 %, or within a thousandth of their time where that is more (a warm run waits
for next to nothing, and what a busy machine delays then counts). What any GET waits that is answered from memory, beside as many others,
is no stall: it is measured first, by ranged GETs of one object that all workers read, and taken off. Upstream's bytes are counted by
the store.
The last line is "epoch: N passed, N failed". SPDX-License-Identifier: Apache-2.0"""
import json
import os
import re
import shutil
import sys
import tempfile
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
BUILD = os.path.join(TOP, "build/release")
sys.path.insert(0, os.path.join(TOP, "tests", "rgw"))
import procs                                     # noqa: E402

MIB, EIGHT, TOKEN = 1 << 20, 8, "a-token-of-the-bench"
RATE, TOTAL, EACH_CONNECTION, LATENCY_MS, INFLIGHT, MEMORY_MIB = 50e6, 960e6, 28e6, 30, 32, 1024
VOID, COLD, PLANNED, WARM, WASTED, AGREES, AGREES_OF_ALL = (0.40, 0.60), 0.93, 0.98, 0.995, 0.02, 0.05, 0.001


def read_settings():
    full = "FULL=1" in sys.argv[1:] or os.environ.get("FULL") == "1"
    settings = {"FULL": "0", "WORKERS": "8" if full else "4", "EACH": "12" if full else "1", "SIZE": "252", "SLOWER": "1",
                "RUNS": "demand cold warm plan ranges",
                "BENCH_DIR": "/var/tmp"}
    settings = {name: os.environ.get(name, value) for name, value in settings.items()}
    for word in sys.argv[1:]:
        name, _, value = word.partition("=")
        if name not in settings:
            sys.exit(f"epoch: {name} is not a setting")
        settings[name] = value
    return settings


class World:
    """The store's objects, and all that is derived from the settings."""

    def __init__(self, folder, settings):
        self.folder = folder
        self.workers, self.slower = int(settings["WORKERS"]), float(settings["SLOWER"])
        self.count = self.workers * int(settings["EACH"])
        self.size = int(re.match(r"\d+", settings["SIZE"])[0]) * MIB
        self.share = self.workers / EIGHT
        procs.run([f"{BUILD}/bench/store", "-d", folder, "-m", f"bench/0@{self.size}"])
        self.names = [f"bench/{i:04}@{self.size}" for i in range(self.count)]
        self.memory = max(64, round(MEMORY_MIB * self.share)) * MIB
        self.before = [f"before/{i:04}@{self.size}" for i in range(self.memory // self.size + 1)]
        os.makedirs(f"{folder}/before")
        for name in self.before + self.names:    # one file under many names: the store has nothing to read from a disk
            os.link(f"{folder}/bench/0@{self.size}", f"{folder}/{name}")

    def start_store(self):
        log = f"{self.folder}/store.log"
        self.store = procs.Process("store", [
            f"{BUILD}/bench/store", "-d", self.folder, "-p", "0", "-l", str(round(LATENCY_MS * self.slower)), "-j",
            "-r", str(round(EACH_CONNECTION / self.slower)), "-t", str(round(TOTAL * self.share / self.slower))], log).start()
        self.store_port = int(procs.wait_until("the store", lambda: re.search(r"port=(\d+)", procs.tail(log)), 10)[1])

    def given(self):
        """Bytes of bodies that the store gave so far."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.store_port}/-/stats", timeout=10) as answer:
            return int(re.search(rb"body_bytes=(\d+)", answer.read())[1])


class Server(procs.Told):
    def __init__(self, world, readahead):
        self.dir = f"{world.folder}/server"
        shutil.rmtree(self.dir, ignore_errors=True)
        os.makedirs(f"{self.dir}/cache", mode=0o700)
        with open(f"{self.dir}/token", "w", encoding="ascii", opener=lambda path, how: os.open(path, how, 0o600)) as f:
            f.write(TOKEN + "\n")
        self.port, self.admin = procs.free_port(), procs.free_port()
        flags = {"server.listen": f"127.0.0.1:{self.port}", "server.allow_root": "true", "admin.listen": f"127.0.0.1:{self.admin}",
                 "admin.token_file": f"{self.dir}/token",
                 "cache.dirs": f"{self.dir}/cache", "cache.size": f"{(world.count + len(world.before)) * world.size // MIB * 5 // 4 + 256}MiB",
                 "cache.min_free": "256MiB", "cache.memory": str(world.memory), "cache.ttl": "1h",
                 "prefetch.readahead": readahead, "prefetch.inflight": max(4, round(INFLIGHT * world.share)),
                 "upstream.endpoint": f"http://127.0.0.1:{world.store_port}"}
        argv = [f"{BUILD}/headpondd"] + [w for k, v in flags.items() for w in ("--set", f"{k}={v}")]
        env = procs.clean_environment(AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_REGION="us-east-1")
        self.process = procs.Process("headpondd", argv, f"{self.dir}/log", env).start()
        self.process.wait_ready(self.is_ready, 60)
        procs.run([f"{BUILD}/bench/epoch", "-p", str(self.port), "-r", "1G", "-w", "1", *world.before], timeout=3600)
        self.wait_until_quiet()

    def is_ready(self):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5).status == 200
        except OSError:
            return False

    def wait_until_quiet(self):
        """Nothing that was begun is still on its way: from upstream, or to the index."""
        procs.wait_until("the end of all fetches", lambda: self.metric("fetches_in_flight") == 0, 60)

    def plan(self, streams):
        """What the workers will read, said before."""
        document = {"job": "epoch", "epoch": 1, "prefix": "bench/", "streams": streams}
        wish = urllib.request.Request(f"http://127.0.0.1:{self.admin}/v1/plans", json.dumps(document).encode(), method="POST",
                                      headers={"Authorization": f"Bearer {TOKEN}"})
        with urllib.request.urlopen(wish, timeout=30) as answer:
            return json.load(answer)["id"]

    def planned(self, plan):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/v1/plans/{plan}", timeout=30) as answer:
            return json.load(answer)

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat") as f:
            fields = f.read().rpartition(")")[2].split()
        return sum(int(n) for n in fields[11:13]) / os.sysconf("SC_CLK_TCK")


class Verdicts:
    passed = failed = 0

    def say(self, good, text):
        self.passed += good
        self.failed += not good
        print(f"epoch: {'passed' if good else 'FAILED'}: {text}", flush=True)
        return good


def streams_of(world, seed, names):
    """The keys of each worker, in the order in which bench/epoch.c reads them."""
    order, number = list(names), seed
    for i in range(len(order), 1, -1):
        number = (number * 6364136223846793005 + 1442695040888963407) % 2 ** 64
        other = (number >> 33) % i
        order[i - 1], order[other] = order[other], order[i - 1]
    return [[name.removeprefix("bench/") for name in order[w::world.workers]] for w in range(world.workers)]


def read_epoch(world, server, seed, names, *more):
    """What the workers and the server tell of an epoch."""
    given, stalled, cpu = world.given(), server.metric("stall_seconds_total"), server.cpu()
    argv = [f"{BUILD}/bench/epoch", "-p", str(server.port), "-r", str(round(RATE / world.slower)), "-w", str(world.workers),
            "-s", str(seed), *more, *names]
    told = procs.run(argv, timeout=3600).stdout.decode()
    row = {k: float(v) for k, v in re.findall(r"(\w+)=([\d.]+)", told)}
    server.wait_until_quiet()
    row["stalled"] = server.metric("stall_seconds_total") - stalled
    row["given"] = world.given() - given
    row["utilisation"] = row["used"] / row["elapsed"]
    row["wasted"] = row["given"] / row["bytes"] - 1
    row["cpu"] = (server.cpu() - cpu) / (row["bytes"] / 1e9)
    return row


def measure_hits(world, server):
    """The seconds that a GET waits for bytes which are in memory."""
    names = world.before[-1:] * world.workers
    read_epoch(world, server, 1, names)
    row = read_epoch(world, server, 1, names, "-g", "8M")
    if row["stalled"] > AGREES * row["waited"] or row["given"] > 0:
        raise procs.Failure(f"not from memory: {row}")
    gets = world.workers * -(-world.size // (8 * MIB))
    print(f"epoch: a GET from memory waits {row['waited'] / gets * 1000:.2f} ms ({gets} of them)", flush=True)
    return row["waited"] / gets


def tell(name, row):
    print(f"epoch: {name:6} utilisation {row['utilisation']:.1%}  waited {row['waited']:.2f} s of {row['elapsed']:.1f}, of that "
          f"{row['answered']:.2f} s for any GET's answer, by the server "
          f"{row['stalled']:.2f} s  from the store {row['given'] / 1e9:.2f} GB of {row['bytes'] / 1e9:.2f}  CPU {row['cpu']:.2f} s/GB",
          flush=True)


def agrees(row):
    return abs(row["stalled"] - row["waited"] + row["answered"]) <= max(AGREES * row["waited"], AGREES_OF_ALL * row["elapsed"])


def judge(name, row, verdicts):
    tell(name, row)
    if name == "demand":
        verdicts.say(VOID[0] <= row["utilisation"] <= VOID[1],
                     f"demand: utilisation {row['utilisation']:.1%}, between {VOID[0]:.0%} and {VOID[1]:.0%}: else nothing here says anything")
    elif name == "warm":
        verdicts.say(row["utilisation"] >= WARM, f"warm: utilisation {row['utilisation']:.2%}, at least {WARM:.1%}")
    else:
        least = PLANNED if name == "plan" else COLD
        verdicts.say(row["utilisation"] >= least, f"{name}: utilisation {row['utilisation']:.1%}, at least {least:.0%}")
        verdicts.say(row["wasted"] <= WASTED, f"{name}: {row['wasted']:.2%} of the bytes from the store were wasted, at most {WASTED:.0%}")
    verdicts.say(agrees(row), f"{name}: stall_seconds_total {row['stalled']:.2f} s, by the workers "
                 f"{row['waited'] - row['answered']:.2f} s, within {AGREES:.0%} or {AGREES_OF_ALL:.1%} of all")


def run(world, settings, verdicts):
    server, seed, hit = None, 1, None
    for name in settings["RUNS"].split():
        if name != "warm":
            if server:
                server.process.stop()
            server = Server(world, "off" if name == "demand" else "auto")
        elif server is None:
            raise procs.Failure("a warm run needs one before it")
        hit = hit or measure_hits(world, server)
        seed += 1
        names = world.names * 2 if name == "warm" else world.names
        plan = server.plan(streams_of(world, seed, names)) if name == "plan" else None
        ranged = name in ("demand", "ranges")
        row = read_epoch(world, server, seed, names, *(["-g", "8M"] if ranged else []))
        row["answered"] = hit * len(names) * (-(-world.size // (8 * MIB)) if ranged else 1)
        judge(name, row, verdicts)
        if plan:
            told = server.planned(plan)
            verdicts.say(told["objects"]["read"] == len(names), f"plan: {told['objects']['read']} of {len(names)} objects were followed, "
                         f"{told['objects']['late']} came late; it is {told['state']}")
    server.process.stop()


def main():
    settings, verdicts = read_settings(), Verdicts()
    folder = tempfile.mkdtemp(prefix="headpond-epoch-", dir=settings["BENCH_DIR"])
    try:
        world = World(folder, settings)
        print(f"epoch: {world.workers} workers at {RATE / world.slower / 1e6:.0f} MB/s, {world.count} objects of {world.size // MIB} MiB; "
              f"store {TOTAL * world.share / world.slower / 1e6:.0f} MB/s, {EACH_CONNECTION / world.slower / 1e6:.0f} a connection, "
              f"{LATENCY_MS * world.slower:.0f} ms", flush=True)
        world.start_store()
        try:
            run(world, settings, verdicts)
        finally:
            world.store.kill()
    except procs.Failure as e:
        verdicts.say(False, str(e))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"epoch: {verdicts.passed} passed, {verdicts.failed} failed")
    return 1 if verdicts.failed else 0


if __name__ == "__main__":
    sys.exit(main())
