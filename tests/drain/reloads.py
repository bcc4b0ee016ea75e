# Reloads under load: whatever a file changes, and however wrong it is, no request fails.
#
# 32 clients ask all the time (load.py says what they accept). RELOADS times the file, or what it
# names, is written anew: some two dozen live options take other values, keys come and go, sections
# appear and leave; each tenth is wrong in another way. By turns the server is asked by SIGHUP and
# by `headpond config reload`. What was applied must be in force, what was refused must have changed
# nothing.
#
# A part of drain.py; by itself:
#   reloads.py [--reloads N]      the last line is "reloads: N passed, N failed"
#
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading

import drain
from drain import Server, Store, Verdicts, judge
from load import Client

EVERY_WRONG = 10
LIVE = {
    "server": {"header_timeout": ("10s", "20s"), "idle_timeout": ("1m", "2m"), "body_timeout": ("30s", "60s"),
               "send_timeout": ("5m", "10m"), "drain_timeout": ("40s", "60s"), "max_connections_per_address": (0, 2048, 4096)},
    "auth": {"clock_skew": ("10m", "15m"), "sigv2": (True, False)},
    "upstream": {"connections": (16, 64), "bandwidth": ("0", "1GB"), "connect_timeout": ("2s", "3s"), "read_timeout": ("10s", "15s"),
                 "retries": (2, 5), "offline": ("serve", "fail")},
    "cache": {"ttl": ("1s", "60s", "0s"), "immutable": (True, False), "negative_ttl": ("0s", "1s"), "list_ttl": ("0s", "30s"),
              "write": ("through", "around"), "scrub": ("0", "8MiB", "64MiB")},
    "prefetch": {"readahead": ("auto", "off"), "inflight": (8, 32), "bandwidth": ("0", "500MB")},
    "log": {"level": ("info", "warn", "debug"), "format": ("text", "logfmt", "json"), "access": ("off", "errors", "slow", "all"),
            "slow_ms": (1, 1000)},
}
SECTIONS = ('[[bucket]]\nmatch = "b/hot"\nttl = "2s"\nreadahead = "off"\n',
            '[[bucket]]\nmatch = "b"\nimmutable = true\npin = true\n',
            '[[bucket]]\nmatch = "b/cold"\nquota = "16MiB"\n',
            '[[schedule]]\nwhen = "00:00-24:00"\n"prefetch.bandwidth" = "300MB"\n')
WRONG = (("cache", 'ttl = "soon"\n'), ("cache", 'verfiy = "read"\n'), ("log", 'level = "loud"\n'), ("auth", 'keys_file = "/nowhere"\n'),
         ("upstream", "connections = 0\n"), ("cache", "ttl = \n"), ("server", 'tls_cert = "/nowhere"\n'), ("end", "[[bucket]]\nttl = \"1s\"\n"),
         ("end", "[sever]\n"), ("end", '[[schedule]]\nwhen = "never"\n'))


def toml(value):
    return json.dumps(value)


class Reloaded(Server):
    """A server whose file has another content each time."""

    def __init__(self, where, program, store, seed):
        self.random = random.Random(seed)
        self.values, self.sections, self.wrong = {}, [], None
        super().__init__(where, "reloaded", program, store, None)

    def lines_of(self, section):
        fixed = {
            "server": {"listen": [f"127.0.0.1:{self.port}"], "workers": 2, "allow_root": os.geteuid() == 0},
            "admin": {"listen": [f"unix:{self.dir}/sock", f"127.0.0.1:{self.admin_port}"]},
            "auth": {"anonymous": ["127.0.0.0/8"], "keys_file": self.path("keys")},
            "upstream": {"endpoint": f"file://{os.path.dirname(self.store.where)}"},
            "cache": {"dirs": [f"{self.dir}/cache"], "size": "256MiB", "memory": "128MiB", "min_free": "64MiB"},
        }
        here = {**fixed.get(section, {}), **self.values.get(section, {})}
        wrong = self.wrong[1] if self.wrong and self.wrong[0] == section else ""
        name = wrong.split(" ")[0]
        return [f"[{section}]\n", *(f"{k} = {toml(v)}\n" for k, v in here.items() if k != name), wrong]

    def write_config(self, ttl=None):
        new = self.config + ".new"
        with open(new, "w", encoding="utf-8") as f:
            for section in ("server", "admin", "auth", "upstream", "cache", "prefetch", "log"):
                f.writelines(self.lines_of(section))
            f.writelines(self.sections)
            if self.wrong and self.wrong[0] == "end":
                f.write(self.wrong[1])
        os.replace(new, self.config)

    def another(self, number):
        """A new file; returns what a reload of it should be."""
        good = {"values": self.values, "sections": self.sections}
        self.values = {section: {key: self.random.choice(values) for key, values in keys.items() if self.random.random() < 0.7}
                       for section, keys in LIVE.items()}
        self.sections = [text for text in SECTIONS if self.random.random() < 0.5]
        self.wrong = WRONG[number // EVERY_WRONG % len(WRONG)] if number % EVERY_WRONG == EVERY_WRONG - 1 else None
        self.write_config()
        if number % 3 == 0:
            self.write_keys()
        if not self.wrong:
            return "applied"
        self.wrong, self.values, self.sections = None, good["values"], good["sections"]
        return "refused"

    def headpond(self, *words):
        argv = [os.path.join(os.path.dirname(self.process.argv[0]), "headpond"), "--server", f"unix:{self.dir}/sock", "--json", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=drain.STEP_S, check=False)

    def reload_by_command(self, result):
        done = self.headpond("config", "reload")
        if result == "applied":
            return done.returncode == 0 and json.loads(done.stdout)["ok"]
        return done.returncode == 2 and "nothing has changed" in done.stderr

    def in_force(self):
        """Whether the configuration is that of the last good file."""
        shown = json.loads(self.headpond("config", "show").stdout)
        ms = {"0s": 0, "1s": 1, "60s": 60, None: 60}
        want = ms[self.values.get("cache", {}).get("ttl")]
        text = shown["cache"]["ttl"]
        got = sum(int(part[:-1]) * {"s": 1, "m": 60}[part[-1]] for part in text.split()) if text != "0" else 0
        buckets = [text for text in self.sections if text.startswith("[[bucket]]")]
        return got == want and len(shown.get("bucket", [])) == len(buckets)


def work(server, reloads, verdicts):
    for number in range(reloads):
        server.load_goes_on()
        result = server.another(number)
        good = server.reload(result) if number % 2 else server.reload_by_command(result)
        how = "SIGHUP" if number % 2 else "config reload"
        verdicts.add(good, f"reload {number} by {how} should have been {result}")
        verdicts.add(server.in_force(), f"behind reload {number}, {result}: another configuration is in force")
    server.load_goes_on()


def life(server, clients, reloads, verdicts):
    try:
        server.start()
        for client in clients:
            client.start()
        work(server, reloads, verdicts)
    except Exception as e:             # noqa: BLE001 - told and counted
        server.tally.fail(f"{server.name}: {e!r}")
    server.tally.over = True
    for client in clients:
        client.join(40)
    server.write_config()
    code, took = server.drain()
    server.process.kill()
    verdicts.add(code == 0, f"the last drain ended with {code}, {took:.1f} s")


def run(where, program, reloads, verdicts, seed=1):
    server = Reloaded(where, program, Store(where), seed)
    clients = [Client(f"{n}-{manner}", server, server.tally, manner) for n in range(4) for manner in drain.MANNERS]
    thread = threading.Thread(target=life, args=(server, clients, reloads, verdicts))
    thread.start()                     # a child dies with the thread that started it
    thread.join()
    judge(server, verdicts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reloads", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", default="build/release/headpondd")
    options = parser.parse_args()
    where = tempfile.mkdtemp(prefix="headpond-reloads-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    verdicts = Verdicts()
    try:
        run(where, options.program, options.reloads, verdicts, options.seed)
    finally:
        if verdicts.failed:
            print(f"# kept {where}")
        else:
            shutil.rmtree(where, ignore_errors=True)
    print(f"reloads: {verdicts.passed} passed, {verdicts.failed} failed")
    return 1 if verdicts.failed or not verdicts.passed else 0


if __name__ == "__main__":
    sys.exit(main())
