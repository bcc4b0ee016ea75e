#!/usr/bin/python3
"""`make bench BENCH=index`: how long a start takes with a big index, what it costs in memory, and how long a look-up then takes.

    index.py [CHUNKS=10000000] [EACH=128] [ROUNDS=3] [LIMIT_S=3]

Makes an index of CHUNKS whole chunks of 8 MiB, EACH to an object (0: of small objects, a chunk of 4 KiB each), with the cache's own
code; starts headpondd on it ROUNDS times and asks for one small object that is in it, by plain GETs over a socket, until the answer
comes: the upstream is a closed port, so only the cache can give it. The slab is a file of holes in a file system in memory that claims
to be big enough, and so the index is in memory as well.
Three verdicts, as the design wants them for 10 M chunks: first hit within LIMIT_S seconds of the start (median), at most 400 bytes of
memory per chunk (140 per small object), at most 0.5 us for a look-up of a chunk (median of ROUNDS medians, without the clock's own
time; beside it, what a read that waits for memory and a first touch of memory take on that machine at that time). What else runs on the machine takes
from all of it, so nothing should; CPU is that of the server and of the child that checks the index. The object's CRCs are among those
that a start leaves behind; how long the rest of them takes then stands beside the first hit. Memory is what the server has once all
are there, less what it has with an empty cache of the same size. Needs root (for the mount), and for 10 M chunks 10 GiB of memory.
The last line is "index: N passed, N failed". SPDX-License-Identifier: Apache-2.0"""
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BUILD = os.path.join(TOP, "build/release")
settings = {"CHUNKS": 10_000_000, "EACH": 128, "ROUNDS": 3, "LIMIT_S": 3}
BYTES_PER_CHUNK, BYTES_PER_SMALL, LOOKUP_NS, GIVE_UP_S = 400, 140, 500, 600
HIT_BYTES = 2 << 20                              # of "dataset/hit": bench/micro/load_index.c
ROOM_EACH = 600                                  # bytes: what the index may take, and what is touched before
CONFIG = """[server]
listen = ["127.0.0.1:{port}"]
[upstream]
name = "bench"
endpoint = "http://127.0.0.1:9"
[cache]
dirs = ["{dir}"]
size = "{size}"
min_free = "0"
memory = "64MiB"
index_memory = "{index_memory}"
immutable = true
[admin]
listen = ["unix:{folder}/admin.sock"]
"""


def die(what):
    sys.exit(f"index: {what}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def touch():
    """A virtual machine's first touch of memory, and the small pages that it gets of it, would be most of what is measured."""
    subprocess.run([f"{BUILD}/bench/touch", str(settings["CHUNKS"] * ROOM_EACH // 2**20 + 256)], check=True)


class Server:
    """headpondd on that cache, from its start to the first answer."""

    def __init__(self, folder, cache, size):
        self.port, self.admin = free_port(), f"{folder}/admin.sock"
        config = os.path.join(folder, "headpond.toml")
        with open(config, "w") as f:
            f.write(CONFIG.format(port=self.port, dir=cache, size=size, folder=folder,
                                  index_memory=max(settings["CHUNKS"] * ROOM_EACH, 128 << 20)))
        self.log = open(os.path.join(folder, "log"), "w")
        touch()
        environment = dict(os.environ, AWS_ACCESS_KEY_ID="bench", AWS_SECRET_ACCESS_KEY="bench", AWS_REGION="us-east-1",
                           AWS_EC2_METADATA_DISABLED="true")
        self.began = time.monotonic()
        self.process = subprocess.Popen([f"{BUILD}/bench/sparse", f"{BUILD}/headpondd", "--allow-root", "--config", config],
                                        stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=environment)

    def ask(self):
        """The status and length of an answer, or None: nobody listens."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 10) as s:
                s.sendall(b"GET /dataset/hit HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                answer = b""
                while piece := s.recv(65536):
                    answer += piece
        except OSError:
            return None
        head, _, body = answer.partition(b"\r\n\r\n")
        return (head.split(b" ")[1].decode(), len(body)) if head.count(b" ") > 1 else None

    def until_answer(self):
        """Seconds until it answered, and the answer."""
        while self.process.poll() is None and time.monotonic() - self.began < GIVE_UP_S:
            answer = self.ask()
            if answer:
                return time.monotonic() - self.began, answer
            time.sleep(0.002)                    # a try costs the server nothing: nobody listens yet
        die(f"the server does not answer: {open(self.log.name).read()[-500:]}")

    def unread(self):
        """How many chunks lack their CRCs."""
        with socket.socket(socket.AF_UNIX) as s:
            while s.connect_ex(self.admin) != 0 and self.process.poll() is None:
                time.sleep(0.001)                # the S3 port is open some milliseconds before
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            answer = b""
            while piece := s.recv(65536):
                answer += piece
        found = re.search(rb"^headpond_index_unread_chunks{[^}]*} (\d+)", answer, re.M)
        return int(found[1]) if found else die("no metric headpond_index_unread_chunks")

    def until_read(self):
        """Seconds until all CRCs were there."""
        while self.unread() > 0:
            time.sleep(0.01)
        return time.monotonic() - self.began

    def memory(self):
        """Bytes, without the pages of the index file that it has mapped: those are the page cache's."""
        status, smaps = (open(f"/proc/{self.process.pid}/{name}").read() for name in ("status", "smaps"))
        mapped = re.findall(r"/data\.mdb\n(?:.*\n)*?Rss:\s+(\d+)", smaps)
        kib = sum(int(n) for n in re.findall(r"Rss(?:Anon|Shmem):\s+(\d+)", status)) - sum(int(n) for n in mapped)
        return 1024 * kib

    def cpu(self):
        fields = open(f"/proc/{self.process.pid}/stat").read().rpartition(")")[2].split()
        return sum(int(n) for n in fields[11:15]) / os.sysconf("SC_CLK_TCK")

    def end(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def start(folder, cache, size, want):
    server = Server(folder, cache, size)
    seconds, answer = server.until_answer()
    cpu = server.cpu()
    figures = seconds, cpu, server.until_read(), server.memory()
    server.end()
    if answer != want and want:
        die(f"the answer was {answer}, not {want}")
    return figures


def load_index(cache, rounds):
    out = subprocess.run([f"{BUILD}/bench/micro/load_index", cache, str(settings["CHUNKS"]), str(settings["EACH"]), str(rounds)],
                         stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    if out.returncode != 0:
        die(f"load_index failed: {out.stdout}")
    return out.stdout


def look_up(cache):
    """What a look-up takes in a process that opened the index as it is, in ns, and what the machine's memory takes at that time."""
    touch()
    said = load_index(cache, 1)
    found, memory = re.search(r"lookup\s+chunk\s+median (\d+) ns", said), re.search(r"memory\s+(.*)", said)
    if not found:
        die(f"no look-up was measured: {said}")
    return int(found[1]), memory[1].replace("\t", ", ") if memory else "not measured"


def make(cache):
    """The index; the median of look_up()."""
    load_index(cache, 0)
    return sorted(look_up(cache) for _ in range(settings["ROUNDS"]))[settings["ROUNDS"] // 2]


class Verdicts:
    passed = failed = 0

    def say(self, good, text):
        self.passed += good
        self.failed += not good
        print(f"index: {'passed' if good else 'FAILED'}: {text}", flush=True)


def run(folder):
    verdicts, count = Verdicts(), settings["CHUNKS"]
    cache, empty = os.path.join(folder, "cache"), os.path.join(folder, "empty")
    lookup_ns, memory_here = make(cache)
    size = os.stat(os.path.join(cache, "slab")).st_size
    index = os.stat(os.path.join(cache, "index/data.mdb")).st_size
    print(f"index: {count} chunks, {settings['EACH']} to an object; data.mdb {index / 2**20:.0f} MiB", flush=True)
    rounds = [start(folder, cache, size, ("200", HIT_BYTES)) for _ in range(settings["ROUNDS"])]
    *_, base = start(folder, empty, size, None)
    seconds, cpu, behind, memory = (statistics.median(column) for column in zip(*rounds))
    print(f"index: starts {' '.join(f'{r[0]:.2f}' for r in rounds)} s, CPU {' '.join(f'{r[1]:.2f}' for r in rounds)} s; "
          f"memory {memory / 2**20:.0f} MiB, empty {base / 2**20:.0f} MiB", flush=True)
    verdicts.say(seconds <= settings["LIMIT_S"],
                 f"first hit after {seconds:.2f} s, at most {settings['LIMIT_S']} s ({cpu / count * 1e6:.2f} us of CPU per chunk; "
                 f"all CRCs after {behind:.2f} s)")
    each = (memory - base) / count
    most = BYTES_PER_CHUNK if settings["EACH"] else BYTES_PER_SMALL
    verdicts.say(each <= most, f"{each:.0f} bytes of memory per {'chunk' if settings['EACH'] else 'small object'}, at most {most}")
    verdicts.say(lookup_ns <= LOOKUP_NS, f"look-up of a chunk {lookup_ns} ns, at most {LOOKUP_NS} (memory here: {memory_here})")
    print(f"index: {verdicts.passed} passed, {verdicts.failed} failed")
    return verdicts.failed


def main():
    for word in sys.argv[1:]:
        name, _, value = word.partition("=")
        if name not in settings:
            die(f'unknown setting "{word}"')
        settings[name] = int(value)
    if os.geteuid() != 0:
        die("needs root: it mounts a file system in memory (sudo make bench BENCH=index)")
    if os.environ.get("BENCH_INSIDE") != "1":
        os.execvpe("unshare", ["unshare", "-m", sys.executable, "-B", os.path.abspath(__file__), *sys.argv[1:]],
                   dict(os.environ, BENCH_INSIDE="1"))
    folder = tempfile.mkdtemp(prefix="headpond-index-", dir="/var/tmp")
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=200t,mode=700", "none", folder], check=True)
        return 1 if run(folder) else 0
    finally:
        subprocess.run(["umount", "-l", folder], check=False)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
