# The small world of these tests: the cache and its readers in our network namespace, the store in
# another one, a cable between them that can be pulled, and a meter on it.
#
# Invariants:
#  1. Nothing outside the two namespaces is touched; both end with the processes in them.
#  2. The meter counts before the cable is cut: what was sent in vain is counted.
#  3. Each attempt at a connection is one element of `flows` (its source port), which is never
#     emptied: a SYN that is sent again a look later is not a second attempt.
#
# SPDX-License-Identifier: Apache-2.0
import json
import os
import re
import select
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "rgw"))
from procs import (Failure, Process, Told, clean_environment, free_port, run, tail,  # noqa: E402
                   wait_until)

HERE, THERE, PORT = "10.78.0.1", "10.78.0.2", 9000
THERE_TOO = "10.78.0.3"                # the same store, for a second cache
ACCESS, SECRET = "AKIDDOWN", "secret-of-down"
METER = """
table inet watch {
    set flows { type inet_service; flags dynamic; size 65535; }
    counter syn { }
    counter rest { }
    chain out {
        type filter hook output priority 0; policy accept;
        oifname "c0" tcp flags & (syn | ack) == syn add @flows { tcp sport } counter name syn
        oifname "c0" tcp flags & (syn | ack) != syn counter name rest
        oifname "c0" jump cable
    }
    chain in {
        type filter hook input priority 0; policy accept;
        iifname "c0" jump cable
    }
    chain cable { }
}
"""


def ip(*words):
    run(["ip", *words])


def nft(*words, text=None):
    more = {"input": text.encode()} if text else {}
    return run(["nft", *words], **more).stdout.decode()


class Store:
    """The scripted origin in a namespace of its own; its script is fed line by line."""

    def __init__(self, log):
        script = f'read go; ip addr add {THERE}/24 dev s0; ip addr add {THERE_TOO}/24 dev s0; ' \
                 f'ip link set s0 up; ip link set lo up; ' \
                 f'exec build/release/tests/origin -a 0.0.0.0 -p {PORT} -'
        with open(log, "ab") as err:
            self.child = subprocess.Popen(["unshare", "--net", "sh", "-c", script], stderr=err,
                                          stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                          env=clean_environment(), start_new_session=True)
        ours = os.readlink("/proc/self/ns/net")
        link = f"/proc/{self.child.pid}/ns/net"
        wait_until("the store's namespace", lambda: os.readlink(link) != ours, 10)
        ip("link", "add", "c0", "type", "veth", "peer", "name", "s0")
        ip("link", "set", "s0", "netns", str(self.child.pid))
        ip("addr", "add", f"{HERE}/24", "dev", "c0")
        ip("link", "set", "c0", "up")
        self.say("go")
        if b"port=" not in self.line():
            raise Failure(f"the store does not start: {tail(log)}")

    def say(self, text):
        self.child.stdin.write(text.encode() + b"\n")
        self.child.stdin.flush()

    def line(self):
        if not select.select([self.child.stdout], [], [], 10)[0]:
            raise Failure("the store says nothing")
        return self.child.stdout.readline()

    def requests(self):
        self.say("stats")
        return int(re.search(rb"requests=(\d+)", self.line()).group(1))

    def stop(self):
        self.child.send_signal(signal.SIGCONT)
        self.child.kill()
        self.child.wait()


class Cache(Told):
    """A server, and what it says of itself."""

    def __init__(self, folder, address):
        self.folder, self.address, self.server = folder, address, None
        os.makedirs(self.path("cache"), mode=0o700)

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def start(self, text):
        self.port, self.admin = free_port(), free_port()
        with open(self.path("headpond.toml"), "w") as f:
            f.write(f'[server]\nlisten = ["127.0.0.1:{self.port}"]\nallow_root = true\n'
                    f'[admin]\nlisten = ["127.0.0.1:{self.admin}"]\n'
                    f'[log]\nformat = "logfmt"\naccess = "off"\n'
                    f'[upstream]\nendpoint = "http://{self.address}:{PORT}"\n'
                    f'region = "us-east-1"\n{text}')
        environment = clean_environment(AWS_ACCESS_KEY_ID=ACCESS, AWS_SECRET_ACCESS_KEY=SECRET)
        program = os.environ.get("HEADPONDD", "build/release/headpondd")
        self.server = Process("headpondd", [program, "--config", self.path("headpond.toml")],
                              self.path("headpondd.log"), env=environment).start()
        self.server.wait_ready(lambda: self.admin_get("/readyz", quiet=True) is not None, 30)

    def is_up(self):
        return self.metric("upstream_up") == 1

    def status(self):
        done = run(["build/release/headpond", "--server", f"http://127.0.0.1:{self.admin}",
                    "status"])
        return done.stdout.decode()

    def log_lines(self, words):
        with open(self.path("headpondd.log"), errors="replace") as f:
            return sum(words in line for line in f)


class World(Cache):
    """Our namespace: a cache, the cable, the meter; the store behind them."""

    def __init__(self, folder):
        super().__init__(folder, THERE)
        ip("link", "set", "lo", "up")
        self.store = Store(self.path("store.log"))
        nft("-f", "-", text=METER)
        self.ports = set()

    # ---- the cable and the meter ----

    def pull(self, how):
        """dropped: packets vanish. refused: nobody listens. stopped: the process stands still."""
        if how == "dropped":
            nft("add", "rule", "inet", "watch", "cable", "drop")
        elif how == "refused":
            self.store.say("listen off\ncut\nstats")  # in order: when stats answers, it is done
            self.store.line()
        else:
            self.store.child.send_signal(signal.SIGSTOP)

    def plug(self, how):
        if how == "dropped":
            nft("flush", "chain", "inet", "watch", "cable")
        elif how == "refused":
            self.store.say("listen on\nstats")
            self.store.line()
        else:
            self.store.child.send_signal(signal.SIGCONT)

    def cut(self, address, how):
        """As pull, for one address only, without the store's help."""
        verdict = "reject with tcp reset" if how == "refused" else "drop"
        nft("add", "rule", "inet", "watch", "cable", "ip", "daddr", address, "meta", "l4proto",
            "tcp", *verdict.split())
        if how == "dropped":
            nft("add", "rule", "inet", "watch", "cable", "ip", "saddr", address, "drop")

    def mend(self):
        nft("flush", "chain", "inet", "watch", "cable")

    def meter(self):
        """Since the last look: attempts at connections, their packets, other packets."""
        listed = json.loads(nft("-j", "list", "set", "inet", "watch", "flows"))
        ports = set()
        for item in listed["nftables"]:
            ports.update(item.get("set", {}).get("elem", []))
        found = {"flows": len(ports - self.ports)}
        self.ports = ports
        for name in ("syn", "rest"):
            text = nft("list", "counter", "inet", "watch", name)
            found[name] = int(re.search(r"packets (\d+)", text).group(1))
        nft("reset", "counters", "table", "inet", "watch")
        return found

    def end(self):
        if self.server:
            self.server.signal(signal.SIGTERM)
            self.server.stop()
        self.store.stop()


def until(seconds):
    """Rounds of a loop that lasts so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield end - time.monotonic()
