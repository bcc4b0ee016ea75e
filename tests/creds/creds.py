# Credentials from everybody who gives them, expiring within seconds while a load runs: not one
# request may fail, and nothing that is secret may be shown.
#
#   creds.py [--program PATH] [TEST...]     the last line is "creds: N passed, N failed"
#
# SPDX-License-Identifier: Apache-2.0
import argparse
import http.client
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "rgw"), os.path.join(HERE, "..", "drain")]
import procs                           # noqa: E402
from drain import Authority            # noqa: E402
from issuers import Container, Metadata, Sts  # noqa: E402
from store import Keys, Store, content  # noqa: E402

ROLE, DEEP = "arn:aws:iam::123456789012:role/path/reader", "arn:aws:iam::123456789012:role/deep"
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def want(good, what):
    if not good:
        raise procs.Failure(str(what)[-2000:])


class World:
    def __init__(self, where, program):
        self.where, self.program = where, program
        self.keys, self.servers, self.names = Keys(), [], itertools.count()
        self.mine = threading.local()  # servers of the test of this thread
        for address in ("169.254.169.254", "169.254.170.2"):
            procs.run(["ip", "address", "add", f"{address}/32", "dev", "lo"])
        self.metadata = Metadata(self.keys, "169.254.169.254", 80)
        self.runtime = Container(self.keys, address="169.254.170.2", port=80)

    def path(self, name):
        return os.path.join(self.where, name)

    def write(self, name, text, mode=0o600):
        new = self.path(name + ".new")
        with open(new, "w") as f:
            f.write(text)
        os.chmod(new, mode)
        os.replace(new, self.path(name))
        return self.path(name)

    def server(self, config="", credentials="", env=None, store=None, **options):
        s = Server(self, f"s{next(self.names)}", store or Store(self.keys), options)
        s.write_files(config, credentials)
        s.env.update(env or {})
        self.servers.append(s)
        self.mine.servers.append(s)
        return s


class Server:
    def __init__(self, world, name, store, options):
        self.world, self.name, self.store, self.options = world, name, store, options
        self.port, self.admin_port = procs.free_port(), procs.free_port()
        self.log = world.path(f"{name}.log")
        self.env = {"AWS_CONFIG_FILE": world.path(f"{name}.config"), "AWS_REGION": "eu-central-1",
                    "AWS_SHARED_CREDENTIALS_FILE": world.path(f"{name}.credentials")}
        self.shown = []                # what the server told, for the search of canaries
        self.process = None

    def write_files(self, config, credentials):
        self.world.write(f"{self.name}.config", config)
        self.world.write(f"{self.name}.credentials", credentials)

    def argv(self):
        sets = {"upstream.endpoint": self.store.url, "cache.dirs": self.world.path(self.name),
                "cache.size": "128MiB", "cache.memory": "128MiB", "cache.min_free": "64MiB",
                "server.workers": "2", "server.listen": f"127.0.0.1:{self.port}",
                "admin.listen": f"127.0.0.1:{self.admin_port}", "upstream.retries": "0",
                "server.allow_root": str(os.geteuid() == 0).lower(), **self.options}
        return [self.world.program, *(f"--set={k}={v}" for k, v in sets.items())]

    def environment(self):
        env = procs.clean_environment()
        del env["AWS_EC2_METADATA_DISABLED"]
        return {**env, **self.env}

    def start(self, ready=True):
        self.process = procs.Process(self.name, self.argv(), self.log, self.environment())
        self.process.start()
        procs.wait_until("the admin port", self.is_alive, 20, 0.02)
        if ready:
            procs.wait_until(f"{self.name} ready", self.is_ready, 15, 0.02)
        return self

    def is_alive(self):
        self.process.require_alive()
        return self.admin("/livez") is not None

    def is_ready(self):
        return self.admin("/readyz") is not None

    def admin(self, path):
        try:
            with OPENER.open(f"http://127.0.0.1:{self.admin_port}{path}", timeout=5) as r:
                text = r.read().decode(errors="replace")
        except OSError:
            return None
        self.shown.append(text)
        return text

    def status(self):
        return json.loads(self.admin("/v1/status"))["upstream"]

    def metric(self, name):
        found = re.search(rf"^{re.escape('headpond_' + name)} (\S+)$", self.admin("/metrics"), re.M)
        return float(found.group(1)) if found else 0.0

    def get(self, key):
        """Status and body of an object."""
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            c.request("GET", f"/b/{key}")
            r = c.getresponse()
            body = r.read()
            if r.status != 200:
                self.shown.append(body.decode(errors="replace"))
            return r.status, body
        finally:
            c.close()

    def good(self, key):
        status, body = self.get(key)
        return status == 200 and body == content(f"/b/{key}")

    def logged(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def reload(self, result):
        name = f'config_reloads_total{{result="{result}"}}'
        before = self.metric(name)
        self.process.signal(signal.SIGHUP)
        procs.wait_until(f"reload {result}", lambda: self.metric(name) > before, 15, 0.02)

    def look_around(self):
        """Everything that the server shows goes to `shown`."""
        for path in ("/metrics", "/v1/status", "/v1/config", "/", "/readyz?verbose"):
            self.admin(path)
        for verb in ("status", "doctor"):
            done = procs.run([self.world.program.replace("headpondd", "headpond"), verb, "--server",
                              f"http://127.0.0.1:{self.admin_port}"], check=False)
            self.shown.append((done.stdout + done.stderr).decode(errors="replace"))
        return self.shown[-1]

    def end(self):
        if self.process and self.process.alive():
            self.look_around()
            self.process.signal(signal.SIGTERM)
            code = self.process.child.wait(20)
            want(code == 0, f"{self.name} ended with {code}: {procs.tail(self.log)}")


class Load:
    """Clients that ask for a new object each time, so that each request is signed."""

    def __init__(self, server, clients=2):
        self.server, self.over, self.done, self.failures = server, False, 0, []
        self.numbers = itertools.count()
        self.threads = [threading.Thread(target=self.run, daemon=True) for _ in range(clients)]

    def run(self):
        while not self.over:
            key = f"load-{next(self.numbers)}"
            try:
                if not self.server.good(key):
                    self.failures.append((key, self.server.get(key)))
            except OSError as e:
                self.failures.append((key, e))
            self.done += 1
            time.sleep(0.02)           # the pace of the load, nothing is waited for

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.over = True
        for t in self.threads:
            t.join(30)


def expect_rotation(server, sets=4):
    """Until the store has seen so many access keys; nobody may have been refused."""
    with Load(server) as load:
        procs.wait_until(f"{server.name}: {sets} access keys",
                         lambda: len(server.store.order) >= sets or load.failures, 40)
    want(not load.failures, load.failures[:3])
    want(load.done > 20, f"{load.done} requests are no load")
    want(not server.store.refused, server.store.refused)
    want(server.metric('credentials_refreshes_total{result="failed"}') == 0, "a failed refresh")
    want(server.metric("credentials_expire_time_seconds") > time.time(), "the gauge of the expiry")
    shown = server.status()
    want(shown["credentials_renewed"] and "credentials_error" not in shown, shown)
    return shown["credentials"]


# ---- who gives them ----
def role_settings(w, static=None):
    """An STS with a role that takes a static pair; credentials file and config for it."""
    sts, static = Sts(w.keys), static or w.keys.mint("AKIA")
    sts.roles[ROLE] = {"who": static["access"], "ExternalId": "out side/+", "DurationSeconds": "900",
                       "RoleSessionName": "the-session"}
    credentials = (f"[base]\naws_access_key_id = {static['access']}\n"
                   f"aws_secret_access_key = {static['secret']}\n")
    config = (f"[default]\nregion = eu-north-1\nrole_arn = {ROLE}\nsource_profile = base\n"
              "external_id = out side/+\nduration_seconds = 900\nrole_session_name = the-session\n")
    return sts, config, credentials


def a_role(w):
    sts, config, credentials = role_settings(w)
    s = w.server(config, credentials, **{"upstream.sts_endpoint": sts.url}).start()
    want(expect_rotation(s) == "role reader (profile default)", s.status())
    want(set(s.store.order) <= set(sts.given), "only the role's keys sign for the store")


def a_role_over_tls(w):
    """An STS of one's own behind a private authority; its answers come in small chunks. Without the
    authority nothing is asked."""
    sts, config, credentials = role_settings(w)
    sts.chunked = True
    authority = Authority(w.where)
    authority.issue(w.path("sts.pem"), w.path("sts.key"))
    sts.speak_tls(w.path("sts.pem"), w.path("sts.key"))
    trust = {"upstream.sts_endpoint": sts.url.replace("http:", "https:"),
             "upstream.ca_file": w.path("ca.pem")}
    s = w.server(config, credentials, **trust).start()
    expect_rotation(s)
    s.end()
    asked = sts.asked["AssumeRole"]
    del trust["upstream.ca_file"]
    s = w.server(config, credentials, **trust).start(ready=False)
    want("TLS: " in s.status()["credentials_error"], s.status())
    want(sts.asked["AssumeRole"] == asked, "somebody who is not trusted was asked")


def a_role_of_a_role(w):
    sts, config, credentials = role_settings(w)
    sts.roles[DEEP] = {"who": "*"}
    config += f"[profile deep]\nrole_arn = {DEEP}\nsource_profile = default\n"
    s = w.server(config, credentials, **{"upstream.sts_endpoint": sts.url,
                                         "upstream.profile": "deep"}).start()
    want(expect_rotation(s) == "role deep (profile deep)", s.status())
    want(sts.asked["AssumeRole"] >= 8 and not sts.asked["AccessDenied"], sts.asked)


def a_web_identity(w):
    """The file has another token at each refresh, and two servers share it."""
    sts, store = Sts(w.keys), Store(w.keys)
    sts.roles[ROLE] = {"who": "*", "RoleSessionName": "pod"}
    name = "web-token"

    def turn():
        sts.token = w.keys.canary("identity")
        return w.write(name, sts.token + "\n")

    env = {"AWS_WEB_IDENTITY_TOKEN_FILE": turn(), "AWS_ROLE_ARN": ROLE,
           "AWS_ROLE_SESSION_NAME": "pod"}
    both = [w.server(env=env, store=store, **{"upstream.sts_endpoint": sts.url}).start()
            for _ in range(2)]
    turn()
    with Load(both[1]) as load:
        want(expect_rotation(both[0], 8) == "web identity role reader", both[0].status())
    want(not load.failures, load.failures[:3])


def process_command(w, issuer, name):
    """A command with blanks and quotes in its words."""
    tool = w.write(f"{name} tool.py", (
        "import sys, urllib.request\n"
        "assert sys.argv[1:] == ['$HOME', 'a \"b\" c', ''], sys.argv\n"
        f"print({w.keys.canary('stderr')!r}, file=sys.stderr)\n"
        f"url = {issuer.url + '/process'!r}\n"
        "sys.stdout.write(urllib.request.urlopen(url, timeout=5).read().decode())\n"))
    return f"/usr/bin/python3 -B \"{tool}\" $HOME 'a \"b\" c' ''"


def a_process(w):
    issuer = Container(w.keys)
    issuer.life = 6
    command = process_command(w, issuer, "good")
    s = w.server(f"[default]\ncredential_process = {command}\n").start()
    want(expect_rotation(s) == "credential_process (profile default)", s.status())


def a_container(w):
    issuer = Container(w.keys)
    issuer.authorization = w.keys.canary("authorization")
    file = w.write("container-token", issuer.authorization)
    s = w.server(env={"AWS_CONTAINER_CREDENTIALS_FULL_URI": issuer.url + "/creds?x=1",
                      "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": file}).start()
    want(expect_rotation(s) == "container endpoint", s.status())
    want(issuer.asked["/creds?x=1"] >= 4, issuer.asked)


def a_container_of_ecs(w):
    w.runtime.authorization = w.keys.canary("authorization")
    s = w.server(env={"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/creds",
                      "AWS_CONTAINER_AUTHORIZATION_TOKEN": w.runtime.authorization}).start()
    expect_rotation(s)
    want(w.runtime.asked["/v2/creds"] >= 4, w.runtime.asked)


def an_instance(w):
    s = w.server().start()
    want(expect_rotation(s) == "EC2 instance role node-role", s.status())
    want(not w.metadata.asked["without a session"], w.metadata.asked)


ROTATIONS = (a_role, a_role_over_tls, a_role_of_a_role, a_web_identity, a_process, a_container,
             a_container_of_ecs, an_instance)


# ---- what may go wrong ----
def a_refresh_that_fails_harms_nobody_until_the_end(w):
    sts, config, credentials = role_settings(w)
    sts.life = 10
    s = w.server(config, credentials, **{"upstream.sts_endpoint": sts.url}).start()
    for mode in ("refuse", "garbage", "html", "huge", "cut"):
        sts.set_mode(mode)
        failed = s.metric('credentials_refreshes_total{result="failed"}')
        if mode == "refuse":
            with Load(s) as load:
                procs.wait_until("a failed refresh", lambda: s.metric(
                    'credentials_refreshes_total{result="failed"}') > failed, 20)
                want(s.status()["credentials_expire_s"] > time.time(), "still good")
            want(not load.failures, load.failures[:3])
            want("STS (AssumeRole) answered 403 AccessDenied" in s.status()["credentials_error"],
                 s.status())
            want("renewing them fails" in s.look_around(), s.shown[-1])
        else:
            procs.wait_until(f"another ({mode})", lambda: s.metric(
                'credentials_refreshes_total{result="failed"}') > failed, 70)
            want("STS (AssumeRole)" in s.status()["credentials_error"], s.status())
    procs.wait_until("the end", lambda: s.status()["credentials_expire_s"] < time.time(), 20)
    status, body = s.get("too-late")
    want(status == 503 and b"no usable credentials" in body, (status, body))
    want(s.is_ready(), "what is cached is still served")
    want("have expired" in s.look_around(), s.shown[-1])
    want(not s.store.refused, "nothing expired was sent")
    sts.set_mode("ok", 600)
    procs.wait_until("it works again", lambda: s.good("again"), 70)
    want("credentials_error" not in s.status(), s.status())


def a_start_without_an_answer_ends_and_heals(w):
    """The start waits 10 s, then the server runs, not ready; the first answer makes it so."""
    sts, config, credentials = role_settings(w)
    sts.set_mode("late")
    s = w.server(config, credentials, **{"upstream.sts_endpoint": sts.url})
    began = time.monotonic()
    s.start(ready=False)
    took = time.monotonic() - began
    want(8 < took < 14, f"{took} s")
    want(not s.is_ready(), "ready without credentials")
    status, body = s.get("early")
    want(status == 503 and b"no usable credentials" in body, (status, body))
    want("cannot be had" in s.look_around(), s.shown[-1])
    want(not s.store.refused and not s.store.seen, "nothing was sent unsigned")
    sts.set_mode("ok")
    procs.wait_until("ready", s.is_ready, 70)
    want(s.good("early"), "no object")


def a_hop_limit_is_named(w):
    w.metadata.set_mode("late")
    s = w.server(f"[default]\nrole_arn = {ROLE}\ncredential_source = Ec2InstanceMetadata\n")
    s.start(ready=False)
    procs.wait_until("words", lambda: "hop limit" in s.status().get("credentials_error", ""), 15)
    want(not s.is_ready(), "ready")
    for mode, words in (("off", "switched off"), ("old", "version 1 is never used"),
                        ("garbage", "session token")):
        w.metadata.set_mode(mode)
        procs.wait_until(words, lambda: words in s.status().get("credentials_error", ""), 70)


def nothing_configured_goes_unsigned(w):
    """Instance metadata that is not there, or has no role, is no mistake."""
    store = Store(w.keys, public=True)
    w.metadata.set_mode("ok")
    before = sum(w.metadata.asked.values())
    for env in ({"AWS_EC2_METADATA_DISABLED": "true"},
                {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}):
        s = w.server(env=env, store=store).start()
        want(s.good("public"), "no object")
        want("go unsigned" in s.status()["warning"], s.status())
        want(s.metric('credentials_refreshes_total{result="failed"}') == 0, "failures")
    want(list(store.seen) == [None], store.seen)
    want(sum(w.metadata.asked.values()) == before, "metadata was asked")
    pair = w.keys.mint("AKIA")
    s = w.server(env={"AWS_ACCESS_KEY_ID": pair["access"],
                      "AWS_SECRET_ACCESS_KEY": pair["secret"]}).start()
    want(s.good("x") and s.status()["credentials"] == "environment", s.status())
    want(sum(w.metadata.asked.values()) == before, "metadata was asked")


def plain_http_stays_near(w):
    """A container's endpoint elsewhere would get the token in the clear: nobody is contacted."""
    w.keys.canaries.add("canaryfarauthorization")
    s = w.server(env={"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://198.51.100.7/creds",
                      "AWS_CONTAINER_AUTHORIZATION_TOKEN": "canaryfarauthorization"})
    s.start(ready=False)
    want("plain HTTP to 198.51.100.7 is not allowed" in s.status()["credentials_error"], s.status())
    sts, config, credentials = role_settings(w)
    s = w.server(config, credentials, **{"upstream.sts_endpoint": "http://198.51.100.7"})
    s.start(ready=False)
    want("plain HTTP to 198.51.100.7 is not allowed" in s.status()["credentials_error"], s.status())


def processes_that_misbehave(w):
    issuer = Container(w.keys)
    bad = {"exit 3": (f"print({w.keys.canary('stdout')!r}); sys.exit(3)", "ended with 3"),
           "too much": ("sys.stdout.write('x' * 10_000_000)", "more than 64 KiB"),
           "a signal": ("os.kill(os.getpid(), 9)", "signal 9"),
           "no JSON": (f"print({w.keys.canary('stdout')!r})", "not a JSON object"),
           "an old version": ("print('{\"Version\": 2}')", "\"Version\" is not 1")}
    tool = w.path("bad tool.py")
    s = w.server(f"[default]\ncredential_process = /usr/bin/python3 \"{tool}\"\n")
    for number, (name, (code, words)) in enumerate(bad.items()):
        w.write("bad tool.py", f"import os, sys\n{code}\n")
        if number == 0:
            s.start(ready=False)
        procs.wait_until(name, lambda: words in s.status().get("credentials_error", ""), 70)
    w.write("bad tool.py", (
        "import sys, urllib.request\n"
        f"sys.stdout.write(urllib.request.urlopen({issuer.url + '/process'!r})"
        ".read().decode())\n"))
    procs.wait_until("ready", s.is_ready, 70)
    want(s.good("x"), "no object")


def what_cannot_be_done_is_said_at_the_check(w):
    cases = {
        "mfa_serial = arn:x\nrole_arn = arn:y\nsource_profile = default": "nobody is there",
        "sso_session = x": "aws configure export-credentials --profile default",
        "sso_start_url = https://x": "credential_process",
        "role_arn = arn:x": "source_profile and credential_source",
        "role_arn = arn:x\nsource_profile = other\n[profile other]\nrole_arn = arn:z\n"
        "source_profile = default": "in a circle",
        "role_arn = arn:x\nsource_profile = nobody": "in neither file",
        "role_arn = arn:x\ncredential_source = Moon": "credential_source",
    }
    for config, words in cases.items():
        s = w.server(f"[default]\n{config}\n")
        done = subprocess.run([*s.argv(), "check"], env=s.environment(), capture_output=True,
                              timeout=20, check=False)
        text = (done.stdout + done.stderr).decode()
        want(done.returncode == 2 and words in text, f"{config}: {done.returncode} {text}")


def reloads_read_profiles_anew(w):
    pairs = [w.keys.mint("AKIA") for _ in range(3)]
    lines = [f"[default]\naws_access_key_id = {p['access']}\naws_secret_access_key = {p['secret']}\n"
             for p in pairs]
    sts, config, credentials = role_settings(w, pairs[2])
    s = w.server("", lines[0], **{"upstream.sts_endpoint": sts.url}).start()
    want(s.good("a") and s.store.order == [pairs[0]["access"]], s.store.order)
    s.write_files("", lines[1])
    want(s.good("b") and len(s.store.order) == 1, "nobody said reload")
    s.reload("applied")
    want(s.good("c") and s.store.order[1:] == [pairs[1]["access"]], s.store.order)
    sts.set_mode("refuse")             # the new way must work, or nothing changes
    s.write_files(config, credentials)
    s.reload("refused")
    want("AccessDenied" in s.logged(), s.logged()[-500:])
    want(s.good("d") and len(s.store.order) == 2, s.store.order)
    sts.set_mode("ok", 600)
    with Load(s) as load:
        s.reload("applied")
        procs.wait_until("the role signs", lambda: len(s.store.order) == 3, 10)
        s.reload("applied")            # the same way: asked again, and nothing breaks
        sts.set_mode("refuse")
        s.reload("applied")            # a failure keeps what works
    want(not load.failures and not s.store.refused, (load.failures[:3], s.store.refused))
    want("credentials_error" in s.status(), s.status())
    sts.set_mode("ok")
    s.write_files("", lines[0])        # and back to a pair: nobody is asked any more
    s.reload("applied")
    want(s.good("e") and not s.status()["credentials_renewed"], s.status())
    want("credentials_error" not in s.status(), s.status())


def an_end_does_not_wait_for_who_is_silent(w):
    sts, config, credentials = role_settings(w)
    s = w.server(config, credentials, **{"upstream.sts_endpoint": sts.url}).start()
    sts.set_mode("late")
    asked = sts.asked["AssumeRole"]
    procs.wait_until("asked", lambda: sts.asked["AssumeRole"] > asked, 20)
    began = time.monotonic()
    s.end()
    want(time.monotonic() - began < 5, "it waited")
    sts.set_mode("ok")


def no_secret_is_shown(w):
    """Everything that any server of this run wrote or answered."""
    want(len(w.keys.canaries) > 100, f"only {len(w.keys.canaries)} canaries")
    for s in w.servers:
        texts = s.shown + ([s.logged()] if os.path.exists(s.log) else [])
        for text in texts:
            found = [c for c in w.keys.canaries if c in text]
            lines = [x for x in text.splitlines() if any(c in x for c in found)]
            want(not found, f"{s.name} shows {found[:1]}: {lines[:1]}")
        log = texts[-1] if texts else ""
        want("Sanitizer" not in log and "panic" not in log, log[-1000:])


TROUBLES = (a_refresh_that_fails_harms_nobody_until_the_end,
            a_start_without_an_answer_ends_and_heals, plain_http_stays_near,
            processes_that_misbehave, what_cannot_be_done_is_said_at_the_check,
            reloads_read_profiles_anew, an_end_does_not_wait_for_who_is_silent)
IN_TURN = (nothing_configured_goes_unsigned, a_hop_limit_is_named)  # they share the metadata


class Run:
    def __init__(self, world, chosen):
        self.world, self.chosen = world, chosen
        self.passed = self.failed = 0
        self.lock = threading.Lock()

    def one(self, test):
        if self.chosen and test.__name__ not in self.chosen:
            return
        began, mine = time.monotonic(), []
        self.world.mine.servers = mine
        try:
            test(self.world)
            for s in mine:             # here: a server dies with the thread that started it
                s.end()
            good, words = True, ""
        except Exception as e:         # noqa: BLE001 - told and counted
            good, words = False, f": {type(e).__name__} {e}"
        for s in mine:
            if s.process:
                s.process.kill()
        with self.lock:
            self.passed += good
            self.failed += not good
            print(f"{'ok' if good else 'NOT OK'} {test.__name__} "
                  f"({time.monotonic() - began:.1f} s){words}", flush=True)

    def together(self, tests):
        threads = [threading.Thread(target=self.one, args=(t,)) for t in tests]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/release/headpondd")
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()
    procs.run(["ip", "link", "set", "lo", "up"])
    where = tempfile.mkdtemp(prefix="headpond-creds-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    run = Run(World(where, os.path.abspath(options.program)), options.tests)
    try:
        run.together(ROTATIONS)
        run.together(TROUBLES)
        for test in IN_TURN:
            run.one(test)
        if not options.tests:
            run.one(no_secret_is_shown)
    finally:
        shutil.rmtree(where, ignore_errors=True)
    print(f"creds: {run.passed} passed, {run.failed} failed")
    return 1 if run.failed or not run.passed else 0


sys.exit(main())
