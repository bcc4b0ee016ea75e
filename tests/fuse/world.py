# The small world of these tests: a store, a server with two cache directories, one of them on the
# file system that fails (faultfs.c), and readers that compare every byte.
#
# Invariants:
#  1. Readers do not retry: an error that a client library would hide is counted.
#  2. The file system is always thawed before a process that uses it is waited for: what hangs in it
#     cannot be killed.
#
# SPDX-License-Identifier: Apache-2.0
import collections
import functools
import http.client
import json
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time

from writer import Writer

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "rgw"))
from procs import (Failure, Process, Told, clean_environment, free_port, run, tail,  # noqa: E402
                   wait_until)

PROGRAMS = "build/release"
READERS = 4
SMALL, SMALL_BYTES, SMALL_COUNT = "1M", 1 << 20, 96
BIG, BIG_COUNT = "12M+5", 4
RANGE_BYTES = 100_000
FRESH = "300K"
Read = collections.namedtuple("Read", "began seconds error")


@functools.lru_cache(maxsize=256)
def right_bytes(key):
    return run([f"{PROGRAMS}/tests/swarm", "-m", "data", key]).stdout


class Disk:
    """faultfs on a mount point; say() tells it what to do."""

    def __init__(self, folder):
        self.mount, self.control = f"{folder}/disk", f"{folder}/disk.socket"
        self.folder, self.daemon = folder, None
        for name in (self.mount, f"{folder}/backing"):
            os.makedirs(name, mode=0o700)
        self.plug_in()

    def plug_in(self, *how):
        self.daemon = Process("faultfs", [f"{PROGRAMS}/tests/faultfs", f"{self.folder}/backing",
                                          self.mount, self.control, *how],
                              f"{self.folder}/faultfs.log")
        self.daemon.start().wait_ready(lambda: os.path.ismount(self.mount), 10)

    def tear_out(self):
        """As a disk that is pulled: what is open on it says ENOTCONN; the mount stays."""
        self.daemon.kill()
        self.daemon = None

    def unmount(self):
        done = subprocess.run(["umount", "-l", self.mount], check=False, capture_output=True)
        if done.returncode != 0:
            raise Failure(f"umount: {done.stderr.decode()}")

    def say(self, *lines):
        """All of them, in order; what the last one was answered."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(10)
            s.connect(self.control)
            answers = s.makefile()
            for line in lines:
                s.sendall(line.encode() + b"\n")
                answer = answers.readline().strip()
                if not answer or answer.startswith("error"):
                    raise Failure(f"faultfs: {line}: {answer}")
        return answer

    def count(self, name):
        return int(re.search(rf"{name}=(\d+)", self.say("stats")).group(1))

    def close(self):
        if self.daemon:
            self.daemon.kill()
        subprocess.run(["umount", "-l", self.mount], check=False, capture_output=True)


class Reader(threading.Thread):
    """Reads whole objects and ranges, known ones and new ones, and compares them."""

    def __init__(self, world, number):
        super().__init__(daemon=True)
        self.world, self.reads, self.over = world, [], threading.Event()
        self.random = random.Random(number)
        self.number, self.fresh, self.connection = number, 0, None

    def connect(self):
        self.connection = http.client.HTTPConnection("127.0.0.1", self.world.port, timeout=30)

    def choose(self):
        """A key, and the first and last byte that are wanted, or None for all."""
        dice = self.random.random()
        if dice < 0.1 and self.world.fresh:
            self.fresh += 1
            return f"new-{self.world.life}-{self.number}-{self.fresh}@{FRESH}", None
        if dice < 0.15:
            return f"big{self.random.randrange(BIG_COUNT)}@{BIG}", None
        key = f"small{self.random.randrange(SMALL_COUNT)}@{SMALL}"
        if dice < 0.3:
            return key, None
        at = self.random.randrange(SMALL_BYTES - RANGE_BYTES)
        return key, (at, at + RANGE_BYTES - 1)

    def read(self, key, bounds, hint=None):
        wanted = right_bytes(key)
        fields = {"Range": "bytes=%d-%d" % bounds} if bounds else {}
        if hint:
            fields["x-headpond-hint"] = hint
        if bounds:
            wanted = wanted[bounds[0]:bounds[1] + 1]
        began, error = time.monotonic(), None
        try:
            self.connection.request("GET", f"/data/{key}", headers=fields)
            answer = self.connection.getresponse()
            body = answer.read()
            if answer.status != (206 if bounds else 200):
                error = f"status {answer.status}"
            elif body != wanted:
                error = f"WRONG BYTES: {len(body)} of {len(wanted)}"
        except (OSError, http.client.HTTPException) as e:
            error = repr(e)
        self.reads.append(Read(began, time.monotonic() - began, error and f"{key}: {error}"))
        return error is None

    def run(self):
        while not self.over.is_set():
            if not self.connection:
                self.connect()
            if not self.read(*self.choose()):
                self.connection.close()
                self.connection = None
            time.sleep(0.004)


class World(Told):
    def __init__(self, folder):
        self.folder, self.life, self.fresh = folder, 0, True
        self.server, self.readers, self.writer = None, [], None
        self.size, self.begun = "384MiB", 0
        self.memory, self.ttl, self.workers = "64MiB", "1h", 0
        self.reads, self.writes, self.longest_s = 0, 0, 0.0
        self.store_port, self.control = free_port(), free_port()
        self.store = Process("store", [f"{PROGRAMS}/tests/origin", "-p", str(self.store_port),
                                       "-c", str(self.control)], f"{folder}/store.log").start()
        self.disk = Disk(folder)
        self.good, self.bad = f"{folder}/good", f"{self.disk.mount}/cache"
        for name in (self.good, self.bad):
            os.mkdir(name, mode=0o700)

    def close(self):
        self.end_readers()
        self.disk.close()              # what hangs in it ends with it
        for process in (self.server, self.store):
            if process:
                process.kill()

    # ---- the server ----

    def start(self, dirs=None):
        self.life += 1
        named = ", ".join(f'"{name}"' for name in dirs or (self.good, self.bad))
        self.port, self.admin = free_port(), free_port()
        with open(f"{self.folder}/headpond.toml", "w") as f:
            f.write(f'[server]\nlisten = ["127.0.0.1:{self.port}"]\nallow_root = true\n'
                    f'workers = {self.workers}\n'
                    f'[admin]\nlisten = ["127.0.0.1:{self.admin}"]\n'
                    f'[log]\nformat = "logfmt"\naccess = "off"\n'
                    f'[upstream]\nendpoint = "http://127.0.0.1:{self.store_port}"\n'
                    f'region = "us-east-1"\n'
                    f'[cache]\ndirs = [{named}]\nsize = "{self.size}"\n'
                    f'min_free = "64MiB"\nmemory = "{self.memory}"\nttl = "{self.ttl}"\n')
        environment = clean_environment(AWS_ACCESS_KEY_ID="AKIDDISKS",
                                        AWS_SECRET_ACCESS_KEY="secret-of-disks")
        program = os.environ.get("HEADPONDD", f"{PROGRAMS}/headpondd")
        self.log = f"{self.folder}/headpondd.{self.life}.log"
        self.server = Process("headpondd", [program, "--config", f"{self.folder}/headpond.toml"],
                              self.log, env=environment).start()
        self.server.wait_ready(lambda: self.admin_get("/readyz", quiet=True), 30)

    def stop(self):
        status = self.server.stop(30)
        self.server = None
        if status != 0:
            raise Failure(f"the server's end: exit {status}\n{tail(self.log)}")

    def of_bad(self, name):
        return self.metric(name, self.bad)

    # ---- what is said of the disk ----

    def state(self, where="/v1/status"):
        """The word that the server has for it."""
        def find(at):
            if isinstance(at, dict) and at.get("dir") == self.bad:
                return at["state"]
            inner = at.values() if isinstance(at, dict) else at if isinstance(at, list) else ()
            return next((s for s in map(find, inner) if s), None)
        said = self.admin_get(where, quiet=True)
        return find(json.loads(said)) if said else f"(no answer to GET {where})"

    def listed(self):
        """The disk's line of `headpond disk ls`."""
        done = run([f"{PROGRAMS}/headpond", "--server", f"http://127.0.0.1:{self.admin}", "disk",
                    "ls"], check=False)
        lines = (done.stdout + done.stderr).decode().splitlines()
        return next((line for line in lines if self.bad in line), "\n".join(lines))

    def until_state(self, wanted, seconds):
        try:
            wait_until(f"the disk is {'|'.join(wanted)}", lambda: self.state() in wanted, seconds)
        except Failure as e:
            raise Failure(f"{e}; it is {self.state()}") from None

    def require(self, wanted):
        """All say the same of the disk: status, list of disks, command line, metric."""
        said, told = self.state(), self.state("/v1/disks")
        listed, up = self.listed(), self.of_bad("disk_up")
        if said not in wanted or told != said or said not in listed or up != (said == "up"):
            raise Failure(f"wanted {'|'.join(wanted)}: /v1/status says {said}, /v1/disks {told}, "
                          f"disk_up is {up:g}, disk ls: {listed!r}")

    # ---- readers ----

    def warm(self):
        """Everything that is known is in the cache."""
        reader = Reader(self, 0)
        reader.connect()
        for key in [f"small{i}@{SMALL}" for i in range(SMALL_COUNT)] + \
                [f"big{i}@{BIG}" for i in range(BIG_COUNT)]:
            if not reader.read(key, None):
                raise Failure(f"while nothing fails: {reader.reads[-1].error}")
        reader.connection.close()
        wait_until("all is written", lambda: self.metric("fetches_in_flight") == 0, 20)

    def begin_readers(self):
        self.begun += 1                # so that what is new to them is new to the cache
        self.readers = [Reader(self, self.begun * 100 + i) for i in range(READERS)]
        self.writer = Writer(self, right_bytes)
        for thread in [*self.readers, self.writer]:
            thread.start()

    def end_readers(self):
        threads = [*self.readers, *([self.writer] if self.writer else [])]
        for thread in threads:
            thread.over.set()
        for thread in threads:
            thread.join(40)
            if thread.is_alive():
                raise Failure("a request does not end")
        reads = [r for reader in self.readers for r in reader.reads]
        errors = self.writer.errors if self.writer else []
        self.reads += len(reads)
        if self.writer:
            self.writes += self.writer.writes
            self.longest_s = max(self.longest_s, self.writer.longest_s)
        self.readers, self.writer = [], None
        if errors:
            raise Failure(f"{len(errors)} writes failed: {errors[0]}")
        return sorted(reads)
