# Bytes and heads of three hundred objects through the server, by every client, against what RGW
# itself says.
#
# SPDX-License-Identifier: Apache-2.0
import json

import tools
from deviations import Case, Table, compare, matrix
from lab import Headpondd, Proxy
from procs import Failure, clean_environment, run
from wire import Wire, path_of

MATRIX_KEYS = ("border/0", "border/1", "border/4097", "border/8388608", "border/8388609",
               "attr/everything", "attr/gzip", "attr/multi-meta", "multi/5242881", "a/../b",
               "日本/語")
GET_MAX = 32 << 20                   # larger ones are read whole by boto3; here their heads count
SOME = [Case("plain GET"), Case("plain HEAD", method="HEAD")]


def read_with_boto3(lab, o, port, python, flavour, listing):
    """Even items one way, odd ones the other; which is which depends on the flavour."""
    ways = ("get", "download") if flavour == "old" else ("download", "get")
    job = {"endpoint": f"http://127.0.0.1:{port}", "access": o.user.access, "secret": o.user.secret,
           "bucket": o.bucket, "listing": listing,
           "folder": tools.fresh(lab.path(f"boto3-{flavour}")),
           "items": [{"key": i.key, "size": i.size, "sha256": i.sha256, "etag": i.etag,
                      "fields": i.fields, "how": "download" if i.size > GET_MAX else ways[n % 2]}
                     for n, i in enumerate(o.items)]}
    done = run([python, f"{lab.source}/reader.py"], input=json.dumps(job).encode(), timeout=600,
               env=clean_environment())
    return json.loads(done.stdout)


def boto3_test(lab, o, port, python, flavour, listing=True):
    with lab.report.test(f"boto3 {flavour}: 300 objects") as problems:
        got = read_with_boto3(lab, o, port, python, flavour, listing)
        new = tuple(map(int, got["version"].split(".")[:2])) >= (1, 36)
        if new != (flavour == "current"):
            raise Failure(f"{python} has boto3 {got['version']}: that is not the {flavour} one")
        problems += got["problems"]


def compare_item(table, o, item, direct, through, cases):
    path = path_of(o.bucket, item.key)
    plain = direct.ask("HEAD", path)
    problems = []
    for case in cases:
        if case.method == "GET" and item.size > GET_MAX and "Range" not in case.headers:
            continue
        said = direct.ask(case.method, path, case.query, case.headers)
        e = table.expect(case, item, said, plain)
        answer = through.ask(case.method, path, case.query, case.headers)
        data = item.bytes() if case.method == "GET" and item.size <= GET_MAX else None
        problems += [f"{item.key[:60]!r}: {case.name}: {p}"
                     for p in compare(case, item, e, answer, data)]
    return problems


def heads_test(lab, o, ceph, port):
    table = Table()
    direct, through = Wire(ceph.port, o.user), Wire(port, o.user)
    with lab.report.test("heads and bytes of 300 objects equal RGW's") as problems:
        for item in o.items:
            problems += compare_item(table, o, item, direct, through, SOME)
    for key in MATRIX_KEYS:
        item = next(i for i in o.items if i.key == key)
        cases = matrix(item.etag)
        with lab.report.test(f"{len(cases)} requests for {key}") as problems:
            problems += compare_item(table, o, item, direct, through, cases)
    with lab.report.test("every row of deviations.py applied") as problems:
        problems += table.unused()


def absent_test(lab, o, ceph, port):
    """What is not there, and what is not readable."""
    direct, through = Wire(ceph.port, o.user), Wire(port, o.user)
    with lab.report.test("absent keys and buckets") as problems:
        for path in (path_of(o.bucket, "absent"), path_of(o.bucket, "a//bb"),
                     path_of(o.bucket, "plain/"), path_of("absent-bucket", "key"),
                     path_of("absent-bucket")):
            for method in ("GET", "HEAD"):
                a, b = direct.ask(method, path), through.ask(method, path)
                if (a.status, a.error().get("Code")) != (b.status, b.error().get("Code")):
                    problems.append(f"{method} {path}: {b.status} {b.error()}, "
                                    f"RGW {a.status} {a.error()}")


def refused_test(lab, o, ceph, port):
    """This version reads: a write is refused, and RGW never hears of it."""
    direct, through = Wire(ceph.port, o.user), Wire(port, o.user)
    path = path_of(o.bucket, "border/4097")
    with lab.report.test("writes reach the store, and are read back at once") as problems:
        written = path_of(o.bucket, "written/through")
        for body in (b"first bytes", b"other bytes"):
            answer = through.ask("PUT", written, (), {}, body)
            if answer.status != 200:
                problems.append(f"PUT: {answer.status} {answer.error()}")
            if direct.ask("GET", written).sha256 != through.ask("GET", written).sha256:
                problems.append("RGW and the cache differ")
        if through.ask("DELETE", written, (), {}, b"").status != 204:
            problems.append("DELETE was refused")
        for side in (direct, through):
            if side.ask("GET", written).status != 404:
                problems.append("it is still there")


def clients_test(lab, o, port):
    for name, test in (("curl, anonymous: 300 objects", tools.curl_anonymous),
                       ("curl, presigned", tools.curl_presigned),
                       ("rclone", tools.rclone), ("s3cmd", tools.s3cmd)):
        with lab.report.test(name) as problems:
            problems += test(o, port, lab.path("tool"))
    for name, program in (("aws, Debian's", "/usr/bin/aws"), ("aws, current v1", lab.venv("aws"))):
        with lab.report.test(name) as problems:
            problems += tools.aws(program, o, port, lab.path("tool"))


def every_byte(lab, o, port, what, proxy):
    """All objects once more, and not one byte of them from upstream."""
    with lab.report.test(what) as problems:
        proxy.mark()
        problems += tools.curl_anonymous(o, port, lab.path("tool"))
        problems += proxy.object_problems(0)


def again_test(lab, o, server, proxy):
    every_byte(lab, o, server.port, "second pass: no byte from upstream", proxy)
    with lab.report.test("SIGTERM and start"):
        server.end_cleanly()
        server.start()
    every_byte(lab, o, server.port, "after a restart: no byte from upstream", proxy)
    with lab.report.test("kill -9 and start"):
        server.wait_committed()
        server.kill_hard()
        server.start()
    every_byte(lab, o, server.port, "after kill -9: no byte from upstream", proxy)


def once_problems(proxy, o):
    """Whether each object crossed once: its bytes, by the path that upstream was asked for."""
    crossed = {}
    for line in proxy.requests():
        words = line.split(" ")
        method, path, status, body = words[0], words[1], words[-2], words[-1]
        if method == "GET" and status in ("status=200", "status=206"):
            crossed[path] = crossed.get(path, 0) + int(body.partition("=")[2])
    return [f"{i.key[:80]!r}: {crossed.get(path_of(o.bucket, i.key))} bytes crossed, not {i.size}"
            for i in o.items if crossed.get(path_of(o.bucket, i.key), 0) != i.size]


def run_all(lab, o, ceph):
    proxy = lab.begin(Proxy(lab, "proxy", ceph.port))
    server = Headpondd(lab, "bytes", proxy.port, o.user.access, o.user.secret,
                       cache__size="3GiB")
    lab.begin(server.empty())
    with lab.report.test("curl, anonymous, cold: each object crosses once") as problems:
        problems += tools.curl_anonymous(o, server.port, lab.path("tool"))
        problems += once_problems(proxy, o) + proxy.object_problems(o.bytes)
    boto3_test(lab, o, server.port, "/usr/bin/python3", "old")
    boto3_test(lab, o, server.port, lab.venv("python"), "current")
    heads_test(lab, o, ceph, server.port)
    absent_test(lab, o, ceph, server.port)
    refused_test(lab, o, ceph, server.port)
    clients_test(lab, o, server.port)
    again_test(lab, o, server, proxy)
    with lab.report.test("the server's log is clean") as problems:
        problems += lab.log_problems(server)
    server.finish()
    proxy.stop()
