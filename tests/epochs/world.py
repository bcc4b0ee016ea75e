"""The stores, the caches in front of them, and readers who compare every byte.

Invariants:
 1. Each bucket has a store process of its own, and what upstream gave is counted there.
 2. A read is right only with its status, its length and every byte of the file that the store serves.
SPDX-License-Identifier: Apache-2.0"""
import collections
import json
import mmap
import os
import shutil
import signal
import socket
import sys
import threading
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(TOP, "tests", "rgw")]
import procs                                     # noqa: E402
from procs import Failure                        # noqa: E402

BUILD = os.path.join(TOP, "build", "release")
MIB = 1 << 20
READY_S, SETTLE_S, READ_S = 60, 60, 60
TRIMS = 5                                        # times that nginx's manager is begun anew
BUCKETS = ("first", "second", "scan")


class Store:
    """The remote store of one bucket."""

    def __init__(self, bucket, folder, logs):
        self.port = procs.free_port()
        self.process = procs.Process(f"store of {bucket}", [f"{BUILD}/bench/store", "-d", folder, "-p", str(self.port)],
                                     f"{logs}/store-{bucket}.log")
        self.process.start().wait_ready(self.given, READY_S)

    def given(self):
        """Body bytes so far; None while it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/-/stats", timeout=10) as answer:
                words = answer.read().decode().split()
            return int(dict(word.split("=") for word in words)["body_bytes"]) + 1
        except OSError:
            return None


class Data:
    """Objects in files. The shards of the second bucket are those of the first by other names."""

    def __init__(self, folder, shards, shard_mib, scanned):
        self.folder, self.shard = folder, shard_mib * MIB
        self.keys = {"first": [f"train/shard-{n:04}@{shard_mib}M" for n in range(shards)],
                     "second": [f"next/part-{n:04}" for n in range(shards)],
                     "scan": [f"once/{n:04}@{shard_mib}M" for n in range(scanned)]}
        for bucket, sub, name, count in (("first", "train", "shard-", shards), ("scan", "once", "", scanned)):
            os.makedirs(f"{folder}/{bucket}/{sub}")
            if count:
                procs.run([f"{BUILD}/bench/store", "-d", folder, "-m", f"{bucket}/{sub}/{name}####@{shard_mib}M", "-n", str(count)],
                          timeout=300)
        os.makedirs(f"{folder}/second/next")
        for n, key in enumerate(self.keys["second"]):
            os.link(f"{folder}/first/{self.keys['first'][(n + 1) % shards]}", f"{folder}/second/{key}")
        self.maps, self.lock = {}, threading.Lock()

    def bytes_of(self, bucket, key):
        with self.lock:
            if (bucket, key) not in self.maps:
                with open(f"{self.folder}/{bucket}/{key}", "rb") as f:
                    self.maps[bucket, key] = memoryview(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ))
            return self.maps[bucket, key]


class Headpond:
    """The server under test, over an empty directory."""

    def __init__(self, folder, stores, size, settings):
        self.folder, self.port = folder, procs.free_port()
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder + "/cache", 0o700)
        os.chmod(folder + "/cache", 0o700)
        with open(folder + "/conf.toml", "w") as f:
            f.write(f'[server]\nlisten = ["127.0.0.1:{self.port}"]\nallow_root = true\n'
                    f'[admin]\nlisten = ["unix:{folder}/sock"]\n'
                    f'[cache]\ndirs = ["{folder}/cache"]\nsize = "{size}"\nmin_free = "256MiB"\nmemory = "64MiB"\nttl = "1h"\n')
            f.write("".join(f"{line}\n" for line in settings))
            for bucket, store in stores.items():
                f.write(f'[[upstream]]\nname = "{bucket}"\nendpoint = "http://127.0.0.1:{store.port}"\n')
                f.write("" if bucket == BUCKETS[0] else f'match = ["{bucket}"]\n')
        environment = procs.clean_environment(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_REGION="us-east-1")
        self.process = procs.Process("headpondd", [f"{BUILD}/headpondd", "--config", folder + "/conf.toml"], folder + "/log", environment)
        self.process.start().wait_ready(lambda: answers(self.port, "/-/ready"), READY_S)

    def plan(self, epoch, jobs):
        """A loader says in which order it will read."""
        body = json.dumps({"job": "train", "epoch": epoch, "prefix": jobs[0][0], "streams": [[key for _, key, _ in jobs]]}).encode()
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.folder + "/sock")
            s.sendall(b"POST /v1/plans HTTP/1.1\r\nHost: epochs\r\nContent-Type: application/json\r\nConnection: close\r\n"
                      b"Content-Length: %d\r\n\r\n" % len(body) + body)
            answer = b"".join(iter(lambda: s.recv(65536), b""))
        if b" 202 " not in answer.split(b"\r\n")[0]:
            raise Failure(f"the plan of epoch {epoch}: {answer.decode(errors='replace')}")

    def trim(self):
        """Nothing to be done: it is never larger than it was told."""

    def end(self):
        self.process.signal(signal.SIGTERM)
        self.process.child.wait(60)
        shutil.rmtree(self.folder + "/cache", ignore_errors=True)


class Nginx:
    """nginx with proxy_cache of the same size: LRU."""

    def __init__(self, folder, stores, size):
        self.folder, self.port, self.size = folder, procs.free_port(), size
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder + "/tmp")
        temporary = "".join(f"{what}_temp_path {folder}/tmp;" for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(folder + "/nginx.conf", "w") as f:
            f.write(f"""user root; daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log warn;
events {{ worker_connections 1000; }}
http {{
    access_log off; sendfile on; tcp_nodelay on; keepalive_requests 1000000; {temporary}
    proxy_cache_path {folder}/cache levels=1:2 keys_zone=epochs:16m max_size={size} inactive=10d use_temp_path=off;
    proxy_cache epochs; proxy_cache_valid 200 10d; proxy_cache_lock on; proxy_cache_lock_timeout 1h; proxy_cache_lock_age 1h;
    proxy_http_version 1.1; proxy_set_header Connection ""; proxy_max_temp_file_size 0;
    upstream first {{ server 127.0.0.1:{stores["first"].port}; keepalive 16; }}
    server {{ listen 127.0.0.1:{self.port}; location / {{ proxy_cache_key $uri; proxy_pass http://first; }} }}
}}
""")
        self.process = procs.Process("nginx", ["/usr/sbin/nginx", "-p", folder, "-c", folder + "/nginx.conf"], folder + "/log")
        self.process.start().wait_ready(lambda: answers(self.port, "/-/stats"), READY_S)

    def used(self):
        sizes = 0
        for path, _, names in os.walk(self.folder + "/cache"):
            for name in names:
                try:
                    sizes += os.stat(os.path.join(path, name)).st_size
                except FileNotFoundError:
                    pass
        return sizes

    def managers(self):
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{entry}/stat") as stat, open(f"/proc/{entry}/cmdline") as line:
                    ours = int(stat.read().rsplit(")", 1)[1].split()[1]) == self.process.pid
                    if ours and "cache manager" in line.read():
                        yield int(entry)
            except OSError:
                continue

    def trim(self):
        """Its manager looks once in ten seconds, far too seldom for so small a cache; one that begins anew looks at once. It may call
        a cache small enough that by its files is not: what stays after some tries is nginx's advantage, not worth waiting for."""
        for _ in range(TRIMS):
            if self.used() <= self.size:
                return
            for pid in self.managers():
                try:
                    os.kill(pid, signal.SIGTERM)
                except ProcessLookupError:
                    pass
            try:
                procs.wait_until("nginx makes room", lambda: self.used() <= self.size, 2)
            except Failure:
                self.process.require_alive()

    def end(self):
        self.process.signal(signal.SIGTERM)
        self.process.child.wait(60)
        shutil.rmtree(self.folder, ignore_errors=True)


def answers(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status == 200
    except OSError:
        return False


class Reader(threading.Thread):
    """Takes jobs (bucket, key, ranges) until none is left; a range of None is the whole object."""

    def __init__(self, port, data, jobs, note):
        super().__init__(daemon=True)
        self.port, self.data, self.jobs, self.note = port, data, jobs, note
        self.error, self.asked, self.socket = None, collections.Counter(), None

    def run(self):
        try:
            while True:
                bucket, key, ranges = self.jobs.popleft()
                for part in ranges:
                    self.read(bucket, key, part)
        except IndexError:
            pass
        except Exception as e:  # noqa: BLE001 - whatever it is, the read failed
            self.error = e
            self.jobs.clear()
        finally:
            if self.socket:
                self.socket.close()

    def read(self, bucket, key, part):
        truth = self.data.bytes_of(bucket, key)
        begin, end = part or (0, len(truth))
        self.note(bucket, key, begin, end)
        self.asked[bucket] += end - begin
        if not self.socket:
            self.socket = socket.create_connection(("127.0.0.1", self.port), READ_S)
        field = f"Range: bytes={begin}-{end - 1}\r\n" if part else ""
        self.socket.sendall(f"GET /{bucket}/{key} HTTP/1.1\r\nHost: epochs\r\n{field}\r\n".encode())
        head, _, rest = self.head().partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        fields = dict(line.lower().split(": ", 1) for line in lines[1:])
        length, what = end - begin, f"{bucket}/{key} {begin}-{end}"
        if lines[0].split()[1] != ("206" if part else "200") or int(fields["content-length"]) != length:
            raise Failure(f"{what}: {lines[0]}, {fields.get('content-length')} bytes")
        body = bytearray(length)
        body[:len(rest)] = rest
        view, have = memoryview(body), len(rest)
        while have < length:
            n = self.socket.recv_into(view[have:])
            if n == 0:
                raise Failure(f"{what}: cut behind {have} bytes")
            have += n
        if body != truth[begin:end]:
            raise Failure(f"{what}: wrong bytes")

    def head(self):
        head = b""
        while b"\r\n\r\n" not in head:
            more = self.socket.recv(16384)
            if not more:
                raise Failure("closed before the head")
            head += more
        return head


class Bench:
    """A cache and its stores: reads, and what upstream gave for them."""

    def __init__(self, cache, stores, data):
        self.cache, self.stores, self.data = cache, stores, data
        self.trace, self.lock = [], threading.Lock()

    def note(self, bucket, key, begin, end):
        with self.lock:
            self.trace.append((bucket, key, begin, end))

    def given(self):
        """Upstream's bytes by bucket, once nothing is under way any more."""
        def now():
            return {bucket: store.given() - 1 for bucket, store in self.stores.items()}
        last = [now()]

        def quiet():
            before, last[0] = last[0], now()
            return before == last[0]
        procs.wait_until("upstream is quiet", quiet, SETTLE_S, 0.2)
        return last[0]

    def read(self, jobs, workers, planned=None):
        """The reads of those jobs; gives the bytes that were asked for and those that upstream gave, by bucket. planned: the number of the
        epoch, whose plan the cache is told before."""
        before, queue = self.given(), collections.deque(jobs)
        if planned is not None:
            self.cache.plan(planned, jobs)
        readers = [Reader(self.cache.port, self.data, queue, self.note) for _ in range(workers)]
        for reader in readers:
            reader.start()
        asked = collections.Counter()
        for reader in readers:
            reader.join()
            if reader.error:
                raise Failure(f"{reader.error!r}\n{procs.tail(self.cache.process.log)}")
            asked += reader.asked
        self.cache.process.require_alive()
        after = self.given()
        return asked, {bucket: after[bucket] - before[bucket] for bucket in after}

    def read_in_batches(self, jobs, workers):
        """The same, and between two batches the cache is made to keep its size."""
        asked, given = collections.Counter(), collections.Counter()
        for at in range(0, len(jobs), workers):
            more = self.read(jobs[at:at + workers], workers)
            asked += more[0]
            given.update(more[1])
            self.cache.trim()
        return asked, given
