#!/usr/bin/env python3
"""Prewarm jobs against the scripted upstream: what is listed comes, all of it, whatever happens on the way.

A job is killed with the server (kill -9) three times and ends at 100 %; one request of a hundred fails and is tried again; keys that
cannot be had are told by name (exit 3); what does not fit is refused before a byte is fetched (exit 7). Afterwards upstream is turned
off, and what was brought is read through the S3 port.

FULL=1: 20,000 objects. The last line is "prewarm: N passed, N failed".
SPDX-License-Identifier: Apache-2.0"""
import contextlib
import http.client
import json
import os
import pty
import re
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(TOP, "tests", "rgw"))
from procs import Failure, Process, clean_environment, free_port, tail, wait_until  # noqa: E402

FULL = os.environ.get("FULL", "") not in ("", "0")
OBJECTS = 20000 if FULL else 2000
SMALL = 40 * 1024
BIG = [f"train/big-{n}.bin" for n in range(3)]
BIG_BYTES = 21 * 1000 * 1000
BUILD = os.path.join(TOP, os.environ.get("B", "build/release"))
PATIENCE_S = 900 if FULL else 120


def expect(good, what):
    if not good:
        raise Failure(what)


class Report:
    """Counts checks, and tells those that fail."""

    def __init__(self):
        self.passed = self.failed = 0

    @contextlib.contextmanager
    def test(self, name):
        began = time.monotonic()
        try:
            yield
        except Exception as e:  # a check that breaks has failed
            self.failed += 1
            print(f"FAILED {name}: {e}", flush=True)
        else:
            self.passed += 1
            print(f"ok {name} ({time.monotonic() - began:.1f} s)", flush=True)


class Store:
    """The scripted upstream; its script is fed line by line."""

    def __init__(self):
        self.child = subprocess.Popen([os.path.join(BUILD, "tests", "origin"), "-"], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, env=clean_environment())
        self.port = int(re.search(rb"port=(\d+)", self.line()).group(1))

    def say(self, text):
        self.child.stdin.write(text.encode() + b"\n")
        self.child.stdin.flush()

    def line(self):
        if not select.select([self.child.stdout], [], [], 20)[0]:
            raise Failure("the store says nothing")
        return self.child.stdout.readline()

    def count(self, what):
        self.say("stats")
        return int(re.search(rb"\b" + what.encode() + rb"=(\d+)", self.line()).group(1))

    def end(self):
        self.child.kill()
        self.child.wait()


class Server:
    def __init__(self, folder, upstream):
        self.folder, self.upstream, self.process = folder, upstream, None
        self.cache, self.socket = os.path.join(folder, "cache"), os.path.join(folder, "admin.sock")
        os.makedirs(self.cache, mode=0o700)

    def start(self, *more):
        self.port = free_port()
        argv = [os.path.join(BUILD, "headpondd"), "--upstream", self.upstream, "--cache", self.cache, "--size",
                "2GiB" if FULL else "512MiB", "--listen", f"127.0.0.1:{self.port}", "--set", f"admin.listen=unix:{self.socket}",
                "--set", "cache.min_free=64MiB", "--set", "cache.memory=512MiB", "--set", "cache.disk_timeout=60s", "--set", "server.workers=2", "--set",
                "upstream.region=us-east-1", *more] + (["--allow-root"] if os.getuid() == 0 else [])
        environment = clean_environment(AWS_ACCESS_KEY_ID="AKIDPREWARM", AWS_SECRET_ACCESS_KEY="secret-of-prewarm")
        self.process = Process("headpondd", argv, os.path.join(self.folder, "log"), env=environment).start()
        self.process.wait_ready(lambda: self.headpond("ready", "--timeout", "1s").returncode == 0, 60)

    def restart(self):
        self.process.kill()
        self.start()

    def headpond(self, *words, timeout=PATIENCE_S):
        argv = [os.path.join(BUILD, "headpond"), "--server", f"unix:{self.socket}", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=timeout, env=clean_environment())

    def job(self, name):
        done = self.headpond("--json", "job", "show", name)
        expect(done.returncode == 0, done.stderr)
        return json.loads(done.stdout)

    def metric(self, series):
        local = Local(self.socket)
        local.request("GET", "/metrics")
        text = local.getresponse().read().decode()
        local.close()
        return int(re.search(rf"^{re.escape(series)} (\d+)$", text, re.M).group(1))

    def begin(self, *words):
        done = self.headpond("--json", "prewarm", *words, "--detach")
        expect(done.returncode == 0, f"exit {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)["id"]

    def read(self, key):
        """The x-cache field and the bytes."""
        url = f"http://127.0.0.1:{self.port}/b/{key}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.headers["x-cache"], answer.read()


def ends(done, code, *patterns):
    said = done.stdout + done.stderr
    expect(done.returncode == code, f"exit {done.returncode}, wanted {code}: {said}")
    for pattern in patterns:
        expect(re.search(pattern, said), f"wanted {pattern!r} in: {said}")


def small(n):
    return f"train/o-{n:05}"


def fill_store(store):
    store.say("bucket b")
    store.say(f"objects b train/o-##### {OBJECTS} size={SMALL}")
    for key in BIG:
        store.say(f"object b {key} size={BIG_BYTES}")
    store.say("object b train/empty size=0")
    store.say("object b huge/one size=4G")
    for n in range(3):
        store.say(f"object b part/{n}.tar size=3M")
        store.say(f"object b part/{n}.idx size=3M")
    store.count("requests")


WANTED = OBJECTS + len(BIG) + 1
WANTED_BYTES = OBJECTS * SMALL + len(BIG) * BIG_BYTES


def wait_for_part(server, job, part, wanted):
    def reached():
        now = server.job(job)
        expect(now["state"] in ("running", "queued"), f"it ended too early: {now}")
        return now["pass"] != "counting" and now["objects"]["done"] >= part * wanted
    wait_until(f"{part:.0%} of the job", reached, PATIENCE_S)


def whole(server, store):
    """Killed three times, with one request of a hundred that fails again and again."""
    store.say("set b/train delay=10")
    for n in range(0, OBJECTS, 100):
        store.say(f"next b/{small(n)} method=GET status=503")
    for n in range(50, OBJECTS, OBJECTS // 3):  # so often that the job itself has to try again
        store.say(f"next b/{small(n)} method=GET count=8 status=500")
    store.say("mark")
    job = server.begin("s3://b/train/")
    for part in (0.15, 0.4, 0.7):
        wait_for_part(server, job, part, WANTED)
        server.restart()
    store.say("set b/train delay=2")
    ends(server.headpond("job", "wait", job), 0, rf"^{job} done in ")
    now = server.job(job)
    expect(now["objects"] == {"wanted": WANTED, "done": WANTED, "failed": 0, "skipped": 0}, f"{now}")
    expect(now["bytes"]["wanted"] == now["bytes"]["done"] == WANTED_BYTES, f"{now}")
    return job


def lines(server, name, keys):
    path = os.path.join(server.folder, name)
    with open(path, "w", encoding="utf-8") as f:
        f.writelines(f"{key}\n" for key in keys)
    return path


def listed(server, store):
    """A list of keys, in an order of its own, killed three times on the way: all of them come, and no other."""
    ends(server.headpond("evict", "s3://b/train/", "--yes"), 0)
    keys = [small(n) for n in range(OBJECTS - 1, -1, -2)]
    path = lines(server, "keys.txt", [f"s3://b/{key}" for key in keys] + ["", f"s3://b/{keys[0]}"])
    # The last key does not come before the last kill: at each of them the job is at work.
    store.say(f"next b/{keys[-1]} method=GET count=1000 delay=60000")
    for n in range(1, OBJECTS, 200):
        store.say(f"next b/{small(n)} method=GET status=503")
    job = server.begin("--manifest", path)
    for part in (0.2, 0.5, 0.8):
        wait_for_part(server, job, part, len(keys))
        if part == 0.8:
            store.say("clear")
        server.restart()
    ends(server.headpond("job", "wait", job), 0, rf"^{job} done in ")
    now = server.job(job)
    expect(now["objects"] == {"wanted": len(keys), "done": len(keys), "failed": 0, "skipped": 0}, f"{now}")
    expect(now["bytes"]["wanted"] == now["bytes"]["done"] == len(keys) * SMALL, f"{now}")
    expect(now["keys"] == len(keys) and now["order"] == "manifest", f"{now}")
    here = server.headpond("--json", "ls", "--cached", "s3://b/train/")
    whole = {o["key"] for o in map(json.loads, here.stdout.splitlines()) if o["cached"] >= o["size"]}
    expect(whole == set(keys), f"{len(whole)} of {len(keys)} keys are here; others: {sorted(whole ^ set(keys))[:3]}")


def meant_by_none(server):
    """A long list of which the globs leave nothing, or only its first keys: piece after piece has nothing to do."""
    path = lines(server, "many.txt", [small(1), small(2)] + [f"none/k{n:06}" for n in range(300_000)])
    ends(server.headpond("prewarm", "s3://b", "--manifest", path, "--include", "*.none"), 0, "0 of 0 objects|0 objects")
    ends(server.headpond("prewarm", "s3://b", "--manifest", path, "--include", "train/o-*"), 0, "2 of 2 objects, 80.0 KiB")


def patterns(server, store):
    """Shard patterns; what one of them names is not there."""
    ends(server.headpond("evict", "s3://b/train/", "--yes"), 0)
    ends(server.headpond("prewarm", "--wds", "s3://b/train/o-{00000..00009}", "--wds", "s3://b/train/o-0{01,02}{00..20..10}"), 0,
         "prewarm b/train/o-00: 16 objects", "16 of 16 objects, 640.0 KiB")
    ends(server.headpond("prewarm", "s3://b/train", "--wds", "big-{0,1,2}.bin", "--wds", "empty", "--verify"), 0, "4 of 4 objects, 60.1 MiB",
         " 0 damaged")
    done = server.headpond("prewarm", "s3://b/train", "--wds", "o-0000{8..9}", "--wds", "o-9999{8..9}")
    ends(done, 3, "2 of 4 objects, 80.0 KiB", "2 failed: ", r"train/o-99998 NoSuchKey \(1 try\)", r"train/o-99999 NoSuchKey \(1 try\)")
    ends(server.headpond("prewarm", "s3://b/train", "--wds", "o-9999{8..9}", "--dry-run"), 3, "would fetch 2 objects, 0 B", "2 failed: ")
    ends(server.headpond("prewarm", "--wds", "s3://b/huge/{one,two}"), 7, "It does not fit: ")


def index_of(server, store):
    """The index of a data set: its shards, compressed where they are, of the size that it says."""
    def shard(name, size):
        return {"format": "mds", "compression": None, "raw_data": {"basename": name, "bytes": size, "hashes": {}}, "zip_data": None}
    path = os.path.join(server.folder, "index.json")
    packed = shard("unpacked", 5)
    packed["zip_data"] = {"basename": "1.tar", "bytes": 3 * 1024 * 1024, "hashes": {}}
    for shards, code, pattern in (([shard("0.tar", 3 * 1024 * 1024), packed], 0, "2 of 2 objects, 6.00 MiB"),
                                  ([shard("0.tar", 7)], 3, r"part/0.tar OtherSize \(1 try\)")):
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"version": 2, "shards": shards}, f, indent=2)
        ends(server.headpond("prewarm", "s3://b/part/", "--manifest", path, "--order", "size"), code, pattern)
    ends(server.headpond("evict", "s3://b/part/", "--yes"), 0)


def demanded(server, store):
    """ETags that a list demands."""
    _, _ = server.read(small(1))
    with urllib.request.urlopen(f"http://127.0.0.1:{store.port}/b/{small(1)}", timeout=60) as answer:
        etag = answer.headers["etag"]
    path = lines(server, "etags.ndjson", [json.dumps({"key": small(1), "etag": etag}), json.dumps({"key": small(2), "etag": '"other"'})])
    ends(server.headpond("prewarm", "s3://b", "--manifest", path), 3, "1 of 2 objects, 40.0 KiB", rf"{small(2)} OtherETag \(1 try\)")


def in_bucket(folder):
    """Lists that are objects themselves, of a directory's buckets: beside what they name, and elsewhere."""
    data = os.path.join(folder, "data")
    for path, text in (("b/set/index.json", json.dumps({"shards": [{"raw_data": {"basename": "x/0.mds", "bytes": 9}}]})),
                       ("b/set/x/0.mds", "nine byte"), ("b/one", "1"), ("b/two", "22"), ("lists/tonight.txt", "one\ntwo\n")):
        os.makedirs(os.path.dirname(os.path.join(data, path)), exist_ok=True)
        with open(os.path.join(data, path), "w", encoding="utf-8") as f:
            f.write(text)
    os.makedirs(os.path.join(folder, "second"))
    server = Server(os.path.join(folder, "second"), f"file://{data}")
    server.start()
    try:
        ends(server.headpond("prewarm", "s3://b", "--manifest", "s3://lists/tonight.txt"), 0, "2 of 2 objects, 3 B")
        ends(server.headpond("prewarm", "--manifest", "s3://b/set/index.json"), 0, "prewarm b/set/x/0.mds: 1 object, 9 B, 0 B already here", "1 of 1 object, 9 B")
        ends(server.headpond("prewarm", "--manifest", "s3://b/set/none.json"), 4, "it answers 404")
        expect(server.process.stop() == 0, "no clean end")
    finally:
        server.process.kill()


class Local(http.client.HTTPConnection):
    """To the control plane's socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


def posted(server):
    """The same as an API: a wrong line is told by its number and column."""
    def post(*rows):
        local = Local(server.socket)
        local.request("POST", "/v1/prewarm", "\n".join(rows), {"Content-Type": "application/x-ndjson; charset=utf-8"})
        answer = local.getresponse()
        got = json.loads(answer.read())
        local.close()
        return answer.status, got
    wish = json.dumps({"prefix": "b/train/o-", "order": "name"})
    for rows, what in ((['"train/o-00001"', "[1]"], "line 3, column 1: no key"), (['{"key":"train/o-00001"', '"x"'], "line 2, column 22: "),
                       (['"part/0.tar"'], "key 1 is not below"), ([], "the list has no key"), (['"' + "k" * 20000 + '"'], "line 2, column")):
        status, got = post(wish, *rows)
        expect(status == 400 and what in got["error"]["message"], f"{status} {got}")
    status, got = post(json.dumps({"prefix": "b", "order": "size"}), '"x"')
    expect(status == 400 and "size of each key" in got["error"]["message"], f"{status} {got}")
    status, got = post(json.dumps({"prefix": "b", "order": "loud"}), '"x"')
    expect(status == 400 and "order" in got["error"]["message"], f"{status} {got}")
    keys = [small(n % OBJECTS) for n in range(2500, 0, -1)]
    status, got = post(wish, *(json.dumps(key) if n % 2 else json.dumps({"key": key}) for n, key in enumerate(keys)))
    expect(status == 202 and got["keys"] == len(set(keys)) and got["order"] == "name", f"{status} {got}")
    ends(server.headpond("job", "wait", got["id"]), 0)


def malformed(server):
    """Told by file, line and column; nothing is begun."""
    jobs = server.headpond("--json", "jobs").stdout
    for text, where in (("s3://b/a\ns3://c/a\n", ":2:1: of another bucket"), ('{"key":"a"}\n{"key":}\n', ":2:8: "),
                        ('{"key":"a"}\n{"kez":"a"}\n', ':2:1: no "key"'), ('{\n  "shards": [\n    {,}\n]}', ":3:6: "),
                        ("a\n" + "k" * 1030 + "\n", ":2:1: longer"), ('{"shards":[{}]}', ":1:1: a shard")):
        path = os.path.join(server.folder, "bad.txt")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        ends(server.headpond("prewarm", "s3://b", "--manifest", path), 2, re.escape(path) + where, "nothing was begun")
    for pattern, where in (("a{0..9", ":1:2: "), ("a}", ":1:2: "), ("{a,{b,c}}", ":1:1: a brace within"), ("a{b}", ":1:2: neither"),
                           ("{0..999999}", ":1:1: more than 500 000"), ("s3://c/a", ":1:1: of another")):
        ends(server.headpond("prewarm", "s3://b", "--wds", pattern), 2, "--wds" + where)
    ends(server.headpond("prewarm", "s3://b", "--manifest", "/nowhere"), 2, "No such file")
    ends(server.headpond("prewarm"), 2, "Name s3://BUCKET/PREFIX")
    expect(server.headpond("--json", "jobs").stdout == jobs, "a job was made")


def frugal(store):
    """What was here was not fetched again: but for the pages that the kills cut, and the tries."""
    body = store.count("body_bytes")
    expect(body < 1.3 * WANTED_BYTES, f"{body} bytes for {WANTED_BYTES}")
    print(f"#     {store.count('requests')} requests, {body} bytes for {WANTED} objects of {WANTED_BYTES} bytes", flush=True)


def serves_alone(server, store):
    """With upstream turned off each object is a hit, and is what upstream has."""
    truth = {}
    keys = [small(n) for n in range(0, OBJECTS, max(OBJECTS // 50, 1))] + BIG + ["train/empty"]
    for key in keys:
        with urllib.request.urlopen(f"http://127.0.0.1:{store.port}/b/{key}", timeout=60) as answer:
            truth[key] = answer.read()
    store.say("listen off")
    store.say("cut")
    try:
        for key in keys:
            how, got = server.read(key)
            expect(how == "hit", f"{key}: x-cache: {how}")
            expect(got == truth[key], f"{key}: other bytes")
    finally:
        store.say("listen on")


def missing(server, store):
    lost = [small(3), small(OBJECTS - 7)]
    for key in lost:
        store.say(f"set b/{key} status=404 code=NoSuchKey")
    ends(server.headpond("evict", "s3://b/train/", "--yes"), 0)
    done = server.headpond("prewarm", "s3://b/train/", "--exclude", "big-*")
    ends(done, 3, rf"{WANTED - len(BIG) - 2:,} of {WANTED - len(BIG):,} objects".replace(",", " "), "2 failed: ",
         rf"{lost[0]} NoSuchKey \(1 try\)", rf"{lost[1]} NoSuchKey \(1 try\)", "again: headpond job retry j")
    job = re.search(r"job retry (j\d+)", done.stdout).group(1)
    for key in lost:
        store.say(f"unset b/{key}")
    ends(server.headpond("job", "retry", job), 0)
    ends(server.headpond("job", "wait", job), 0, f"{job} done in ")


def too_large(server, store):
    before = store.count("get")
    ends(server.headpond("prewarm", "s3://b/huge/", "--dry-run"), 7, "would fetch 1 object, 4.00 GiB", "It does not fit: ")
    ends(server.headpond("prewarm", "s3://b/huge/"), 7, "j[0-9]+ failed in .*It does not fit: ", "--include .* takes less")
    expect(store.count("get") == before, "bytes of it were fetched")


def changed(server, store):
    """Replaced upstream since: the job brings what is there now."""
    _, old = server.read(small(11))
    store.say(f"bump b {small(11)}")
    ends(server.headpond("prewarm", f"s3://b/{small(11)}"), 0, "1 of 1 object,")
    how, new = server.read(small(11))
    expect(how == "hit" and new != old, f"x-cache: {how}, {'old' if new == old else 'new'} bytes")


def picked(server, store):
    store.say("mark")
    ends(server.headpond("prewarm", "s3://b/part/", "--include", "*.tar", "--exclude", "2.*", "--dry-run"), 0,
         "would fetch 2 objects, 6.00 MiB .* It fits")
    expect(store.count("get") == 0, "a dry run fetched bytes")
    ends(server.headpond("prewarm", "s3://b/part/", "--include", "*.tar", "--exclude", "2.*"), 0, "2 of 2 objects, 6.00 MiB")
    expect(store.count("get") == 2, f"{store.count('get')} GETs for two objects")


def pinned(server):
    ends(server.headpond("prewarm", "s3://b/part/", "--until", "1h", "--verify"), 0, r"j[0-9]+ done in .*, pinned until 20\d\d-\d\d-\d\d \d\d:\d\d",
         "j[0-9]+ verify b/part/ done.* 0 damaged")
    ends(server.headpond("pins"), 0, "b/part/")
    ends(server.headpond("unpin", "s3://b/part/"), 0)


def demand_first(server, store):
    """Four connections, of which a prewarm has two, and thirty askings of its own that wait for them: a reader comes before those,
    also if he wants what one of them is about."""
    expect(server.process.stop() == 0, "no clean end")
    server.start("--set", "upstream.connections=4")
    ends(server.headpond("evict", "s3://b/train/", "--yes"), 0)
    store.say("set b/train delay=60")
    job = server.begin("s3://b/train/o-", "--connections", "30")
    wait_until("a fetch", lambda: server.job(job)["objects"]["done"] > 5, 60)
    between = []
    for n in range(10):
        at = server.job(job)["objects"]["done"] + n * 5 if n % 2 else OBJECTS - 1 - n
        before = store.count("requests")
        server.read(small(at))
        between.append(store.count("requests") - before)
    # The middle one: while the machine keeps this program waiting, the store counts on.
    expect(statistics.median(between) <= 12, f"{between} requests to the store until each of them came")
    expect(server.job(job)["state"] == "running", "the prewarm was over too early")
    ends(server.headpond("job", "cancel", job), 0)
    store.say("set b/train delay=0")


def controlled(server, store):
    """Rests, goes on, is ended; a bucket that is not there."""
    ends(server.headpond("evict", "s3://b/train/", "--yes"), 0)
    job = server.begin("s3://b/train/big", "--bandwidth", "2MB", "--connections", "2")
    wait_until("a fetch", lambda: server.job(job)["pass"] == "fetching", 60)
    ends(server.headpond("job", "pause", job), 0)
    wait_until("a rest", lambda: server.job(job)["state"] == "paused", 60)
    ends(server.headpond("job", "resume", job), 0)
    wait_until("no rest", lambda: server.job(job)["state"] == "running", 60)
    now = server.job(job)
    expect(now["bandwidth"] == 2000000 and now["connections"] == 2, f"{now}")
    ends(server.headpond("job", "bandwidth", job, "100KB"), 0)
    wait_until("another bandwidth", lambda: server.job(job)["bandwidth"] == 100000, 60)
    expect(server.job(job)["state"] == "running", "it was too fast for its bandwidth")
    expect(server.metric('headpond_job_bytes{state="wanted"}') == len(BIG) * BIG_BYTES, "job_bytes, wanted")
    expect(server.process.stop() == 0, "no clean end")
    server.start()
    expect(server.job(job)["bandwidth"] == 100000, "it was forgotten")
    ends(server.headpond("job", "cancel", job), 0)
    ends(server.headpond("job", "wait", job), 1, "cancelled")
    ends(server.headpond("job", "bandwidth", job, "0"), 1, "no prewarm that still runs")
    ends(server.headpond("job", "retry", job), 0)
    ends(server.headpond("job", "bandwidth", job, "0"), 0)
    ends(server.headpond("job", "wait", job), 0)
    ends(server.headpond("prewarm", "s3://nowhere/x"), 1, "NoSuchBucket|404")
    expect(server.process.alive(), "the server ended")


def at_a_terminal(server):
    """A bar on a terminal, with rate and time left; nothing but the result on a pipe."""
    ends(server.headpond("evict", "s3://b/train/", "--yes"), 0)
    argv = [os.path.join(BUILD, "headpond"), "--server", f"unix:{server.socket}", "prewarm", "s3://b/train/big", "--bandwidth", "100KB"]
    screen, other = pty.openpty()
    child = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=other, env=clean_environment())
    os.close(other)
    shown, held = b"", True
    with contextlib.suppress(OSError):  # EIO: the other side is closed
        while select.select([screen], [], [], PATIENCE_S)[0]:
            shown += os.read(screen, 65536)
            if held and b" / 60.1 MiB" in shown:  # the bar was there: the rest may come at once
                held = False
                job = re.search(rb"(j\d+) prewarm", shown).group(1).decode()
                ends(server.headpond("job", "bandwidth", job, "0"), 0)
    said = child.stdout.read().decode()
    expect(child.wait() == 0, f"exit {child.returncode}")
    os.close(screen)
    shown = shown.decode()
    for pattern in (r"j\d+ prewarm b/train/big: 3 objects, 60.1 MiB, 0 B already here, [0-9.]+ [MG]iB free\r\n",
                    r"\r\x1b\[K\[[#-]{26}\] +\d+ %  [0-9.]+ / 60.1 MiB"):
        expect(re.search(pattern, shown), f"wanted {pattern!r} in {shown!r}")
    expect(re.fullmatch(r"j\d+ done in \d+s: 3 of 3 objects, 60.1 MiB\n", said), f"{said!r}")
    done = server.headpond("prewarm", "s3://b/train/big")
    expect(re.fullmatch(r"j\d+ prewarm b/train/big: 3 objects, 60.1 MiB, 60.1 MiB already here, .* free\n", done.stderr), f"{done.stderr!r}")
    expect(server.headpond("-q", "prewarm", "s3://b/train/big").stderr == "", "talk with -q")


def run_all(report, store, server):
    with report.test("starts"):
        fill_store(store)
        server.start()
    with report.test(f"{WANTED} objects, kill -9 thrice, one request of a hundred fails: 100 %"):
        whole(server, store)
    with report.test("and hardly a byte is fetched twice"):
        frugal(store)
    with report.test("verify finds nothing damaged"):
        ends(server.headpond("verify", "s3://b/train/"), 0, rf"{WANTED - 1:,} of ".replace(",", " ") + "|of .* objects", " 0 damaged")
    with report.test("upstream off: all of it is served"):
        serves_alone(server, store)
    with report.test("two keys cannot be had: exit 3, by name; again, when they can: exit 0"):
        missing(server, store)
    with report.test(f"a list of {OBJECTS // 2} keys, kill -9 thrice: those come, and no others"):
        listed(server, store)
    with report.test("a list of which globs leave nothing for hundreds of pieces"):
        meant_by_none(server)
    with report.test("shard patterns, with two shards that are not there"):
        patterns(server, store)
    with report.test("the index of a data set"):
        index_of(server, store)
    with report.test("ETags that a list demands"):
        demanded(server, store)
    with report.test("lists in buckets"):
        in_bucket(server.folder)
    with report.test("lists by the API"):
        posted(server)
    with report.test("input that is wrong: exit 2, file:line:column, nothing begun"):
        malformed(server)
    with report.test("what does not fit: exit 7, and nothing is fetched"):
        too_large(server, store)
    with report.test("an object that was replaced upstream"):
        changed(server, store)
    with report.test("globs, and a dry run"):
        picked(server, store)
    with report.test("a pin"):
        pinned(server)
    with report.test("readers come first"):
        demand_first(server, store)
    with report.test("pause, resume, cancel, no such bucket"):
        controlled(server, store)
    with report.test("a bar at a terminal, none on a pipe"):
        at_a_terminal(server)
    with report.test("ends well"):
        expect(server.process.stop() == 0, f"no clean end: {tail(os.path.join(server.folder, 'log'))}")


def main():
    report = Report()
    folder = tempfile.mkdtemp(prefix="headpond-prewarm-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    store = Store()
    server = Server(folder, f"http://127.0.0.1:{store.port}")
    try:
        run_all(report, store, server)
    finally:
        if server.process:
            server.process.kill()
        store.end()
        if report.failed:
            print(f"# kept {folder}")
            shutil.rmtree(server.cache, ignore_errors=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"prewarm: {report.passed} passed, {report.failed} failed", flush=True)
    sys.exit(1 if report.failed or not report.passed else 0)


if __name__ == "__main__":
    main()
