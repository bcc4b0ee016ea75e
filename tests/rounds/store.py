# An S3 store that keeps what it is told, in memory: the truth that the server is compared with.
#
# Invariants:
#  1. A change happens whole and at one moment, under the lock of the history, before its answer; a
#     body that did not come whole changes nothing.
#  2. A body that was applied is the one that its token stands for (`bodies` has its MD5); else it is told.
#  3. An ambush is sprung at most once, at the place that its name says.
#
# Life: a thread for each connection; it ends with its connection, or with the process.
# Failure: what it does not understand it answers 501, and tells.
#
# SPDX-License-Identifier: Apache-2.0
import email.utils
import hashlib
import re
import socket
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

PIECE = 256 * 1024
HEAD_MAX = 64 * 1024
NAMESPACE = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
REASON = {200: "OK", 204: "No Content", 206: "Partial Content", 304: "Not Modified"}


class Gone(Exception):
    """The peer went away."""


class Request:
    def __init__(self, line, fields):
        self.method, target, _ = line.split(" ", 2)
        path, _, query = target.partition("?")
        self.query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        _, self.bucket, *rest = urllib.parse.unquote(path).split("/", 2)
        self.key = rest[0] if rest else ""
        self.fields = fields
        self.body = b""

    def field(self, name, default=""):
        return self.fields.get(name, default)


class Store:
    def __init__(self, history, bodies, tell):
        self.history, self.bodies, self.tell = history, bodies, tell
        self.lock = threading.Lock()
        self.uploads, self.next_upload = {}, 1
        self.ambush = None               # (name, what to do)
        self.broken = 0                  # so many answers to changes are broken off from now on
        self.asked = {}                  # method -> how often
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def spring(self, name):
        with self.lock:
            if self.ambush is None or self.ambush[0] != name:
                return
            act, self.ambush = self.ambush[1], None
        act()

    def breaks_now(self):
        with self.lock:
            breaks = self.broken > 0
            self.broken -= breaks
            return breaks

    def _accept(self):
        while True:
            try:
                fd, _ = self.listener.accept()
            except OSError:
                return
            fd.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=Link(self, fd).run, daemon=True).start()

    def close(self):
        self.listener.close()

    # ---- changes ----

    def put(self, key, fields, body):
        token, etag = fields.get("x-amz-meta-token"), tag_of(body)
        self.compare(key, token, etag)
        return self.history.change(key, token, body, etag)

    def compare(self, key, token, etag):
        if self.bodies.get(token) != etag:
            self.tell(f"the store got other bytes for {key} than were sent as {token}")

    def copy(self, request):
        """The state that the source has, or None."""
        source = urllib.parse.unquote(request.field("x-amz-copy-source")).lstrip("/")
        state = self.history.now(source.split("/", 1)[1])
        return state if state.token else None

    def begin_upload(self, request):
        with self.lock:
            name = f"upload{self.next_upload}"
            self.next_upload += 1
            self.uploads[name] = (request.key, request.field("x-amz-meta-token"), {})
        return name

    def complete(self, request):
        """The new state, or None: there is no such upload."""
        with self.lock:
            found = self.uploads.get(request.query["uploadId"])
            if not found:
                return None
            key, token, parts = found
            listed = re.findall(rb"<PartNumber>(\d+)</PartNumber>\s*<ETag>([^<]*)</ETag>",
                                request.body)
            chosen = [parts.get(int(number)) for number, _ in listed]
            del self.uploads[request.query["uploadId"]]
        body = b"".join(p[0] for p in chosen)
        sums = b"".join(bytes.fromhex(p[1].strip('"')) for p in chosen)
        self.compare(key, token, tag_of(body))
        etag = f'"{hashlib.md5(sums).hexdigest()}-{len(chosen)}"'
        return self.history.change(key, token, body, etag)


class Link:
    """One connection to the store."""

    def __init__(self, store, fd):
        self.store, self.fd, self.rest = store, fd, b""

    def run(self):
        try:
            with self.fd:
                while True:
                    self.answer(self.read_request())
        except (Gone, OSError):
            pass

    # ---- the wire ----

    def more(self):
        piece = self.fd.recv(PIECE)
        if not piece:
            raise Gone
        return piece

    def read_request(self):
        while b"\r\n\r\n" not in self.rest:
            self.rest += self.more()
            if len(self.rest) > HEAD_MAX + PIECE:
                raise Gone
        head, self.rest = self.rest.split(b"\r\n\r\n", 1)
        line, *lines = head.decode("latin-1").split("\r\n")
        fields = {}
        for text in lines:
            name, _, value = text.partition(":")
            fields[name.strip().lower()] = value.strip()
        request = Request(line, fields)
        if request.field("expect"):
            self.fd.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.body = self.read_body(int(request.field("content-length", "0")))
        if request.field("x-amz-content-sha256").startswith("STREAMING-"):
            request.body = unwrap(request.body)
        return request

    def read_body(self, length):
        parts, got = [], 0
        while got < length:
            piece, self.rest = (self.rest or self.more()), b""
            parts.append(piece)
            got += len(piece)
            if got * 2 > length:
                self.store.spring("half a body")
        body = b"".join(parts)
        body, self.rest = body[:length], body[length:]
        return body

    def send(self, status, fields=(), body=b"", length=None):
        head = [f"HTTP/1.1 {status} {REASON.get(status, 'Status')}"]
        head += [f"{name}: {value}" for name, value in fields]
        head += [f"Date: {email.utils.formatdate(usegmt=True)}"]
        if status not in (204, 304):
            head += [f"Content-Length: {len(body) if length is None else length}"]
        self.fd.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + bytes(body))

    def error(self, status, code):
        self.send(status, [("Content-Type", "application/xml")],
                  f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    # ---- dispatch ----

    def answer(self, request):
        store, method = self.store, request.method
        with store.lock:
            store.asked[method] = store.asked.get(method, 0) + 1
        if not request.key:
            return self.answer_bucket(request)
        if method in ("GET", "HEAD"):
            return self.answer_read(request)
        if method == "PUT":
            return self.answer_put(request)
        if method == "POST" and "uploads" in request.query:
            document = f"<UploadId>{store.begin_upload(request)}</UploadId>"
            return self.document("InitiateMultipartUploadResult", document)
        if method == "POST" and "uploadId" in request.query:
            return self.answer_complete(request)
        if method == "DELETE" and "uploadId" in request.query:
            with store.lock:
                store.uploads.pop(request.query["uploadId"], None)
            return self.send(204)
        if method == "DELETE":
            store.history.change(request.key, None)
            return self.changed([request.key], lambda: self.send(204))
        store.tell(f"the store does not know {method} {request.key} {request.query}")
        return self.error(501, "NotImplemented")

    def document(self, root, inner, fields=()):
        text = f'<?xml version="1.0" encoding="UTF-8"?>\n<{root}{NAMESPACE}>{inner}</{root}>'
        self.send(200, [("Content-Type", "application/xml"), *fields], text.encode())

    def changed(self, keys, send):
        """Behind a change: now its answer, unless something comes between."""
        self.store.spring("changed")
        if self.store.breaks_now():
            for key in keys:
                self.store.history.hurt(key)
            raise Gone
        send()
        self.store.spring("answered")

    # ---- changes ----

    def answer_put(self, request):
        store, key = self.store, request.key
        source = None
        if request.field("x-amz-copy-source"):
            source = store.copy(request)
            if source is None:
                return self.error(404, "NoSuchKey")
        if "partNumber" in request.query:
            return self.answer_part(request, source)
        if source is None:
            with store.history.lock:     # one writer of several may be the first
                taken = request.field("if-none-match") == "*" and store.history.now(key).token
                state = None if taken else store.put(key, request.fields, request.body)
            if taken:
                return self.error(412, "PreconditionFailed")
            return self.changed([key], lambda: self.send(200, [("ETag", state.etag)]))
        token = request.field("x-amz-meta-token")
        state = store.history.change(key, token, source.body, source.etag)
        return self.changed([key], lambda: self.document(
            "CopyObjectResult", f"<ETag>{escape(state.etag)}</ETag>"))

    def answer_part(self, request, source):
        body = source.body if source else request.body
        etag = tag_of(body)
        with self.store.lock:
            found = self.store.uploads.get(request.query["uploadId"])
            if found:
                found[2][int(request.query["partNumber"])] = (body, etag)
        if not found:
            return self.error(404, "NoSuchUpload")
        if source:
            return self.document("CopyPartResult", f"<ETag>{escape(etag)}</ETag>")
        return self.send(200, [("ETag", etag)])

    def answer_complete(self, request):
        """Like S3: the head at once, white space, and the document when it is done."""
        head = (b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n")
        self.fd.sendall(head + b"2\r\n \n\r\n")
        self.store.spring("completing")
        time.sleep(0.01)                 # measured by nobody: some way apart on the wire
        state = self.store.complete(request)
        if state:
            text = (f"<CompleteMultipartUploadResult{NAMESPACE}><Key>{escape(request.key)}</Key>"
                    f"<ETag>{escape(state.etag)}</ETag></CompleteMultipartUploadResult>")
        else:
            text = "<Error><Code>NoSuchUpload</Code><Message>gone</Message></Error>"
        piece = f"{len(text):x}\r\n{text}\r\n0\r\n\r\n".encode()
        self.store.spring("completed")
        self.changed([request.key], lambda: self.fd.sendall(piece))

    def answer_bucket(self, request):
        if request.method == "POST" and "delete" in request.query:
            keys = [urllib.parse.unquote(k.decode())
                    for k in re.findall(rb"<Key>([^<]*)</Key>", request.body)]
            for key in keys:
                self.store.history.change(key, None)
            inner = "".join(f"<Deleted><Key>{escape(k)}</Key></Deleted>" for k in keys)
            return self.changed(keys, lambda: self.document("DeleteResult", inner))
        if request.method == "HEAD":
            return self.send(200)
        if request.method == "GET":
            return self.document("ListBucketResult", self.listing(request))
        return self.error(501, "NotImplemented")

    def listing(self, request):
        prefix = request.query.get("prefix", "")
        lines = [f"<Name>{request.bucket}</Name><Prefix>{escape(prefix)}</Prefix>"
                 "<MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>"]
        with self.store.history.lock:
            for key in sorted(self.store.history.keys):
                state = self.store.history.now(key)
                if state.token and key.startswith(prefix):
                    lines.append(
                        f"<Contents><Key>{escape(key)}</Key><Size>{state.size}</Size>"
                        f"<ETag>{escape(state.etag)}</ETag></Contents>")
        return "".join(lines)

    # ---- reads ----

    def answer_read(self, request):
        state = self.store.history.now(request.key)
        if state.token is None:
            if request.method == "HEAD":
                return self.send(404, length=0)
            return self.error(404, "NoSuchKey")
        fields = [("ETag", state.etag), ("x-amz-meta-token", state.token),
                  ("Accept-Ranges", "bytes"), ("Content-Type", "application/octet-stream"),
                  ("Last-Modified", email.utils.formatdate(state.modified, usegmt=True))]
        if request.field("if-match") not in ("", state.etag):
            return self.error(412, "PreconditionFailed")
        if request.field("if-none-match") == state.etag:
            return self.send(304, fields)
        size, status, first, last = len(state.body), 200, 0, len(state.body) - 1
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", request.field("range"))
        if asked and (asked[1] or asked[2]):
            first, last = span_of(asked, size)
            if first > last:
                return self.send(416, [("Content-Range", f"bytes */{size}")],
                                 b"<Error><Code>InvalidRange</Code></Error>")
            status = 206
            fields.append(("Content-Range", f"bytes {first}-{last}/{size}"))
        if request.method == "HEAD":
            return self.send(status, fields, length=last + 1 - first)
        self.send(status, fields, memoryview(state.body)[first:last + 1])
        return self.store.spring("read")


def tag_of(body):
    return '"' + hashlib.md5(body).hexdigest() + '"'


def span_of(asked, size):
    """First and last byte of a range, the last cut at the end."""
    if asked[1] == "":
        return max(0, size - int(asked[2])), size - 1 if int(asked[2]) else -1
    return int(asked[1]), min(size - 1, int(asked[2] or size - 1))


def unwrap(wire):
    """The object's bytes of an aws-chunked body."""
    parts, at = [], 0
    while True:
        end = wire.index(b"\r\n", at)
        size = int(wire[at:end].split(b";")[0], 16)
        if size == 0:
            return b"".join(parts)
        parts.append(wire[end + 2:end + 2 + size])
        at = end + 2 + size + 2
