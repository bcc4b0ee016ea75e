# The world around the server in a network namespace of its own: who is connected to, what names
# mean, and a TLS front that can do everything wrong.
#
# Invariants:
#  1. Every address of IPv4 is a local one here (AnyIP), so a connection to anywhere is seen and
#     reaches nobody outside.
#  2. A watcher that sees nothing proves nothing: it must have seen a connection of our own first.
#
# SPDX-License-Identifier: Apache-2.0
import ctypes
import http.client
import os
import select
import socket
import ssl
import struct
import subprocess
import threading
import time

from procs import Failure, run, wait_until

ETH_P_ALL, SO_ATTACH_FILTER = 3, 26


def enter():
    """Makes the namespace usable; called once, inside `unshare --net --mount`."""
    run(["ip", "link", "set", "lo", "up"])
    run(["ip", "route", "add", "local", "0.0.0.0/0", "dev", "lo"])
    run(["ip", "-6", "route", "add", "local", "::/0", "dev", "lo"])
    run(["mount", "--make-rprivate", "/"])


def name_server(lab):
    """resolv.conf and hosts of this mount namespace: everything is asked from 127.0.0.1."""
    for path, text in (("resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"),
                       ("hosts", "127.0.0.1 localhost\n"), ("nsswitch.conf", "hosts: files dns\n")):
        with open(lab.path(path), "w") as f:
            f.write(text)
        os.chmod(lab.path(path), 0o644)
        target = os.path.realpath(f"/etc/{path}")
        if not os.path.exists(target):
            raise Failure(f"no {target} to put another one over")
        run(["mount", "--bind", lab.path(path), target])


# ---- who connects where ----

def _filter():
    """BPF: TCP with SYN and without ACK, and all of UDP; IPv4 and IPv6 without their link layer."""
    accept, drop = 0xFFFF, 0
    code = [
        (0x30, 0, 0, 0), (0x74, 0, 0, 4), (0x15, 0, 8, 4),          # byte 0 >> 4 == 4?
        (0x30, 0, 0, 9), (0x15, 11, 0, 17), (0x15, 0, 11, 6),       # protocol: UDP, TCP
        (0xB1, 0, 0, 0), (0x50, 0, 0, 13), (0x54, 0, 0, 0x12), (0x15, 6, 7, 2),
        (0x06, 0, 0, drop),
        (0x30, 0, 0, 6), (0x15, 3, 0, 17), (0x15, 0, 3, 6),
        (0x30, 0, 0, 53), (0x54, 0, 0, 0x12), (0x15, 0, 1, 2)]
    code = code[:10] + code[10:] + [(0x06, 0, 0, accept), (0x06, 0, 0, drop)]
    # Jumps counted by hand: index of accept is 17, of drop 18.
    fixed = []
    for i, (op, yes, no, k) in enumerate(code):
        target = {4: (17, i + 1), 5: (i + 1, 18), 9: (17, 18), 2: (i + 1, 11), 12: (17, i + 1),
                  13: (i + 1, 18), 16: (17, 18)}.get(i)
        if target:
            yes, no = target[0] - i - 1, target[1] - i - 1
        fixed.append(struct.pack("HBBI", op, yes, no, k))
    return b"".join(fixed)


class Watcher:
    """Every destination that somebody in this namespace sent a SYN or a datagram to."""

    def __init__(self):
        self.lock, self.seen = threading.Lock(), set()
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        program = _filter()
        self.program = ctypes.create_string_buffer(program)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack(
            "HL", len(program) // 8, ctypes.addressof(self.program)))
        self.socket.bind(("lo", 0))
        threading.Thread(target=self._look, daemon=True).start()
        self._must_see("203.0.113.99", 4711)

    def _must_see(self, host, port):
        with socket.socket() as s:
            s.settimeout(1)
            try:
                s.connect((host, port))
            except OSError:
                pass
        wait_until("the watcher sees a connection of ours", lambda: (host, port) in self.all(), 5)
        self.clear()

    def _look(self):
        while True:
            packet = self.socket.recv(2048)
            if packet[0] >> 4 == 4:
                at, host = (packet[0] & 15) * 4, socket.inet_ntop(socket.AF_INET, packet[16:20])
            else:
                at, host = 40, socket.inet_ntop(socket.AF_INET6, packet[24:40])
            port = struct.unpack("!H", packet[at + 2:at + 4])[0]
            with self.lock:
                self.seen.add((host, port))

    def all(self):
        with self.lock:
            return set(self.seen)

    def clear(self):
        with self.lock:
            self.seen.clear()

    def others(self, *allowed):
        """Where somebody went but to these; DNS and answers to high ports are nobody's goal."""
        fine = {(h, p) for h, p in allowed} | {("127.0.0.1", 53)}
        return sorted(d for d in self.all() if d not in fine and d[1] < 32768)


# ---- names ----

class Names:
    """A DNS server: name -> addresses; delay, silence and refusal on demand."""

    def __init__(self):
        self.table, self.asked = {}, []
        self.delay_s, self.silent, self.code = 0, False, 0
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            packet, peer = self.socket.recvfrom(2048)
            threading.Thread(target=self._answer, args=(packet, peer), daemon=True).start()

    def _answer(self, packet, peer):
        at, labels = 12, []
        while packet[at]:
            labels.append(packet[at + 1:at + 1 + packet[at]].decode(errors="replace"))
            at += 1 + packet[at]
        question, kind = packet[12:at + 5], struct.unpack("!H", packet[at + 1:at + 3])[0]
        name = ".".join(labels).lower()
        self.asked.append(name)
        if self.delay_s:
            time.sleep(self.delay_s)   # the fault itself, not a wait for something
        if self.silent:
            return
        known = self.table.get(name)
        family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
        records = [a for a in known or () if (":" in a) == (family == socket.AF_INET6)]
        code = self.code or (0 if known is not None else 3)
        body = b"" if code or not family else b"".join(
            struct.pack("!HHHIH", 0xC00C, kind, 1, 0, 16 if ":" in a else 4) +
            socket.inet_pton(family, a) for a in records)
        count = len(records) if body else 0
        head = packet[:2] + struct.pack("!HHHHH", 0x8580 | code, 1, count, 0, 0)
        self.socket.sendto(head + question + body, peer)


# ---- certificates ----

class Authority:
    """A certificate authority of the test and its certificates."""

    def __init__(self, folder, name):
        self.folder, self.name = folder, name
        self.file = os.path.join(folder, f"{name}.pem")
        run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
             "-nodes", "-keyout", self._path("key"), "-out", self.file, "-days", "30", "-subj",
             f"/CN={name}"])
        os.chmod(self.file, 0o644)

    def _path(self, end):
        return os.path.join(self.folder, f"{self.name}.{end}")

    def certificate(self, host, days=30):
        """(certificate, key) files for a host name."""
        base = os.path.join(self.folder, f"{self.name}-{host}-{days}")
        with open(base + ".ext", "w") as f:
            f.write(f"subjectAltName=DNS:{host}\n")
        run(["openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
             "-keyout", base + ".key", "-out", base + ".csr", "-subj", f"/CN={host}"])
        run(["openssl", "x509", "-req", "-in", base + ".csr", "-CA", self.file, "-CAkey",
             self._path("key"), "-CAcreateserial", "-days", str(days), "-extfile", base + ".ext",
             "-out", base + ".pem"])
        return base + ".pem", base + ".key"


# ---- a TLS server in front of the scripted origin ----

class Front:
    """Decrypts for the origin, in a manner that can be changed for the next connections.

    manner: "good", "mute" (accepts, no handshake), "plain" (speaks HTTP in clear), "garbage"
    (random bytes instead of a handshake). stop_at: after so many bytes from the origin the
    connection ends; how: "fin" (no close_notify), "rst", "notify" (with one), "noise" (bytes that
    are no TLS record). once: the manner, certificate and stop hold for one connection.
    """

    def __init__(self, origin_port, certificate):
        self.origin_port, self.good = origin_port, certificate
        self.stops = 0               # connections that ended at stop_at
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = self.listener.getsockname()[1]
        self.reset()
        threading.Thread(target=self._accept, daemon=True).start()

    def reset(self):
        self.bend()

    def bend(self, manner="good", certificate=None, stop_at=None, how="fin", newest=None,
             once=False, skip=0):
        self.bent = dict(manner=manner, certificate=certificate or self.good, stop_at=stop_at,
                         how=how, newest=newest)
        self.left, self.skip = (1 if once else None), skip

    def _manner(self):
        straight = dict(manner="good", certificate=self.good, stop_at=None, how="fin", newest=None)
        if self.skip:
            self.skip -= 1
            return straight
        if self.left == 0:
            return straight
        if self.left:
            self.left -= 1
        return self.bent

    def _accept(self):
        while True:
            peer, _ = self.listener.accept()
            threading.Thread(target=self._serve, args=(peer, self._manner()), daemon=True).start()

    def _serve(self, peer, m):
        try:
            if m["manner"] == "good":
                self._pass_on(peer, m)
            else:
                peer.settimeout(20)
                peer.recv(1)
                if m["manner"] == "plain":
                    peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
                elif m["manner"] == "garbage":
                    peer.sendall(os.urandom(400))
                while peer.recv(65536):
                    pass
        except (OSError, ssl.SSLError):
            pass
        finally:
            peer.close()

    def _pass_on(self, peer, m):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.set_alpn_protocols(["http/1.1"])
        if m["newest"]:
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, m["newest"]
        context.load_cert_chain(*m["certificate"])
        inside = context.wrap_socket(peer, server_side=True, suppress_ragged_eofs=False)
        with socket.create_connection(("127.0.0.1", self.origin_port)) as origin:
            self._pump(inside, origin, m)

    def _pump(self, inside, origin, m):
        left = m["stop_at"]
        while True:
            ready = [inside] if inside.pending() else select.select([inside, origin], [], [])[0]
            if inside in ready:
                data = inside.recv(65536)
                if not data:
                    return
                origin.sendall(data)
            if origin in ready:
                data = origin.recv(16384 if left is None else min(16384, max(left, 1)))
                if left is not None:
                    data = data[:left]
                    left -= len(data)
                if data:
                    inside.sendall(data)
                if left == 0 or not data:
                    return self._end(inside, m["how"] if left == 0 else "notify", left == 0)

    def _end(self, inside, how, stops):
        self.stops += stops
        if how == "notify":
            try:
                inside.unwrap()
            except (OSError, ssl.SSLError):
                pass
            return
        raw = socket.socket(fileno=os.dup(inside.fileno()))
        with raw:
            if how == "rst":
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif how == "noise":
                raw.sendall(b"\x17\x03\x03\x00\x40" + os.urandom(64))
            os.close(inside.detach())


# ---- asking ----

class Got:
    def __init__(self, status=0, body=b"", whole=False, fields=None):
        self.status, self.body, self.whole, self.fields = status, body, whole, fields or {}

    def __str__(self):
        end = "whole" if self.whole else "cut"
        return f"{self.status}, {len(self.body)} bytes, {end}, {self.fields.get('x-cache')}"


def ask(server, path, method="GET", timeout=40, **fields):
    """One request on a connection of its own."""
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
    try:
        c.request(method, path, headers=fields)
        answer = c.getresponse()
        got = Got(answer.status, fields={k.lower(): v for k, v in answer.getheaders()})
        try:
            got.body = answer.read()
            got.whole = True
        except http.client.IncompleteRead as e:
            got.body = e.partial
        except OSError:
            pass
        return got
    except (http.client.HTTPException, OSError) as e:
        return Got(fields={"x-cache": repr(e)})
    finally:
        c.close()


def ask_until(server, path, status, seconds=30, **more):
    def once():
        got = ask(server, path, **more)
        return got if got.status == status and got.whole else None
    return wait_until(f"{path} answers {status}", once, seconds)


class Bytes:
    """The right bytes of keys that carry their size."""

    def __init__(self, lab):
        self.lab, self.known = lab, {}

    def of(self, bucket, key):
        name = (bucket, key)
        if name not in self.known:
            self.known[name] = run([self.lab.program("swarm"), "-m", bucket, key]).stdout
        return self.known[name]


def metric(server, name, **labels):
    wanted = [f'{k}="{v}"' for k, v in labels.items()]
    return sum(v for k, v in server.metrics().items()
               if k.split("{")[0] == name and all(w in k for w in wanted))


def log_has(server, text):
    with open(server.log, errors="replace") as f:
        return text in f.read()


def fill_backlog(host, port):
    """An address that accepts nothing and refuses nothing: a SYN to it gets no answer."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen(0)
    held = [listener]
    for _ in range(4):
        s = socket.socket()
        s.setblocking(False)
        s.connect_ex((host, port))
        held.append(s)
    return held


def have_tools():
    missing = [t for t in ("ip", "mount", "openssl")
               if subprocess.run(["which", t], stdout=subprocess.DEVNULL, check=False).returncode]
    if missing:
        raise Failure(f"missing: {' '.join(missing)}")
