# Some three hundred cases of S3, each with boto3 straight to RGW and through the server, by an old
# and a current boto3: what they hear must be the same, but for what known.py and deviations.py
# explain. Every read is repeated at once, when its case is over, and after a restart.
#
# SPDX-License-Identifier: Apache-2.0
import json
import os
import subprocess

from lab import Headpondd
from procs import Failure, clean_environment, tail

PLAY_SECONDS = 300


class Player:
    """suite.py under one Python."""

    def __init__(self, lab, flavour, python, job):
        self.flavour, self.log = flavour, lab.path(f"suite-{flavour}.log")
        with open(self.log, "wb") as log:
            self.child = subprocess.Popen(
                [python, "-B", f"{lab.source}/suite.py"], stdin=subprocess.PIPE,
                stdout=subprocess.PIPE, stderr=log, env=clean_environment(), text=True)
        self._tell(json.dumps({**job, "flavour": flavour}))

    def _tell(self, line):
        self.child.stdin.write(line + "\n")
        self.child.stdin.flush()

    def wait_played(self):
        if self.child.stdout.readline() != "played\n":
            raise Failure(f"suite.py, boto3 {self.flavour}:\n{tail(self.log)}")

    def end(self):
        out, _ = self.child.communicate("again\n", timeout=PLAY_SECONDS)
        if self.child.returncode:
            raise Failure(f"suite.py, boto3 {self.flavour}:\n{tail(self.log)}")
        got = json.loads(out)
        new = tuple(map(int, got["version"].split(".")[:2])) >= (1, 36)
        if new != (self.flavour == "current"):
            raise Failure(f"boto3 {got['version']} is not the {self.flavour} one")
        return got

    def kill(self):
        self.child.kill()
        self.child.wait()


def play(lab, server, job):
    players = []
    try:
        for flavour, python in (("old", "/usr/bin/python3"), ("current", lab.venv("python"))):
            players.append(Player(lab, flavour, python, job))
        for player in players:
            player.wait_played()
        server.end_cleanly()
        server.start()
        return {player.flavour: player.end() for player in players}
    finally:
        for player in players:
            player.kill()


def report(lab, flavour, got):
    groups = {}
    for group, name, problems in got["cases"]:
        groups.setdefault(group, []).append((name, problems))
    for group, verdicts in groups.items():
        lab.report.tally(f"boto3 {flavour}: {group}", verdicts)


def keys_of(lab, user):
    """The upstream's own pair, as a client's key."""
    path = lab.path("suite.keys")
    with open(path, "w") as f:
        f.write(f"{user.access} {user.secret} rw\n")
    os.chmod(path, 0o600)
    if lab.user:
        os.chown(path, lab.user.pw_uid, lab.user.pw_gid)
    return path


def run_all(lab, user, port):
    """port: RGW's. One server lets in who has its key, the other one anybody who reads."""
    common = {"auth__sigv2": True, "cache__immutable": False}
    server = lab.begin(Headpondd(lab, "suite", port, user.access, user.secret, auth__anonymous=[],
                                 auth__keys_file=keys_of(lab, user), **common).empty())
    public = lab.begin(Headpondd(lab, "suite-open", port, user.access, user.secret,
                                 **common).empty())
    job = {"direct": port, "through": server.port, "open": public.port,
           "access": user.access, "secret": user.secret}
    with lab.report.test("the suite runs to its end", guard=True):
        got = play(lab, server, job)
        for flavour, one in got.items():
            report(lab, flavour, one)
        with lab.report.test("suite: every row of the tables applied") as problems:
            problems += [f"this row never applied: {row}" for row in got["old"]["applied"]
                         if not any(one["applied"][row] for one in got.values())]
    with lab.report.test("suite: the servers' logs are clean") as problems:
        problems += lab.log_problems(server) + lab.log_problems(public)
    server.finish()
    public.finish()
