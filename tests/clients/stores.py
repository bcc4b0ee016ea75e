# The stores behind the server, each with what can be asked of it past the server: the bytes of an
# object, and what it was sent.
#
# Invariants:
#  1. What a store is asked here never goes through the server.
#  2. sent(key) tells every PUT of that key that carried bytes: {checksum name: all were right}.
#
# SPDX-License-Identifier: Apache-2.0
import base64
import json
import os
import re

from ceph import Ceph, User
from lab import Origin
from procs import Process
from sums import SUMS
from wire import Wire, path_of

START_SECONDS = 60
LISTENING = User("main", "CLIENTSACCESSKEY", "clients-secret/with+signs=0123456789")


class Store:
    """Settings: of the server before it. parts: knows multipart uploads."""

    settings, parts, keeps_parts = {}, True, True

    def __init__(self, user, port):
        self.user, self.port = user, port
        self.wire = Wire(port, user)

    def make_bucket(self, bucket):
        answer = self.wire.ask("PUT", path_of(bucket))
        if answer.status != 200:
            raise RuntimeError(f"{type(self).__name__}: no bucket: {answer.status}")

    def sha256(self, bucket, key):
        answer = self.wire.ask("GET", path_of(bucket, key))
        return answer.sha256 if answer.status == 200 else f"status {answer.status}"

    def remove(self, bucket, key):
        """It was looked at for the last time: its room is needed."""
        answer = self.wire.ask("DELETE", path_of(bucket, key))
        if answer.status not in (200, 204):
            raise RuntimeError(f"{type(self).__name__}: {key} is not deleted: {answer.status}")

    def prepare(self, bucket, key, content):
        """Before content is uploaded to that key."""

    def sent(self, bucket, key, content):
        """None: cannot tell."""

    def problems(self, bucket, key, content):
        """What is wrong with checksums that it stored."""
        return []


class Moto(Store):
    """The journal is moto_store.py's."""

    settings = {"upstream__trailers": "on"}

    def __init__(self, lab, python):
        self.journal = lab.path("moto.journal")
        with open(self.journal, "w"):
            pass
        here = os.path.dirname(os.path.abspath(__file__))
        self.process = lab.begin(Process("moto", [
            python, "-B", os.path.join(here, "moto_store.py"), self.journal], lab.path("moto.log")))
        super().__init__(LISTENING, self.process.wait_ready(self._port, START_SECONDS))

    def _port(self):
        with open(self.process.log) as f:
            found = re.search(r"^port=(\d+)$", f.read(), re.M)
        return found and int(found.group(1))

    def puts(self, bucket, key):
        with open(self.journal) as f:
            lines = map(json.loads, f)
            return [p for p in lines if p["path"] == f"/{bucket}/{key}"]

    def sent(self, bucket, key, content):
        puts = self.puts(bucket, key)
        if sum(p["bytes"] for p in puts) != len(content):
            return [{f"{[p['bytes'] for p in puts]} bytes came": False}]
        return [p["sums"] for p in puts]

    def problems(self, bucket, key, content):
        answer = self.wire.ask("HEAD", path_of(bucket, key),
                               headers={"x-amz-checksum-mode": "ENABLED"})
        puts = self.puts(bucket, key)
        if len(puts) != 1 or "partNumber" in puts[0]["query"] or not puts[0]["named"]:
            return []                  # moto does not keep those
        return [f"{name} is not stored" for name in puts[0]["sums"]
                if name.startswith("x-amz-checksum-") and answer.fields.get(name) !=
                base64.b64encode(SUMS[name](content)).decode()]


class Scripted(Store):
    """tests/lib/origin.h: takes only the right bytes, one request for each object."""

    settings, parts = {"upstream__trailers": "on"}, False

    def __init__(self, lab):
        self.origin = lab.begin(Origin(lab))
        super().__init__(LISTENING, self.origin.port)

    def make_bucket(self, bucket):
        self.origin.do("log on")

    def prepare(self, bucket, key, content):
        """s3cmd compares the ETag with the MD5 of what it sent, as stores have it."""
        md5 = SUMS["content-md5"](content).hex()
        self.origin.do(f'set {bucket}/{key} etag="\\"{md5}\\""')

    def sent(self, bucket, key, content):
        lines = [line for line in self.origin.do("requests")
                 if re.search(rf"PUT {re.escape(path_of(bucket, key))}[ ?]", line)]
        came = f" object={len(content)} version={1 if content else ''}"
        if not any(came in line for line in lines):
            return [{"the object came whole": False}]
        puts = {}
        for name, value in re.findall(r" (?:trailer=)?([a-z0-9-]+)[=:](\S+)", " ".join(lines)):
            if name in SUMS:
                puts[name] = value == base64.b64encode(SUMS[name](content)).decode()
            if name == "x-amz-content-sha256" and len(value) == 64:
                puts[name] = value == SUMS["x-amz-checksum-sha256"](content).hex()
        return [puts]


class Gateway(Store):
    """Ceph RGW 16: knows no checksums but MD5, and tells no ETag when parts were joined."""

    keeps_parts = False

    def __init__(self, lab):
        self.ceph = Ceph(lab.path("ceph"))
        lab.children.append(self.ceph)
        self.ceph.start()
        super().__init__(self.ceph.users["main"], self.ceph.port)
