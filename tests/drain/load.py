# Clients that never give up a request but count each one that the server did not answer as HTTP
# wants it.
#
# A request may be repeated only if its connection could not be made, or was closed in order (FIN;
# with TLS a close_notify before it) before any byte of an answer. A reset, a body that ends early,
# an end of TLS without a word, a status other than asked for, or one wrong byte is a failure.
#
# SPDX-License-Identifier: Apache-2.0
import hashlib
import hmac
import random
import select
import socket
import ssl
import threading
import time

BLOB = random.Random(7).randbytes(4 << 20)
REGION = "us-east-1"
EMPTY = hashlib.sha256(b"").hexdigest()
GIVE_UP_S = 60


def content(seed, size):
    """The bytes of an object: the blob from some place on, over and over."""
    at = seed * 7919 % len(BLOB)
    return ((BLOB[at:] + BLOB[:at]) * (size // len(BLOB) + 1))[:size]


def sign(target, host, access, secret):
    """The fields of a SigV4 signature of a GET."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    scope = f"{stamp[:8]}/{REGION}/s3/aws4_request"
    names = "host;x-amz-content-sha256;x-amz-date"
    asked = (f"GET\n{target}\n\nhost:{host}\nx-amz-content-sha256:{EMPTY}\nx-amz-date:{stamp}\n\n"
             f"{names}\n{EMPTY}")
    digest = hashlib.sha256(asked.encode()).hexdigest()
    key = ("AWS4" + secret).encode()
    for part in (stamp[:8], REGION, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    mark = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
    return (f"x-amz-date: {stamp}\r\nx-amz-content-sha256: {EMPTY}\r\nAuthorization: "
            f"AWS4-HMAC-SHA256 Credential={access}/{scope}, SignedHeaders={names}, "
            f"Signature={mark}\r\n")


class Broken(Exception):
    """What the server must not do."""


class Again(Exception):
    """The request was not taken, and the client was told so in order; args[0] says how."""


class Tally:
    """What all clients of a server saw."""

    def __init__(self):
        self.lock = threading.Lock()
        self.done = self.unheard = self.closed = self.bytes = 0
        self.failures = []
        self.certificates = set()
        self.over = False

    def note(self, **more):
        with self.lock:
            for name, value in more.items():
                setattr(self, name, getattr(self, name) + value)

    def fail(self, what):
        with self.lock:
            self.failures.append(what)


class Client(threading.Thread):
    """One connection at a time; `manner` says how it asks."""

    def __init__(self, name, server, tally, manner):
        super().__init__(name=name, daemon=True)
        self.server, self.tally, self.manner = server, tally, manner
        self.sock = None
        self.random = random.Random(name)

    # ---- connection ----

    def close(self):
        if self.sock:
            self.sock.close()
        self.sock = None

    def connect(self):
        raw = socket.socket()
        raw.settimeout(3)
        try:
            raw.connect(("127.0.0.1", self.server.port))
        except OSError:
            raw.close()
            raise Again("unheard") from None  # the client knows that nobody is there
        raw.settimeout(30)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self.server.trust:
            self.sock = raw
            return
        try:
            self.sock = self.server.trust.wrap_socket(raw, server_hostname="127.0.0.1",
                                                      suppress_ragged_eofs=False)
        except OSError as e:
            raw.close()
            raise Broken(f"handshake: {e!r}") from None
        subject = dict(field[0] for field in self.sock.getpeercert()["subject"])
        with self.tally.lock:
            self.tally.certificates.add(subject["commonName"])

    def receive(self, most):
        try:
            return self.sock.recv(most)
        except OSError as e:
            raise Broken(f"receiving: {e!r}") from None

    def ready(self):
        """A connection that can be used; one that the server closed in order is left."""
        while self.sock:
            readable, _, _ = select.select([self.sock], [], [], 0)
            if not readable:
                return
            if isinstance(self.sock, ssl.SSLSocket):
                self.sock.setblocking(False)
                try:
                    byte = self.sock.recv(1)
                except ssl.SSLWantReadError:
                    byte = None        # tickets
                except OSError as e:
                    raise Broken(f"idle: {e!r}") from None
                self.sock.settimeout(30)
                if byte is None:
                    return
            else:
                byte = self.receive(1)
            if byte:
                raise Broken("bytes that nobody asked for")
            self.close()
        self.connect()

    # ---- one exchange ----

    def send(self, request):
        try:
            self.sock.sendall(request)
        except ssl.SSLError as e:
            raise Broken(f"sending: {e!r}") from None
        except OSError:
            pass                       # what there is to be read tells whether that was in order

    def read_head(self):
        head = b""
        while b"\r\n\r\n" not in head:
            more = self.receive(65536)
            if not more and not head:
                raise Again("closed")
            if not more:
                raise Broken(f"cut within a head: {head[:60]!r}")
            head += more
        head, rest = head.split(b"\r\n\r\n", 1)
        lines = head.decode("latin-1").split("\r\n")
        fields = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
        return int(lines[0].split()[1]), fields, rest

    def read_body(self, rest, want, pace):
        got = bytearray(rest)
        while len(got) < len(want):
            more = self.receive(64 << 10 if pace else 1 << 20)
            if not more:
                raise Broken(f"cut behind {len(got)} of {len(want)} bytes")
            got += more
            if pace:
                time.sleep(len(more) / pace)
        if got != want:
            raise Broken("wrong bytes")

    def exchange(self, key, want, span, pace):
        self.ready()
        target = f"/b/{key}"
        host = f"127.0.0.1:{self.server.port}"
        fields = f"Range: bytes={span[0]}-{span[1]}\r\n" if span else ""
        if self.manner == "signed":
            fields += sign(target, host, "LOADKEY", "load-secret")
        self.send(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n".encode())
        status, answer, rest = self.read_head()
        if status != (206 if span else 200):
            raise Broken(f"status {status} {answer} {rest[:300]!r}")
        want = want[span[0]:span[1] + 1] if span else want
        if int(answer["content-length"]) != len(want):
            raise Broken(f"length {answer['content-length']}, not {len(want)}")
        self.read_body(rest, want, pace)
        if answer.get("connection", "").lower() == "close":
            self.see_end()

    def see_end(self):
        """Behind an announced close nothing but a clean end may come."""
        if self.receive(1):
            raise Broken("bytes behind the last answer")
        self.close()

    def fetch(self, key, want, span=None, pace=0):
        deadline = time.monotonic() + GIVE_UP_S
        while not self.tally.over:
            try:
                self.exchange(key, want, span, pace)
                self.tally.note(done=1, bytes=len(want))
                return
            except Again as e:
                self.close()
                self.tally.note(**{e.args[0]: 1})
                time.sleep(0.01)
            except Broken as e:
                self.close()
                self.tally.fail(f"{time.strftime('%X')} {self.name}: {key}: {e}")
                return
            if time.monotonic() > deadline:
                self.tally.fail(f"{self.name}: {key}: no answer in {GIVE_UP_S} s")
                return

    # ---- manners ----

    def hot(self):
        seed = self.random.randrange(len(self.server.store.sizes))
        size = self.server.store.sizes[seed]
        span = None
        if size > 1 and self.random.random() < 0.6:
            first = self.random.randrange(size)
            span = (first, min(size - 1, first + self.random.randrange(1 << 20)))
        self.fetch(f"hot{seed}", content(seed, size), span)

    def cold(self):
        with self.server.store.new_object() as (key, want):
            self.fetch(key, want)

    def run_once(self):
        if self.manner == "cold":
            self.cold()
        elif self.manner == "slow":
            seed, size = self.server.store.largest
            self.fetch(f"hot{seed}", content(seed, size), None, 6e6)
        else:
            self.hot()
        if self.manner == "fresh":
            self.close()
        elif self.manner == "pausing":
            time.sleep(self.random.uniform(0.1, 1.2))

    def run(self):
        while not self.tally.over:
            try:
                self.run_once()
            except Exception as e:     # noqa: BLE001 - a client that dies must not die unseen
                self.tally.fail(f"{self.name}: {e!r}")
        self.close()
