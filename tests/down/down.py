# Life without the upstream, as readers see it: an epoch goes on while the store is unplugged in
# three ways; what is not held fails soon and honestly; plugged in again, all is well by itself.
#
# Invariants:
#  1. Every byte read is compared with what the store itself says.
#  2. Readers do not retry: an error that a client library would hide is seen here.
#  3. Timing bounds here are those of the deadlines, or coarse; the 10 % figure is FULL=1's, taken
#     with what is measured before all else on the machine and cores that do not sleep.
#
# SPDX-License-Identifier: Apache-2.0
import contextlib
import hashlib
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback

import boto3
import botocore.config
import botocore.exceptions

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import (ACCESS, PORT, SECRET, THERE, THERE_TOO, Cache, Failure, World,  # noqa: E402
                   run, until, wait_until)

FULL = os.environ.get("FULL") == "1"
CONNECT_S, READ_S, SLACK_S, BACK_S = 3, 4, 2.0, 2.0
AT_ONCE_S = 2.0                          # less than any of the deadlines, slack for a machine that pauses
SMALL, COUNT = "64K", 48
PREFIXES = ("fresh", "fixed", "expire", "zero")
CONFIG = f"""connect_timeout = "{CONNECT_S}s"
read_timeout = "{READ_S}s"
[cache]
dirs = ["%s"]
size = "600MiB"
min_free = "64MiB"
memory = "128MiB"
ttl = "1h"
disk_timeout = "60s"
[[bucket]]
match = "data/fixed-"
immutable = true
[[bucket]]
match = "data/expire-"
ttl = "1s"
[[bucket]]
match = "data/zero-"
ttl = "0s"
"""


class Report:
    passed = failed = 0

    @contextlib.contextmanager
    def test(self, name):
        try:
            yield
            self.passed += 1
            print(f"ok    {name}", flush=True)
        except Exception as e:  # noqa: BLE001 - any failure is this test's
            self.failed += 1
            text = str(e) if isinstance(e, (Failure, AssertionError)) else traceback.format_exc()
            print(f"FAIL  {name}: {text}", flush=True)


def expect(condition, text):
    if not condition:
        raise Failure(text)


def keys():
    for prefix in PREFIXES:
        for i in range(COUNT):
            yield f"{prefix}-{i:02}@{SMALL}"
    for i in range(3):
        yield f"fresh-big-{i}@12M"


def client(world, attempts=1):
    options = botocore.config.Config(retries={"total_max_attempts": attempts, "mode": "standard"},
                                     read_timeout=60, s3={"addressing_style": "path"})
    return boto3.client("s3", endpoint_url=f"http://127.0.0.1:{world.port}", config=options,
                        region_name="us-east-1", aws_access_key_id=ACCESS,
                        aws_secret_access_key=SECRET)


def curl(url, *options):
    """Status, head, body; status 0 if the answer was cut."""
    done = subprocess.run(["curl", "-s", "-i", "-m", "60", *options, url], stdout=subprocess.PIPE)
    head, _, body = done.stdout.partition(b"\r\n\r\n")
    status = int(head.split()[1]) if done.returncode == 0 else 0
    return status, head.decode().lower(), body


def digest(body):
    return hashlib.sha256(body).digest()


class Epoch:
    """Readers that go through the data set again and again until told to stop."""

    def __init__(self, world, truth):
        self.world, self.truth = world, truth
        self.errors, self.reads, self.over = [], 0, threading.Event()
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.go, args=(read, n)) for n, read in
                        enumerate((self.by_boto3, self.by_boto3, self.by_curl))]

    def by_boto3(self, own, key):
        return own.get_object(Bucket="data", Key=key)["Body"].read()

    def by_curl(self, own, key):
        status, _, body = curl(f"http://127.0.0.1:{self.world.port}/data/{key}")
        expect(status == 200, f"curl {key}: status {status}")
        return body

    def go(self, read, number):
        own, names = client(self.world), list(keys())
        at = number * 17
        while not self.over.is_set():
            key = names[at * 31 % len(names)]
            at += 1
            try:
                good = digest(read(own, key)) == self.truth[key]
                error = None if good else f"{key}: wrong bytes"
            except Exception as e:  # noqa: BLE001
                error = f"{key}: {e}"
            with self.lock:
                self.reads += 1
                if error:
                    self.errors.append(error)

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for t in self.threads:
            t.join()


def miss(world, key, attempts=1):
    """Seconds until the error, and the error as boto3 tells it (None: no error)."""
    own = client(world, attempts)                # to make one is much work
    began = time.monotonic()
    try:
        own.get_object(Bucket="data", Key=key)["Body"].read()
        return time.monotonic() - began, None
    except botocore.exceptions.ClientError as e:
        return time.monotonic() - began, e.response


def many_misses(world, name, count):
    found = []
    threads = [threading.Thread(target=lambda i=i: found.append(miss(world, f"{name}-{i}@1000")))
               for i in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return found


def check_miss(found, at_most_s):
    seconds, error = found
    expect(error is not None, "a miss was answered without the store")
    code, status = error["Error"]["Code"], error["ResponseMetadata"]["HTTPStatusCode"]
    expect((status, code) == (503, "ServiceUnavailable"), f"{status} {code}")
    headers = error["ResponseMetadata"]["HTTPHeaders"]
    expect("retry-after" in headers, "no Retry-After")
    expect(seconds <= at_most_s, f"{seconds:.2f} s, at most {at_most_s} s")


def learn_truth():
    """What the store itself says, past the cache."""
    return {k: digest(curl(f"http://{THERE}:{PORT}/data/{k}")[2]) for k in keys()}


def warm(world, truth):
    own = client(world)
    for key in keys():
        body = own.get_object(Bucket="data", Key=key)["Body"].read()
        expect(digest(body) == truth[key], f"{key}: wrong bytes")
    own.get_object(Bucket="data", Key="fresh-part@16M", Range="bytes=0-1048575")["Body"].read()
    wait_until("all fetches end", lambda: world.metric("fetches_in_flight") == 0, 20)


# ---- tests ----

def first_misses(world, how):
    """The first miss alone, then some at once: each within its deadline."""
    deadline = READ_S if how == "stopped" else CONNECT_S
    check_miss(miss(world, f"first-{how}@1000"), deadline * 2 if how == "stopped"
               else deadline + SLACK_S)
    for found in many_misses(world, f"second-{how}", 6):
        check_miss(found, deadline + SLACK_S)


def held_as_promised(world):
    """Within the ttl and immutable: hits; past it, and with ttl 0: stale and marked so."""
    for prefix, cache, warning in (("fresh", "hit", False), ("fixed", "hit", False),
                                   ("expire", "stale", True), ("zero", "stale", True)):
        status, head, _ = curl(f"http://127.0.0.1:{world.port}/data/{prefix}-00@{SMALL}")
        expect(status == 200 and f"x-cache: {cache}" in head, f"{prefix}: {head}")
        expect(("warning: 110" in head) == warning, f"{prefix}: {head}")


def part_is_refused_whole(world):
    url = f"http://127.0.0.1:{world.port}/data/fresh-part@16M"
    status, head, _ = curl(url)
    expect(status == 503 and "retry-after" in head, f"status {status}: {head}")
    status, head, body = curl(url, "-r", "0-1048575")
    expect(status == 206 and len(body) == 1 << 20, f"status {status}: {head}")


def down_is_at_once(world, how):
    found = [miss(world, f"late-{how}-{i}@1000") for i in range(20)]
    for f in found:
        check_miss(f, AT_ONCE_S)
    middle = statistics.median(seconds for seconds, _ in found)
    expect(middle <= AT_ONCE_S / 4, f"half of them took more than {middle:.2f} s")
    status, head, _ = curl(f"http://127.0.0.1:{world.port}/data?list-type=2")
    expect(status == 503 and "retry-after" in head, f"list: status {status}")
    error = miss(world, "again@1000", attempts=2)[1]
    expect(error["ResponseMetadata"]["RetryAttempts"] == 1, "boto3 does not retry it")


def load(world, prefix, seconds, connections=4, warm_s=0.2):
    """p99 in microseconds of hits, and their number."""
    done = run(["build/release/bench/load", "-a", f"127.0.0.1:{world.port}",
                "-k", f"/data/{prefix}-##@{SMALL}", "-n", str(COUNT), "-s", SMALL, "-v",
                "-c", str(connections), "-w", str(warm_s), "-t", str(seconds)])
    values = dict(w.split("=") for w in done.stdout.decode().split())
    expect(int(values["errors"]) == 0, done.stdout.decode())
    return float(values["p99_us"]), int(values["requests"])


def calm_meter(world):
    """Waits until dead connections have said their last word."""
    world.meter()
    def calm():
        time.sleep(1.2)  # the meter's own interval, longer than that of the probes
        seen = world.meter()
        return seen["rest"] <= seen["flows"] * 6
    wait_until("only probes on the cable", calm, 20)


def hits_need_no_packet(world, how):
    """The same interval without a request and with thousands of hits: the store hears the same."""
    seconds, seen = 3, []
    calm_meter(world)
    for busy in (False, True):
        probes = world.metric("upstream_probes_total")
        asked = world.metric("upstream_requests_total")
        world.meter()
        hits, began = 0, time.monotonic()
        if busy:
            for prefix in PREFIXES:
                hits += load(world, prefix, seconds / len(PREFIXES) - 0.2)[1]
        else:
            time.sleep(seconds)  # an interval is what is measured
        took = time.monotonic() - began
        now = world.meter()
        now["took"] = round(took, 1)
        now["probes"] = world.metric("upstream_probes_total") - probes
        now["asked"] = world.metric("upstream_requests_total") - asked
        seen.append(now)
    print(f"#     {how}: idle {seen[0]}, {hits} hits {seen[1]}", flush=True)
    expect(hits > 1000, f"only {hits} hits")
    for s in seen:
        expect(2 <= s["probes"] <= s["took"] + 2, f"{s['probes']} probes in {s['took']} s")
        expect(abs(s["flows"] - s["probes"]) <= 2, f"{s}: a connection that was no probe")
        expect(how == "stopped" or s["asked"] == 0, f"{s}: a request was sent")
        expect(s["asked"] <= s["probes"] + 2, f"{s}: a request was no probe")
    allowed = 0 if how == "refused" else seen[0]["rest"] * seen[1]["took"] / seen[0]["took"] + 8
    expect(seen[1]["rest"] <= allowed, f"{seen}: packets beside the probes")


def comes_back(world, how):
    lines = world.log_lines('e="upstream up"')
    world.plug(how)
    began, key = time.monotonic(), 0
    for _ in until(BACK_S + 5):
        key += 1
        if miss(world, f"back-{how}-{key}@1000")[1] is None:
            break
        time.sleep(0.02)  # not to be the load
    seconds = time.monotonic() - began
    print(f"#     {how}: misses work again after {seconds:.2f} s", flush=True)
    expect(seconds <= BACK_S, f"{seconds:.2f} s until a miss was answered")
    expect(world.is_up() and world.server.alive(), "not up")
    expect(world.log_lines('e="upstream up"') == lines + 1, "not told once")
    status, head, _ = curl(f"http://127.0.0.1:{world.port}/data/zero-00@{SMALL}")
    expect(status == 200 and "x-cache: hit" in head and "warning" not in head, head)


def outage(world, report, truth, how):
    began = time.monotonic()
    told = world.log_lines('e="upstream down"')
    epoch = Epoch(world, truth)
    with epoch:
        time.sleep(1)  # a healthy part of the epoch
        world.pull(how)
        with report.test(f"{how}: the first misses fail within their deadline"):
            first_misses(world, how)
        with report.test(f"{how}: it is noticed, and told once"):
            wait_until("down", lambda: not world.is_up(), 10)
            expect(world.log_lines('e="upstream down"') == told + 1, "not told once")
            wait_until("status", lambda: "not answering for" in world.status(), 5)
        with report.test(f"{how}: misses, lists and boto3's retries then fail at once"):
            down_is_at_once(world, how)
        time.sleep(2)  # an unplugged part of the epoch, the one-second ttl passes
    with report.test(f"{how}: the epoch went on without an error"):
        expect(not epoch.errors, f"{len(epoch.errors)} of {epoch.reads}: {epoch.errors[:3]}")
        expect(epoch.reads > 100, f"only {epoch.reads} reads")
        print(f"#     {how}: {epoch.reads} reads", flush=True)
    with report.test(f"{how}: what is held is served as its ttl says"):
        held_as_promised(world)
    with report.test(f"{how}: what is held in part is refused before its head"):
        part_is_refused_whole(world)
    with report.test(f"{how}: hits need no packet; probes come once a second"):
        hits_need_no_packet(world, how)
    with report.test(f"{how}: plugged in again, misses work within {BACK_S:.0f} s"):
        comes_back(world, how)
    print(f"#     {how}: {time.monotonic() - began:.0f} s", flush=True)


def trip(cache):
    for _ in until(30):
        many_misses(cache, "trip", 4)
        if not cache.is_up():
            return
    raise Failure("the breaker does not trip")


def phase(world, how, seconds, pulled):
    if pulled:
        world.pull(how)
        trip(world)
    # One connection: more of them would measure how they share two cores.
    found = {p: load(world, p, seconds, 1)[0] for p in ("fixed", "expire" if pulled else "fresh")}
    if pulled:
        world.plug(how)
        wait_until("up", world.is_up, 10)
    return found


def latency(world, how, phases, seconds, bound, floor_us):
    """p99 of hits, healthy and unplugged by turns; medians over the phases. Below floor_us a
    difference says more about who else uses the machine."""
    p99 = {"healthy": [], "unplugged": [], "stale": []}
    for _ in range(phases):
        well = phase(world, how, seconds, False)
        gone = phase(world, how, seconds, True)
        p99["healthy"] += [well["fixed"], well["fresh"]]
        p99["unplugged"].append(gone["fixed"])
        p99["stale"].append(gone["expire"])
    middle = {k: statistics.median(v) for k, v in p99.items()}
    for name in ("unplugged", "stale"):
        ratio = middle[name] / middle["healthy"]
        print(f"#     {how}: p99 of hits {middle['healthy']:.0f} us healthy, {middle[name]:.0f} us "
              f"{name} (x {ratio:.2f}; {phases} phases each)", flush=True)
        expect(ratio <= bound or middle[name] <= floor_us, f"{name}: {p99}")


@contextlib.contextmanager
def first_served(*caches):
    """The caches' threads and ours (so the load's, too) go before all else that runs here: who else
    wants a core is no matter of the cache's."""
    tasks = [int(t) for c in caches for t in os.listdir(f"/proc/{c.server.pid}/task")] + [0]

    def schedule(policy, priority):
        for task in tasks:
            with contextlib.suppress(ProcessLookupError):
                os.sched_setscheduler(task, policy, os.sched_param(priority))

    schedule(os.SCHED_FIFO, 1)
    try:
        yield
    finally:
        schedule(os.SCHED_OTHER, 0)


@contextlib.contextmanager
def cores_awake():
    """No core sleeps meanwhile (PM QoS of the kernel): to wake one, a virtual one above all, takes
    as long as a hit, or twice that, whoever is measured."""
    try:
        held = os.open("/dev/cpu_dma_latency", os.O_WRONLY)
    except OSError as e:
        print(f"#     cores may sleep, which adds chance: {e}", flush=True)
        yield
        return
    try:
        os.write(held, bytes(4))         # microseconds, as a native int32
        yield
    finally:
        os.close(held)


def slices(series, rounds):
    """p99s of all by turns, a third of a second each. In each round another order is drawn: who
    always followed the same other, or itself, would be measured with what that one left behind."""
    found = [[] for _ in series]
    draw = random.Random(rounds)
    for _ in range(rounds):
        for n in draw.sample(range(len(series)), len(series)):
            cache, prefix = series[n]
            found[n].append(load(cache, prefix, 0.33, 1, 0.1)[0])
    return found


def middle_ratio(ones, others):
    """Median and quartiles of the ratios within each round: what else runs on the machine for some
    seconds meets all slices of a round."""
    ratios = [other / one for one, other in zip(ones, others)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return middle, f"x {middle:.3f}, half of all rounds within {low:.2f} and {high:.2f}"


def side_by_side(world, twin, how, rounds, bound):
    """Two caches at once, one of them cut off; then the other one."""
    p99 = {"healthy": [], "unplugged": [], "stale": []}
    for well, gone in ((world, twin), (twin, world)):
        world.cut(gone.address, how)
        trip(gone)
        found = slices([(well, "fixed"), (gone, "fixed"), (gone, "zero")], rounds)
        for name, series in zip(p99, found):
            p99[name] += series
        world.mend()
        wait_until("up", gone.is_up, 10)
    over = []
    for name in ("unplugged", "stale"):
        ratio, text = middle_ratio(p99["healthy"], p99[name])
        print(f"#     {how}: p99 of hits {statistics.median(p99['healthy']):.0f} us healthy, "
              f"{statistics.median(p99[name]):.0f} us {name} ({text}; {2 * rounds} rounds)",
              flush=True)
        over += [f"{name}: {text}: {p99}"] if ratio > bound else []
    expect(not over, "; ".join(over))


def full(world, truth, report):
    twin = Cache(world.path("twin"), THERE_TOO)
    twin.start(CONFIG % twin.path("cache"))
    try:
        warm(twin, truth)
        with first_served(world, twin), cores_awake():
            found = slices([(world, "fixed"), (twin, "fixed"), (twin, "fresh")], 40)
            for name, series in zip(("twin", "twin's others"), found[1:]):
                print(f"#     all healthy, chance: {name} {middle_ratio(found[0], series)[1]}",
                      flush=True)
            for how in ("refused", "dropped"):
                with report.test(f"{how}: p99 of hits within 10 % of a healthy cache's"):
                    side_by_side(world, twin, how, 40, 1.10)
    finally:
        twin.server.stop()


def run_all(world, report):
    world.start(CONFIG % world.path("cache"))
    truth = learn_truth()
    warm(world, truth)
    for how in ("dropped", "refused", "stopped"):
        outage(world, report, truth, how)
    with report.test("hits keep their latency: coarse"):
        latency(world, "refused", 3, 0.8, 3.0, floor_us=10000)
    if FULL:
        full(world, truth, report)
    with report.test("one process all the time, and it ends well"):
        expect(world.server.alive(), "the server ended")
        expect(world.server.stop() == 0, "no clean end")


def main():
    report = Report()
    folder = tempfile.mkdtemp(prefix="headpond-down-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    world = None
    try:
        with report.test("two namespaces, a cable and a meter"):
            world = World(folder)
        if world:
            with report.test("all tests came to their end"):
                run_all(world, report)
    finally:
        if world:
            world.end()
        if report.failed:
            print(f"# kept {folder}")
            shutil.rmtree(os.path.join(folder, "cache"), ignore_errors=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"down: {report.passed} passed, {report.failed} failed", flush=True)
    sys.exit(1 if report.failed or not report.passed else 0)


if __name__ == "__main__":
    main()
