# Drains with restarts, and reloads, under load: no answer is cut, no request is lost.
#
# Two servers, one with TLS, each over its own cache and the same store. Eight clients each ask all
# the time (load.py says what they accept). DRAINS times each server gets SIGTERM, must end with
# exit 0, and is started again; RELOADS times its configuration, certificate or keys change (every
# fourth time for the worse) and it gets SIGHUP. Behind that, RELOADS reloads of many options under
# 32 clients (reloads.py).
#
#   drain.py [--drains N] [--reloads N]      the last line is "drain: N passed, N failed"
#
# SPDX-License-Identifier: Apache-2.0
import argparse
import contextlib
import itertools
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "rgw"))
import procs                           # noqa: E402
from load import Client, Tally, content  # noqa: E402

MANNERS = ("hot", "hot", "hot", "cold", "slow", "fresh", "pausing", "signed")
DRAINED_S, STEP_S, PROGRESS = 20, 20, 24


class Verdicts:
    def __init__(self):
        self.passed = self.failed = 0

    def add(self, good, what):
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print(f"NOT OK {what}", flush=True)


class Store:
    """A directory as the upstream: hot objects, and new ones for misses."""

    sizes = (1, 700, 5000, 70_000, 300_000, (1 << 20) + 1, 3 << 20, 9 << 20)
    largest = (7, 9 << 20)

    def __init__(self, where):
        self.where = os.path.join(where, "store", "b")
        self.numbers = itertools.count()
        os.makedirs(self.where)
        for seed, size in enumerate(self.sizes):
            self.write(f"hot{seed}", content(seed, size))

    def write(self, key, data):
        with open(os.path.join(self.where, key), "wb") as f:
            f.write(data)

    @contextlib.contextmanager
    def new_object(self):
        number = next(self.numbers)
        key, data = f"cold{number}", content(number, 20_000 + number * 997 % 1_500_000)
        self.write(key, data)
        yield key, data
        os.unlink(os.path.join(self.where, key))


class Authority:
    """Certificates by openssl, all of one authority."""

    def __init__(self, where):
        self.where = where
        self.names = itertools.count(1)
        self.call("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                  "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=drain", "-days", "2")
        with open(os.path.join(where, "extensions"), "w") as f:
            f.write("subjectAltName=IP:127.0.0.1\n")

    def call(self, *words):
        procs.run(["openssl", *words], cwd=self.where)

    def issue(self, cert, key):
        """A new certificate in place of that one; returns its name."""
        name = f"cert{next(self.names)}"
        self.call("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                  "-keyout", "new.key", "-out", "new.csr", "-subj", f"/CN={name}")
        self.call("x509", "-req", "-in", "new.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                  "-CAcreateserial", "-days", "30", "-extfile", "extensions", "-out", "new.pem")
        os.chmod(os.path.join(self.where, "new.key"), 0o600)
        for made, path in (("new.pem", cert), ("new.key", key)):
            os.replace(os.path.join(self.where, made), path)
        return name


class Server:
    def __init__(self, where, name, program, store, authority):
        self.store, self.authority, self.name = store, authority, name
        self.dir = os.path.join(where, name)
        os.makedirs(os.path.join(self.dir, "cache"), mode=0o700)
        self.port, self.admin_port = procs.free_port(), procs.free_port()
        self.config = self.path("headpond.toml")
        self.ttl, self.keys, self.shown = 60, 0, set()
        self.trust = None
        if authority:
            self.trust = ssl.create_default_context(cafile=os.path.join(authority.where, "ca.pem"))
            self.shown.add(authority.issue(self.path("tls.pem"), self.path("tls.key")))
        self.write_keys()
        self.write_config()
        env = procs.clean_environment(AWS_ACCESS_KEY_ID="X", AWS_SECRET_ACCESS_KEY="Y")
        self.process = procs.Process(name, [program, "--config", self.config], self.path("log"),
                                     env)
        self.tally = Tally()

    def path(self, name):
        return os.path.join(self.dir, name)

    def write_keys(self):
        self.keys += 1
        new = self.path("keys.new")
        with open(new, "w") as f:
            f.write(f"LOADKEY load-secret ro b\nKEY{self.keys} secret{self.keys} ro\n")
        os.chmod(new, 0o600)
        os.replace(new, self.path("keys"))

    def write_config(self, ttl=None):
        tls = ""
        if self.trust:
            tls = f'tls_cert = "{self.path("tls.pem")}"\ntls_key = "{self.path("tls.key")}"\n'
        root = str(os.geteuid() == 0).lower()
        with open(self.config, "w") as f:
            f.write(f'[server]\nlisten = ["127.0.0.1:{self.port}"]\nworkers = 2\n'
                    f'allow_root = {root}\n{tls}'
                    f'[admin]\nlisten = ["unix:{self.dir}/sock", "127.0.0.1:{self.admin_port}"]\n'
                    f'[auth]\nanonymous = ["127.0.0.0/8"]\nkeys_file = "{self.path("keys")}"\n'
                    f'[upstream]\nendpoint = "file://{os.path.dirname(self.store.where)}"\n'
                    f'[cache]\ndirs = ["{self.dir}/cache"]\nsize = "256MiB"\nmemory = "128MiB"\n'
                    f'min_free = "64MiB"\nttl = "{ttl or f"{self.ttl}s"}"\n')

    def metric(self, name):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/metrics", timeout=5) as r:
            found = re.search(rf"^{re.escape('headpond_' + name)} (\S+)$", r.read().decode(), re.M)
        return float(found.group(1)) if found else 0.0

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/readyz", timeout=5):
                return True
        except OSError:
            return False

    def start(self):
        self.process.start().wait_ready(self.is_ready, 30)

    def drain(self):
        """SIGTERM to the end; the exit status, and how long it took."""
        began = time.monotonic()
        self.process.signal(signal.SIGTERM)  # once: a second one would cut
        try:
            code = self.process.child.wait(DRAINED_S)
        except subprocess.TimeoutExpired:
            code = "no end"
        return code, time.monotonic() - began

    def reload(self, result):
        """SIGHUP; True when it ended as `result` says, and nothing else happened."""
        series = {r: f'config_reloads_total{{result="{r}"}}' for r in ("applied", "refused")}
        before = {r: self.metric(s) for r, s in series.items()}
        self.process.signal(signal.SIGHUP)

        def ended():
            now = {r: self.metric(s) - before[r] for r, s in series.items()}
            return now if any(now.values()) else None

        return procs.wait_until("a reload", ended, 10, 0.01)[result] == 1

    def change(self, number):
        """Something else each time; returns what the reload should be."""
        kind = number % 4
        if kind == 0:
            self.ttl = 1 if self.ttl == 60 else 60
            self.write_config()
        elif kind == 1:
            self.write_config(ttl="soon")
            return "refused"
        elif kind == 2 and self.trust:
            self.write_config()
            self.shown.add(self.authority.issue(self.path("tls.pem"), self.path("tls.key")))
        else:
            self.write_config()
            self.write_keys()
        return "applied"

    def load_goes_on(self):
        """Some more requests were answered, so that what comes next meets others."""
        want = self.tally.done + PROGRESS

        def moved():
            if self.tally.failures:
                return True
            self.process.require_alive()
            return self.tally.done >= want

        procs.wait_until(f"{self.name}: requests go on", moved, STEP_S, 0.02)


def log_is_clean(server):
    bad = ("Sanitizer", "runtime error:", "panic", "drain deadline")
    with open(server.process.log, errors="replace") as f:
        return [line.rstrip() for line in f if any(word in line for word in bad)]


def work(server, drains, reloads, verdicts, lock):
    """The whole programme for one server: reloads and drains take turns."""
    steps = sorted([(i / max(drains, 1), "drain") for i in range(drains)] +
                   [(i / max(reloads, 1), "reload") for i in range(reloads)])
    number, longest = 0, 0.0
    for _, step in steps:
        server.load_goes_on()
        if step == "drain":
            code, took = server.drain()
            longest = max(longest, took)
            with lock:
                verdicts.add(code == 0, f"{server.name}: a drain ended with {code}, {took:.1f} s")
            server.write_config()      # a bad one is not for a start
            server.start()
        else:
            with lock:
                result = server.change(number)
            good = server.reload(result)
            number += 1
            with lock:
                verdicts.add(good, f"{server.name}: reload {number} should have been {result}")
    server.load_goes_on()
    print(f"# {server.name}: the longest drain took {longest:.2f} s", flush=True)


def guarded(server, clients, options, verdicts, lock):
    """One server's life. It dies with the thread that started it (PR_SET_PDEATHSIG): this one."""
    try:
        server.start()
        for client in clients:
            client.start()
        work(server, options.drains, options.reloads, verdicts, lock)
    except Exception as e:             # noqa: BLE001 - told and counted
        server.tally.fail(f"{server.name}: {e}")
    server.tally.over = True
    for client in clients:
        client.join(40)
    code, took = server.drain()
    server.process.kill()
    with lock:
        verdicts.add(code == 0, f"{server.name}: the last drain ended with {code}, {took:.1f} s")


def judge(server, verdicts):
    tally = server.tally
    print(f"# {server.name}: {tally.done} requests, {tally.bytes >> 20} MiB, {len(tally.failures)} "
          f"failed; asked again: {tally.closed} behind a close in order, {tally.unheard} while "
          f"nobody listened; certificates seen: {len(tally.certificates)}")
    for what in tally.failures[:20]:
        print(f"# {what}")
    verdicts.add(not tally.failures, f"{server.name}: {len(tally.failures)} failed requests")
    verdicts.add(tally.done > 100, f"{server.name}: there was load")
    dirty = log_is_clean(server)
    verdicts.add(not dirty, f"{server.name}: its log: {dirty[:3]}")
    if server.trust:
        missed = server.shown - tally.certificates
        verdicts.add(not missed, f"{server.name}: certificates that nobody saw: {missed}")


def run(where, options, verdicts):
    store, authority, lock = Store(where), Authority(where), threading.Lock()
    servers = [Server(where, name, options.program, store, authority if name == "tls" else None)
               for name in ("plain", "tls")]
    lives = [threading.Thread(target=guarded,
                              args=(s, [Client(f"{s.name}-{i}-{m}", s, s.tally, m)
                                        for i, m in enumerate(MANNERS)], options, verdicts, lock))
             for s in servers]
    for life in lives:
        life.start()
    for life in lives:
        life.join()
    for server in servers:
        judge(server, verdicts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--drains", type=int, default=5)
    parser.add_argument("--reloads", type=int, default=20)
    parser.add_argument("--program", default="build/release/headpondd")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    where = tempfile.mkdtemp(prefix="headpond-drain-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    verdicts = Verdicts()
    try:
        run(where, options, verdicts)
        import reloads                 # noqa: PLC0415 - it is made of what stands here
        second = os.path.join(where, "reloads")
        os.mkdir(second)
        reloads.run(second, options.program, options.reloads, verdicts)
    finally:
        if options.keep or verdicts.failed:
            print(f"# kept {where}")
        else:
            shutil.rmtree(where, ignore_errors=True)
    print(f"drain: {verdicts.passed} passed, {verdicts.failed} failed")
    return 1 if verdicts.failed or not verdicts.passed else 0


if __name__ == "__main__":
    sys.exit(main())
