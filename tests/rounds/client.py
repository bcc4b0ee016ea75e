# A client of the server: signed requests over one connection, answers read to their end.
#
# Invariants:
#  1. An answer that was not whole is Cut, never an answer.
#  2. A connection that was refused, or ended before the first byte of an answer, is Away.
#
# Life: one for each thread. Failure: the two exceptions, behind which the connection is closed.
#
# SPDX-License-Identifier: Apache-2.0
import base64
import hashlib
import hmac
import re
import socket
import time
import urllib.parse
import zlib

ACCESS, SECRET, REGION = "AKIDROUNDS", "secret-of-the-rounds", "us-east-1"
PIECE, PATIENCE_S = 256 * 1024, 60


class Away(Exception):
    """No answer came."""


class Cut(Exception):
    """An answer began and was broken off."""


class Answer:
    def __init__(self, status, fields):
        self.status, self.fields, self.body = status, fields, b""

    def field(self, name, default=""):
        return self.fields.get(name, default)

    @property
    def token(self):
        return self.fields.get("x-amz-meta-token")


class Client:
    def __init__(self, port):
        self.port, self.fd, self.rest, self.keys = port, None, bytearray(), {}
        self.since = 0.0                 # before the connection was made

    def close(self):
        if self.fd:
            self.fd.close()
        self.fd, self.rest = None, bytearray()

    # ---- what is sent ----

    def sign(self, method, path, query, fields, payload):
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        fields |= {"x-amz-date": stamp, "x-amz-content-sha256": payload}
        scope = f"{stamp[:8]}/{REGION}/s3/aws4_request"
        names = sorted(n for n in fields if n == "host" or n.startswith("x-amz-"))
        listed = ";".join(names)
        pairs = sorted((urllib.parse.quote(k, "-_.~"), urllib.parse.quote(v, "-_.~"))
                       for k, v in query.items())
        text = "\n".join([method, path, "&".join(f"{k}={v}" for k, v in pairs),
                          *(f"{n}:{fields[n]}" for n in names), "", listed, payload])
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope,
                          hashlib.sha256(text.encode()).hexdigest()])
        if stamp[:8] not in self.keys:
            key = b"AWS4" + SECRET.encode()
            for part in (stamp[:8], REGION, "s3", "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self.keys = {stamp[:8]: key}
        signature = hmac.digest(self.keys[stamp[:8]], text.encode(), "sha256").hex()
        fields["authorization"] = (f"AWS4-HMAC-SHA256 Credential={ACCESS}/{scope}, "
                                   f"SignedHeaders={listed}, Signature={signature}")
        return "&".join(f"{k}={v}" for k, v in pairs)

    def send(self, method, key, query=None, fields=None, body=b"", wrapped=False, stop=None):
        """A request; `stop`: the connection is closed behind so many bytes of its body."""
        path = "/b" + (f"/{urllib.parse.quote(key, '-_.~/')}" if key else "")
        fields = {"host": f"127.0.0.1:{self.port}", **(fields or {})}
        payload = "UNSIGNED-PAYLOAD" if len(body) > 65536 else hashlib.sha256(body).hexdigest()
        if wrapped:
            payload = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
            fields |= {"x-amz-decoded-content-length": str(len(body)), "content-encoding":
                       "aws-chunked", "x-amz-trailer": "x-amz-checksum-crc32"}
            body = wrap(body)
        target = self.sign(method, path, query or {}, fields, payload)
        if method in ("PUT", "POST"):
            fields["content-length"] = str(len(body))
        head = f"{method} {path}{'?' + target if target else ''} HTTP/1.1\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in fields.items()) + "\r\n"
        try:
            if not self.fd:
                self.since = time.monotonic()
                self.fd = socket.create_connection(("127.0.0.1", self.port), PATIENCE_S)
                self.fd.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if len(body) < PIECE and stop is None:
                self.fd.sendall(head.encode() + body)
            else:
                self.fd.sendall(head.encode())
                self.fd.sendall(memoryview(body)[:stop])
        except OSError as e:
            self.close()
            raise Away(str(e)) from None
        if stop is not None:
            self.close()
            raise Away("left")

    # ---- what comes ----

    def more(self, kind):
        try:
            piece = self.fd.recv(PIECE)
        except OSError:
            piece = b""
        if not piece:
            self.close()
            raise kind()
        self.rest += piece

    def take(self, length):
        while len(self.rest) < length:
            self.more(Cut)
        taken, self.rest = bytes(memoryview(self.rest)[:length]), self.rest[length:]
        return taken

    def take_line(self, kind=Cut):
        while b"\r\n" not in self.rest:
            self.more(kind)
        return self.take(self.rest.index(b"\r\n") + 2)[:-2].decode("latin-1")

    def take_chunks(self):
        parts = []
        while size := int(self.take_line().split(";")[0], 16):
            parts.append(self.take(size))
            self.take(2)
        while self.take_line():
            continue
        return b"".join(parts)

    def read(self, method):
        status, fields = int(self.take_line(Away).split(" ")[1]), {}
        while line := self.take_line():
            name, _, value = line.partition(":")
            fields[name.lower()] = value.strip()
        answer = Answer(status, fields)
        if method != "HEAD" and status not in (204, 304):
            if answer.field("transfer-encoding") == "chunked":
                answer.body = self.take_chunks()
            else:
                answer.body = self.take(int(answer.field("content-length", "0")))
        if answer.field("connection").lower() == "close":
            self.close()
        return answer

    def ask(self, method, key, **more):
        self.send(method, key, **more)
        return self.read(method)


def wrap(body):
    """aws-chunked with a checksum behind it."""
    parts = []
    for at in range(0, len(body), PIECE):
        piece = body[at:at + PIECE]
        parts += [f"{len(piece):x}\r\n".encode(), piece, b"\r\n"]
    crc = base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()
    return b"".join(parts) + f"0\r\nx-amz-checksum-crc32:{crc}\r\n\r\n".encode()


def range_of(answer):
    """First byte, last byte, size of what a 206 carries."""
    found = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", answer.field("content-range"))
    return tuple(int(n) for n in found.groups()) if found else None
