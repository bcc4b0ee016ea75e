# A client that writes while the disk fails: PUT, HEAD, GET, and multipart uploads; what it wrote it
# reads back and compares.
#
# Invariants:
#  1. It does not retry: an error that a client library would hide is counted.
#  2. What it writes are the bytes that the scripted store wants of a key, so that both know them.
#
# SPDX-License-Identifier: Apache-2.0
import hashlib
import http.client
import os
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "secrets"))
from client import Key, query_text, signature, times  # noqa: E402

KEY = Key("AKIDDISKS", "secret-of-disks")
SMALL, KEYS = "300K", 8
PART_BYTES, UPLOAD, UPLOAD_EVERY = 8 << 20, "16M+5", 12
LIMIT_S = 30
SLOW_S = 2                             # such requests are named


def tell_store(control, *lines):
    """Lines of its script."""
    with socket.create_connection(("127.0.0.1", control), timeout=10) as s:
        s.sendall("".join(line + "\n" for line in lines).encode())
        s.shutdown(socket.SHUT_WR)
        while s.recv(4096):
            pass


def signed_request(port, method, key, body=b"", query=(), fields=None):
    """Status, fields and body of the answer."""
    path, stamp = f"/data/{key.replace('@', '%40').replace('+', '%2B')}", times()[0]
    payload = hashlib.sha256(body).hexdigest()
    signed = {"host": f"127.0.0.1:{port}", "x-amz-date": stamp, "x-amz-content-sha256": payload,
              **(fields or {})}
    made, names, _, scope = signature(KEY, method, path, query, signed, payload)
    signed["authorization"] = (f"AWS4-HMAC-SHA256 Credential={KEY.access}/{scope}, "
                               f"SignedHeaders={names}, Signature={made}")
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        c.request(method, path + ("?" + query_text(query) if query else ""), body, signed)
        answer = c.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        c.close()


class Writer(threading.Thread):
    """errors: what went wrong, in words; writes: how many bodies were sent."""

    def __init__(self, world, right_bytes):
        super().__init__(daemon=True)
        self.world, self.right_bytes, self.over = world, right_bytes, threading.Event()
        self.errors, self.writes, self.uploads, self.longest_s = [], 0, 0, 0.0

    def want(self, what, said, status):
        if said != status:
            raise ValueError(f"{what}: status {said}")

    def ask(self, *args, **more):
        began = time.monotonic()
        said = signed_request(self.world.port, *args, **more)
        took_s = time.monotonic() - began
        self.longest_s = max(self.longest_s, took_s)
        if took_s > SLOW_S:
            print(f"      {took_s:.1f} s: {args[0]} {args[1]} {more.get('query', '')}", flush=True)
        return said

    def read_back(self, key, body):
        status, fields, _ = self.ask("HEAD", key)
        self.want(f"HEAD {key}", status, 200)
        if int(fields["Content-Length"]) != len(body):
            raise ValueError(f"HEAD {key}: {fields['Content-Length']} bytes")
        status, _, got = self.ask("GET", key)
        self.want(f"GET {key}", status, 200)
        if got != body:
            raise ValueError(f"GET {key}: WRONG BYTES: {len(got)} of {len(body)}")
        first, last = len(body) // 3, len(body) - 10
        status, _, got = self.ask("GET", key, fields={"range": f"bytes={first}-{last}"})
        self.want(f"range of {key}", status, 206)
        if got != body[first:last + 1]:
            raise ValueError(f"range of {key}: WRONG BYTES")

    def put(self):
        key = f"put{self.writes % KEYS}@{SMALL}"
        body = self.right_bytes(key)
        status, _, _ = self.ask("PUT", key, body)
        self.want(f"PUT {key}", status, 200)
        self.read_back(key, body)

    def upload(self):
        key = f"upload{self.uploads}@{UPLOAD}"
        body, tag = self.right_bytes(key), '\\"x-3\\"'
        tell_store(self.world.control, f'object data {key} size={len(body)} etag="{tag}"',
                   f'set data/{key} document="<CompleteMultipartUploadResult><ETag>&quot;x-3&quot;'
                   '</ETag></CompleteMultipartUploadResult>"')
        self.uploads += 1
        parts = range(0, len(body), PART_BYTES)
        for number, at in enumerate(parts):
            status, _, _ = self.ask("PUT", key, body[at:at + PART_BYTES],
                                    query=[("partNumber", str(number + 1)), ("uploadId", "u")])
            self.want(f"part {number + 1} of {key}", status, 200)
        named = "".join(f"<Part><PartNumber>{n + 1}</PartNumber><ETag>x-3</ETag></Part>"
                        for n in range(len(parts)))
        status, _, _ = self.ask(
            "POST", key, f"<CompleteMultipartUpload>{named}</CompleteMultipartUpload>".encode(),
            query=[("uploadId", "u")])
        self.want(f"complete {key}", status, 200)
        self.read_back(key, body)

    def run(self):
        while not self.over.is_set():
            try:
                if self.writes % UPLOAD_EVERY == 1:
                    self.upload()
                self.put()
            except (OSError, ValueError, http.client.HTTPException) as e:
                self.errors.append(repr(e))
            self.writes += 1
            self.over.wait(0.1)
