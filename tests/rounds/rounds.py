#!/usr/bin/env python3
"""Never older than acknowledged: eight clients write and read the same few keys through a server that is killed again and again.

    rounds.py [--seed N] [--rounds N] [--kills N] [PART...]

A round is one operation of a client. The store (store.py) keeps what is written and is the truth; history.py says what may be read,
actor.py what is done. Kills strike at random, and from ambushes: in the middle of a body, behind a change and before its answer,
behind the answer, around the two halves of CompleteMultipartUpload's. Parts:

    through     uploads are kept; times to live are long, so that nothing but exact invalidation can be right
    around      uploads are not kept; two disks
    behind      objects are replaced in the store, behind the server's back: nothing older than the time to live

The seed decides what is done, not how the threads take turns. The last line is "rounds: N passed, N failed".
SPDX-License-Identifier: Apache-2.0"""
import argparse
import collections
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [HERE, os.path.join(TOP, "tests", "rgw")]
import procs                                     # noqa: E402
from actor import KEYS, KIB, Actor               # noqa: E402
from client import ACCESS, REGION, SECRET, Away, Cut  # noqa: E402
from history import History                      # noqa: E402
from store import Store                          # noqa: E402

CLIENTS, READY_S, PART_S, WRONGS_TOLD = 8, 30, 3600, 20
AMBUSHES = ("changed", "answered", "half a body", "completing", "completed", "read", None, None)
CLOCK_S = 0.01                                   # the server's clock is as coarse as a turn of its loop


class Run:
    """One part: a store, a server, and clients."""

    def __init__(self, name, arguments, program, disks=1, **settings):
        self.name, self.seed, self.program = name, arguments.seed, program
        self.random = random.Random(f"{self.seed} {name}")
        self.history, self.bodies, self.lock = History(), {}, threading.Lock()
        self.counts, self.wrongs = collections.Counter(), 0
        self.ttl_s, self.shown = None, True      # shown: what one reader saw, the next one must see
        self.store = Store(self.history, self.bodies, self.wrong)
        self.dir = tempfile.mkdtemp(prefix="headpond-rounds-", dir=os.environ.get("TMPDIR") or "/var/tmp")
        disks = [f"{self.dir}/disk{n}" for n in range(disks)]
        for disk in disks:
            os.mkdir(disk, 0o700)
        self.port, self.admin_port = procs.free_port(), procs.free_port()
        flags = {"server.listen": f"127.0.0.1:{self.port}", "server.workers": 2, "server.allow_root": "true",
                 "admin.listen": f"127.0.0.1:{self.admin_port}", "cache.size": "512MiB",
                 "cache.memory": "64MiB", "cache.min_free": "64MiB", "cache.ttl": "1h", "cache.disk_timeout": "60s", "log.access": "off",
                 "upstream.endpoint": f"http://127.0.0.1:{self.store.port}", **settings}
        argv = [program] + [word for key, value in flags.items() for word in ("--set", f"{key}={value}")]
        argv += [word for disk in disks for word in ("--cache", disk)]
        env = procs.clean_environment(AWS_ACCESS_KEY_ID=ACCESS, AWS_SECRET_ACCESS_KEY=SECRET, AWS_REGION=REGION)
        self.server = procs.Process("headpondd", argv, f"{self.dir}/log", env)
        self.up, self.up_since, self.over = threading.Event(), 0.0, False
        self.killed = 0

    # ---- what the clients ask ----

    def wrong(self, what):
        with self.lock:
            self.wrongs += 1
            if self.wrongs <= WRONGS_TOLD:
                print(f"WRONG {self.name}: {what}", flush=True)

    def note(self, kind):
        with self.lock:
            self.counts[kind] += 1

    def count_hit(self, answer):
        if answer.field("x-cache") == "hit":
            self.note("hits")

    def was_up(self, since):
        return self.up.is_set() and self.up_since < since

    def wait_up(self):
        self.up.wait(READY_S)

    def is_young(self, key, matches, began):
        return self.ttl_s is None or self.history.current(key, matches, began - self.ttl_s - CLOCK_S)

    def missed(self, source, began):
        """A source of a copy is told to be missing: has it been there all the time?"""
        with self.history.lock:                  # both of one moment
            return self.history.calm(source, began) and self.history.now(source).token is not None

    # ---- the server ----

    def is_ready(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def start(self):
        self.server.start().wait_ready(self.is_ready, READY_S)
        self.up_since = time.monotonic()
        self.up.set()

    def strike(self):
        """SIGKILL, from whichever thread."""
        with self.lock:
            self.up.clear()
            if self.server.alive():
                self.server.child.kill()

    def kill(self, number):
        """One kill, from an ambush or at once, and what comes behind it."""
        place = AMBUSHES[number % len(AMBUSHES)]
        struck = threading.Event()

        def act():
            self.strike()
            struck.set()

        if place:
            with self.store.lock:
                self.store.ambush = (place, act)
            if not struck.wait(10):
                self.note("nobody came")
        self.strike()
        self.server.child.wait()
        with self.store.lock:
            self.store.ambush = None
        self.start()
        self.note("kills")
        sweeper = Actor(self, f"sweeper{number}", writes=False)
        before = self.counts["hits"]
        for key in self.random.sample(KEYS, 6):
            sweeper.began = time.monotonic()
            try:
                sweeper.get("behind the start", key)
            except Away:
                self.wrong(f"behind the start: no answer for {key}")
            except Cut:                          # as it must be when the object changed meanwhile
                if self.history.calm(key, sweeper.began):
                    self.wrong(f"behind the start: the answer for {key} was cut")
        sweeper.client.close()
        self.counts["hits behind a start"] += self.counts["hits"] - before

    # ---- the part ----

    def done(self):
        return sum(self.counts[k] for k in dir(Actor) if k in self.counts) + self.counts["away"] + self.counts["cut"]

    def work(self, number, rounds, kills):
        actor = Actor(self, number)
        while not self.over and (self.done() < rounds or self.killed < kills):
            actor.step()
            if actor.random.random() < 0.02:
                actor.client.close()
        actor.client.close()

    def go(self, rounds, kills):
        """Rounds by the clients, kills spread over them."""
        self.start()
        threads = [threading.Thread(target=self.work, args=(n, rounds, kills), daemon=True) for n in range(CLIENTS)]
        for t in threads:
            t.start()
        until = time.monotonic() + PART_S
        while any(t.is_alive() for t in threads) and time.monotonic() < until and not self.over:
            time.sleep(self.random.uniform(0.005, 0.03))
            if self.killed < kills and self.done() >= rounds * (self.killed + 1) // (kills + 1):
                self.kill(self.killed)
                self.killed += 1
            elif self.random.random() < 0.05:
                with self.store.lock:
                    self.store.broken = 1        # the next change happens, and nobody is told
            if not self.server.alive():
                self.wrong(f"the server ended by itself: {procs.tail(self.server.log)}")
                self.over = True
        for t in threads:
            t.join(60)
            if t.is_alive():
                self.wrong("a client has been waiting for a minute")
        return self.killed

    def settle(self):
        """Behind all of it: every key is what its floor says, read twice, as a whole and as a head."""
        reader = Actor(self, "settle", writes=False)
        for key in KEYS:
            for ask in (reader.whole, reader.head, reader.whole):
                reader.began = time.monotonic()
                ask(key)
        reader.client.close()

    def end(self, check):
        code = self.server.stop()
        log = procs.tail(self.server.log, 400)
        check(f"{self.name}: the server ends cleanly", code == 0 and "panic" not in log, f"exit {code}")
        self.store.close()
        check(f"{self.name}: nothing was older than acknowledged, or mixed", self.wrongs == 0, f"{self.wrongs} wrong")
        shown = " ".join(f"{k.replace(' ', '_')}={n}" for k, n in sorted(self.counts.items()))
        print(f"# {self.name}: {shown}; store {self.store.asked}", flush=True)
        if self.wrongs:
            print(f"# kept {self.dir}", flush=True)
        else:
            shutil.rmtree(self.dir)


# ---- parts ----

def invalidated(run, rounds, kills, check):
    killed = run.go(rounds, kills)
    run.settle()
    check(f"{run.name}: {rounds} rounds and {kills} kills took place", killed == kills and run.done() >= rounds,
          f"{run.done()} and {killed}")
    check(f"{run.name}: the cache was there to be wrong", run.counts["hits"] >= rounds // 20, run.counts["hits"])
    check(f"{run.name}: also right behind a start", run.counts["hits behind a start"] >= kills // 5,
          run.counts["hits behind a start"])


def part_through(arguments, rounds, kills, check):
    run = Run("through", arguments, arguments.program, **{"cache.write": "through"})
    invalidated(run, rounds, kills, check)
    run.end(check)


def part_around(arguments, rounds, kills, check):
    run = Run("around", arguments, arguments.program, disks=2, **{"cache.write": "around"})
    invalidated(run, rounds, kills, check)
    run.end(check)


def part_behind(arguments, rounds, kills, check):
    """What others write is seen within the time to live; what is written through the server, at once."""
    run = Run("behind", arguments, arguments.program, **{"cache.ttl": "300ms", "cache.negative_ttl": "200ms"})
    run.ttl_s, run.shown = 0.3, False
    stop = threading.Event()

    def replace():
        others = Actor(run, "others")
        while not stop.wait(others.random.uniform(0.005, 0.05)):
            key = others.random.choice(KEYS)
            if others.random.random() < 0.1:
                run.history.change(key, None)
                continue
            token, body = others.new_body(others.random.choice((10, 40 * KIB, 300 * KIB, 2500 * KIB)))
            run.store.put(key, {"x-amz-meta-token": token}, body)

    others = threading.Thread(target=replace, daemon=True)
    others.start()
    killed = run.go(rounds, kills)
    stop.set()
    others.join()
    check(f"behind: {rounds} rounds and {kills} kills took place", killed == kills and run.done() >= rounds,
          f"{run.done()} and {killed}")
    check("behind: the cache was there to be wrong", run.counts["hits"] >= rounds // 20, run.counts["hits"])
    run.end(check)


PARTS = {"through": (part_through, 0.5, 0.6), "around": (part_around, 0.25, 0.2), "behind": (part_behind, 0.25, 0.2)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", default="1")
    parser.add_argument("--rounds", type=int, default=4000)
    parser.add_argument("--kills", type=int, default=24)
    parser.add_argument("--program", default=os.path.join(TOP, "build/release/headpondd"))
    parser.add_argument("part", nargs="*")
    arguments = parser.parse_args()
    verdicts = []

    def check(what, good, seen=""):
        verdicts.append(bool(good))
        print(f"{'ok    ' if good else 'FAILED'} {what}{f': {seen}' if seen != '' else ''}", flush=True)

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    for name in arguments.part or PARTS:
        part, rounds, kills = PARTS[name]
        began = time.monotonic()
        part(arguments, round(arguments.rounds * rounds), round(arguments.kills * kills), check)
        print(f"-- {name}, seed {arguments.seed}: {time.monotonic() - began:.1f} s", flush=True)
    print(f"rounds: {sum(verdicts)} passed, {len(verdicts) - sum(verdicts)} failed")
    sys.exit(0 if verdicts and all(verdicts) else 1)


if __name__ == "__main__":
    main()
