# Who has no right to a bucket must not learn what of it is cached, by any byte nor by the time that a
# refusal takes.
#
# SPDX-License-Identifier: Apache-2.0
import random
import re
import socket
import statistics
import time

from client import EMPTY

PROBES, TRIES, AUC = 10_000, 3, (0.45, 0.55)
KINDS = ("cached", "stored", "absent")


def normal(told, name):
    """An answer without what differs between any two: ids and date; and the key that was asked."""
    told = re.sub(rb"(?i)(x-amz-request-id|x-amz-id-2|date): [^\r]*", rb"\1", told)
    told = re.sub(rb"<(RequestId|HostId)>[^<]*<", rb"<\1><", told)
    return told.replace(name.encode(), b"NAME")


class Probe:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request, head):
        """The whole answer, and how long it took in ns."""
        began = time.perf_counter_ns()
        self.socket.sendall(request)
        told = self.socket.recv(65536)
        while True:
            at = told.find(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: (\d+)", told[:at]) if at >= 0 else None
            if at >= 0 and len(told) >= at + 4 + (int(length.group(1)) if length and not head else 0):
                return told, time.perf_counter_ns() - began
            more = self.socket.recv(65536)
            if not more:
                raise OSError("closed")
            told += more


def area(a, b):
    """Of the ROC curve: how often a value of a is larger than one of b; 1/2 = nobody can tell."""
    both = sorted([(v, 0) for v in a] + [(v, 1) for v in b])
    ranks, at = 0.0, 0
    while at < len(both):
        end = at
        while end < len(both) and both[end][0] == both[at][0]:
            end += 1
        ranks += sum((at + 1 + end) / 2 for v, of in both[at:end] if of == 0)
        at = end
    return (ranks - len(a) * (len(a) + 1) / 2) / (len(a) * len(b))


def written(client, key, method, path):
    fields = {"host": client.host}
    if key:
        fields, _ = client.sign(key, method, path, (), None, EMPTY)
    lines = [f"{method} {path} HTTP/1.1", *(f"{n}: {v}" for n, v in fields.items()), "", ""]
    return "\r\n".join(lines).encode()


def probe(client, key, names):
    """PROBES of the three kinds, mixed. Returns (different answers by method, times by kind)."""
    plan = [(kind, method) for kind in KINDS for method in ("GET", "HEAD")]
    asked = [plan[i % len(plan)] for i in range(PROBES)]
    random.shuffle(asked)
    answers, took = {"GET": set(), "HEAD": set()}, {kind: [] for kind in KINDS}
    request = {(kind, method): written(client, key, method, f"/b/{names[kind]}")
               for kind, method in plan}
    p = Probe(client.port)
    for kind, method in asked:
        told, ns = p.ask(request[kind, method], method == "HEAD")
        answers[method].add(normal(told, names[kind]))
        if method == "GET":
            took[kind].append(ns)
    return answers, took


def judge(client, key, names, asked_upstream):
    """What is wrong, or "". The machine is shared: times may fail twice."""
    words = ""
    for _ in range(TRIES):
        before = asked_upstream()
        answers, took = probe(client, key, names)
        if any(len(a) != 1 for a in answers.values()):
            return f"answers differ: {[sorted(a)[:2] for a in answers.values()]}"
        if not all(a.startswith(b"HTTP/1.1 403") for m in answers.values() for a in m):
            return f"not refused: {answers}"
        if asked_upstream() != before:
            return "the store was asked"
        told = {k: area(took["cached"], took[k]) for k in KINDS[1:]}
        words = ", ".join(f"cached against {k} {v:.3f}" for k, v in told.items())
        medians = ", ".join(f"{k} {statistics.median(v) / 1000:.1f}" for k, v in took.items())
        print(f"    {PROBES} probes, AUC: {words}; medians in us: {medians}", flush=True)
        if all(AUC[0] <= v <= AUC[1] for v in told.values()):
            return ""
    return f"times tell: {words}"
