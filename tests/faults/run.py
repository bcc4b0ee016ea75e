# The upstream faults that need names, TLS, or many clients: inside a network namespace.
# tests/faults/run.sh calls it there.
#
#   run.py [part...]      parts: tls names hostile crowd; without any, all
#   HEADPONDD=FILE        the server under test (build/release/headpondd)
#
# The last line is "wire: N passed, N failed".
#
# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(os.path.dirname(HERE), "rgw"))

import crowd
import hostile
import names
import tls
import world
from lab import Lab

PARTS = ("tls", "names", "hostile", "crowd")


def run_parts(lab, parts):
    world.have_tools()
    world.enter()
    world.name_server(lab)
    server, watcher = world.Names(), world.Watcher()
    steps = {"tls": lambda: tls.run_all(lab, server),
             "names": lambda: names.run_all(lab, server, watcher),
             "hostile": lambda: hostile.run_all(lab, server, watcher),
             "crowd": lambda: crowd.run_all(lab)}
    for part in parts:
        with lab.report.test(f"{part} runs to its end", guard=True):
            steps[part]()
        lab.end()


def main():
    parts = sys.argv[1:] or PARTS
    folder = tempfile.mkdtemp(prefix="headpond-faults-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    lab = Lab(folder, server=os.environ.get("HEADPONDD"))
    try:
        with lab.report.test("the namespace can be made", guard=True):
            run_parts(lab, parts)
    finally:
        lab.end()
        if lab.report.failed:
            print(f"# kept {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    r = lab.report
    print(f"wire: {r.passed} passed, {r.failed} failed", flush=True)
    sys.exit(1 if r.failed or not r.passed else 0)


if __name__ == "__main__":
    main()
