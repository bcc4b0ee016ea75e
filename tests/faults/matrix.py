# Every shape of shapes.py x situation x cut point x (once, always): each cell becomes a play
# (tests/flow/play.h) with a server and an upstream of its own, and counts as one test.
#
#   matrix.py [-k] [-j JOBS] [-n] [TEXT]    only cells whose names contain TEXT; -n lists them
#   FULL=1                                  all cut points; else those that differ in kind
#
# A play that fails stays below build/faults, to be run alone: build/release/tests/play FILE.
#
# Each cell: the client's answers are what the table says, and never wrong bytes with a clean end
# (the play compares every byte). Then upstream is well again: the key reads right, twice, the
# second time from the cache; no checksum ever failed, every gauge is back at zero, and what was
# counted is what happened. Every sixth cell also restarts the server and reads from its disk.
#
# SPDX-License-Identifier: Apache-2.0
import argparse
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from shapes import BENDS, BREAKS, FETCH, SITUATIONS, Break

HERE = os.path.dirname(os.path.abspath(__file__))
REPOSITORY = os.path.dirname(os.path.dirname(HERE))
K, M = 1 << 10, 1 << 20
SIZE = 12 * M + 5                    # two chunks, the second one neither full nor round
KEY = "/f/k@12M+5"
LIST = '"/f?list-type=2"'
FIRST_BYTES = 8 * K                  # of a long answer: they go out before all of their block
BROUGHT = 16 * K                     # what a try must bring to be none in vain
RELAY_BYTES = 256 * K                # what a relay has in hand before its head goes out
FIRST = {"cold": 8 * M, "crowd": 8 * M, "range": 4 * M, "ahead": 4 * M + 5, "more": 3 * M + 5,
         "pass": SIZE}

HEAD = "head"                        # in the middle of the head
# Cut points of the first bent answer: bytes of its body. 0 is the head's end.
POINTS = {
    "cold": [HEAD, 0, 1, 64 * K + 1, 128 * K, 128 * K + 1, M - 1, M, M + 1, 3 * M + 777, 8 * M - 1],
    "range": [HEAD, 0, 1, 128 * K, M - 1, M, M + 1, 4 * M - 1],
    "crowd": [HEAD, 0, 128 * K + 1, M, 8 * M - 1],
    "ahead": [HEAD, 0, 1, M, M + 1, 4 * M + 4],
    "more": [HEAD, 0, 1, M - 1, M, 3 * M + 4],
    "warm": [HEAD], "head": [HEAD],
    "list": [HEAD, 0, 1, 2000, "last"],
    "pass": [HEAD, 0, 1, RELAY_BYTES - 1, RELAY_BYTES, RELAY_BYTES + 1, 8 * M, SIZE - 1],
}
SOME = {
    "cold": [HEAD, 0, 64 * K + 1, M, M + 1, 8 * M - 1], "range": [HEAD, 1, M - 1, 4 * M - 1],
    "crowd": [HEAD, M], "ahead": [0, M + 1, 4 * M + 4], "more": [HEAD, 1, M],
    "list": [HEAD, 0, 2000], "pass": [HEAD, 1, RELAY_BYTES, SIZE - 1],
}
CHUNKED = {"cold": [0, 64 * K + 1, M + 1], "range": [M], "ahead": [M], "more": [1], "list": [],
           "pass": [64 * K + 1, RELAY_BYTES + 1], "crowd": [], "warm": [], "head": []}


@dataclass(frozen=True)
class Cell:
    shape: object
    situation: str
    always: bool
    want: str
    point: object = None
    retry: str = ""
    kind: str = ""

    @property
    def name(self):
        at = {None: "", HEAD: " in the head", 0: " behind the head", "last": " before the last byte"}
        where = at[self.point] if self.point in at else f" at {self.point}"
        return f"{self.shape.name}{where}, {'always' if self.always else 'once'}: {self.situation}"


# ---- expectations of breaks ----

def break_wanted(b, situation, point, always):
    in_head = point == HEAD
    n = 0 if in_head else point
    if situation == "warm":
        return "S" if always else "R"
    if situation in ("list", "pass"):
        if in_head and not always:
            return "P" if situation == "pass" else "R"
        if in_head:
            return str(b.in_head)
        return "C" if situation == "pass" and n >= RELAY_BYTES else str(b.in_body)
    if not always:
        return "R"
    if situation == "head":
        return str(b.in_head)
    if not in_head and n == FIRST[situation] - 1:
        return "R"                   # the resumption brings the rest
    if b.name == "silence" and n >= FIRST_BYTES:     # three of them: upstream is down
        return "C,R" if 2 * n >= M else "C"
    if n >= BROUGHT:                 # each try brings something, which brings new tries
        return "R"
    if situation == "ahead":
        return "C"
    return str(b.in_head if in_head else b.in_body)


def break_cells(b, full):
    for situation in SITUATIONS:
        points = CHUNKED[situation] if "chunked=1" in b.bend else \
            POINTS[situation] if full else SOME.get(situation, POINTS[situation])
        for point in points:
            last = point == "last" and b.name == "silence"
            if last or (point == HEAD and not b.in_head) or (situation == "pass" and not b.passes):
                continue
            for always in (False, True):
                want = break_wanted(b, situation, point, always)
                resumes = situation in FETCH + ("ahead", "more") or point == HEAD
                retry = b.retry[point != HEAD] if resumes and want in ("R", "P") else ""
                if situation in ("warm", "more") and point == HEAD and retry == "reset":
                    retry = ""       # a kept connection: closed meanwhile, so that is no try
                kind = b.kind[point != HEAD] if "R" not in want and want != "P" else ""
                yield Cell(b, situation, always, want, point, retry, kind)


def cells(full):
    for b in BREAKS:
        yield from break_cells(b, full)
    for b in BENDS:
        for always, table in ((False, b.once), (True, b.always)):
            for situation in SITUATIONS:
                if situation not in table:
                    continue
                want = table[situation]
                right = want in ("R", "P", "S")
                # A kept connection that is reset was closed meanwhile: that is no try.
                tried = want in ("R", "P") and b.retry != "reset" or \
                    situation not in ("warm", "more")
                yield Cell(b, situation, always, want, retry=b.retry if tried else "",
                           kind="" if right or "R" in want else b.kind)


# ---- plays ----

def knobs(cell):
    if not isinstance(cell.shape, Break):
        return cell.shape.bend
    word = "stall" if cell.shape.name == "silence" else "cut"
    stop = {HEAD: "head_cut=40" + (" stall=0" if word == "stall" else ""),
            "last": "cut_left=1"}.get(cell.point, f"{word}={cell.point}")
    return cell.shape.bend.format(stop=stop)


def bend(cell):
    """The statement that makes upstream misbehave."""
    text = knobs(cell)
    if text.startswith("!"):
        return text[1:]
    where = "f" if cell.situation == "list" else "f/k"
    skip = " skip=1" if cell.situation in ("ahead", "pass") else ""
    if cell.always and not skip:
        return f"set {where} {text}"
    method = " method=HEAD" if cell.situation in ("warm", "head") else ""
    many = " count=1000" if cell.always else ""
    return f"next {where}{method}{skip}{many} {text}"


def expectation(cell):
    wants = cell.want.split(",")
    ranged = cell.situation in ("range", "more")
    right = "206" if ranged else "200"
    statuses = "|".join(right if w in "RPCS" else w for w in wants)
    words = [f"status={statuses}"]
    if wants == ["C"]:
        words.append("cut")
    elif "C" not in wants:
        words.append("whole")
    if wants[0] in ("R", "P", "S") and cell.situation == "list":
        words.append("body~</ListBucketResult>")
    elif wants[0] in ("R", "P", "S") and cell.situation != "head":
        words.append("bytes=ok")
    words += {"P": ["xcache=bypass"], "S": ["xcache=stale"]}.get(wants[0], [])
    if len(wants) == 1 and isinstance(cell.shape, Break) and wants[0] == "503":
        words.append("header Retry-After")
    if wants == ["502"] and cell.situation != "head" and cell.kind:
        words.append("code=BadGateway")
    return " ".join(words)


def key_of(cell):
    return getattr(cell.shape, "key", "") or KEY


def request(cell):
    target = LIST if cell.situation == "list" else key_of(cell)
    method = "head" if cell.situation == "head" else "get"
    bounds = {"range": " from=1M-1 to=3M+1", "more": " from=9M to=10M"}.get(cell.situation, "")
    told = getattr(cell.shape, "told", "")
    bounds += f" size={told}" if told else ""
    if told and cell.situation == "crowd":  # who asks once more hears the truth
        bounds += f" or_size=12M+5"
    bounds += " " + asks if (asks := getattr(cell.shape, "asks", "")) else ""
    cut = " cut=may" if "C" in cell.want else ""
    return f"{method} {target}{bounds}{cut} within=25000; expect {expectation(cell)}"


def counted(cell):
    lines = []
    if cell.retry:
        lines.append(f'expect metric headpond_upstream_retries_total{{reason="{cell.retry}"}} >= 1')
    if cell.kind:
        lines.append(f'expect metric headpond_upstream_errors_total{{kind="{cell.kind}"}} >= 1')
    if cell.situation == "warm" and cell.want == "S":
        lines.append('expect metric headpond_cache_stale_served_total{reason="offline"} >= 1')
    return lines


def play(cell, number):
    ttl = "0s" if cell.situation == "warm" else "60s"
    settles = getattr(cell.shape, "settles", True)
    who = "parallel 4" if cell.situation == "crowd" else "client a"
    # Connections are a core's own: where the next request must find a kept one there is one core.
    workers = 1 if cell.situation in ("warm", "more") else 1 + number % 2
    lines = [
        f"# {cell.name}",
        f"server {{ upstream.retries = 1; upstream.connect_timeout = {cell.shape.patience}; upstream.read_timeout = "
        f"{cell.shape.patience}; cache.disk_timeout = 0; cache.ttl = {ttl}; server.workers = {workers} }}",
        f'step "{cell.name}"',
        "origin { objects f l-## 30 size=10 }",
    ]
    if cell.situation == "warm":
        lines += [f"client w {{ get {KEY}; expect bytes=ok }}",
                  "wait metric headpond_fetches_in_flight == 0"]
    if cell.situation == "more":
        lines += [f"client w {{ get {KEY} from=0 to=100; expect bytes=ok }}",
                  "wait metric headpond_fetches_in_flight == 0"]
    if cell.situation == "pass":
        lines.append('origin { set f/k etag="W/\\"x\\"" }')
    lines += [f"origin {{ {bend(cell)} }}", f"{who} {{ {request(cell)} }}", *counted(cell)]
    hit = "xcache=hit" if settles else "xcache=hit|bypass"
    lines += [
        "origin { clear; listen on }",
        "wait metric headpond_fetches_in_flight == 0",
        f"client h {{ get {key_of(cell)} until=200 within=20000; expect bytes=ok whole",
        f"           get {key_of(cell)}; expect status=200 bytes=ok whole {hit}",
        f"           get {LIST}; expect status=200 body~</ListBucketResult> whole }}",
        'wait metric headpond_upstream_up == 1',
        "wait metric headpond_fetches_in_flight == 0",
        "wait metric headpond_requests_in_flight == 0",
        'wait metric headpond_upstream_connections{state="active"} == 0',
        "wait metric headpond_buffers_held_bytes == 0",
        "expect metric headpond_checksum_failures_total == 0",
    ]
    if number % 6 == 0:
        lines += ["restart", f"client r {{ get {key_of(cell)}; expect status=200 bytes=ok whole }}",
                  "expect metric headpond_checksum_failures_total == 0"]
    return "\n".join(lines) + "\n"


# ---- running ----

class Runner:
    def __init__(self, build, folder, jobs):
        self.build, self.folder, self.jobs = build, folder, jobs
        self.lock = threading.Lock()
        self.passed, self.failed = 0, 0

    def run_one(self, number, cell):
        path = os.path.join(self.folder, f"{number:04}.flow")
        with open(path, "w") as f:
            f.write(play(cell, number))
        for _ in range(3):           # somebody may take a port between its choice and its use
            done = subprocess.run([os.path.join(self.build, "tests", "play"), path],
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300,
                                  check=False)
            text = done.stdout.decode(errors="replace")
            if "Address already in use" not in text:
                break
        good = done.returncode == 0 and "\nnot ok" not in "\n" + text and "ok 2 - " in text
        with self.lock:
            self.passed += good
            self.failed += not good
            if good:
                os.unlink(path)
                return
            told = [line for line in text.splitlines() if not line.startswith(("ok ", "1.."))]
            print(f"FAIL  {cell.name}\n      {os.path.relpath(path, REPOSITORY)}", flush=True)
            print("\n".join("      " + line[:400] for line in told[:12]), flush=True)

    def work(self, queue):
        while True:
            with self.lock:
                if not queue:
                    return
                number, cell = queue.pop()
            try:
                self.run_one(number, cell)
            except Exception as e:   # a cell that cannot be run is a cell that failed
                with self.lock:
                    self.failed += 1
                    print(f"FAIL  {cell.name}: {e}", flush=True)

    def run(self, chosen):
        queue = list(enumerate(chosen))
        queue.sort(key=lambda c: c[1].shape.name in ("silence", "accepted and never answered"))
        threads = [threading.Thread(target=self.work, args=(queue,)) for _ in range(self.jobs)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


def main():
    options = argparse.ArgumentParser()
    options.add_argument("-j", type=int, default=8)
    options.add_argument("-n", action="store_true")
    options.add_argument("text", nargs="?", default="")
    said = options.parse_args()
    full = os.environ.get("FULL") == "1"
    chosen = [c for c in cells(full) if said.text in c.name]
    if said.n:
        print("\n".join(f"{c.name}: {c.want}" for c in chosen))
        return 0
    build = os.path.join(REPOSITORY, "build", "release")
    os.environ.setdefault("HEADPONDD", os.path.join(build, "headpondd"))
    folder = os.path.join(REPOSITORY, "build", "faults")
    os.makedirs(folder, exist_ok=True)
    began = time.monotonic()
    runner = Runner(build, folder, said.j)
    runner.run(chosen)
    print(f"# {len(chosen)} cells in {time.monotonic() - began:.0f} s")
    print(f"matrix: {runner.passed} passed, {runner.failed} failed")
    return 1 if runner.failed or not runner.passed else 0


if __name__ == "__main__":
    sys.exit(main())
