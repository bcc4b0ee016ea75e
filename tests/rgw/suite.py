# Runs the cases of the suite with whatever boto3 runs this file; test_suite.py starts it under old
# and new versions.
#
# A job comes as a line of JSON on standard input: flavour, the ports "direct", "through" and "open"
# (the server's, with anonymous readers), access and secret. When all cases were run, a line goes
# out; when a line comes, the server has been restarted, and every read is repeated. At the end a
# line of JSON says what came of each case.
#
# SPDX-License-Identifier: Apache-2.0
import json
import sys
import traceback

import boto3

import cases
from known import Known
from record import Run, Side, differences


class Case:
    """A case on both sides."""

    def __init__(self, group, name, function):
        self.group, self.name, self.function = group, name, function
        self.problems, self.direct_ends, self.ends = [], [], []
        self.run = None

    def play(self, direct, through, known):
        try:
            self._play(direct, through, known)
        except Exception:  # a case that breaks is a case that fails; the others still run
            self.problems.append(traceback.format_exc())

    def _play(self, direct, through, known):
        a, b = Run(direct, self.group, self.name), Run(through, self.group, self.name)
        self.function(a)
        self.direct_ends = [step for _, step in a.end()]
        self.run = b
        self.function(b)
        self.ends = b.end()
        self.problems += b.problems
        if len(a.steps) != len(b.steps) or len(self.direct_ends) != len(self.ends):
            self.problems.append(f"{len(a.steps)} steps, {len(b.steps)} through the server")
        for x, y in [*zip(a.steps, b.steps), *zip(self.direct_ends, [s for _, s in self.ends])]:
            self.problems += [f"{y.name}: {p}" for p in known.problems(f"{self.group}: {self.name}", x, y)]

    def replay(self):
        """Every read once more, of a server that was restarted."""
        try:
            for request, before in self.ends:
                step = request.send(self.run)
                step.case = before.case
                self.problems += [f"{before.name}, after a restart: {p}"
                                  for p in differences(before, step)]
                # Of an object and its current version, which share their bytes, one is recorded.
                two_names = "x-amz-version-id" in step.fields
                if self.run.must_hit(request, step) and not step.hit and not two_names:
                    self.problems.append(f"{before.name}, after a restart: x-cache "
                                         f"{step.fields.get('x-cache')}")
        except Exception:  # as above
            self.problems.append(traceback.format_exc())


def main():
    job = json.loads(sys.stdin.readline())
    sides = {name: Side(job, name) for name in ("direct", "through", "open")}
    known = Known()
    played = []
    for side in sides.values():
        cases.prepare(side)
    for group, name, function, through in cases.every(job.get("only", "")):
        case = Case(group, name, function)
        case.play(sides["direct"], sides[through], known)
        played.append(case)
    print("played", flush=True)
    sys.stdin.readline()
    for side in sides.values():
        side.connect()
    for case in played:
        case.replay()
    json.dump({"version": boto3.__version__, "applied": known.counts(),
               "cases": [(c.group, c.name, c.problems) for c in played]}, sys.stdout)


if __name__ == "__main__":
    main()
