# An upstream that wants the server to go somewhere else: whatever it answers, only the configured
# endpoint is ever connected to, and only its name is ever looked up.
#
# SPDX-License-Identifier: Apache-2.0
from lab import Headpondd, Origin
from world import Bytes, ask, ask_until

PLACES = ("http://203.0.113.7/stolen", "//203.0.113.8/", "http://169.254.169.254/latest/meta-data/",
          "http://localhost:8080/", "http://[::1]:8081/", "http://[fd00:ec2::254]/",
          "https://evil.test/x", "http://evil.test:8082/x")
REGIONS = ("eu-west-9", "evil", "eu-west-1.evil.test", "@203.0.113.7", "us-east-1@203.0.113.7:80",
           "evil.test#", "..", "us-east-1/../evil.test", "x" * 200)
FIELDS = ("Content-Location: {}", "Refresh: 0; url={}", "Link: <{}>; rel=preload",
          'Alt-Svc: h2="evil.test:443"', "x-amz-website-redirect-location: {}",
          "X-Accel-Redirect: {}", "Location: {}")


def bends():
    """(name, knobs)"""
    for status in (301, 302, 303, 307, 308):
        for place in PLACES:
            yield f"{status} to {place}", f'status={status} redirect="{place}"'
    for status in (301, 307, 400):
        for region in REGIONS:
            yield f"{status}, region {region[:30]}", \
                f'status={status} header="x-amz-bucket-region: {region}"'
            yield f"{status}, region {region[:30]} in the document", \
                f'status={status} header="x-amz-bucket-region: " document="<Error><Code>' \
                f'PermanentRedirect</Code><Endpoint>evil.test</Endpoint><Region>{region}</Region>' \
                '<Bucket>evil.test</Bucket></Error>"'
    for n, field in enumerate(FIELDS):
        text = field.format(PLACES[n % len(PLACES)]).replace('"', '\\"')
        yield text.replace("\\", ""), f'header="{text}"'
    yield "a proxy that wants a login", 'status=407 header="Proxy-Authenticate: Basic"'
    yield "a login", 'status=401 header="WWW-Authenticate: Negotiate"'


def one(b, number, name, knobs):
    lab, origin, server, watcher, names, style = b
    with lab.report.test(f"hostile, {style} style: {name}") as problems:
        origin.do("clear", f"set * {knobs}", "mark")
        for path, method in ((f"/f/k{number}@10", "GET"), (f"/f/k{number}@10", "HEAD"),
                             ("/f?list-type=2", "GET"), ("/f/held@1000", "GET")):
            got = ask(server, path, method)
            if got.status == 0:
                problems.append(f"{method} {path}: {got}")
            if 300 <= got.status < 400 or (got.fields.get("location") and got.status > 299):
                problems.append(f"{method} {path}: sent on, {got.status} "
                                f"{got.fields.get('location')}")
        seen = origin.do("requests")
        if not seen or len(seen) > 16:
            problems.append(f"{len(seen)} requests at the configured upstream")
        others = watcher.others(("127.0.0.1", origin.port), ("127.0.0.1", server.port),
                                ("127.0.0.1", server.admin_port), ("127.0.0.1", origin.control))
        problems += [f"a connection to {h}:{p}" for h, p in others]
        problems += [f"looked up {n}" for n in sorted(set(names.asked) - {"s3.test"})]
        watcher.clear()
        names.asked.clear()


def run_style(lab, names, watcher, style):
    names.table["s3.test"] = ["127.0.0.1"]
    names.table["evil.test"] = ["203.0.113.9"]
    origin = lab.begin(Origin(lab, f"origin-{style}"))
    server = lab.begin(Headpondd(
        lab, f"hostile-{style}", 0, upstream__endpoint=f"http://s3.test:{origin.port}",
        upstream__path_style=style, upstream__retries=1, upstream__read_timeout="2s",
        cache__ttl="0s", cache__immutable=False).empty())
    # With virtual hosts the scripted origin takes the key for a bucket: only where the connections
    # go is looked at then.
    held = "/f/held@1000" if style == "path" else "/f?list-type=2"
    ask_until(server, held, 200)
    origin.do("mark")
    watcher.clear()
    names.asked.clear()
    b = (lab, origin, server, watcher, names, style)
    for number, (name, knobs) in enumerate(bends()):
        one(b, number, name, knobs)
    with lab.report.test(f"hostile, {style} style: well again, right again") as problems:
        origin.do("clear")
        got = ask_until(server, held, 200)
        if style == "path" and got.body != Bytes(lab).of("f", "held@1000"):
            problems.append("wrong bytes")
        problems += lab.log_problems(server)
        server.finish()
    origin.stop()


def run_all(lab, names, watcher):
    run_style(lab, names, watcher, "path")
    run_style(lab, names, watcher, "virtual")
