# A cache disk that fails in every way that faultfs.c knows, under readers: they see no error and no
# wrong byte, the disk is fenced and taken back by itself, and what the server says of it is true.
#
# Invariants:
#  1. Each scene has a world of its own: server, directories, file system.
#  2. A scene that struck nothing fails: the file system counts what its faults changed.
#  3. Times are compared with those of the same readers a moment before, on the same machine.
#
# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from world import READERS, Failure, Reader, World, tail, wait_until  # noqa: E402

BELIEF_S = 20                          # until enough operations have failed
RETURN_S = 40                          # tests, and then probation
TIMEOUT_S, SLACK_S = 1.0, 0.35         # cache.disk_timeout; what a loaded machine adds to it
MORE_MS = 5                            # that a request may take longer while a disk is out
SCENES = []


def scene(name):
    def add(play):
        SCENES.append((name, play))
        return play
    return add


def struck_since(world, before, what, seconds=BELIEF_S):
    wait_until(f"{what} strikes", lambda: world.disk.count("struck") > before, seconds)


def comes_back(world):
    world.disk.say("clear")
    world.until_state({"up"}, RETURN_S)
    world.require({"up"})
    # What it held may be on the other disk by now, but new objects come to it.
    before = world.of_bad("disk_written_bytes_total")
    wait_until("it is written again",
               lambda: world.of_bad("disk_written_bytes_total") > before, 20)


def fails_once(kind):
    def play(world):
        for _ in range(2):
            before = world.disk.count("struck")
            world.disk.say(f"fail {kind} EIO 1")
            struck_since(world, before, f"one failed {kind}")
        time.sleep(1)
        comes_back(world)
    return play


def is_fenced(*faults):
    def play(world):
        before = world.disk.count("struck")
        world.disk.say(*faults)
        struck_since(world, before, "the fault")
        world.until_state({"fenced"}, BELIEF_S)
        world.require({"fenced"})
        time.sleep(2)                  # readers without it; it stays out while it fails
        world.require({"fenced"})
        comes_back(world)
    return play


for KIND in ("read", "write", "sync"):
    scene(f"EIO once: {KIND}")(fails_once(KIND))
    scene(f"EIO always: {KIND}")(is_fenced(f"fail {KIND} EIO"))
scene("read-only")(is_fenced("readonly on"))
scene("pulled and plugged in again")(is_fenced("pull"))


@scene("full: ENOSPC")
def full(world):
    before = world.disk.count("struck")
    world.disk.say("fail write ENOSPC")
    struck_since(world, before, "a full disk")
    time.sleep(4)
    comes_back(world)


@scene("bit flips")
def flips(world):
    failures = world.of_bad("checksum_failures_total")
    world.disk.say("only slab", "flip on")
    wait_until("damage is seen", lambda: world.of_bad("checksum_failures_total") >= failures + 3,
               BELIEF_S)
    comes_back(world)


@scene("lost writes")
def lost(world):
    """Nothing tells until the bytes are read from the disk: so by the next server."""
    world.disk.say("only slab", "lose on")
    before = world.disk.count("struck")
    wait_until("writes are lost", lambda: world.disk.count("struck") >= before + 10, BELIEF_S)
    keys = [f"lost{i}@200K" for i in range(40)]
    read_all(world, keys)
    wait_until("all is written", lambda: world.metric("fetches_in_flight", "demand") < READERS, 20)
    world.disk.say("clear")
    check_reads(world.end_readers())
    world.stop()
    world.start()
    world.begin_readers()
    read_all(world, keys)
    if not world.of_bad("checksum_failures_total"):
        raise Failure("no lost write was noticed")
    world.require({"up"})


def read_all(world, keys):
    reader = Reader(world, 1)
    reader.connect()
    for key in keys:
        reader.read(key, None)
    check_reads(reader.reads)


@scene("slow: 150 ms for everything")
def slow(world):
    world.disk.say("delay 150")
    began, before = time.monotonic(), world.disk.count("read")
    time.sleep(5)
    if world.disk.count("read") == before and world.state() == "up":
        raise Failure("nobody reads the slow disk")
    print(f"      slow disk: median {1000 * median(world, began, time.monotonic()):.1f} ms",
          flush=True)
    comes_back(world)


def reads_between(world, began, ended):
    return [r for reader in world.readers for r in list(reader.reads) if began <= r.began < ended]


def median(world, began, ended):
    reads = reads_between(world, began, ended)
    if len(reads) < 20:
        raise Failure(f"only {len(reads)} reads were begun in {ended - began:.1f} s")
    return statistics.median(r.seconds for r in reads)


@scene("frozen and thawed")
def frozen(world):
    time.sleep(4)
    froze = time.monotonic()
    before = median(world, froze - 4, froze)
    world.disk.say("freeze")
    world.until_state({"suspect", "fenced"}, 5)
    wait_until("disk_stuck_ops tells it", lambda: world.of_bad("disk_stuck_ops") > 0, 3)
    world.until_state({"fenced"}, BELIEF_S)
    world.require({"fenced"})
    time.sleep(max(0.0, froze + 8 - time.monotonic()))
    ended = time.monotonic()
    world.disk.say("thaw")
    late = froze + TIMEOUT_S + SLACK_S
    first, then = reads_between(world, froze - TIMEOUT_S, late), median(world, late, ended)
    worst = max(r.seconds for r in first)
    stuck = [r for r in first if r.seconds > TIMEOUT_S / 2]
    slow_later = [r for r in reads_between(world, late, ended) if r.seconds > TIMEOUT_S / 2]
    print(f"      frozen disk: median {1000 * before:.1f} ms before, {1000 * then:.1f} ms while it "
          f"is out; {len(stuck)} requests met it, the longest took {worst:.2f} s", flush=True)
    if worst > TIMEOUT_S + SLACK_S:
        raise Failure(f"a request waited {worst:.2f} s for a frozen disk")
    if not stuck or len(stuck) > READERS:
        raise Failure(f"{len(stuck)} requests of {READERS} readers waited for the frozen disk")
    if slow_later:
        raise Failure(f"{len(slow_later)} requests waited when it was known to be frozen")
    if then > before + MORE_MS / 1000:
        raise Failure(f"{1000 * (then - before):.1f} ms more per request")
    comes_back(world)
    if world.of_bad("disk_stuck_ops"):
        raise Failure("disk_stuck_ops is not 0 when all came back")


# ---- the frame of a scene ----

def check_reads(reads):
    bad = [r for r in reads if r.error]
    if bad:
        raise Failure(f"{len(bad)} of {len(reads)} reads failed: {bad[0].error}")


def run_scene(world, play):
    world.disk.say("clear")
    world.start()
    world.warm()
    world.begin_readers()
    play(world)
    reads = world.end_readers()
    check_reads(reads)
    world.stop()
    return len(reads)


def main():
    words = sys.argv[1:]
    chosen = [s for s in SCENES if not words or any(word in s[0] for word in words)]
    folder = tempfile.mkdtemp(prefix="headpond-disks-", dir="/var/tmp")
    passed = failed = 0
    for number, (name, play) in enumerate(chosen):
        place, world = f"{folder}/{number}", None
        began = time.monotonic()
        os.mkdir(place)
        try:
            world = World(place)
            reads = run_scene(world, play)
            passed += 1
            print(f"ok    {name}: {reads} reads, {time.monotonic() - began:.0f} s", flush=True)
        except Exception as e:         # whatever it is, the scene failed and the next one begins
            failed += 1
            told = str(e) if isinstance(e, Failure) else traceback.format_exc()
            print(f"FAIL  {name}: {told}", flush=True)
            if world and world.life:
                print("".join("      " + line for line in tail(world.log, 8).splitlines(True)),
                      flush=True)
        finally:
            if world:
                with contextlib.suppress(Failure):
                    world.close()
            shutil.rmtree(place, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)
    print(f"disks: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
