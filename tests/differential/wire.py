"""The same streams through a real server's socket: as many answers as the model accepts messages, the status of its refusal, and the
connection kept or closed where the model says so. SPDX-License-Identifier: Apache-2.0"""
import os
import random
import re
import shutil
import socket
import subprocess
import tempfile
import threading

import generate
import model

GROUPS = ("pipelines", "damaged", "request_lines", "fields", "framing", "chunked", "limits", "cut")
STATUS = {"bad": 400, "long": 414, "large": 431, "method": 501, "version": 505}
DISCARD = 64 << 10                       # of a body that nobody wants, on a connection that is kept
CLIENTS = 8


class Server:
    """headpondd over a directory that `plant` may fill, on ports of the kernel's choice."""

    def __init__(self, program, plant=None):
        self.dir = tempfile.mkdtemp(prefix="headpond-differential-")
        os.makedirs(os.path.join(self.dir, "up", "b"))
        os.mkdir(os.path.join(self.dir, "cache"), 0o700)
        if plant:
            plant(self.dir)
        self.port = free_port()
        root = ["--allow-root"] if os.getuid() == 0 else []
        self.log = open(os.path.join(self.dir, "log"), "wb")
        self.process = subprocess.Popen(
            [program, "--upstream", f"file://{self.dir}/up", "--cache", f"{self.dir}/cache", "--size", "256MiB", "--listen",
             f"127.0.0.1:{self.port}", "--set", "cache.min_free=0B", "--set", "cache.memory=64MiB", "--set",
             f"admin.listen=unix:{self.dir}/admin.sock", *root], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.wait_ready()

    def wait_ready(self):
        while True:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 5) as s:
                    s.sendall(b"GET /-/ready HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                    if s.recv(100).startswith(b"HTTP/1.1 200"):
                        return
            except OSError:
                pass
            if self.process.poll() is not None:
                raise SystemExit("the server did not start:\n" + open(self.log.name, encoding="utf-8").read())

    def stop(self):
        self.process.terminate()
        code = self.process.wait(90)
        self.log.close()
        told = open(self.log.name, encoding="utf-8", errors="replace").read()
        shutil.rmtree(self.dir)
        return code == 0 or print(f"the server ended with {code}\n{told[-2000:]}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def exchange(port, data, pieces):
    """Sends the stream, shuts the sending side, and reads until the close. None: a reset, or not closed in time."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), 10) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in pieces:
                s.sendall(data[:piece])
                data = data[piece:]
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, ConnectionResetError):
            pass                         # refused before all was sent: what it said may still be there
        try:
            while part := s.recv(65536):
                got += part
        except (ConnectionResetError, TimeoutError) as e:
            return got, type(e).__name__
    return got, None


def read_answers(got, methods):
    """[(status, closes)] of a whole reply stream, or None when it is no sequence of answers."""
    found = []
    while got:
        head = re.match(rb"HTTP/1\.1 (\d\d\d) [^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n", got)
        if not head:
            return None
        got = got[head.end():]
        if head.group(1) == b"100":
            continue
        fields = {k.lower(): v for k, v in re.findall(rb"([^:\r\n]+): *([^\r\n]*)", head.group(2))}
        bodiless = len(found) < len(methods) and methods[len(found)] == b"HEAD" or head.group(1) in (b"304", b"204")
        length = 0 if bodiless else int(fields.get(b"content-length", 0))
        if fields.get(b"transfer-encoding") == b"chunked" and not bodiless:
            how, _, length = model.read_chunked(got, 0)
            if how != "ok":
                return None
        if len(got) < length:
            return None
        got = got[length:]
        found.append((int(head.group(1)), fields.get(b"connection") == b"close"))
    return found


def wanted(data):
    """(methods of the requests that are answered, status of the refusal or None, whether the last one closes)"""
    at, methods, closes = 0, [], False
    while at < len(data):
        try:
            head = model.read_request(data, at)
        except model.Refused as why:
            return methods, STATUS.get(str(why)), closes
        methods.append(head.method)
        # an upload that hears no 100 is closed even if it is empty: its client may take the answer for another one's
        uploads = head.framing == "c" or head.length > 0 or head.method in (b"PUT", b"POST")
        closes = not head.keep or head.length > DISCARD or (head.expects and uploads)
        if closes:
            return methods, None, True
        at = head.end + head.length
        if head.framing == "c":          # what of it makes no sense, or is too much, shows behind the answer
            how, _, at = model.read_chunked(data, head.end)
            if how != "ok" or at - head.end > DISCARD:
                return methods, None, False
    return methods, None, closes


def compare(port, name, number, seed):
    kind, data = generate.stream(name, seed, number)
    if kind != b"Q":
        return None
    methods, refusal, closes = wanted(data)
    r = random.Random(f"pieces {seed} {number}")
    pieces = [r.randrange(1, 200) for _ in range(r.choice((0, 0, 1, 5)))]
    got, trouble = exchange(port, data, pieces)
    answers = read_answers(got, methods)
    if trouble == "ConnectionResetError" and len(data) > 8192:
        return None                      # unread bytes may destroy the answer (RFC 9112 9.6)
    want = len(methods) + (refusal is not None)
    good = not trouble and answers is not None and len(answers) == want
    good = good and (refusal is None or answers[-1] == (refusal, True))
    good = good and (refusal is not None or not answers or answers[-1][1] == closes)
    if good:
        return None
    return (f"DISAGREE on the wire, {name} {number}:\n  {data[:1500]!r}\n  server {answers} {trouble or ''} {got[:200]!r}\n"
            f"  model  {methods}, then {refusal}, closes {closes}")


def run_group(port, name, count, seed):
    wrong, lock, numbers = [], threading.Lock(), iter(range(count))

    def client():
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            told = compare(port, name, number, seed)
            if told:
                with lock:
                    wrong.append(told)

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for told in wrong[:3]:
        print(told)
    print(f"on the wire, {name}: {count} streams, {len(wrong)} disagreements")
    return not wrong


def run(program, count, seed):
    server = Server(program)
    verdicts = [run_group(server.port, name, count, seed) for name in GROUPS]
    return verdicts + [bool(server.stop())]
