#!/usr/bin/env python3
"""Training epochs through a cache that is smaller than the data: what the policy is worth, in bytes that upstream need not give.

    epochs.py [--full] [PART...]     parts: shards samples; with --full also scan next beside pieces; by name only: planned

The data is 21 times cache.memory, the cache 80 % of the data. An epoch reads every byte once, in a new order; so no cache can hit more
than it holds, and LRU (nginx, the same size and order) hits far less.

    shards    whole objects; 4 epochs, and the same through nginx
    samples   128 KiB each, all of all shards in one shuffle
    pieces    shards in ranges of 1 MiB
    planned   whole objects, and the loader says before each epoch in which order it will read: what is fetched ahead must not cost
              more of upstream than is saved without (it does so far: README, Limits)
    scan      half as much as the data is read once, beside another epoch
    next      the job is over, another one with other data begins: its third epoch against Belady's MIN on the same trace
    beside    another job with half as much data begins, and the first one goes on: what both need is twice what there is room for, so
              who comes must first show that his chunks are read more often; his sixth epoch against MIN

Invariants:
 1. Upstream's bytes are those that its own store counted; every byte that a reader gets is compared.
 2. A verdict is a ratio of bytes, never of times.

The last line is "epochs: N passed, N failed". SPDX-License-Identifier: Apache-2.0"""
import argparse
import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE]
import belady                                    # noqa: E402
from world import BUCKETS, MIB, Bench, Data, Failure, Headpond, Nginx, Store  # noqa: E402

SHARDS, SHARD_MIB, CHUNK = 42, 32, 8 * MIB
SHARE, HITS, OF_MIN, SCAN_COST, OVER = .8, .78, .9, .02, 1.05
LEARNT = 6
QUICK = ("shards", "samples")
PARTS = ("shards", "scan", "next", "beside", "samples", "pieces")
BY_NAME = ("planned",)


class Report:
    passed = failed = 0

    @contextlib.contextmanager
    def test(self, name):
        began = time.monotonic()
        try:
            yield
            self.passed += 1
            print(f"ok    {name} ({time.monotonic() - began:.0f} s)", flush=True)
        except Exception as e:  # noqa: BLE001 - any failure is this test's
            self.failed += 1
            text = str(e) if isinstance(e, Failure) else traceback.format_exc()
            print(f"FAIL  {name}: {text}", flush=True)


def expect(condition, text):
    if not condition:
        raise Failure(text)


def whole(bucket, keys):
    return [(bucket, key, [None]) for key in keys]


class Epochs:
    def __init__(self, folder, full):
        self.folder, self.full, self.report, self.random = folder, full, Report(), random.Random(11)
        self.data = Data(folder + "/data", SHARDS, SHARD_MIB, SHARDS // 2 if full else 0)
        self.stores = {bucket: Store(bucket, folder + "/data", folder) for bucket in BUCKETS}
        self.total = SHARDS * SHARD_MIB * MIB
        self.size = int(self.total * SHARE)
        self.orders = [self.shuffled("first") for _ in range(4)]
        self.bench = None

    def shuffled(self, bucket, count=None):
        keys = self.data.keys[bucket][:count]
        return self.random.sample(keys, len(keys))

    def server(self):
        return Bench(Headpond(self.folder + "/headpond", self.stores, self.size, ('policy = "ehd"',)), self.stores, self.data)

    def tell(self, what, asked, given, bucket="first"):
        ratio = 1 - given[bucket] / asked[bucket]
        print(f"#     {what}: hits {ratio:.4f}, upstream/asked {given[bucket] / asked[bucket]:.4f}", flush=True)
        return ratio

    def epochs(self, bench, epochs, workers, name, planned=False):
        """Reads each, and gives their hit ratios; upstream never gives more than is asked for."""
        hits, worst = [], 0
        for n, jobs in enumerate(epochs):
            asked, given = bench.read(jobs, workers, n if planned else None)
            hits.append(self.tell(f"{name}, epoch {n + 1}", asked, given))
            worst = max(worst, given["first"] / asked["first"])
        expect(worst <= OVER, f"upstream gave {worst:.3f} times what was asked for")
        expect(min(hits[1:]) >= HITS, f"hits {hits}, wanted {HITS} from the second epoch on")
        return hits

    # ---- parts ----

    def shards(self):
        with self.report.test("whole shards, shuffled"):
            self.bench = self.server()
            self.hits = self.epochs(self.bench, [whole("first", order) for order in self.orders], 4, "headpond")
        with self.report.test("the same through nginx: LRU"):
            nginx = Bench(Nginx(self.folder + "/nginx", self.stores, self.size), self.stores, self.data)
            try:
                hits = []
                for n, order in enumerate(self.orders):
                    hits.append(self.tell(f"nginx, epoch {n + 1}", *nginx.read_in_batches(whole("first", order), 2)))
            finally:
                nginx.cache.end()
            book = belady.by_lru([key for order in self.orders for key in order], int(SHARDS * SHARE))
            print(f"#     LRU by the book: {[round(sum(book[n * SHARDS:(n + 1) * SHARDS]) / SHARDS, 3) for n in range(4)]}")
            expect(max(hits[1:]) < HITS, f"nginx hits {hits}: then this proves nothing")
        if not self.full:
            self.bench.cache.end()

    def scan(self):
        """One scanned object behind every two shards."""
        with self.report.test("a scan beside it"):
            usual = sum(self.hits[1:]) / len(self.hits[1:])
            jobs, once = whole("first", self.shuffled("first")), whole("scan", self.data.keys["scan"])
            mixed = [job for n, two in enumerate(zip(jobs[::2], jobs[1::2])) for job in (*two, *once[n:n + 1])]
            asked, given = self.bench.read(mixed, 4)
            during = self.tell("the first data beside a scan", asked, given)
            expect(given["scan"] <= OVER * asked["scan"], f"the scan of {asked['scan']} bytes cost {given['scan']}")
            after = self.tell("the epoch behind it", *self.bench.read(whole("first", self.shuffled("first")), 4))
            expect(min(during, after) > usual - SCAN_COST, f"{during:.4f} and {after:.4f}, before it {usual:.4f}")

    def against_min(self, bucket, began):
        """Hits of the bucket's reads from that place of the trace on, as MIN has them on all of the trace."""
        names, chunks = [], []
        for at, (name, key, begin, end) in enumerate(self.bench.trace):
            for chunk in range(begin // CHUNK, (end - 1) // CHUNK + 1):
                chunks.append((name, key, chunk))
                names.append(at >= began and name == bucket)
        hits = belady.by_min(chunks, self.size // CHUNK)
        return sum(hit for hit, ours in zip(hits, names) if ours) / sum(names)

    def next(self):
        with self.report.test("another job follows"):
            for n in range(3):
                began = len(self.bench.trace)
                ratio = self.tell(f"the next data, epoch {n + 1}", *self.bench.read(whole("second", self.shuffled("second")), 4),
                                  "second")
            best = self.against_min("second", began)
            print(f"#     MIN: {best:.4f}", flush=True)
            expect(ratio >= OF_MIN * best, f"{ratio:.4f} in its third epoch, MIN has {best:.4f}")
            self.bench.cache.end()

    def beside(self):
        """Both read at the same pace, so the small one is twice as fast."""
        half = SHARDS // 2
        with self.report.test("another job begins, and the first goes on"):
            self.bench = self.server()
            for order in self.orders[:3]:
                self.bench.read(whole("first", order), 4)
            first = []
            for n in range(LEARNT):
                began = len(self.bench.trace)
                first = first or whole("first", self.shuffled("first"))
                mine, first = first[:half], first[half:]
                jobs = [job for two in zip(mine, whole("second", self.shuffled("second", half))) for job in two]
                asked, given = self.bench.read(jobs, 4)
                ratio = self.tell(f"the data that came, epoch {n + 1}", asked, given, "second")
                both = 1 - (given["first"] + given["second"]) / (asked["first"] + asked["second"])
                self.tell("the first data", asked, given)
            best = self.against_min("second", began)
            print(f"#     MIN: {best:.4f}; both together {both:.4f}", flush=True)
            expect(ratio >= OF_MIN * best, f"{ratio:.4f} in its sixth epoch, MIN has {best:.4f}")
            self.bench.cache.end()

    def samples(self):
        with self.report.test("samples of 128 KiB, shuffled"):
            bench = self.server()
            places = [(key, n * MIB // 8) for key in self.data.keys["first"] for n in range(SHARD_MIB * 8)]
            epochs = [[("first", key, [(at, at + MIB // 8)]) for key, at in self.random.sample(places, len(places))] for _ in range(4)]
            self.epochs(bench, epochs, 8, "samples")
            bench.cache.end()

    def planned(self):
        with self.report.test("whole shards, shuffled, with a plan of each epoch"):
            bench = self.server()
            self.epochs(bench, [whole("first", order) for order in self.orders], 4, "planned", planned=True)
            bench.cache.end()

    def pieces(self):
        with self.report.test("ranges of 1 MiB, shard by shard"):
            bench = self.server()
            ranges = [(n * MIB, (n + 1) * MIB) for n in range(SHARD_MIB)]
            self.epochs(bench, [[("first", key, ranges) for key in order] for order in self.orders], 8, "pieces")
            bench.cache.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    parser.add_argument("parts", nargs="*")
    arguments = parser.parse_args()
    parts = arguments.parts or (PARTS if arguments.full else QUICK)
    unknown = set(parts) - set(PARTS + BY_NAME)
    if unknown:
        sys.exit(f"no such part: {' '.join(unknown)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = tempfile.mkdtemp(prefix="headpond-epochs-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    try:
        run = Epochs(folder, arguments.full)
        for part in parts:
            getattr(run, part)()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report = run.report
    print(f"epochs: {report.passed} passed, {report.failed} failed", flush=True)
    sys.exit(1 if report.failed or not report.passed else 0)


if __name__ == "__main__":
    main()
