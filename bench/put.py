#!/usr/bin/python3
"""`make bench BENCH=put`: uploads through headpondd beside uploads to its store, taking turns inside each round.

    put.py [ROUNDS=5] [STORES="sink rgw"] [SERVERS="direct through around"] [PROFILE=1] [RESULT=bench/results/put-last.tsv]

Eight connections upload objects of 64 MiB, unsigned payload, until 2 GiB (rgw: 1 GiB) went. Stores: `sink` takes bytes unseen (the
scripted origin with discard=1: what the server itself costs), `rgw` is a Ceph gateway over an OSD in memory. `through` keeps what is
uploaded, `around` does not. Method: a network namespace of its own, loopback MTU 1500, cubic by route attribute; the server is on
core 0 with one worker and, for `sink`, store and client on core 1; Ceph has both cores, and so has the client beside it, as a store
that needs more than a core would starve on one. What else runs on the machine takes from all of it, so nothing should. CPU is the process clock of the server. Ratio: to direct in the same run. Rows are
those of bench/results. Needs root, two cores, the packages of make test-deps. SPDX-License-Identifier: Apache-2.0"""
import os
import re
import shutil
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
from ceph import Ceph, User                      # noqa: E402
from wire import Wire                          # noqa: E402

CONNECTIONS, SIZE = 8, "64M"
UPLOADS = {"sink": 32, "rgw": 16}
FIELDS = "date commit machine case server unit median min max spread cpu cpu_unit rounds ratio"


def pinned(core, argv):
    return ["taskset", "-c", core, *argv]


class Sink:
    """The scripted origin, taking bytes unseen."""

    user, cores = User("sink", "AKIDBENCH", "secret-of-the-bench"), "1"

    def start(self, folder):
        script = os.path.join(folder, "script")
        with open(script, "w") as f:
            f.write("set * discard=1\n")
        self.port = procs.free_port()
        log = os.path.join(folder, "sink.log")
        self.process = procs.Process("sink", pinned("1", [f"{BUILD}/tests/origin", "-p", str(self.port), script]), log).start()
        procs.wait_until("the sink", lambda: "port=" in procs.tail(log), 10)
        return self

    def stop(self):
        self.process.kill()


class Gateway:
    """Ceph with a bucket."""

    cores = "0,1"

    def start(self, folder):
        self.ceph = Ceph(os.path.join(folder, "ceph")).start()
        self.port, self.user = self.ceph.port, self.ceph.users["main"]
        client = Wire(self.port, self.user)
        answer = client.ask("PUT", "/bench")
        if answer.status != 200:
            raise procs.Failure(f"no bucket: {answer.status}")
        client.close()
        return self

    def stop(self):
        self.ceph.stop()


STORES = {"sink": Sink, "rgw": Gateway}


class Server:
    def __init__(self, folder, store, write):
        self.dir = os.path.join(folder, write)
        os.makedirs(os.path.join(self.dir, "cache"), mode=0o700)
        self.port = procs.free_port()
        flags = {"server.listen": f"127.0.0.1:{self.port}", "server.workers": 1, "server.allow_root": "true", "cache.write": write,
                 "admin.listen": f"unix:{self.dir}/sock", "cache.dirs": f"{self.dir}/cache", "cache.size": "4GiB",
                 "cache.memory": "1GiB", "cache.min_free": "256MiB", "upstream.endpoint": f"http://127.0.0.1:{store.port}"}
        argv = pinned("0", [f"{BUILD}/headpondd"]) + [w for k, v in flags.items() for w in ("--set", f"{k}={v}")]
        env = procs.clean_environment(AWS_ACCESS_KEY_ID=store.user.access, AWS_SECRET_ACCESS_KEY=store.user.secret, AWS_REGION="us-east-1")
        self.process = procs.Process("headpondd", argv, f"{self.dir}/log", env).start()
        self.process.wait_ready(self.is_ready, 30)

    def is_ready(self):
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5).status == 200
        except OSError:
            return False


def push(store, server, uploads, size=SIZE, connections=CONNECTIONS):
    argv = [f"{BUILD}/bench/push", "-a", f"127.0.0.1:{(server or store).port}", "-k", f"/bench/up#@{size}", "-n", "8",
            "-c", str(connections), "-N", str(uploads)]
    if server:
        argv += ["-P", str(server.process.pid)]
    env = procs.clean_environment(AWS_ACCESS_KEY_ID=store.user.access, AWS_SECRET_ACCESS_KEY=store.user.secret, AWS_REGION="us-east-1")
    out = procs.run(pinned(store.cores, argv), timeout=300, env=env).stdout.decode()
    return {k: float(v) for k, v in re.findall(r"(\w+)=([\d.]+)", out)}


def profiled(name, server, go):
    """The same under perf; its hottest functions stand beside the results."""
    data = os.path.join(server.dir, "perf.data")
    sampler = subprocess.Popen(["perf", "record", "-q", "-e", "cpu-clock", "-F", "4000", "-g", "-p", str(server.process.pid), "-o", data],
                               stderr=subprocess.DEVNULL)
    time.sleep(0.3)
    row = go()
    sampler.send_signal(2)
    sampler.wait()
    with open(os.path.join(HERE, "results", f"{name}.perf"), "w") as f:
        subprocess.run(["perf", "report", "-i", data, "--stdio", "--no-children", "-g", "none", "--sort", "comm,dso,symbol"], stdout=f,
                       stderr=subprocess.DEVNULL)
    return row


def measure(name, settings, folder):
    """Rows of one store: server -> list of what push told."""
    store = STORES[name]().start(folder)
    rows = {s: [] for s in settings["SERVERS"].split()}
    try:
        servers = {s: Server(folder, store, s) if s != "direct" else None for s in rows}
        for s in rows:
            push(store, servers[s], CONNECTIONS)         # links, memory and slots are there already
        order = list(rows)
        for number in range(int(settings["ROUNDS"])):
            turn = number % len(order)
            for s in order[turn:] + order[:turn]:
                def go(s=s):
                    return push(store, servers[s], UPLOADS[name])
                rows[s].append(profiled(f"put.{name}.{s}", servers[s], go) if settings["PROFILE"] == "1" and servers[s] else go())
            print(f"{name}: round {number + 1}", file=sys.stderr, flush=True)
        for server in servers.values():
            if server:
                server.process.stop()
    finally:
        store.stop()
    return rows


def tell(name, rows, settings, out):
    commit = procs.run(["git", "-C", TOP, "rev-parse", "--short=12", "HEAD"], check=False).stdout.decode().strip() or "unknown"
    with open("/proc/cpuinfo") as f:
        model = re.search(r"model name\s*:\s*(.*)", f.read())[1]
    machine = f"{os.cpu_count()}x {model}, Linux {os.uname().release}"
    direct = statistics.median(r["mbps"] for r in rows["direct"]) if "direct" in rows else None
    for server, all_of in rows.items():
        rates = [r["mbps"] for r in all_of]
        median, cpu = statistics.median(rates), statistics.median(r["cpu_s_per_gb"] for r in all_of)
        ratio = f"{median / direct:.2f}" if direct else "-"
        print(f"put_{name:6} {server:9} {median:6.0f} [{min(rates):.0f}-{max(rates):.0f}] MB/s  CPU {cpu:.2f} s/GB  ratio {ratio}  "
              f"p50 {statistics.median(r['p50_us'] for r in all_of) / 1000:.0f} ms", flush=True)
        spread = f"{(max(rates) - min(rates)) / median:.0%}"
        print(time.strftime("%Y-%m-%dT%H:%MZ", time.gmtime()), commit, machine, f"put_{name}", server, "MB/s", round(median), round(min(rates)),
              round(max(rates)), spread, f"{cpu:.3f}" if server != "direct" else "-", "s/GB", len(rates), ratio, sep="\t", file=out)


def main():
    settings = {"ROUNDS": "5", "STORES": "sink rgw", "SERVERS": "direct through around", "PROFILE": "0",
                "RESULT": os.path.join(HERE, "results", "put-last.tsv")}
    settings = {name: os.environ.get(name, value) for name, value in settings.items()}
    for word in sys.argv[1:]:
        name, _, value = word.partition("=")
        if name not in settings:
            sys.exit(f'bench: unknown setting "{word}"')
        settings[name] = value
    if os.environ.get("BENCH_INSIDE") != "1":
        os.environ["BENCH_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "-n", "--", sys.executable, "-B", *sys.argv])
    procs.run(["ip", "link", "set", "lo", "mtu", "1500", "up"])
    procs.run("ip route change local 127.0.0.1 dev lo table local proto kernel scope host src 127.0.0.1 congctl cubic".split())
    folder = tempfile.mkdtemp(prefix="headpond-bench-", dir=os.environ.get("TMPDIR") or "/var/tmp")
    try:
        with open(settings["RESULT"], "w") as out:
            print(*FIELDS.split(), sep="\t", file=out)
            for name in settings["STORES"].split():
                where = os.path.join(folder, name)
                os.makedirs(where)
                tell(name, measure(name, settings, where), settings, out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
