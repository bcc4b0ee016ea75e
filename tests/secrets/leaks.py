# No secret leaves the server: not in what it writes, answers, keeps on disk, or leaves when it dies.
# And who has no right to a bucket learns nothing about it.
#
# Secrets that can be recognised are planted wherever one may stand; all that the server shows while
# clients do everything right and wrong is kept, and at the end searched for all of them.
#
#   leaks.py [--program PATH] [TEST...]     the last line is "secrets: N passed, N failed"
#
# SPDX-License-Identifier: Apache-2.0
import argparse
import base64
import hashlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "rgw")]
import procs                           # noqa: E402
import rights                          # noqa: E402
from canaries import MARK, Canaries    # noqa: E402
from client import Client, Key, without_own  # noqa: E402
from upstream import Store             # noqa: E402

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
ADMIN_PATHS = ("/", "/metrics", "/livez", "/readyz?verbose", "/v1/status", "/v1/config", "/v1/nothing",
               "/debug/vars", "/v1/status?token=x")
ECHOES = ("fail-s3-403", "fail-s3-400", "fail-token-400", "fail-token-403", "fail-page-403",
          "fail-json-400", "fail-page-500", "fail-s3-503", "fail-redirect", "fail-reset", "fail-cut",
          "fail-garbage")


def want(good, what):
    if not good:
        raise procs.Failure(str(what)[-3000:])


class World:
    def __init__(self, where, program):
        self.where, self.program = where, program
        self.canaries, self.servers, self.shown = Canaries(), [], []
        self.store = Store(self.canaries)

    def path(self, name):
        return os.path.join(self.where, name)

    def write(self, name, text, mode=0o600):
        with open(self.path(name), "w") as f:
            f.write(text)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def show(self, what, data):
        self.shown.append((what, data if isinstance(data, bytes) else data.encode()))

    def run(self, argv, env=None):
        """A command; both its outputs are searched later. Returns the exit status."""
        done = subprocess.run(argv, env=env or procs.clean_environment(), capture_output=True,
                              timeout=30, check=False)
        self.show(" ".join(argv)[-200:], done.stdout + done.stderr)
        return done.returncode


class Server:
    def __init__(self, world, name, env, **options):
        self.world, self.name, self.tls = world, name, "server.tls_cert" in options
        self.port, self.admin_port = procs.free_port(), procs.free_port()
        self.log, self.cache = world.path(f"{name}.log"), world.path(name)
        self.env = {**procs.clean_environment(), **env}
        self.options = {
            "upstream.endpoint": world.store.url, "cache.dirs": self.cache, "cache.size": "128MiB",
            "cache.memory": "128MiB", "cache.min_free": "64MiB", "server.workers": "1",
            "server.listen": f"127.0.0.1:{self.port}", "upstream.retries": "1",
            "admin.listen": f"127.0.0.1:{self.admin_port}",
            "log.level": "debug", "log.access": "all",
            "server.allow_root": str(os.geteuid() == 0).lower(), **options}
        self.clients = []
        world.servers.append(self)

    def argv(self):
        return [self.world.program, *(f"--set={k}={v}" for k, v in self.options.items())]

    def start(self, ready=True):
        self.process = procs.Process(self.name, self.argv(), self.log, self.env).start()
        self.process.wait_ready(lambda: self.admin("/livez" if not ready else "/readyz"), 20)
        return self

    def client(self):
        self.clients.append(Client(self.port, self.world.canaries, self.tls))
        return self.clients[-1]

    def admin(self, path, **fields):
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin_port}{path}", headers=fields)
        try:
            with OPENER.open(request, timeout=5) as r:
                data, good = str(r.headers).encode() + r.read(), True
        except urllib.error.HTTPError as e:
            data, good = str(e.headers).encode() + e.read(), False
        except OSError:
            return None
        self.world.show(f"{self.name} admin {path}", data)
        return data if good else None

    def metric(self, name):
        found = re.search(rf"^{re.escape('headpond_' + name)} (\S+)$",
                          self.admin("/metrics").decode(), re.M)
        return float(found.group(1)) if found else 0.0

    def reloads(self, *results):
        return sum(self.metric(f'config_reloads_total{{result="{r}"}}') for r in results)

    def reload(self, *results):
        before = self.reloads(*results)
        self.process.signal(signal.SIGHUP)
        procs.wait_until(f"reload {results}", lambda: self.reloads(*results) > before, 15, 0.02)

    def look_around(self):
        """Everything that shows the server from outside."""
        w = self.world
        lost = w.canaries.plant("admin-bearer")
        for path in ADMIN_PATHS:
            self.admin(path)
            self.admin(path, Authorization=f"Bearer {lost}", Cookie=f"token={lost}")
        self.admin("/v1/status", Origin="http://elsewhere")
        self.admin("/v1/status", Host="a:b@c")
        tool = w.program.replace("headpondd", "headpond")
        for words in (("status",), ("status", "--json"), ("doctor",), ("doctor", "--json"), ("env",)):
            w.run([tool, *words, "--server", f"http://127.0.0.1:{self.admin_port}"])
        w.run([*self.argv(), "check"], self.env)
        w.run([*self.argv(), "--print-config"], self.env)
        with open(f"/proc/{self.process.pid}/cmdline", "rb") as f:
            w.show(f"{self.name} cmdline", f.read())

    def end(self):
        if self.process.alive():
            want(self.process.stop() == 0, f"{self.name}: {procs.tail(self.log)}")


# ---- the load ----
def sse(w):
    raw = (MARK + hashlib.sha256(os.urandom(8)).hexdigest()[:24]).encode()
    return {"x-amz-server-side-encryption-customer-algorithm": "AES256",
            "x-amz-server-side-encryption-customer-key": base64.b64encode(raw).decode(),
            "x-amz-server-side-encryption-customer-key-md5":
                base64.b64encode(hashlib.md5(raw).digest()).decode()}


def good_requests(w, s, key):
    """Every kind of request that works; says how many."""
    c, body = s.client(), os.urandom(100_000)
    complete = (b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>\"x\"</ETag></Part>"
                b"</CompleteMultipartUpload>")
    doomed = b"<Delete><Object><Key>d</Key></Object></Delete>"
    md5 = {"content-md5": base64.b64encode(hashlib.md5(doomed).digest()).decode()}
    done = [c.ask(key, "PUT", "/b/k", body=body), c.ask(key, "GET", "/b/k"), c.ask(key, "GET", "/b/k"),
            c.ask(key, "HEAD", "/b/k"), c.ask(key, "GET", "/b/k", fields={"range": "bytes=5-99"}),
            c.stream(key, "/b/streamed", body), c.ask(key, "GET", "/b/streamed"),
            c.ask(key, "POST", "/b/m", [("uploads", "")]),
            c.ask(key, "PUT", "/b/m", [("partNumber", "1"), ("uploadId", "U1")], body=body),
            c.ask(key, "POST", "/b/m", [("uploadId", "U1")], body=complete),
            c.ask(key, "PUT", "/b/copy", fields={"x-amz-copy-source": "/b/k"}),
            c.ask(key, "DELETE", "/b/copy"), c.ask(key, "POST", "/b", [("delete", "")], md5, doomed),
            c.ask(key, "GET", "/b", [("list-type", "2")]), c.ask(key, "GET", "/"),
            c.ask(key, "GET", "/b/k", [("acl", "")]), c.presigned(key, "GET", "/b/k"),
            c.presigned(key, "GET", "/b/k", fields={"cookie": w.canaries.plant("cookie")}),
            c.presigned(key, "PUT", "/b/presigned", body=body), c.presigned(key, "HEAD", "/b/k"),
            c.ask(key, "PUT", "/b/encrypted", fields=sse(w), body=body),
            c.ask(key, "GET", "/b/encrypted", fields=sse(w))]
    want(all(status in (200, 204, 206) for status, _ in done), [d[0] for d in done])


def refused_requests(w, s, key):
    c, lost = s.client(), w.canaries.plant
    wrong, nobody = Key(key.access, lost("wrong-secret")), Key("AKNOBODY", lost("nobody"))
    bare = {"host": c.host}
    # Where nobody has to sign it is a field like any other, and passed on.
    stray = lost("unsigned") if "auth.keys_file" in s.options else "private"
    done = [c.ask(wrong, "GET", "/b/k"), c.ask(wrong, "GET", "/b/k", fields=sse(w)),
            c.ask(wrong, "GET", "/b/k", fields={"x-amz-security-token": lost("token")}),
            c.ask(wrong, "GET", "/b/k", fields={"cookie": lost("signed-cookie")}),
            c.presigned(wrong, "GET", "/b/k"), c.presigned(key, "GET", "/b/k", ago=7200),
            c.presigned(key, "GET", "/b/k", [("X-Amz-Security-Token", lost("query-token"))]),
            c.presigned(wrong, "GET", "/b/k", sorted(sse(w).items())),
            c.ask(key, "GET", "/b/k", ago=7200), c.ask(nobody, "GET", "/b/k"),
            c.ask(key, "GET", "/b/k", fields={"x-amz-security-token": lost("token")}),
            c.ask(key, "GET", "/b/k", unsigned={"x-amz-acl": stray}),
            c.ask(key, "GET", "/b/k", unsigned=sse(w)), c.version_2(key, "/b/k"),
            c.version_2(wrong, "/b/k"), c.stream(key, "/b/spoilt", os.urandom(100_000), spoil=True),
            c.ask(key, "PUT", "/b/k", body=b"x", payload="0" * 64)]
    signed, _ = c.sign(key, "GET", "/b/k")
    made = signed["authorization"]
    for text in (f"Bearer {lost('bearer')}", lost("bare"), f"AWS4-HMAC-SHA256 {lost('malformed')}",
                 "Basic " + base64.b64encode(f"user:{lost('password')}".encode()).decode(),
                 f"AWS4-HMAC-SHA256 Credential={lost('scope')}, SignedHeaders=host, Signature=00",
                 made.replace("HMAC-SHA256", "ECDSA-P256-SHA256", 1), made[:-1], made + " x",
                 made.replace("Signature=", f"Signature={lost('signature')}"),
                 f"AWS {key.access}:{lost('version-2')}", f"AWS {lost('version-2-access')}"):
        own = text.partition("Signature=")[2] or text.rpartition(":")[2]
        done.append(c.send("GET", "/b/k", (), {**signed, "authorization": text}, b"", own))
    for name in ("authorization", "cookie", "x-amz-security-token", "proxy-authorization",
                 "x-amz-s3session-token"):
        done.append(c.send("GET", "/b/k", (), {**bare, name: lost(f"field-{name}")}))
    for name in ("X-Amz-Signature", "Signature", "X-Amz-Security-Token", "AWSAccessKeyId", "token"):
        done.append(c.send("GET", "/b/k", [(name, lost(f"query-{name}"))], bare))
    done.append(c.send("POST", "/b", (), {**bare, "content-type": "multipart/form-data; boundary=x"},
                       f"--x\r\n{lost('form')}\r\n--x--".encode()))
    done.append(c.send("BAD METHOD", "/b/k", (), {**bare, "authorization": lost("bad-method")}))
    # Loopback is anonymous: what only looks like credentials may be served.
    want(sum(400 <= status < 600 for status, _ in done) >= 12, [d[0] for d in done])


def failing_requests(w, s, key):
    c, before = s.client(), w.store.echoed
    for how in ECHOES:
        number = hashlib.md5(how.encode()).hexdigest()[:6]
        path = f"/b/{how}-{number}"
        for method, query, body in (("GET", (), b""), ("HEAD", (), b""), ("GET", [("acl", "")], b""),
                                    ("GET", [("versionId", "v")], b""), ("PUT", (), b"x" * 2000),
                                    ("PUT", (), b"x" * 400_000), ("DELETE", (), b""),
                                    ("POST", [("uploads", "")], b"")):
            c.ask(key, method, path, query, body=body)
        c.ask(key, "GET", path, fields=sse(w))
        c.ask(key, "PUT", "/b/copied", fields={"x-amz-copy-source": path}, body=b"")
        c.ask(key, "GET", "/b", [("list-type", "2"), ("prefix", how)])
    want(w.store.echoed - before > 50, f"only {w.store.echoed - before} failures")


def load(w, s, key):
    good_requests(w, s, key)
    refused_requests(w, s, key)
    failing_requests(w, s, key)
    s.look_around()


# ---- the runs ----
def keys_file(w, name, profile=""):
    rw, ro = Key("AKRW", w.canaries.plant("client-rw")), Key("AKRO", w.canaries.plant("client-ro"))
    other = Key("AKOTHER", w.canaries.plant("client-other"))
    lines = [f"{rw.access} {rw.secret} rw {profile}", f"{ro.access} {ro.secret}",
             f"{other.access} {other.secret} rw elsewhere"]
    return w.write(name, "\n".join(lines) + "\n"), rw, other


def environment_of(w):
    return {"AWS_ACCESS_KEY_ID": "AKUPSTREAM", "AWS_SECRET_ACCESS_KEY": w.canaries.plant("upstream"),
            "AWS_SESSION_TOKEN": w.canaries.plant("upstream-token"), "AWS_REGION": "eu-central-1"}


def profiles_of(w, name):
    text = "".join(f"[{p}]\naws_access_key_id = AK{p.upper()}\n"
                   f"aws_secret_access_key = {w.canaries.plant('profile')}\n"
                   f"aws_session_token = {w.canaries.plant('profile-token')}\n"
                   for p in ("default", "special"))
    return {"AWS_SHARED_CREDENTIALS_FILE": w.write(name, text), "AWS_REGION": "eu-central-1"}


def environment_and_logfmt(w):
    """Credentials and a token of the environment; reloads with every mistake."""
    path, key, _ = keys_file(w, "keys1")
    s = Server(w, "one", environment_of(w), **{
        "auth.keys_file": path, "log.format": "logfmt",
        "admin.token_file": w.write("admin-token", w.canaries.plant("admin") + "\n")}).start()
    load(w, s, key)
    with open(path) as f:
        good = f.read()
    lost = w.canaries.plant
    for bad in (f"{lost('only')}\n", f"A = {lost('equals')}\n", f"A {lost('a')} {lost('b')}\n",
                f"A x rw {lost('scope')}*\n", f"A {lost('long') * 20}\n", f"A {lost('c')} rw ro\n",
                f"A x profile={lost('p')} profile=b\n", f"A: {lost('colon')}, rw\n",
                f"A x\nA {lost('twice')}\n", f"A {lost('control')}\x01\n", f"{lost('comma')},b x\n"):
        w.write("keys1", good + bad)
        s.reload("refused", "applied")  # what looks like a scope is one
    w.write("keys1", good, 0o644)
    s.reload("refused")
    w.write("keys1", good)
    s.reload("applied")
    # Resets may have looked like an outage; its prober ends it.
    c = s.client()
    procs.wait_until("upstream is up", lambda: c.ask(key, "GET", "/b", [("list-type", "2")])[0] == 200,
                     15, 0.1)
    good_requests(w, s, key)
    s.look_around()
    s.end()


def profiles_json_and_tls(w):
    """Credentials of files, one profile per key; TLS for clients."""
    pem, private = w.path("tls.pem"), w.path("tls.key")
    procs.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
               "-nodes", "-days", "2", "-subj", "/CN=x", "-keyout", private, "-out", pem])
    os.chmod(private, 0o600)
    with open(private) as f:
        w.canaries.add_private_key(f.read())
    path, key, _ = keys_file(w, "keys2", "profile=special")
    s = Server(w, "two", profiles_of(w, "profiles"), **{
        "auth.keys_file": path, "log.format": "json", "auth.sigv2": "true",
        "server.tls_cert": pem, "server.tls_key": private}).start()
    load(w, s, key)
    with open(private) as f:
        good = f.read()
    w.write("tls.key", good.replace("M", "N", 3))
    s.reload("refused")
    w.write("tls.key", good)
    s.reload("applied")
    s.end()


def own_pair_and_text(w):
    """Without a keys_file clients sign with upstream's own pair."""
    env = environment_of(w)
    del env["AWS_SESSION_TOKEN"]
    s = Server(w, "three", env, **{"log.format": "text"}).start()
    load(w, s, Key(env["AWS_ACCESS_KEY_ID"], env["AWS_SECRET_ACCESS_KEY"]))
    s.end()


def credentials_that_do_not_work(w):
    tool = w.write("tool.py", f"import sys\nprint('{w.canaries.plant('rubbish')}')\n"
                              f"print('{w.canaries.plant('stderr')}', file=sys.stderr)\n")
    config = w.write("process", f"[default]\ncredential_process = /usr/bin/python3 {tool}\n")
    s = Server(w, "four", {"AWS_CONFIG_FILE": config, "AWS_REGION": "eu-central-1"}).start(False)
    s.client().send("GET", "/b/k", (), {"host": f"127.0.0.1:{s.port}"})
    s.look_around()
    s.end()
    secret = w.canaries.plant("half")
    for env in ({"AWS_SECRET_ACCESS_KEY": secret}, {"AWS_ACCESS_KEY_ID": "A"},
                {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": secret + "\x01"},
                {"AWS_ACCESS_KEY_ID": "A\x01", "AWS_SECRET_ACCESS_KEY": secret},
                {"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": secret * 20},
                {"AWS_SESSION_TOKEN": secret}):
        want(w.run([*s.argv(), "check"], {**s.env, **env, "AWS_CONFIG_FILE": "/nonexistent"}) in (0, 2),
             env.keys())
    for text in (f"[default]\naws_secret_access_key {secret}\n", f"[default\n{secret}\n",
                 f"{secret} = 1\n", f"[default]\naws_access_key_id = A\naws_secret_access_key = a "
                 f"{secret}\x01\n", f"[default]\naws_secret_access_key = {secret}\n"):
        env = {**s.env, "AWS_SHARED_CREDENTIALS_FILE": w.write("bad", text)}
        w.run([*s.argv(), "check"], {**env, "AWS_CONFIG_FILE": "/nonexistent"})


def configurations_with_mistakes(w):
    """Secrets where none belongs. Not among these: a value of the right form at the right place, as
    a path that does not exist, is shown."""
    lost = w.canaries.plant
    base = f'[cache]\ndirs = ["{w.path("no")}"]\n'
    store = base + '[upstream]\nendpoint = "http://127.0.0.1:9"\n'
    cases = [store + f"aws_secret_access_key = {lost('bare')}\n",
             store + f'aws_secret_access_key = "{lost("quoted")}"\n',
             store + f"region = {lost('unquoted')}\n", store + f'region = "x" {lost("behind")}\n',
             store + f'[auth]\nsecret = ["{lost("list")}"]\n', store + f"[admin]\ntoken = {lost('t')}\n",
             base + f'[upstream]\nendpoint = "https://A:{lost("user")}@host"\n',
             base + f'[upstream]\nendpoint = "https://host/?X-Amz-Signature={lost("query")}"\n',
             store + f'sts_endpoint = "https://A:{lost("sts")}@host"\n',
             store + f'secret = {{ a = "{lost("table")}" }}\n']
    for number, text in enumerate(cases):
        path = w.write(f"bad{number}.toml", text)
        for verb in ("check", "--print-config"):
            code = w.run([w.program, "--config", path, verb])
            want(code == 2, f"case {number}: exit {code}")


# ---- what is left of it ----
def a_killed_server_leaves_no_core(w):
    def dumps(argv, kill=None):
        """Whether the kernel wrote a core of it."""
        child = subprocess.Popen(argv, cwd=w.where, stderr=subprocess.DEVNULL, env=env, preexec_fn=(
            lambda: resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)))
        if kill:
            kill(child)
        _, status = os.waitpid(child.pid, 0)
        child.returncode = status
        want(os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGABRT, status)
        return os.WCOREDUMP(status)

    env = {**procs.clean_environment(), **environment_of(w)}
    want(dumps(["/bin/sh", "-c", "kill -ABRT $$"]), "this machine writes no cores of anybody")
    path, _, _ = keys_file(w, "keys-core")
    s = Server(w, "victim", {}, **{"auth.keys_file": path})

    def kill_ready(child):
        procs.wait_until("ready", lambda: s.admin("/readyz"), 20, 0.02)
        os.kill(child.pid, signal.SIGABRT)

    want(not dumps(s.argv(), kill_ready), "there is a core of the server")


def who_has_no_right_learns_nothing(w):
    path, key, other = keys_file(w, "keys-rights")
    s = Server(w, "rights", environment_of(w), **{
        "auth.keys_file": path, "auth.anonymous": "10.0.0.0/8", "log.access": "errors",
        "log.level": "info"}).start()
    c = s.client()
    names = {"cached": "probe-aaaa", "stored": "probe-bbbb", "absent": "probe-cccc"}
    for kind in ("cached", "stored"):
        w.store.objects[f"/b/{names[kind]}"] = os.urandom(70_000)
    for _ in range(2):
        c.ask(key, "GET", f"/b/{names['cached']}")
    want(b"x-cache: hit" in c.told[-1][0].lower(), c.told[-1][0][:300])
    for who in (other, None):
        wrong = rights.judge(c, who, names, lambda: len(w.store.heads))
        want(not wrong, wrong)
    s.end()


# ---- the search ----
def report(found):
    want(not found, "\n".join(f"{what}: {text}" for what, text in found[:12]) +
         f"\n{len(found)} in all")


def the_search_finds_what_is_there(w):
    """One planted in each form and each kind of artefact."""
    text = w.canaries.plant("self-test")
    key = text[-24:].encode()
    made = hashlib.sha256(b"self-test").hexdigest()
    w.canaries.add_signature(made, "self-test")
    for n, data in enumerate((text.encode(), key[:12], key[12:].hex().encode(), text.encode().hex()
                              .upper().encode(), base64.b64encode(b"u:" + text.encode()),
                              base64.b64encode(key), urllib.parse.quote(text, "").encode(),
                              f"Signature={made}".encode(), made[:45].upper().encode())):
        want(w.canaries.search(b"a=1 " + data + b" b"), f"form {n} is not found in {data}")
    os.mkdir(w.path("self"))
    for at in (0, 3, (1 << 20) - 10, (2 << 20) + 5):
        with open(w.path("self/file"), "wb") as f:
            f.write(bytes(at) + text.encode() + bytes(3 << 20))
        want(w.canaries.search_tree(w.path("self"))[1], f"not found at {at} of a file")
    shutil.rmtree(w.path("self"))
    own = b"<Code>SignatureDoesNotMatch</Code><SignatureProvided>" + made.encode()
    told = own + b"</SignatureProvided>"
    want(not w.canaries.search(without_own(told, made)), "one's own signature is one's own")
    want(w.canaries.search(without_own(told * 2, made)), "but once")
    want(w.canaries.search(without_own(told, "0" * 64)), "and not another's")
    want(not w.canaries.search(b"nothing is here"), "it finds everything")


def nothing_is_in_answers(w):
    answers = [(s.name, told, own) for s in w.servers for c in s.clients for told, own in c.told]
    want(len(answers) > 400, f"only {len(answers)} answers")
    seen = {code for s in w.servers for c in s.clients for code in c.statuses}
    want({200, 206, 400, 403, 502} <= seen, seen)
    report(w.canaries.search(b"\n\n".join(without_own(told, own) for _, told, own in answers)))


def nothing_is_in_logs(w):
    for s in w.servers:
        if os.path.exists(s.log):
            report([(f"{kind} in {s.log}", text) for kind, text in w.canaries.search_file(s.log)])
    with open(w.servers[0].log) as f:
        log = f.read()
    want(log.count("e=access") > 100 and "reload" in log, "that is no log of all that was done")


def nothing_is_shown_to_operators(w):
    want(len(w.shown) > 100, f"only {len(w.shown)} texts")
    report(w.canaries.search(b"\n\n".join(what.encode() + b": " + data for what, data in w.shown)))


def nothing_is_on_disk(w):
    files = 0
    for s in w.servers:
        if os.path.isdir(s.cache):
            some, found = w.canaries.search_tree(s.cache)
            files += some
            report(found)
    want(files >= 20, f"only {files} files")


def the_store_hears_nothing_of_clients(w):
    """But the customer's key that it needs; our own token and signature are its own to hear."""
    own = r"(?i)(authorization|x-amz-security-token|x-amz-server-side-encryption-customer-key):"
    kept = [line for head in w.store.heads for line in head.splitlines()
            if not re.match(own, line)]
    report(w.canaries.search("\n".join(kept).encode()))
    signed = re.compile(r"Signature=([0-9a-f]{64})")
    ours = [m.group(1) for head in w.store.heads if (m := signed.search(head))]
    want(len(ours) > 200, f"only {len(ours)} signed requests")
    clients = {own for s in w.servers for c in s.clients for _, own in c.told}
    want(not clients.intersection(ours), "a client's signature went upstream")


RUNS = (environment_and_logfmt, profiles_json_and_tls, own_pair_and_text, credentials_that_do_not_work,
        configurations_with_mistakes, a_killed_server_leaves_no_core, who_has_no_right_learns_nothing)
SEARCHES = (the_search_finds_what_is_there, nothing_is_in_answers, nothing_is_in_logs,
            nothing_is_shown_to_operators, nothing_is_on_disk, the_store_hears_nothing_of_clients)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/release/headpondd")
    parser.add_argument("tests", nargs="*")
    options = parser.parse_args()
    where = tempfile.mkdtemp(prefix="headpond-secrets-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    w, passed, failed = World(where, os.path.abspath(options.program)), 0, 0
    try:
        for test in (*RUNS, *SEARCHES):
            if options.tests and test.__name__ not in options.tests:
                continue
            began = time.monotonic()
            try:
                test(w)
                good, words = True, ""
            except Exception as e:     # noqa: BLE001 - told and counted
                good, words = False, f": {type(e).__name__} {e}"
            passed, failed = passed + good, failed + (not good)
            print(f"{'ok' if good else 'NOT OK'} {test.__name__} "
                  f"({time.monotonic() - began:.1f} s){words}", flush=True)
    finally:
        shutil.rmtree(where, ignore_errors=True)
    print(f"secrets: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


sys.exit(main())
