# What clients write through the server is what RGW holds, and what the next read through the server gives.
#
# Every write is made over a key whose old bytes were just read through the server, so that a cache which does not
# notice would give them back. The server is told that objects never change: only its own writes may correct it.
#
# SPDX-License-Identifier: Apache-2.0
import hashlib
import os

import tools
from corpus import MIB
from lab import Headpondd, Proxy
from procs import clean_environment, run
from wire import Wire, path_of

BUCKET = "written"
SIZES = (0, 1, 5000, MIB + 1, 17 * MIB)


def data_of(name, size):
    return hashlib.shake_128(name.encode()).digest(size)


class Writes:
    def __init__(self, lab, o, ceph, server):
        self.lab, self.o, self.server = lab, o, server
        self.direct, self.through = Wire(ceph.port, o.user), Wire(server.port, o.user)
        self.folder = tools.fresh(lab.path("writes"))

    def old_bytes(self, key):
        """Puts other bytes there behind the server's back, and reads them through it."""
        path = path_of(BUCKET, key)
        if self.direct.ask("PUT", path, body=b"old " * 1000).status != 200:
            return [f"{key}: cannot be prepared"]
        return [] if self.through.ask("GET", path).body_bytes == 4000 else [f"{key}: old bytes unreadable"]

    def same(self, key, data):
        """data: None when the key must be gone."""
        want = (404, None) if data is None else (200, hashlib.sha256(data).hexdigest())
        problems = []
        for name, wire in (("RGW", self.direct), ("the server", self.through), ("the server, again", self.through)):
            answer = wire.ask("GET", path_of(BUCKET, key))
            got = (answer.status, None if answer.status == 404 else answer.sha256)
            if got != want:
                problems.append(f"{key}: {name} answers {answer.status}, {answer.body_bytes} bytes: "
                                f"not what was written ({'gone' if data is None else len(data)})")
        return problems

    def file(self, name, data):
        path = os.path.join(self.folder, name)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def with_boto3(self, python, flavour):
        problems, wanted = [], {}
        for size in SIZES:
            for how in ("put", "upload"):
                key = f"{flavour}/{how}-{size}"
                problems += self.old_bytes(key)
                wanted[key] = data_of(key, size)
                self.file(key.replace("/", "-"), wanted[key])
        for key in (f"{flavour}/deleted", f"{flavour}/bulk-1", f"{flavour}/bulk-2 é&", f"{flavour}/copy"):
            problems += self.old_bytes(key)
            wanted[key] = None
        wanted[f"{flavour}/copy"] = wanted[f"{flavour}/put-5000"]
        done = run([python, f"{self.lab.source}/writer.py", self.server.endpoint, BUCKET, flavour, self.folder],
                   env=clean_environment(AWS_ACCESS_KEY_ID=self.o.user.access,
                                         AWS_SECRET_ACCESS_KEY=self.o.user.secret))
        problems += done.stderr.decode().splitlines()
        for key, data in wanted.items():
            problems += self.same(key, data)
        return problems

    def with_tool(self, name, call):
        """call(path, key) uploads the file as the key."""
        problems = []
        for size in SIZES:
            key = f"{name}/{size}.bin"
            problems += self.old_bytes(key)
            data = data_of(key, size)
            call(self.file(f"{name}-{size}.bin", data), key)
            problems += self.same(key, data)
        return problems

    def aws(self, program):
        def call(path, key):
            run([program, "--endpoint-url", self.server.endpoint, "s3", "cp", "--only-show-errors", path,
                 f"s3://{BUCKET}/{key}"], env=tools.aws_environment(self.o))
        return call

    def rclone(self, path, key):
        run(["rclone", "copyto", path, f"pond:{BUCKET}/{key}"],
            env=tools.rclone_environment(self.o, self.server.port))

    def s3cmd(self, path, key):
        config = tools.s3cmd_config(self.o, self.server.port, self.folder + "-config")
        run(["s3cmd", "-c", config, "--no-progress", "put", path, f"s3://{BUCKET}/{key}"])


def run_all(lab, o, ceph):
    proxy = lab.begin(Proxy(lab, "proxy-writes", ceph.port))
    server = Headpondd(lab, "writes-server", proxy.port, o.user.access, o.user.secret)
    lab.begin(server.empty())
    o.client().create_bucket(Bucket=BUCKET)
    w = Writes(lab, o, ceph, server)
    for flavour, python in (("old", "/usr/bin/python3"), ("current", lab.venv("python"))):
        with lab.report.test(f"writes with boto3 {flavour}") as problems:
            problems += w.with_boto3(python, flavour)
    for name, call in (("aws", w.aws("/usr/bin/aws")), ("aws-current", w.aws(lab.venv("aws"))),
                       ("rclone", w.rclone), ("s3cmd", w.s3cmd)):
        with lab.report.test(f"writes with {name}") as problems:
            problems += w.with_tool(name, call)
    with lab.report.test("the log of the server written through is clean") as problems:
        problems += lab.log_problems(server)
        server.end_cleanly()
    proxy.stop()
