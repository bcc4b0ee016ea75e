# Names: gone, late, changing, several of which the first ones are dead, and leading where they
# should not.
#
# SPDX-License-Identifier: Apache-2.0
from lab import Headpondd, Origin
from procs import wait_until
from world import Bytes, ask, ask_until, fill_backlog, log_has, metric

HELD = "/f/held@100K"
SOON_SECONDS = 8                     # far below the 30 s after which a name is looked up anyway


class Bench:
    """An upstream by name, whose address is the test's to choose."""

    count = 0

    def __init__(self, lab, names, watcher, name, addresses, **settings):
        Bench.count += 1
        name = f"{name}{Bench.count}"
        self.lab, self.names, self.watcher, self.name = lab, names, watcher, f"{name}.test"
        names.table.pop(self.name, None)
        if addresses:
            names.table[self.name] = addresses
        self.origin = lab.begin(Origin(lab, f"origin-{name}"))
        self.right = Bytes(lab)
        more = dict(upstream__endpoint=f"http://{self.name}:{self.origin.port}",
                    upstream__retries=1, upstream__connect_timeout="3s",
                    upstream__read_timeout="2s", cache__ttl="0s", cache__immutable=False)
        more.update(settings)
        self.server = Headpondd(lab, name, 0, **more).empty()
        lab.children.append(self.server)

    def end(self, problems):
        problems += self.lab.log_problems(self.server)
        self.server.finish()
        self.origin.stop()
        self.names.delay_s, self.names.silent, self.names.code = 0, False, 0

    def right_answer(self, problems, key, within=SOON_SECONDS):
        got = ask_until(self.server, f"/f/{key}", 200, seconds=within)
        if got.body != self.right.of("f", key):
            problems.append(f"{key}: wrong bytes ({got})")
        return got


def unknown_at_the_start(lab, names, watcher):
    with lab.report.test("names: not known at the start, known later") as problems:
        b = Bench(lab, names, watcher, "late", None)
        b.server.start()
        got = ask(b.server, "/f/k@10")
        if got.status != 503 or "retry-after" not in got.fields:
            problems.append(f"{got}; wanted 503")
        if not metric(b.server, "headpond_upstream_errors_total", kind="dns"):
            problems.append("upstream_errors_total{kind=dns} is 0")
        if not log_has(b.server, "upstream name not resolved"):
            problems.append("the log says nothing of the name")
        names.table[b.name] = ["127.0.0.1"]
        b.right_answer(problems, "k@10")
        b.end(problems)


def gone_later(lab, names, watcher):
    for what in ("silent", "NXDOMAIN", "SERVFAIL"):
        with lab.report.test(f"names: {what} after a while: nothing changes") as problems:
            b = Bench(lab, names, watcher, "gone", ["127.0.0.1"])
            b.server.start()
            b.right_answer(problems, "held@100K")
            names.silent = what == "silent"
            names.code = {"NXDOMAIN": 3, "SERVFAIL": 2}.get(what, 0)
            b.origin.do("listen off", "cut")
            if ask(b.server, HELD).fields.get("x-cache") != "stale":
                problems.append("what is held is not served")
            wait_until("the name is looked up again", lambda: b.names.asked.count(b.name) > 2, 10)
            b.origin.do("listen on")
            b.right_answer(problems, "other@100K")
            b.end(problems)


def slow(lab, names, watcher):
    with lab.report.test("names: a slow answer delays neither the start nor hits") as problems:
        names.delay_s = 4
        b = Bench(lab, names, watcher, "slow", ["127.0.0.1"])
        b.server.start()             # within READY_SECONDS; the answer comes behind it
        names.delay_s = 0
        b.right_answer(problems, "k@10", within=15)
        b.end(problems)


def moved(lab, names, watcher):
    with lab.report.test("names: another address after the first one died") as problems:
        b = Bench(lab, names, watcher, "moved", ["127.9.9.9"])
        names.table[b.name] = ["127.9.9.9"]
        b.server.start()
        if ask(b.server, "/f/k@10").status != 503:
            problems.append("an address without a server is no 503")
        names.table[b.name] = ["127.0.0.1"]
        b.right_answer(problems, "k@10")
        b.end(problems)


def several(lab, names, watcher):
    dead = {"refusing": ["127.1.0.1", "127.1.0.2", "127.1.0.3"],
            "silent": ["127.2.0.1", "127.2.0.2"]}
    for what, addresses in dead.items():
        with lab.report.test(f"names: {len(addresses)} {what} addresses before the right one") \
                as problems:
            b = Bench(lab, names, watcher, "several", [*addresses, "127.0.0.1"],
                      upstream__retries=0)
            held = [fill_backlog(a, b.origin.port) for a in addresses] if what == "silent" else []
            b.server.start()
            for n in range(6):       # one try is enough, wherever it begins
                got = ask(b.server, f"/f/k{n}@1000")
                if got.status != 200 or got.body != b.right.of("f", f"k{n}@1000"):
                    problems.append(f"request {n}: {got}")
            for sockets in held:
                for s in sockets:
                    s.close()
            b.end(problems)


def rebound(lab, names, watcher):
    """A name that leads elsewhere later: nobody is asked there, nothing is sent there."""
    for address in ("169.254.169.254", "203.0.113.7", "0.0.0.0", "fd00:ec2::254", "fe80::1",
                    "2001:db8::1", "::ffff:169.254.169.254"):
        with lab.report.test(f"names: bent to {address} over plain HTTP: no connection") as problems:
            b = Bench(lab, names, watcher, "bent", ["127.0.0.1"])
            b.server.start()
            b.right_answer(problems, "held@100K")
            asked = names.asked.count(b.name)
            names.table[b.name] = [address]
            watcher.clear()
            b.origin.do("listen off", "cut")
            ask(b.server, "/f/cold@10")
            wait_until("the name is looked up again", lambda: names.asked.count(b.name) > asked + 1,
                       10)
            for n in range(3):
                got = ask(b.server, f"/f/cold{n}@10")
                if got.status != 503:
                    problems.append(f"{got}; wanted 503")
            others = watcher.others(("127.0.0.1", b.origin.port), ("127.0.0.1", b.server.port),
                                    ("127.0.0.1", b.server.admin_port),
                                    ("127.0.0.1", b.origin.control))
            problems += [f"a connection to {h}:{p}" for h, p in others]
            b.origin.do("listen on")
            b.end(problems)


def run_all(lab, names, watcher):
    unknown_at_the_start(lab, names, watcher)
    gone_later(lab, names, watcher)
    slow(lab, names, watcher)
    moved(lab, names, watcher)
    several(lab, names, watcher)
    rebound(lab, names, watcher)
