# Processes of a test: each started by us, watched by its id, and ended by us.
#
# Invariants:
#  1. Every process dies with this one (PR_SET_PDEATHSIG), so that a killed run leaves nothing
#     behind.
#  2. Waiting is polling a condition with a deadline; what timed out is told with the tail of the
#     log.
#
# SPDX-License-Identifier: Apache-2.0
import ctypes
import os
import random
import re
import signal
import socket
import subprocess
import threading
import time
import urllib.request

PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


class Failure(Exception):
    """Something that a test needs did not happen; the text says what."""


def wait_until(what, condition, seconds, step=0.05):
    """Polls until condition() is true and returns its value."""
    deadline = time.monotonic() + seconds
    while True:
        last = time.monotonic() > deadline       # before the look: a pause behind it is no answer
        value = condition()
        if value:
            return value
        if last:
            raise Failure(f"{what}: not within {seconds} s")
        time.sleep(step)


_given, _giving = set(), threading.Lock()


def free_port():
    """A port below the range that the kernel gives to connections; none twice in a process, as who got it may not listen yet."""
    for _ in range(1000):
        port = random.randrange(20000, 32000)
        with _giving:
            if port in _given:
                continue
            _given.add(port)
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise Failure("no free port")


def tail(path, lines=15):
    try:
        with open(path, errors="replace") as f:
            return "".join(f.readlines()[-lines:])
    except OSError as e:
        return str(e)


def clean_environment(**more):
    """Ours without anything that configures an AWS tool, the server or a proxy."""
    dropped = ("AWS_", "HEADPOND_", "RCLONE_", "BOTO_", "CEPH_")
    keep = {k: v for k, v in os.environ.items()
            if not k.startswith(dropped) and not k.lower().endswith("_proxy")}
    keep.update({"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/nonexistent",
                 "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent", "NO_PROXY": "127.0.0.1"})
    keep.update(more)
    return keep


def run(argv, timeout=120, check=True, **more):
    """A command to its end; its output is in the Failure if it fails."""
    more.setdefault("env", clean_environment())
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                              **more)
    except subprocess.TimeoutExpired:
        raise Failure(f"not ended after {timeout} s: {' '.join(argv)}") from None
    if check and done.returncode != 0:
        text = (done.stdout + done.stderr).decode(errors="replace")[-2000:]
        raise Failure(f"{' '.join(argv)}: exit {done.returncode}: {text}")
    return done


class Told:
    """What a server says of itself on its control port, self.admin."""

    def admin_get(self, target, quiet=False):
        """The body of the answer; quiet: None when there is none."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{target}", timeout=10) as r:
                return r.read().decode()
        except OSError:
            if quiet:
                return None
            raise

    def metric(self, name, labels=""):
        """The sum of its series whose line has these labels."""
        total = 0
        for line in self.admin_get("/metrics").splitlines():
            if re.match(rf"headpond_{name}(\{{|\s)", line) and labels in line:
                total += float(line.split()[-1])
        return total


class Process:
    """One child with its output in a log file."""

    def __init__(self, name, argv, log, env=None, user=None):
        self.name, self.argv, self.log = name, argv, log
        self.env, self.user, self.child = env, user, None

    def start(self):
        parent = os.getpid()

        def before_exec():
            if self.user:
                os.setgroups([])
                os.setgid(self.user.pw_gid)
                os.setuid(self.user.pw_uid)
            LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # behind setuid, which clears it
            if os.getppid() != parent:
                os._exit(127)

        with open(self.log, "ab") as out:
            self.child = subprocess.Popen(
                self.argv, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
                env=self.env or clean_environment(), preexec_fn=before_exec)
        return self

    @property
    def pid(self):
        return self.child.pid

    def alive(self):
        return self.child is not None and self.child.poll() is None

    def require_alive(self):
        if not self.alive():
            code = self.child.returncode if self.child else "not started"
            raise Failure(f"{self.name} ended (exit {code}):\n{tail(self.log)}")

    def wait_ready(self, condition, seconds):
        def ready():
            self.require_alive()
            return condition()
        try:
            return wait_until(f"{self.name} ready", ready, seconds)
        except Failure as e:
            self.require_alive()       # says more, if that is why
            raise Failure(f"{e}\n{tail(self.log)}") from None

    def signal(self, number):
        if self.alive():
            self.child.send_signal(number)

    def stop(self, seconds=30):
        """SIGTERM, then SIGKILL when it takes too long; returns the exit status."""
        if self.child is None:
            return None
        self.signal(signal.SIGTERM)
        try:
            return self.child.wait(seconds)
        except subprocess.TimeoutExpired:
            return self.kill()

    def kill(self):
        if self.alive():
            self.child.kill()
        return self.child.wait() if self.child else None

    def memory_kib(self, field):
        """VmHWM, VmRSS, ... of /proc/PID/status."""
        with open(f"/proc/{self.pid}/status") as f:
            for line in f:
                if line.startswith(field + ":"):
                    return int(line.split()[1])
        raise Failure(f"no {field} of {self.name}")
