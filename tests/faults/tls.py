# TLS faults between the server and its upstream: certificates, handshakes, ends without a goodbye.
#
# SPDX-License-Identifier: Apache-2.0
import os
import ssl

from lab import Headpondd, Origin
from world import Authority, Bytes, Front, ask, ask_until, log_has, metric

M = 1 << 20
KEY, PATH = "k@12M+5", "/f/k@12M%2B5"
HELD, HELD_PATH = "held@100K", "/f/held@100K"
HEAD_BYTES = 700                     # an upstream head is shorter than that

# name, how the front is bent, words of the log
REFUSED = (
    ("expired", "expired", "certificate has expired"),
    ("of another name", "other", "hostname mismatch"),
    ("of an unknown authority", "unknown", "certificate"),
    ("TLS 1.1 only", "tls11", "TLS"),
    ("no handshake", "mute", "does not answer in time"),
    ("plain text on the TLS port", "plain", "TLS"),
    ("garbage instead of a handshake", "garbage", "TLS"),
)
# name, bytes from the origin before the end, how it ends
CUTS = [(f"{how} at {at}", at, how)
        for how in ("fin", "rst", "noise", "notify")
        for at in (10, HEAD_BYTES + 1000, HEAD_BYTES + 64 * 1024, M + 1000, 3 * M, 8 * M)]


class Bench:
    def __init__(self, lab, names):
        self.lab, self.names = lab, names
        folder = lab.path("ca")
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, 0o711)
        ours, other = Authority(folder, "ours"), Authority(folder, "unknown")
        self.certificate = {
            "good": ours.certificate("s3.test"), "expired": ours.certificate("s3.test", days=-1),
            "other": ours.certificate("else.test"), "unknown": other.certificate("s3.test"),
        }
        self.origin = lab.begin(Origin(lab, "origin-tls"))
        self.front = Front(self.origin.port, self.certificate["good"])
        names.table["s3.test"] = ["127.0.0.1"]
        self.server = lab.begin(Headpondd(
            lab, "tls", 0, upstream__endpoint=f"https://s3.test:{self.front.port}",
            upstream__ca_file=ours.file, upstream__retries=1, upstream__connect_timeout="3s",
            upstream__read_timeout="3s", cache__ttl="0s", cache__immutable=False,
            server__workers=1).empty())
        self.right = Bytes(lab)

    def bend(self, what, **more):
        if what in self.certificate:
            self.front.bend(certificate=self.certificate[what], **more)
        elif what == "tls11":
            self.front.bend(newest=ssl.TLSVersion.TLSv1_1, **more)
        else:
            self.front.bend(manner=what, **more)

    def drop_connections(self):
        """The next request dials anew."""
        self.origin.do("cut")

    def fresh(self):
        """A server that remembers no failure: three of them in ten seconds count as an outage."""
        self.front.reset()
        self.server.end_cleanly()
        self.server.start()
        ask_until(self.server, HELD_PATH, 200)

    def healed(self, problems):
        self.front.reset()
        got = ask_until(self.server, PATH, 200)
        if got.body != self.right.of("f", KEY):
            problems.append(f"afterwards: {got}, not the right bytes")


def check(problems, got, status, what, right=None):
    if got.status != status or not got.whole:
        problems.append(f"{what}: {got}; wanted {status}")
    if right is not None and got.body != right:
        problems.append(f"{what}: wrong bytes ({got})")


def refused(b, name, what, words):
    with b.lab.report.test(f"TLS: {name}: 503, and what is held is served stale") as problems:
        b.fresh()
        b.bend(what)
        b.drop_connections()
        before = len(b.origin.do("requests"))
        got = ask(b.server, "/f/cold@10")
        check(problems, got, 503, "cold")
        if "retry-after" not in got.fields:
            problems.append("503 without Retry-After")
        held = ask(b.server, HELD_PATH)
        check(problems, held, 200, "held", b.right.of("f", HELD))
        if held.fields.get("x-cache") != "stale":
            problems.append(f"held: x-cache {held.fields.get('x-cache')}")
        if len(b.origin.do("requests")) != before:
            problems.append("a request went through a connection that must not be trusted")
        kind = "timeout" if what == "mute" else "tls"
        if not metric(b.server, "headpond_upstream_errors_total", kind=kind):
            problems.append(f"upstream_errors_total{{kind={kind}}} is 0")
        if not log_has(b.server, words):
            problems.append(f"the log does not say {words}")
        b.healed(problems)


def once(b, name, what):
    with b.lab.report.test(f"TLS: {name}, once: cured by one more try") as problems:
        b.fresh()
        b.bend(what, once=True)
        b.drop_connections()
        check(problems, ask(b.server, f"/f/once-{what}@1000"), 200, "cold",
              b.right.of("f", f"once-{what}@1000"))
        if b.front.left:
            problems.append("nobody met the bent connection")


def cut(b, name, at, how):
    """A fetch is resumed, whatever the end; the same bytes come whole."""
    key = f"cut-{how}-{at}@12M"
    with b.lab.report.test(f"TLS: {name}: resumed") as problems:
        b.fresh()
        b.front.bend(stop_at=at, how=how, once=True)
        b.drop_connections()
        stops = b.front.stops
        check(problems, ask(b.server, f"/f/{key}"), 200, "cold", b.right.of("f", key))
        if b.front.stops != stops + 1:
            problems.append("no connection was cut")
        got = ask(b.server, f"/f/{key}")
        check(problems, got, 200, "again", b.right.of("f", key))


def relayed(b, how, wanted):
    """An answer without a length ends with its connection: only close_notify says that it did."""
    with b.lab.report.test(f"TLS: a list until the close, ended by {how}: {wanted}") as problems:
        b.fresh()
        b.origin.do("objects l k-#### 400 size=10", "set l length=none")
        whole = ask_until(b.server, "/l?list-type=2", 200).body
        b.front.bend(stop_at=len(whole) // 2, how=how)
        b.drop_connections()
        stops = b.front.stops
        got = ask(b.server, "/l?list-type=2")
        if b.front.stops == stops:
            problems.append("no connection was cut")
        if wanted == "cut" and got.whole and got.status == 200:
            problems.append(f"a half list ended cleanly: {got}")
        if wanted == "passed on" and (got.status != 200 or not whole.startswith(got.body[:200])):
            problems.append(f"{got}")
        b.origin.do("unset l")
        b.healed(problems)


def run_all(lab, names):
    b = Bench(lab, names)
    with lab.report.test("TLS: a good upstream") as problems:
        check(problems, ask(b.server, PATH), 200, "cold", b.right.of("f", KEY))
        check(problems, ask(b.server, HELD_PATH), 200, "cold", b.right.of("f", HELD))
    for name, what, words in REFUSED:
        refused(b, name, what, words)
    for name, what, _ in REFUSED:
        if what != "mute":           # a silent one uses up the time that all tries have together
            once(b, name, what)
    for name, at, how in CUTS:
        cut(b, name, at, how)
    for how in ("fin", "rst", "noise"):
        relayed(b, how, "cut")
    with lab.report.test("TLS: and the server's log is clean") as problems:
        problems += lab.log_problems(b.server)
        b.server.finish()
