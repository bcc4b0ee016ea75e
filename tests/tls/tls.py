# Real clients against a listener with TLS: curl, boto3, the aws cli, openssl s_client.
#
#   tls.py [--program PATH]                the last line is "tls: N passed, N failed"
#
# SPDX-License-Identifier: Apache-2.0
import argparse
import json
import os
import shutil
import socket
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "rgw"), os.path.join(HERE, "..", "drain")]
import procs                           # noqa: E402
from drain import Authority, Server, Store  # noqa: E402
from load import content               # noqa: E402

ENV = {"AWS_ACCESS_KEY_ID": "LOADKEY", "AWS_SECRET_ACCESS_KEY": "load-secret",
       "AWS_DEFAULT_REGION": "us-east-1"}


class World:
    def __init__(self, where, program):
        self.where = where
        self.store, self.authority = Store(where), Authority(where)
        self.server = Server(where, "tls", program, self.store, self.authority)
        self.server.start()
        self.ca = os.path.join(where, "ca.pem")
        self.port = self.server.port
        self.url = f"https://127.0.0.1:{self.port}"

    def run(self, *argv, check=True, given=None):
        done = procs.run(list(argv), timeout=60, check=check, input=given,
                         env=procs.clean_environment(**ENV))
        return done.returncode, done.stdout, done.stderr.decode(errors="replace")

    def s_client(self, *more, given=b"GET /-/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"):
        code, out, err = self.run("openssl", "s_client", "-connect", f"127.0.0.1:{self.port}",
                                  "-CAfile", self.ca, "-verify_return_error", "-ign_eof", *more,
                                  check=False, given=given)
        return code, out.decode(errors="replace") + err


def want(good, what):
    if not good:
        raise procs.Failure(str(what)[-1500:])


def curl_gets_every_byte(w):
    for seed, size in enumerate(w.store.sizes):
        for _ in ("miss", "hit"):
            _, out, _ = w.run("curl", "-sSf", "--cacert", w.ca, f"{w.url}/b/hot{seed}")
            want(out == content(seed, size), f"hot{seed}: {len(out)} bytes")


def curl_ranges_and_one_connection(w):
    _, out, err = w.run("curl", "-sSfv", "--cacert", w.ca, "-r", "100-299", f"{w.url}/b/hot6",
                        f"{w.url}/b/hot5")
    want(out == content(6, w.store.sizes[6])[100:300] + content(5, w.store.sizes[5])[100:300],
         "bytes")
    want("Re-using existing connection" in err, err)
    want("accepted http/1.1" in err or "ALPN: server accepted http/1.1" in err, err)


def curl_without_the_authority_refuses(w):
    code, _, err = w.run("curl", "-sS", f"{w.url}/b/hot1", check=False)
    want(code == 60 and "certificate" in err, err)


def old_versions_are_refused(w):
    for version in ("1.0", "1.1"):
        code, _, err = w.run("curl", "-sS", "--tls-max", version, f"--tlsv{version}", "--cacert",
                             w.ca, "--ciphers", "DEFAULT@SECLEVEL=0", f"{w.url}/b/hot1",
                             check=False)
        want(code == 35, f"{code} {err}")
    _, text = w.s_client("-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0")
    want("alert protocol version" in text, text)


def plain_http_is_told_so(w):
    code, out, _ = w.run("curl", "-sS", "-i", f"http://127.0.0.1:{w.port}/b/hot1")
    want(b"400 Bad Request" in out and b"Connection: close" in out and b"https" in out, out)


def sessions_are_resumed(w):
    for version in ("-tls1_2", "-tls1_3"):
        session = os.path.join(w.where, "session")
        _, text = w.s_client(version, "-sess_out", session)
        want("New, TLSv1." in text and "Verification: OK" in text and "200 OK" in text, text)
        for _ in range(4):             # whatever core it comes to
            _, text = w.s_client(version, "-sess_in", session)
            want("Reused, TLSv1." in text and "200 OK" in text, text)


def nobody_renegotiates(w):
    _, text = w.s_client("-tls1_2", given=b"R\nGET / HTTP/1.0\r\n\r\n")
    want("renegotiation" in text.lower() and "200" not in text.split("RENEGOTIATING")[-1][:200],
         text)
    curl_ranges_and_one_connection(w)


def weak_ciphers_are_refused(w):
    for cipher in ("AES128-SHA", "AES128-GCM-SHA256", "ECDHE-ECDSA-AES128-SHA256"):
        code, text = w.s_client("-tls1_2", "-cipher", cipher)
        want(code != 0 and "handshake failure" in text, text)


def other_protocols_are_refused(w):
    _, text = w.s_client("-alpn", "h2")
    want("no application protocol" in text, text)
    with socket.create_connection(("127.0.0.1", w.port), timeout=10) as s:
        s.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
        text = b"".join(iter(lambda: s.recv(4096), b""))
        want(text.startswith(b"HTTP/1.1 400"), text)


def boto3_reads(w):
    script = f"""
import boto3, botocore.config, botocore.exceptions, sys
sys.path.insert(0, {os.path.join(HERE, "..", "drain")!r})
from load import content
style = botocore.config.Config(s3={{"addressing_style": "path"}}, retries={{"max_attempts": 1}})
def client(ca):
    return boto3.client("s3", endpoint_url={w.url!r}, verify=ca, config=style)
c = client({w.ca!r})
for seed, size in enumerate({w.store.sizes!r}):
    c.download_file("b", f"hot{{seed}}", {os.path.join(w.where, "got")!r})
    assert open({os.path.join(w.where, "got")!r}, "rb").read() == content(seed, size), seed
part = c.get_object(Bucket="b", Key="hot6", Range="bytes=1000-1999")
assert part["Body"].read() == content(6, {w.store.sizes[6]})[1000:2000]
assert len(c.list_objects_v2(Bucket="b")["Contents"]) >= 8
try:
    client(None).head_object(Bucket="b", Key="hot1")
except botocore.exceptions.SSLError:
    print("good")
"""
    _, out, _ = w.run("/usr/bin/python3", "-B", "-c", script)
    want(out.strip() == b"good", out)


def aws_cli_reads(w):
    got = os.path.join(w.where, "got")
    w.run("/usr/bin/aws", "--endpoint-url", w.url, "--ca-bundle", w.ca, "s3", "cp", "--quiet",
          "s3://b/hot7", got)
    with open(got, "rb") as f:
        want(f.read() == content(7, w.store.sizes[7]), "other bytes")
    _, out, _ = w.run("/usr/bin/aws", "--endpoint-url", w.url, "--ca-bundle", w.ca, "s3", "ls",
                      "s3://b/")
    want(b"hot7" in out, out)


def plan(epoch, *streams):
    return json.dumps({"job": "tls", "epoch": epoch, "prefix": "b/", "streams": streams}).encode()


# Older ones do not say by themselves what they have signed of the body.
SIGNED = ("--aws-sigv4", "aws:amz:us-east-1:s3", "--user", "LOADKEY:load-secret", "-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD")


def curl_signs_plans(w):
    def curl(*more, given=None):
        return json.loads(w.run("curl", "-sSf", "--cacert", w.ca, *SIGNED, *more, given=given)[1])
    said = curl("--data-binary", "@-", f"{w.url}/-/plans", given=plan(1, ["hot1", "hot2"], ["hot3"]))
    want(said["objects"] == 3, said)
    seen = [one["id"] for one in curl(f"{w.url}/-/plans")["plans"]]
    want(said["id"] in seen, seen)
    told = curl(f"{w.url}/-/plans/{said['id']}")
    want((told["job"], told["epoch"], told["streams"]) == ("tls", 1, 2), told)
    want(curl("-X", "DELETE", f"{w.url}/-/plans/{said['id']}")["dropped"], "it stays")
    # more than curl sends before it hears 100 Continue
    keys = [f"no-such-object-{n:06}" for n in range(60000)]
    lines = [json.dumps({"job": "tls", "epoch": 2, "prefix": "b/"})]
    lines += [json.dumps({"stream": n % 8, "keys": keys[n::60]}) for n in range(60)]
    said = curl("-H", "Content-Type: application/x-ndjson", "-H", "Expect: 100-continue",
                "--data-binary", "@-", f"{w.url}/-/plans", given="\n".join(lines).encode())
    want(said["objects"] == len(keys), said)
    want(curl("-X", "DELETE", f"{w.url}/-/plans/{said['id']}")["dropped"], "it stays")


def curl_hears_what_is_wrong_with_a_plan(w):
    for given, status, words in ((b'{"job":"tls",', "400", b"byte 13"),
                                 (plan(1, ["hot1"]).replace(b"hot1", b""), "400", b"entry 0"),
                                 (plan(1, ["x" * 17 * 2**20]), "413", b"16 MiB")):
        _, out, _ = w.run("curl", "-sS", "--cacert", w.ca, *SIGNED, "-w", "%{http_code}",
                          "--data-binary", "@-", f"{w.url}/-/plans", given=given)
        want(out.endswith(status.encode()) and words in out and b"<Error>" in out, out[:500])


def botocore_signs_plans(w):
    script = f"""
import json
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.httpsession import URLLib3Session
def ask(method, path, body=b"", secret="load-secret"):
    r = AWSRequest(method=method, url={w.url!r} + path, data=body,
                   headers={{"Content-Type": "application/json"}})
    S3SigV4Auth(Credentials("LOADKEY", secret), "s3", "us-east-1").add_auth(r)
    said = URLLib3Session(verify={w.ca!r}).send(r.prepare())
    return said.status_code, said.content
status, said = ask("POST", "/-/plans", {plan(3, ["hot4", "hot5"])!r})
assert status == 202 and json.loads(said)["objects"] == 2, (status, said)
name = json.loads(said)["id"]
status, said = ask("GET", "/-/plans/" + name)
assert status == 200 and json.loads(said)["job"] == "tls", (status, said)
status, said = ask("GET", "/-/plans", secret="another")
assert status == 403 and b"SignatureDoesNotMatch" in said, (status, said)
status, said = ask("DELETE", "/-/plans/" + name)
assert status == 200, (status, said)
status, said = ask("DELETE", "/-/plans/" + name)
assert status == 404 and b"NoSuchPlan" in said, (status, said)
print("good")
"""
    _, out, _ = w.run("/usr/bin/python3", "-B", "-c", script)
    want(out.strip() == b"good", out)


def the_status_page_says_https(w):
    _, out, _ = w.run("curl", "-sSf", f"http://127.0.0.1:{w.server.admin_port}/v1/status")
    want(f'"s3_url":"https://127.0.0.1:{w.port}"'.encode() in out, out)


def handshakes_are_counted(w):
    for result in ("full", "resumed", "failed"):
        want(w.server.metric(f'tls_handshakes_total{{result="{result}"}}') > 0, result)


def a_key_that_others_can_read_stops_the_start(w):
    key, log = w.server.path("tls.key"), w.server.process.log
    want(w.server.process.stop() == 0, "the end")
    os.chmod(key, 0o644)
    w.server.process.start()
    want(w.server.process.child.wait(20) == 2, "it started, or would be tried again")
    want(f"chmod 600 {key}" in procs.tail(log, 1), procs.tail(log, 1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", default="build/release/headpondd")
    where = tempfile.mkdtemp(prefix="headpond-tls-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    passed = failed = 0
    world = None
    try:
        world = World(where, parser.parse_args().program)
        for test in (curl_gets_every_byte, curl_ranges_and_one_connection,
                     curl_without_the_authority_refuses, old_versions_are_refused,
                     plain_http_is_told_so, sessions_are_resumed, nobody_renegotiates,
                     weak_ciphers_are_refused, other_protocols_are_refused, boto3_reads,
                     aws_cli_reads, curl_signs_plans, curl_hears_what_is_wrong_with_a_plan,
                     botocore_signs_plans, the_status_page_says_https, handshakes_are_counted,
                     a_key_that_others_can_read_stops_the_start):
            try:
                test(world)
                passed += 1
            except Exception as e:     # noqa: BLE001 - told and counted
                failed += 1
                print(f"NOT OK {test.__name__}: {e}", flush=True)
    except Exception as e:             # noqa: BLE001 - without a server nothing runs
        failed += 1
        print(f"NOT OK {e}")
    finally:
        if world:
            world.server.process.kill()
        shutil.rmtree(where, ignore_errors=True)
    print(f"tls: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
