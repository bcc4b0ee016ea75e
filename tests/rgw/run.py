# The proof against a real S3 server. tests/rgw/run.sh prepares what this needs and calls it.
#
#   run.py [part...]      parts: bytes fresh crowd suite origin traps soak; without any, all but soak
#   RGW_FULL=1            20 GiB through the cache instead of 4
#   RGW_KEEP=1            keeps the directory
#   HEADPONDD=FILE        the server under test (build/release/headpondd)
#
# The last line is "rgw: N passed, N failed"; exit status 0 only if some passed and none failed.
#
# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import signal
import sys
import tempfile
import time

import test_bytes
import test_crowd
import test_origin
import test_fresh
import test_suite
import test_traps
from ceph import Ceph
from corpus import Corpus
from lab import Lab

GIB = 1 << 30
PARTS = ("bytes", "fresh", "crowd", "suite", "origin", "traps")
CORPUS_PARTS = {"bytes", "fresh", "crowd"}


def with_ceph(lab, parts):
    """Everything that needs RGW; it lives only as long."""
    ceph = Ceph(lab.path("ceph"))
    try:
        began = time.monotonic()
        with lab.report.test("RGW starts"):
            ceph.start()
        if lab.report.failed:
            return
        if CORPUS_PARTS & set(parts):
            with_corpus(lab, parts, ceph, began)
        if "suite" in parts:
            test_suite.run_all(lab, ceph.users["main"], ceph.port)
    finally:
        ceph.stop()


def with_corpus(lab, parts, ceph, began):
    corpus = Corpus("corpus", ceph.users["main"], ceph.endpoint, ceph.port)
    with lab.report.test(f"upload of {len(corpus.items)} objects, {corpus.bytes >> 20} MiB"):
        corpus.upload()
    if lab.report.failed:
        return
    print(f"# RGW holds everything after {time.monotonic() - began:.0f} s", flush=True)
    if "bytes" in parts:
        test_bytes.run_all(lab, corpus, ceph)
    if "fresh" in parts:
        test_fresh.run_all(lab, corpus, ceph)
    if "crowd" in parts:
        test_crowd.run_all(lab, corpus, ceph)


def run_parts(lab, parts):
    soak_bytes = 20 * GIB if os.environ.get("RGW_FULL") == "1" else 4 * GIB
    steps = []
    if (CORPUS_PARTS | {"suite"}) & set(parts):
        steps.append(("RGW", lambda: with_ceph(lab, parts)))
    if "origin" in parts:
        steps.append(("the scripted upstream", lambda: test_origin.run_all(lab, soak_bytes)))
    if "traps" in parts:
        steps.append(("the list of traps", lambda: test_traps.run_all(lab)))
    if "soak" in parts:
        steps.append(("the soak", lambda: test_origin.soak(lab, soak_bytes)))
    for name, step in steps:
        with lab.report.test(f"tests with {name} run to their end", guard=True):
            step()
        lab.end()


def clean_up(lab):
    """Logs and configurations stay after a failure, bytes do not; RGW_KEEP=1 keeps all."""
    keep = os.environ.get("RGW_KEEP") == "1"
    if not keep and not lab.report.failed:
        shutil.rmtree(lab.dir, ignore_errors=True)
        return
    for name in () if keep else os.listdir(lab.dir):
        for part in ("cache", "mon", "osd"):
            shutil.rmtree(lab.path(name, part), ignore_errors=True)
    print(f"# kept {lab.dir}")


def main():
    parts = sys.argv[1:] or PARTS
    unknown = set(parts) - {*PARTS, "soak"}
    if unknown:
        sys.exit(f"no such part: {' '.join(unknown)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = tempfile.mkdtemp(prefix="headpond-rgw-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    lab = Lab(folder, server=os.environ.get("HEADPONDD"))
    try:
        run_parts(lab, parts)
    finally:
        lab.end()
        clean_up(lab)
    r = lab.report
    print(f"rgw: {r.passed} passed, {r.failed} failed", flush=True)
    sys.exit(1 if r.failed or not r.passed else 0)


if __name__ == "__main__":
    main()
