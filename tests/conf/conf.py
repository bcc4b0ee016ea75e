# What lies in conf/, checked by the tools that will read it, and used: the unit's system calls, the container's profile, two servers
# behind the balancer, alerts that fire, a dashboard that asks for nothing that is not there.
#
#   conf.py [--program PATH]               the last line is "conf-check: N passed, N failed"
#
# SPDX-License-Identifier: Apache-2.0
import argparse
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import tomllib
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(HERE, "..", "rgw"), HERE]
import alerts                          # noqa: E402
import procs                           # noqa: E402
import words                           # noqa: E402
from procs import Failure              # noqa: E402

OBJECTS, OBJECT_BYTES = 60, 150_000
KEY, SECRET = "CONFKEY", "conf-secret"
EXPOSURE_MAX = 1.8                     # systemd's score of the unit: 0 to 10
SERIES_MAX = 2000
SECCOMP = os.path.join(ROOT, "tests", "bare", "seccomp.py")


def conf(name):
    return os.path.join(ROOT, "conf", name)


def text_of(path):
    with open(path, encoding="utf-8") as f:
        return f.read()


def want(good, what):
    if not good:
        raise Failure(str(what)[-1500:])


def fetch(url, **fields):
    """Status, fields and body; a status is no error."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=fields), timeout=20) as r:
            return r.status, r.headers, r.read()
    except urllib.error.HTTPError as e:
        return e.code, e.headers, e.read()


def content(i):
    return (f"{i}:" * OBJECT_BYTES)[:OBJECT_BYTES].encode()


class World:
    """A store and whoever serves it."""

    def __init__(self, where, program):
        self.where, self.program, self.started = where, program, []
        os.makedirs(os.path.join(where, "store", "b"))
        for i in range(OBJECTS):
            with open(os.path.join(where, "store", "b", f"o{i}"), "wb") as f:
                f.write(content(i))

    def server(self, name, *before, port=None, env=None):
        """A server that is ready; `before` is put in front of its command line."""
        s = Server(self, name, before, port or procs.free_port(), env or {})
        self.started.append(s)
        s.start()
        return s

    def end(self):
        for s in self.started:
            s.process.kill()


class Server:
    def __init__(self, world, name, before, port, env):
        self.dir, self.port, self.admin = os.path.join(world.where, name), port, procs.free_port()
        os.makedirs(os.path.join(self.dir, "cache"), mode=0o700, exist_ok=True)
        with open(os.path.join(self.dir, "keys"), "w", opener=lambda p, f: os.open(p, f, 0o600)) as f:
            f.write(f"{KEY} {SECRET} rw\n")
        flags = ["--upstream", f"file://{world.where}/store", "--cache", f"{self.dir}/cache", "--size", "256MiB", "--listen",
                 f"127.0.0.1:{self.port}"]
        for option in (f"admin.listen=127.0.0.1:{self.admin}", "cache.min_free=16MiB", "cache.memory=64MiB", "server.workers=1",
                       f"auth.keys_file={self.dir}/keys"):
            flags += ["--set", option]
        flags += ["--allow-root"] if os.geteuid() == 0 else []
        self.process = procs.Process(name, [*before, world.program, *flags], os.path.join(self.dir, "log"),
                                     procs.clean_environment(**env))

    def is_ready(self):
        try:
            return fetch(f"http://127.0.0.1:{self.admin}/readyz")[0] == 200
        except OSError:
            return False

    def start(self):
        self.process.start().wait_ready(self.is_ready, 30)

    def scrape(self):
        return fetch(f"http://127.0.0.1:{self.admin}/metrics")[2].decode()

    def metric(self, line):
        found = re.search(rf"^headpond_{re.escape(line)} (\S+)$", self.scrape(), re.M)
        return float(found.group(1)) if found else 0.0

    def total(self, name):
        """All series of a counter."""
        return sum(map(float, re.findall(rf"^headpond_{name}(?:{{.*}})? (\S+)$", self.scrape(), re.M)))

    def reads_all(self):
        for i in (*range(8), *range(8)):                # misses, then hits
            status, _, body = fetch(f"http://127.0.0.1:{self.port}/b/o{i}")
            want(status == 200 and body == content(i), f"o{i}: {status}, {len(body)} bytes")


# ---- headpond.toml ----

def the_sample_is_toml_and_the_server_takes_it(w):
    with open(conf("headpond.toml"), "rb") as f:
        read = tomllib.load(f)
    want(len(read) >= 5 and "cache" in read, read.keys())
    procs.run([w.program, "check", "--config", conf("headpond.toml"), "--upstream", "http://127.0.0.1:1", "--cache", w.where])


# ---- headpond.service ----

def unit():
    """Key -> values, in their order."""
    read = {}
    for key, value in re.findall(r"^(\w+)=(.*)$", text_of(conf("headpond.service")), re.M):
        read.setdefault(key, []).append(value)
    return read


def seconds(text):
    number, suffix = re.fullmatch(r"(\d+)(s|min|m|h)", text).groups()
    return int(number) * {"s": 1, "min": 60, "m": 60, "h": 3600}[suffix]


def systemd_finds_no_mistake(w):
    path = os.path.join(w.where, "headpond.service")
    with open(path, "w") as f:
        f.write(text_of(conf("headpond.service")).replace("/usr/local/bin/headpondd", w.program))
    done = procs.run(["systemd-analyze", "verify", "--man=no", path], check=False)
    about = [line for line in done.stderr.decode().splitlines() if "headpond" in line]
    want(done.returncode == 0 and not about, done.stderr.decode())


def systemd_calls_it_well_confined(w):
    done = procs.run(["systemd-analyze", "security", "--offline=true", "--no-pager", f"--threshold={round(EXPOSURE_MAX * 10)}",
                      os.path.join(w.where, "headpond.service")], check=False)
    verdict = done.stdout.decode().strip().splitlines()[-1:]
    want(done.returncode == 0 and verdict, f"{verdict} {done.stderr.decode()}")
    print("   ", verdict[0])


def the_unit_waits_as_long_as_the_server_needs(w):
    with open(conf("headpond.toml"), "rb") as f:
        sample = f.read().decode()
    drain = seconds(re.search(r'^#?\s*drain_timeout = "(\w+)"', sample, re.M).group(1))
    u = unit()
    want(seconds(u["TimeoutStopSec"][0]) >= drain + 15, f"{u['TimeoutStopSec']} for a drain of {drain} s and the last commits")
    want(int(u["LimitNOFILE"][0]) >= 65536 and u["LimitMEMLOCK"] == ["infinity"], "limits")
    want(u["ExecReload"] == ["/bin/kill -HUP $MAINPID"] and u["Type"] == ["notify"], "reload, notify")


def the_server_says_when_it_is_ready_and_when_it_ends(w):
    path = os.path.join(w.where, "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(path)
        told.settimeout(30)
        s = w.server("notifies", env={"NOTIFY_SOCKET": path})
        want(told.recv(4096) == b"READY=1", "READY=1")
        s.process.signal(signal.SIGTERM)
        want(told.recv(4096) == b"STOPPING=1", "STOPPING=1")
        want(s.process.child.wait(30) == 0, "its end")


def calls_of(*groups):
    """The system calls of systemd's groups, those in groups of groups, too."""
    found = set()
    for group in groups:
        for line in procs.run(["systemd-analyze", "syscall-filter", "--no-pager", group]).stdout.decode().splitlines()[1:]:
            name = line.strip()
            if name.startswith("@"):
                found |= calls_of(name)
            elif name and not name.startswith("#"):
                found.add(name)
    return found


def profile_of_the_unit():
    """SystemCallFilter= as a container's profile, for tests/bare/seccomp.py."""
    allowed = set()
    for line in unit()["SystemCallFilter"]:
        denied, groups = line.startswith("~"), line.lstrip("~").split()
        allowed = allowed - calls_of(*groups) if denied else allowed | calls_of(*groups)
    resolve = ctypes.CDLL("libseccomp.so.2").seccomp_syscall_resolve_name  # systemd may know younger calls than it does
    return {"defaultAction": "SCMP_ACT_ERRNO", "defaultErrnoRet": 1,
            "syscalls": [{"action": "SCMP_ACT_ALLOW", "names": sorted(n for n in allowed if resolve(n.encode()) != -1)}]}


def lives_a_whole_life(w, name, profile):
    """Start, misses, hits, reload, drain, and a start with an index that is read by a child."""
    for _ in range(2):
        s = w.server(name, sys.executable, "-B", SECCOMP, profile)
        s.reads_all()
        s.process.signal(signal.SIGHUP)
        procs.wait_until("a reload", lambda: s.metric('config_reloads_total{result="applied"}') == 1, 20)
        want(s.metric('sent_bytes_total{source="upstream"}') + s.metric('sent_bytes_total{source="nvme"}') > 0, s.scrape())
        want(s.metric(f'disk_errors_total{{disk="{s.dir}/cache",op="read"}}') == 0, "reads from disk")
        s.process.signal(signal.SIGTERM)
        want(s.process.child.wait(30) == 0, procs.tail(s.process.log))
    want("e=started" in text_of(s.process.log) or "started" in text_of(s.process.log), "its log")


def it_lives_with_the_units_system_calls(w):
    path = os.path.join(w.where, "unit.json")
    profile = profile_of_the_unit()
    want("io_uring_setup" in profile["syscalls"][0]["names"] and "mount" not in profile["syscalls"][0]["names"], "the groups")
    with open(path, "w") as f:
        json.dump(profile, f)
    lives_a_whole_life(w, "in-unit", path)


# ---- seccomp.json ----

def it_lives_with_the_containers_system_calls(w):
    lives_a_whole_life(w, "in-container", conf("seccomp.json"))


def without_io_uring_it_says_what_to_do(w):
    profile = json.loads(text_of(conf("seccomp.json")))
    for row in profile["syscalls"]:
        row["names"] = [name for name in row["names"] if not name.startswith("io_uring")]
    path = os.path.join(w.where, "default.json")
    with open(path, "w") as f:
        json.dump(profile, f)
    s = Server(w, "refused", (sys.executable, "-B", SECCOMP, path), procs.free_port(), {})
    done = procs.run(s.process.argv, check=False, timeout=30)
    said = (done.stdout + done.stderr).decode()
    want(done.returncode == 1 and "seccomp" in said, f"exit {done.returncode}: {said}")


# ---- metrics, alerts.yml, grafana.json ----

def used_server(w):
    if not hasattr(w, "used"):
        w.used = w.server("used")
        w.used.reads_all()
        w.used.process.stop()          # what is in memory is gone then: the next reads are the disk's
        w.used.start()
        w.used.reads_all()
        fetch(f"http://127.0.0.1:{w.used.port}/b?list-type=2")
        fetch(f"http://127.0.0.1:{w.used.port}/b/missing")
        fetch(f"http://127.0.0.1:{w.used.port}/b/o{OBJECTS - 1}")
    return w.used


def prometheus_finds_nothing_to_say_about_the_metrics(w):
    page = used_server(w).scrape()
    done = procs.run(["promtool", "check", "metrics"], input=page.encode(), check=False)
    want(done.returncode == 0 and not done.stdout + done.stderr, (done.stdout + done.stderr).decode())
    series = sum(1 for line in page.splitlines() if line and not line.startswith("#"))
    print(f"    {series} series")
    want(series < SERIES_MAX, f"{series} series")


def names_in(text):
    return set(re.findall(r"\bheadpond_[a-z0-9_]+", text))


def shown_by(page):
    """What a query may name: a histogram's parts, not itself."""
    names = set()
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", page, re.M):
        names |= {f"{name}_bucket", f"{name}_sum", f"{name}_count"} if kind == "histogram" else {name}
    return names


def every_metric_that_is_asked_for_is_there(w):
    there = shown_by(used_server(w).scrape())
    # those of an upstream that is asked over HTTP, or of a section, have no series without either
    later = {"headpond_bucket_hit_bytes_total", "headpond_bucket_miss_bytes_total", "headpond_bucket_used_bytes"}
    rules, (board, panels) = alerts.read(conf("alerts.yml")), dashboard()
    queries = {"alerts.yml": [rule["expr"] for rule in rules.values()],
               "grafana.json": [t["expr"] for p in panels for t in p["targets"]] + [a["expr"] for a in board["annotations"]["list"]]}
    for name, queried in queries.items():
        asked = names_in(" ".join(queried))
        want(len(asked) > 10, f"{name}: {len(asked)} metrics")
        want(asked <= there | later, f"{name}: nobody shows {sorted(asked - there - later)}")
    told = names_in(json.dumps([rule["annotations"] for rule in rules.values()]))
    families = set(re.findall(r"^# TYPE (\w+)", used_server(w).scrape(), re.M))
    want(told <= families, f"texts of alerts.yml: nobody shows {sorted(told - families)}")
    want(names_in(json.dumps(alerts.CASES)) <= there | {"headpond_"}, "series of the alerts' tests")


def every_metric_is_on_the_dashboard(w):
    table = text_of(os.path.join(ROOT, "include", "table", "metrics.h"))
    ids = re.findall(r'^(?:COUNTER|GAUGE|HISTOGRAM)\(\w+,\s+"(\w+)"', table, re.M)
    want(len(ids) > 50, f"{len(ids)} rows")
    shown = text_of(conf("grafana.json"))
    missing = [i for i in ids if not re.search(rf"\bheadpond_{i}(_bucket|_sum|_count)?\b", shown)]
    want(not missing, f"not on the dashboard: {missing}")


def prometheus_takes_the_rules(w):
    done = procs.run(["promtool", "check", "rules", conf("alerts.yml")])
    want(b"SUCCESS" in done.stdout, done.stdout)


def each_alert_fires_when_it_must_and_only_then(w):
    path = os.path.join(w.where, "alerts.json")
    wrong = alerts.write(conf("alerts.yml"), path)
    want(not wrong, wrong)
    done = procs.run(["promtool", "test", "rules", path], check=False)
    want(done.returncode == 0, (done.stdout + done.stderr).decode())
    print(f"    {len(alerts.CASES)} cases")


def dashboard():
    board = json.loads(text_of(conf("grafana.json")))
    return board, [p for p in board["panels"] if p["type"] != "row"]


def the_dashboards_panels_have_room_and_names(w):
    board, panels = dashboard()
    ids = [p["id"] for p in board["panels"]]
    want(len(set(ids)) == len(ids) and len(panels) > 20, ids)
    cells = set()
    for p in board["panels"]:
        g = p["gridPos"]
        mine = {(x, y) for x in range(g["x"], g["x"] + g["w"]) for y in range(g["y"], g["y"] + g["h"])}
        want(g["x"] + g["w"] <= 24 and not mine & cells, f"{p['title']} lies on another panel")
        cells |= mine
    for p in panels:
        want(p["title"] and p["description"] and p["targets"], p["title"])
        want(all('instance=~"$instance"' in t["expr"] for t in p["targets"]), f"{p['title']} ignores the chosen server")


def prometheus_understands_each_panel(w):
    _, panels = dashboard()
    rules = []
    for p in panels:
        for t in p["targets"]:
            expr = t["expr"].replace("$__rate_interval", "5m").replace("$__range", "6h").replace("$instance", ".*")
            want("$" not in expr, expr)
            rules.append({"record": f"panel:{p['id']}:{t['refId'].lower()}", "expr": expr})
    path = os.path.join(w.where, "panels.json")
    with open(path, "w") as f:
        json.dump({"groups": [{"name": "panels", "rules": rules}]}, f)
    procs.run(["promtool", "check", "rules", path])


# ---- what `make install` brings beside it: completions, manual pages ----

def built(name):
    return os.path.join(ROOT, "build", "release", name)


def the_shells_offer_what_fits(w):
    for shell in words.SHELLS:
        wrong = list(words.wrong(shell, built(f"completion/headpond.{shell}")))
        want(not wrong, wrong)
    print(f"    {len(words.LINES)} lines in {len(words.SHELLS)} shells")


def the_manual_pages_are_well_made_and_whole(w):
    for page, wanted in (("headpond.1", ["prewarm s3://", "124", "--token-file FILE"]),
                         ("headpondd.8", ["--allow-root", "SIGHUP", "disk fenced error"]),
                         ("headpond.toml.5", ["endpoint", "[[bucket]]", "readahead"])):
        said, shown = words.lint(built(f"man/{page}"))
        want(not said, said[:5])
        missing = [text for text in wanted if text not in shown]
        want(not missing, f"{page}: {missing} in {shown[:300]}")


# ---- haproxy.cfg ----

def haproxy_takes_its_file(w):
    done = procs.run(["haproxy", "-c", "-f", conf("haproxy.cfg")])
    said = (done.stdout + done.stderr).decode()
    want("WARNING" not in said, said)


def balancer(w, a, b, big=False):
    """HAProxy with our file: only its addresses are those of this test. Returns its port."""
    port, text = procs.free_port(), text_of(conf("haproxy.cfg"))
    changes = [("10.0.0.11:9000", f"127.0.0.1:{a.port}"), ("10.0.0.12:9000", f"127.0.0.1:{b.port}"),
               ("bind 127.0.0.1:9000", f"bind 127.0.0.1:{port}"), ("bind 127.0.0.1:9101", f"bind 127.0.0.1:{procs.free_port()}"),
               ("/run/haproxy/admin.sock", f"{w.where}/haproxy.sock")]
    for old, new in changes:
        want(old in text, f"haproxy.cfg has no {old} any more")
        text = text.replace(old, new)
    if big:
        text = text.replace("#   use_backend spread_big if { path_beg /models/ }", "use_backend spread_big if { path_beg /b/ }")
        text = text.replace("div(1073741824)", "div(65536)")
    path = os.path.join(w.where, "haproxy.cfg")
    with open(path, "w") as f:
        f.write(text)
    process = procs.Process("haproxy", ["haproxy", "-db", "-f", path], os.path.join(w.where, "haproxy.log"))
    w.started.append(type("Started", (), {"process": process.start()}))

    def serves():
        try:
            return fetch(f"http://127.0.0.1:{port}/b/o0")[0] == 200
        except OSError:
            return False
    process.wait_ready(serves, 20)
    return port, process


def two_servers(w):
    if not hasattr(w, "pair"):
        w.pair = w.server("one"), w.server("two")
    if not hasattr(w, "balanced"):
        w.balanced = balancer(w, *w.pair)
    return *w.pair, *w.balanced


def read_through(port, i, **fields):
    status, got, body = fetch(f"http://127.0.0.1:{port}/b/o{i}", **fields)
    want(status in (200, 206), f"o{i}: {status} {body[:300]}")
    return got, body


def each_object_has_one_home(w):
    a, b, port, _ = two_servers(w)
    for i in (*range(OBJECTS), *range(OBJECTS)):
        want(read_through(port, i)[1] == content(i), f"o{i}")
    came = [s.total("upstream_received_bytes_total") for s in (a, b)]
    total = OBJECTS * OBJECT_BYTES
    want(sum(came) == total, f"{came} bytes fetched, the data are {total}")
    want(min(came) > total / 5, f"one server has it all: {came}")


def neither_range_nor_query_move_a_key(w):
    a, b, port, _ = two_servers(w)
    before = [s.total("upstream_received_bytes_total") for s in (a, b)]
    for i in range(12):
        got, body = read_through(port, i, Range="bytes=1000-1999")
        want(body == content(i)[1000:2000] and got["x-cache"] == "hit", f"o{i} {got['x-cache']}")
    status, got, _ = fetch(f"http://127.0.0.1:{port}/b/o1?x-id=GetObject")
    want(status == 200 and got["x-cache"] == "hit", f"{status} {got}")
    after = [s.total("upstream_received_bytes_total") for s in (a, b)]
    want(before == after, f"{before} {after}")


def signatures_hold(w):
    _, _, port, _ = two_servers(w)
    url = f"http://127.0.0.1:{port}/b/o3"
    for secret, status in ((SECRET, b"200"), ("another", b"403")):
        done = procs.run(["curl", "-s", "-o", os.devnull, "-w", "%{http_code}", "--aws-sigv4", "aws:amz:us-east-1:s3", "--user",
                          f"{KEY}:{secret}", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD", "-H", "x-headpond-hint: random", url])
        want(done.stdout == status, f"{done.stdout}, wanted {status}")


def nothing_is_added_to_an_answer(w):
    a, b, port, _ = two_servers(w)
    got, _ = read_through(port, 5)
    straight = [fetch(f"http://127.0.0.1:{s.port}/b/o5")[1] for s in (a, b)]
    want(any({k.lower() for k in got} == {k.lower() for k in s} for s in straight), f"{list(got)} {[list(s) for s in straight]}")


def one_that_drains_or_dies_is_left_without_an_error(w):
    a, b, port, _ = two_servers(w)
    for s, how in ((a, signal.SIGTERM), (b, signal.SIGKILL)):
        for i in range(OBJECTS):
            if i == 10:
                s.process.signal(how)
            want(read_through(port, i)[1] == content(i), f"o{i}")
        s.process.child.wait(30)
        s.start()
        procs.wait_until("both to be in use", lambda: reached_both(port, a, b), 20)


def reached_both(port, a, b):
    """Both have been asked: HAProxy lets a server that came back have little at first."""
    before = [s.metric('requests_total{op="get",result="hit",code="2xx"}') for s in (a, b)]
    for i in range(OBJECTS):
        read_through(port, i)
    after = [s.metric('requests_total{op="get",result="hit",code="2xx"}') for s in (a, b)]
    return all(x > y for x, y in zip(after, before))


def a_big_object_can_be_spread_by_pieces(w):
    a, b, _, process = two_servers(w)
    process.stop()
    port, _ = balancer(w, a, b, big=True)
    before = [s.total("sent_bytes_total") for s in (a, b)]
    for i in range(10):
        for piece in (0, 65536):
            got, body = read_through(port, i, Range=f"bytes={piece}-{piece + 999}")
            want(body == content(i)[piece:piece + 1000], f"o{i} at {piece}")
    after = [s.total("sent_bytes_total") for s in (a, b)]
    want(all(x > y for x, y in zip(after, before)), "one server had every piece")


CHECKS = [
    the_sample_is_toml_and_the_server_takes_it, the_shells_offer_what_fits, the_manual_pages_are_well_made_and_whole,
    systemd_finds_no_mistake, systemd_calls_it_well_confined,
    the_unit_waits_as_long_as_the_server_needs, the_server_says_when_it_is_ready_and_when_it_ends,
    it_lives_with_the_units_system_calls, it_lives_with_the_containers_system_calls, without_io_uring_it_says_what_to_do,
    prometheus_finds_nothing_to_say_about_the_metrics, every_metric_that_is_asked_for_is_there, every_metric_is_on_the_dashboard,
    prometheus_takes_the_rules, each_alert_fires_when_it_must_and_only_then, the_dashboards_panels_have_room_and_names,
    prometheus_understands_each_panel, haproxy_takes_its_file, each_object_has_one_home, neither_range_nor_query_move_a_key,
    signatures_hold, nothing_is_added_to_an_answer, one_that_drains_or_dies_is_left_without_an_error,
    a_big_object_can_be_spread_by_pieces,
]


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("--program", default=os.path.join(ROOT, "build", "release", "headpondd"))
    parse.add_argument("words", nargs="*")
    args = parse.parse_args()
    where, bad, done = tempfile.mkdtemp(prefix="headpond-conf-", dir="/var/tmp"), 0, 0
    world = World(where, os.path.abspath(args.program))
    try:
        for check in CHECKS:
            name = check.__name__.replace("_", " ")
            if args.words and not any(word in name for word in args.words):
                continue
            done += 1
            try:
                check(world)
                print(f"ok   {name}", flush=True)
            except (Failure, OSError, KeyError, AttributeError) as e:
                bad += 1
                print(f"FAIL {name}: {type(e).__name__}: {e}", flush=True)
    finally:
        world.end()
        shutil.rmtree(where, ignore_errors=True)
    print(f"conf-check: {done - bad} passed, {bad} failed")
    return 0 if done > bad == 0 else 1


sys.exit(main())
