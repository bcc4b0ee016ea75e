# A store and a headpond in one, which keep what they are asked: objects to be read, with ranges, plans to be posted.
#
#   GET, HEAD /BUCKET/KEY      the object; x-reader names who reads (RANK/WORKER), and it is noted
#   GET /-/mark/RANK/EPOCH     an epoch of that rank begins: noted
#   POST /-/plans, /v1/plans   a plan, if its signature or token is right and every field known: noted
#
# SPDX-License-Identifier: Apache-2.0
import hashlib
import http.server
import json
import os
import socket
import socketserver
import sys
import threading
import urllib.parse
from collections import namedtuple

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "rgw"))
from signer import Signer  # noqa: E402

User = namedtuple("User", "access secret")
USER, TOKEN, SESSION = User("LOADERKEY", "loader/secret"), "a-token-of-the-admin-port", "a-session-token"
FIELDS = {"job", "prefix", "epoch", "horizon_objects", "rate_bytes_per_s", "expires_s"}
Plan = namedtuple("Plan", "door head streams")  # streams: lists of (full name, ranges or None)


class Refused(Exception):
    """(status, message, hint)"""


def parse(body):
    """The plan in an NDJSON body, as strictly as the format says."""
    lines = [json.loads(line) for line in body.decode().splitlines()]
    head, rest = lines[0], lines[1:]
    if not {"job", "prefix", "epoch"} <= set(head) <= FIELDS:
        raise Refused(400, f"line 1: fields {sorted(head)}", "send only known fields")
    streams = {}
    for number, line in enumerate(rest, 2):
        if set(line) != {"stream", "keys"} or not 0 <= line["stream"] < 4096 or not line["keys"]:
            raise Refused(400, f"line {number}: {sorted(line)}", "a line has stream and keys")
        for key in line["keys"]:
            whole = isinstance(key, str)
            if not whole and (set(key) != {"key", "ranges"} or not key["ranges"]):
                raise Refused(400, f"line {number}: {key}", "an entry is a key, or has key and ranges")
            name = head["prefix"] + (key if whole else key["key"])
            streams.setdefault(line["stream"], []).append((name, None if whole else key["ranges"]))
    return head, [streams.get(n, []) for n in range(max(streams) + 1)]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def address_string(self):
        return "local"

    def reply(self, status, body=b"", **fields):
        self.send_response(status)
        for name, value in {"content-length": len(body), **fields}.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        if path.startswith("/-/mark/"):
            rank, epoch = path.split("/")[3:]
            self.server.note(("mark", int(rank), int(epoch)))
            return self.reply(200)
        body = self.server.objects.get(path[1:])
        if body is None:
            return self.reply(404)
        # Streaming opens a connection before it forks its workers, which must not share it.
        self.close_connection = True
        fields = {"connection": "close", "etag": f'"{hashlib.md5(body).hexdigest()}"', "last_modified": "Sun, 01 Nov 2026 00:00:00 GMT",
                  "accept_ranges": "bytes"}
        status, wanted, size = 200, self.headers.get("range"), len(body)
        span = None
        if wanted:
            first, last = (int(n) for n in wanted[len("bytes="):].split("-"))
            last = min(last, size - 1)
            body, status, span = body[first:last + 1], 206, [first, last - first + 1]
            fields["content_range"] = f"bytes {first}-{last}/{size}"
        if self.command == "GET" and self.headers.get("x-reader"):
            self.server.note(("read", self.headers["x-reader"], path[1:], span))
        return self.reply(status, body, **fields)

    do_HEAD = do_GET

    def do_POST(self):
        try:
            refusal = self.server.refusal
            if refusal:
                # said before the body is read, as a server does that wants none of it
                self.close_connection = True
                raise Refused(*refusal)
            body = self.rfile.read(int(self.headers["content-length"]))
            door = self.judge(body)
            head, streams = parse(body)
        except Refused as refused:
            status, message, hint = refused.args
            said = {"error": {"code": "refused", "message": message, "hint": hint}}
            return self.reply(status, json.dumps(said).encode())
        self.server.note(("plan", Plan(door, head, streams)))
        names = [name for stream in streams for name, _ in stream]
        missing = [name for name in names if self.server.objects and name not in self.server.objects]
        said = {"v": 1, "id": "p1", "objects": len(names), "unknown": len(missing), "first_unknown": missing[:10]}
        return self.reply(202, json.dumps(said).encode())

    def judge(self, body):
        """The door by which a plan came, if it may."""
        if self.headers["content-type"] != "application/x-ndjson":
            raise Refused(400, "content-type", "send NDJSON")
        if self.path == "/v1/plans":
            if self.server.address_family == socket.AF_UNIX:
                return "unix"
            if self.headers["authorization"] != f"Bearer {TOKEN}":
                raise Refused(401, "no token", "send the token")
            return "admin"
        fields = {k.lower(): v for k, v in self.headers.items()}
        words = dict(w.split("=", 1) for w in fields["authorization"].split(" ", 1)[1].split(", "))
        names, payload = words["SignedHeaders"].split(";"), hashlib.sha256(body).hexdigest()
        wanted = Signer(USER).signature("POST", self.path, fields, names, payload, fields["x-amz-date"])
        if self.path != "/-/plans" or words["Signature"] != wanted or not {"host", "x-amz-date", "x-amz-content-sha256"} <= set(names):
            raise Refused(403, "the signature is not right", "sign what is sent")
        if fields["x-amz-content-sha256"] != payload or fields.get("x-amz-security-token", SESSION) != SESSION:
            raise Refused(403, "a field is not right", "sign what is sent")
        return "s3+session" if "x-amz-security-token" in names else "s3"


class Standin(http.server.ThreadingHTTPServer):
    """Serves from the moment it is made; notes is what happened, in the order in which it came."""
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, objects, path=None, context=None):
        self.objects, self.notes, self.lock, self.refusal = objects, [], threading.Lock(), None
        if path:
            self.address_family = socket.AF_UNIX
        super().__init__(path or ("127.0.0.1", 0), Handler)
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True)
        scheme = "https" if context else "http"
        self.endpoint = f"unix:{path}" if path else f"{scheme}://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def server_bind(self):
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "standin", 0

    def note(self, what):
        with self.lock:
            self.notes.append(what)

    def taken(self):
        with self.lock:
            notes, self.notes = self.notes, []
        return notes

    def handle_error(self, request, client_address):
        """A client that went away in the middle, as workers do that are no longer wanted."""
