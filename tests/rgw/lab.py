# What a test works with: the store, the counting proxy before it, the server under test, and the
# list of verdicts.
#
# Invariants:
#  1. Everything stands below one directory and ends with it.
#  2. A verdict is one line; the run passes only if there is at least one and none failed.
#
# SPDX-License-Identifier: Apache-2.0
import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
import traceback
import urllib.error
import urllib.request

from procs import Failure, Process, clean_environment, free_port, run, wait_until

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
READY_SECONDS = 30
END_SECONDS = 90
PROBLEMS_SHOWN, PROBLEM_SHOWN = 12, 1500


class Report:
    def __init__(self):
        self.passed = self.failed = 0
        self.began = time.monotonic()

    def verdict(self, name, problems, note=""):
        """One test: passed without problems. Returns whether it passed."""
        seconds = time.monotonic() - self.began
        self.began = time.monotonic()
        if not problems:
            self.passed += 1
            print(f"ok    {name}{' (' + note + ')' if note else ''} {seconds:.1f} s", flush=True)
            return True
        self.failed += 1
        print(f"FAIL  {name} {seconds:.1f} s", flush=True)
        for p in problems[:PROBLEMS_SHOWN]:
            print(f"      {p[:PROBLEM_SHOWN]}", flush=True)
        if len(problems) > PROBLEMS_SHOWN:
            print(f"      ... {len(problems)} in all", flush=True)
        return False

    def tally(self, name, verdicts):
        """Many tests in one line: verdicts are (name, problems); those that failed have their own."""
        good = [n for n, problems in verdicts if not problems]
        self.passed += len(good)
        if good:
            print(f"ok    {name}: {len(good)} of {len(verdicts)} cases", flush=True)
        for case, problems in verdicts:
            if problems:
                self.verdict(f"{name}: {case}", problems)

    @contextlib.contextmanager
    def test(self, name, guard=False):
        """with report.test("x") as problems: problems.append("what is wrong"). Exceptions fail it.

        A guard is no test of its own: it says something only when it failed.
        """
        problems = []
        self.began = time.monotonic()
        try:
            yield problems
        except Failure as e:
            problems.append(str(e))
        except Exception:  # a test that breaks is a test that fails; the others still run
            problems.append(traceback.format_exc())
        if problems or not guard:
            self.verdict(name, problems)


class Talker(Process):
    """A program that prints "port=N control=N" and takes commands on its control port."""

    def start(self):
        super().start()
        self.port, self.control = self.wait_ready(self._ports, READY_SECONDS)
        return self

    def _ports(self):
        with open(self.log) as f:
            words = f.readline().split()
        if len(words) < 2 or not words[1].startswith("control="):
            return None
        return int(words[0].partition("=")[2]), int(words[1].partition("=")[2])

    def do(self, *lines):
        """Sends lines; returns what was answered to them, without the "ok"s."""
        answers = []
        with socket.create_connection(("127.0.0.1", self.control), timeout=60) as s:
            f = s.makefile("rw", encoding="utf-8", errors="surrogateescape", newline="\n")
            for line in lines:
                f.write(line + "\n")
                f.flush()
                while True:
                    got = f.readline()
                    if not got or got.startswith("error: "):
                        raise Failure(f"{self.name}: {line}: {got.strip() or 'no answer'}")
                    if got == "ok\n":
                        break
                    answers.append(got.rstrip("\n"))
        return answers


def numbers(line):
    return {k: int(v) for k, _, v in (w.partition("=") for w in line.split())}


class Proxy(Talker):
    def __init__(self, lab, name, upstream_port):
        super().__init__(name, [lab.program("proxy"), str(upstream_port)],
                         lab.path(name + ".log"))

    def stats(self):
        return numbers(self.do("stats")[0])

    def mark(self):
        self.do("mark")

    def rate(self, bytes_per_second):
        self.do(f"rate {bytes_per_second}")

    def requests(self):
        return self.do("requests")

    def object_problems(self, want_bytes=0):
        """What is wrong if exactly so many bytes of objects have passed since the mark."""
        s = self.stats()
        problems = []
        if s["broken"]:
            problems.append(f"the proxy did not understand {s['broken']} messages")
        if s["object_bytes"] != want_bytes:
            problems.append(f"{s['object_bytes']} bytes of objects from upstream, not {want_bytes}")
            problems += [r for r in self.requests()
                         if r.startswith("GET ") and not r.endswith(" body=0")][:5]
        return problems


class Origin(Talker):
    def __init__(self, lab, name="origin"):
        super().__init__(name, [lab.program("origin"), "-l"], lab.path(name + ".log"))


class Headpondd(Process):
    """The server under test, with its configuration and its cache directory."""

    def __init__(self, lab, name, upstream_port, access="AKIDTEST", secret="secret", **settings):
        self.lab = lab
        self.dir = lab.path(name)
        self.port, self.admin_port = free_port(), free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.settings = {
            "server.listen": [f"127.0.0.1:{self.port}"], "server.name": "rgw",
            "admin.listen": [f"unix:{self.dir}/admin.sock", f"127.0.0.1:{self.admin_port}"],
            "auth.anonymous": ["127.0.0.0/8"],
            "upstream.endpoint": f"http://127.0.0.1:{upstream_port}",
            "upstream.region": "us-east-1", "upstream.path_style": "path",
            "cache.dirs": [f"{self.dir}/cache"], "cache.size": "1GiB", "cache.memory": "256MiB",
            "cache.min_free": "64MiB", "cache.ttl": "24h", "cache.immutable": True,
            "cache.disk_timeout": "60s",         # a machine that pauses is no disk that fails
            "log.format": "logfmt", "log.level": "info",
        }
        self.settings.update({k.replace("__", "."): v for k, v in settings.items()})
        environment = clean_environment(AWS_ACCESS_KEY_ID=access, AWS_SECRET_ACCESS_KEY=secret)
        argv = [lab.server, "--config", f"{self.dir}/headpond.toml"]
        super().__init__("headpondd", argv, f"{self.dir}/log", env=environment, user=lab.user)
        if lab.user is None and os.geteuid() == 0:
            argv.append("--allow-root")

    def empty(self):
        """A cache directory without anything in it."""
        shutil.rmtree(self.dir, ignore_errors=True)
        os.makedirs(f"{self.dir}/cache")
        os.chmod(f"{self.dir}/cache", 0o700)
        with open(f"{self.dir}/headpond.toml", "w") as f:
            f.write(self._toml())
        if self.lab.user:
            for path in (self.dir, f"{self.dir}/cache"):
                os.chown(path, self.lab.user.pw_uid, self.lab.user.pw_gid)
        return self

    def start(self):
        super().start()
        self.wait_ready(lambda: self._status(self.port, "/-/ready") == 200, READY_SECONDS)
        return self

    def end_cleanly(self):
        """SIGTERM: exit status 0, or a Failure."""
        self.require_alive()
        code = self.stop(END_SECONDS)
        if code != 0:
            raise Failure(f"headpondd ended with {code} after SIGTERM:\n{self.log_tail()}")

    def finish(self):
        """The end of this server: its cache goes, its log stays."""
        self.end_cleanly()
        shutil.rmtree(f"{self.dir}/cache")

    def kill_hard(self):
        self.require_alive()
        if self.kill() != -signal.SIGKILL:
            raise Failure(f"headpondd had ended before it was killed:\n{self.log_tail()}")

    def log_tail(self, lines=15):
        with open(self.log, errors="replace") as f:
            return "".join(f.readlines()[-lines:])

    def metrics(self):
        """{"headpond_x{labels}": value}"""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin_port}/metrics", timeout=10) as a:
            lines = a.read().decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def wait_committed(self):
        """Until all that was cached is durable."""
        def clean():
            m = self.metrics()
            busy = sum(v for k, v in m.items() if k.startswith("headpond_fetches_in_flight"))
            return busy == 0 and m["headpond_index_dirty_entries"] == 0
        self.require_alive()
        wait_until("headpond_index_dirty_entries == 0", clean, END_SECONDS)

    def _status(self, port, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
                return answer.status
        except urllib.error.HTTPError as e:
            return e.code
        except (urllib.error.URLError, OSError):
            return 0

    def _toml(self):
        def value(v):
            if isinstance(v, bool):
                return "true" if v else "false"
            if isinstance(v, list):
                return "[" + ", ".join(value(x) for x in v) + "]"
            return str(v) if isinstance(v, int) else f'"{v}"'
        sections = {}
        for name, v in self.settings.items():
            section, _, key = name.partition(".")
            sections.setdefault(section, []).append(f"{key} = {value(v)}")
        return "\n".join(f"[{s}]\n" + "\n".join(lines) + "\n" for s, lines in sections.items())


class Lab:
    def __init__(self, folder, server=None, build=None):
        self.dir = folder
        self.build = build or os.path.join(REPOSITORY, "build", "release")
        self.server = server or os.path.join(self.build, "headpondd")
        self.report = Report()
        self.source = os.path.dirname(os.path.abspath(__file__))
        self.user = self._plain_user()
        self.children = []
        os.chmod(folder, 0o711)  # the server's user must reach its directory

    def _plain_user(self):
        """nobody, if we are root and nobody can run the server; else None."""
        if os.geteuid() != 0:
            return None
        nobody = pwd.getpwnam("nobody")
        probe = subprocess.run([self.server, "--version"], user=nobody.pw_uid, group=nobody.pw_gid,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        return nobody if probe.returncode == 0 else None

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def venv(self, name):
        """A program of the current boto3's environment, which run.sh makes."""
        return os.path.join(REPOSITORY, "build", "venv", "bin", name)

    def log_problems(self, server):
        """Lines of the server's log that no test should cause."""
        bad = (" l=error ", "Sanitizer", "runtime error:", "panic", "checksum mismatch")
        with open(server.log, errors="replace") as f:
            return [line.rstrip()[:300] for line in f if any(b in line for b in bad)]

    def program(self, name):
        path = os.path.join(self.build, "tests", name)
        if not os.access(path, os.X_OK):
            raise Failure(f"{path} is not built: make instruments")
        return path

    def begin(self, child):
        """Starts a child that ends with the lab at the latest."""
        self.children.append(child)
        return child.start()

    def end(self):
        for child in reversed(self.children):
            child.stop()
        self.children = []

    def swarm(self, *arguments, timeout=900, check=False):
        """tests/lib/swarm.c to its end: (its numbers, problems)."""
        done = run([self.program("swarm"), *map(str, arguments)], timeout=timeout, check=check)
        lines = done.stdout.decode().splitlines()
        if not lines or not lines[-1].startswith("reads="):
            raise Failure(f"swarm: {done.stderr.decode(errors='replace')[-1000:]}")
        problems = done.stderr.decode(errors="replace").splitlines()
        got = numbers(lines[-1])
        if (done.returncode != 0 or got["failed"]) and not problems:
            problems = [f"swarm: exit {done.returncode}, {lines[-1]}"]
        return got, problems
