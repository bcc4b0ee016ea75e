#!/usr/bin/env python3
"""Commands of an operator that want a store with a network, several servers, or root's directories: bench, prewarm --force and --via,
setup. A part of admin.sh; operator.py NAME does one of them and ends with 0, or tells what was wrong.

SPDX-License-Identifier: Apache-2.0"""
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
for folder in ("rgw", "prewarm"):
    sys.path.insert(0, os.path.join(TOP, "tests", folder))
from prewarm import BUILD, Server, Store, ends, expect  # noqa: E402
from procs import Process, clean_environment, free_port, run, wait_until  # noqa: E402

KEYS = {"AWS_ACCESS_KEY_ID": "AKIDPREWARM", "AWS_SECRET_ACCESS_KEY": "secret-of-prewarm"}
SIZE = 20 * 1000 * 1000
RATE = r"[0-9.]+ [KMG]?B/s"


class World:
    """A store, and servers before it."""

    def __init__(self, where):
        self.where, self.store, self.servers = where, Store(), []

    def server(self, *more, upstream=None):
        folder = os.path.join(self.where, f"s{len(self.servers)}")
        os.mkdir(folder)
        server = Server(folder, upstream or f"http://127.0.0.1:{self.store.port}")
        self.servers.append(server)
        # A machine that stands still for seconds is no disk that fails, and no store that is away.
        server.start("--set", "cache.disk_timeout=0s", "--set", "upstream.read_timeout=2m", "--set", "upstream.connect_timeout=1m", *more)
        return server

    def end(self):
        for server in self.servers:
            if server.process:
                server.process.kill()
        self.store.end()


def headpond(server, *words, **environment):
    argv = [os.path.join(BUILD, "headpond"), "--server", f"unix:{server.socket}", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False, env=clean_environment(**environment))


def lines_of(done):
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    expect(lines and all(one["v"] == 1 for one in lines), f"no lines of version 1: {done.stdout}")
    return lines


def pins(server):
    return lines_of(headpond(server, "--json", "pins"))[0]["pins"]


def bench(world):
    """Three lines; cold is cold, and warm asks the store for nothing."""
    store = world.store
    store.say("bucket b")
    for key in ("one", "other", "other-one", "tiny"):
        store.say(f"object b {key} size={7 if key == 'tiny' else SIZE}")
    store.count("requests")
    server = world.server()
    store.say("mark")
    done = headpond(server, "bench", "s3://b/one", "--clients", "4")
    ends(done, 0)
    pattern = (rf"origin directly +{RATE}    first byte +[0-9.]+ m?s\n" rf"through us, cold +{RATE}    first byte +[0-9.]+ m?s\n"
               rf"through us, warm +{RATE}    first byte +[0-9.]+ m?s     [0-9.]+ x\n")
    expect(re.fullmatch(pattern, done.stdout), f"{done.stdout!r}")
    body = store.count("body_bytes")
    expect(2 * SIZE <= body < 3 * SIZE, f"{body} bytes came from the store, not twice {SIZE}")
    ends(headpond(server, "bench", "s3://b/one"), 2, r"19\.07 of 19\.07 MiB of it are here already; say --yes")
    store.say("mark")
    lines = lines_of(headpond(server, "--json", "bench", "s3://b/one", "--yes", "--clients", "3", "--seconds", "30"))
    expect([one["line"] for one in lines] == ["direct", "cold", "warm"], f"{lines}")
    expect(lines[0]["bytes"] == lines[1]["bytes"] == SIZE and lines[2]["bytes"] >= SIZE, f"{lines}")
    expect(lines[2]["hits"] == lines[2]["requests"] and lines[2]["times"] > 0, f"{lines}")
    expect(all(one["clients"] == 3 for one in lines), f"{lines}")
    body = store.count("body_bytes")
    expect(2 * SIZE <= body < 3 * SIZE, f"with what was here dropped: {body} bytes came from the store, not twice {SIZE}")
    ends(headpond(server, "bench", "s3://b/tiny"), 0, "through us, warm")
    refused(world, server)


def refused(world, server):
    """What cannot be measured is told, and why."""
    for key in ("other", "other-one"):
        server.read(key)
    ends(headpond(server, "bench", "s3://b/other", "--yes"), 2, "other objects that are here begin with that key")
    ends(headpond(server, "pin", "s3://b/other-one"), 0)
    wait_until("the pin", lambda: '"pinned":true' in headpond(server, "--json", "ls", "--cached", "s3://b/other-one").stdout, 60)
    ends(headpond(server, "bench", "s3://b/other-one", "--yes"), 1, "it is pinned")
    ends(headpond(server, "bench", "s3://b/none"), 4, "no such object")
    world.store.say("set b/tiny status=403 code=AccessDenied")
    ends(headpond(server, "evict", "s3://b/tiny", "--yes"), 0)
    ends(headpond(server, "bench", "s3://b/tiny"), 6, "auth.anonymous")
    world.store.say("unset b/tiny")
    ends(headpond(server, "bench", "s3://b/tiny", AWS_CONFIG_FILE="/nonexistent", AWS_EC2_METADATA_DISABLED="true",
                  AWS_WEB_IDENTITY_TOKEN_FILE="/nowhere", AWS_ROLE_ARN="arn:aws:iam::1:role/r"), 1, "export-credentials")


def bench_signed(world):
    """A server over TLS that lets nobody read without a signature."""
    where = world.where
    world.store.say("bucket b")
    world.store.say(f"object b one size={SIZE}")
    world.store.count("requests")
    run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=bench",
         "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", f"{where}/key", "-out", f"{where}/pem"])
    os.chmod(f"{where}/key", 0o600)
    server = world.server("--set", "auth.anonymous=10.9.8.7/32", "--set", f"server.tls_cert={where}/pem", "--set", f"server.tls_key={where}/key")
    ends(headpond(server, "bench", "s3://b/one", **KEYS), 5, "TLS|certificate")
    trusting = {"AWS_CA_BUNDLE": f"{where}/pem"}
    ends(headpond(server, "bench", "s3://b/one", **trusting), 6, "auth.anonymous")
    ends(headpond(server, "bench", "s3://b/one", **trusting, **KEYS), 0, "through us, warm")


def force(world):
    """More than fits: what does, in its order; others leave, the pinned stays."""
    store, each, count = world.store, 16 << 20, 60
    store.say("bucket b")
    store.say(f"objects b big/o-## {count} size={each}")
    store.say(f"objects b other/o-## 22 size={each}")
    store.say(f"object b kept/one size={each}")
    store.count("requests")
    server = world.server()
    ends(headpond(server, "prewarm", "s3://b/kept/", "--pin"), 0)
    ends(headpond(server, "prewarm", "s3://b/other/"), 0)
    ends(headpond(server, "prewarm", "s3://b/big/"), 7, "It does not fit: ", "--force brings what fits")
    ends(headpond(server, "prewarm", "s3://b/big/", "--force", "--dry-run"), 7, "It does not fit: ")
    ends(headpond(server, "prewarm", "s3://b/big/", "--pin"), 7, "It does not fit: ")
    expect([one["prefix"] for one in pins(server)] == ["b/kept/"], f"nothing was fetched, but pinned: {pins(server)}")
    ends(headpond(server, "pin", "s3://b/big/", "--until", "1h"), 0)
    before = pins(server)
    ends(headpond(server, "prewarm", "s3://b/big/", "--pin"), 7, "It does not fit: ")
    expect(pins(server) == before, f"a pin of before has changed: {pins(server)}, not {before}")
    ends(headpond(server, "unpin", "s3://b/big/"), 0)
    store.say("mark")
    done = headpond(server, "--json", "prewarm", "s3://b/big/", "--force")
    expect(done.returncode == 3, f"exit {done.returncode}: {done.stdout}{done.stderr}")
    job = json.loads(done.stdout)
    brought = job["objects"]["done"]
    expect(0 < brought < count and job["objects"]["failed"] == count - brought, f"{job}")
    expect(job["failures"][0] == {"key": f"big/o-{brought:02}", "error": "NoRoom", "tries": 1}, f"{job['failures']}")
    expect(brought * each <= job["bytes"]["free"] < (brought + 1) * each, f"{brought} objects of {each} in {job['bytes']}")
    body = store.count("body_bytes")
    expect(brought * each <= body < count * each, f"{body} bytes came for {brought} of {count} objects of {each}")
    here = [one["key"] for one in lines_of(headpond(server, "--json", "ls", "--cached", "s3://b/")) if one["cached"] == one["size"]]
    lost = {f"big/o-{n:02}" for n in range(brought)} - set(here)
    expect(len(lost) <= 2, f"{lost} have left again")  # eviction looks at samples: what is coldest it does not always find
    expect(len([key for key in here if key.startswith("other/")]) < 22, "no other has left")
    expect("kept/one" in here, "what was pinned has left")
    expect(server.read("kept/one")[0] == "hit", "what was pinned is no hit")


def balancer(world, servers):
    """The shipped file, with the addresses of here."""
    port = free_port()
    with open(os.path.join(TOP, "conf", "haproxy.cfg"), encoding="utf-8") as f:
        text = f.read()
    changes = [("10.0.0.11:9000", f"127.0.0.1:{servers[0].port}"), ("10.0.0.12:9000", f"127.0.0.1:{servers[1].port}"),
               ("bind 127.0.0.1:9000", f"bind 127.0.0.1:{port}"), ("bind 127.0.0.1:9101", f"bind 127.0.0.1:{free_port()}"),
               ("/run/haproxy/admin.sock", f"{world.where}/haproxy.sock"),
               # a machine that stands still for seconds moves no key
               ("check inter 1s fall 2", "check inter 10s fall 10"), ("timeout connect 1s", "timeout connect 1m"),
               ("option redispatch 1", "no option redispatch")]
    for old, new in changes:
        expect(old in text, f"haproxy.cfg has no {old} any more")
        text = text.replace(old, new)
    path = os.path.join(world.where, "haproxy.cfg")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    process = Process("haproxy", ["haproxy", "-db", "-f", path], os.path.join(world.where, "haproxy.log")).start()
    url = f"http://127.0.0.1:{port}"
    process.wait_ready(lambda: subprocess.run(["curl", "-sf", "-o", "/dev/null", f"{url}/b/"], check=False).returncode == 0, 60)
    return process, url


def via(world):
    """Two servers behind HAProxy: each object comes once, to the one that will be asked for it."""
    store, count = world.store, 40
    store.say("bucket b")
    store.say(f"objects b train/o-## {count} size=3M")
    store.say("object b train/big.bin size=21M")
    store.say("object b train/empty size=0")
    store.count("requests")
    servers = [world.server(), world.server()]
    process, url = balancer(world, servers)
    try:
        store.say("mark")
        want = count * (3 << 20) + (21 << 20)
        ends(headpond(servers[0], "prewarm", "s3://b/train/", "--via", url, "--dry-run"), 0, "would fetch 42 objects, 141.0 MiB through http://")
        expect(store.count("body_bytes") < 100_000, "a dry run fetched")
        done = headpond(servers[0], "prewarm", "s3://b/train/", "--via", url)
        ends(done, 0, "prewarm: 42 objects, 141.0 MiB through http://", r"(?m)^done in \d+s: 42 of 42 objects, 141.0 MiB$")
        homes = [{one["key"]: one for one in map(json.loads, headpond(s, "--json", "ls", "--cached", "s3://b/train/").stdout.splitlines())
                  if one["cached"] >= one["size"]} for s in servers]
        expect(all(len(home) > 5 for home in homes), f"{[len(home) for home in homes]} objects")
        body = store.count("body_bytes")
        expect(want <= body < 1.3 * want, f"{body} bytes came from the store for {want}")
        store.say("mark")
        for key in [f"train/o-{n:02}" for n in range(count)] + ["train/big.bin"]:
            got = subprocess.run(["curl", "-sf", "-o", "/dev/null", "-D-", f"{url}/b/{key}"], capture_output=True, text=True, check=True).stdout
            expect("x-cache: hit" in got.lower(), f"{key}: {got!r}")
        expect(store.count("get") == 0, "the store was asked again")
        path = os.path.join(world.where, "keys.txt")
        with open(path, "w", encoding="utf-8") as f:
            f.write("train/o-01\ntrain/none\ntrain/o-02\n")
        done = headpond(servers[0], "prewarm", "s3://b/", "--manifest", path, "--via", url)
        ends(done, 3, "2 of 3 objects, 6.00 MiB", "1 failed: train/none NoSuchKey")
        with open(path, "w", encoding="utf-8") as f:
            f.write('{"key":"train/none","size":0}\n{"key":"train/o-01","etag":"another"}\n{"key":"train/o-02","size":0}\n'
                    '{"key":"train/empty","size":0}\n')
        done = headpond(servers[0], "prewarm", "s3://b/", "--manifest", path, "--via", url)
        ends(done, 3, "1 of 4 objects", "3 failed: ", "train/none NoSuchKey", "train/o-01 OtherETag", "train/o-02 OtherSize")
        lines = lines_of(headpond(servers[0], "--json", "prewarm", "s3://b/train/", "--include", "o-0*", "--via", url))
        expect(lines[0]["objects"] == {"wanted": 10, "done": 10, "failed": 0}, f"{lines}")
        ends(headpond(servers[0], "prewarm", "s3://none/", "--via", url), 4, "no such bucket")
    finally:
        process.kill()


def setup(world):
    """Below DESTDIR: what is written, kept, refused, put aside."""
    root = os.path.join(world.where, "root")
    unit = os.path.join(root, "etc/systemd/system/headpond.service")
    os.makedirs(os.path.dirname(unit))
    shutil.copy(os.path.join(TOP, "conf", "headpond.service"), unit)
    path = os.path.join(root, "etc/headpond/headpond.toml")

    def setup_of(*words, **environment):
        argv = [os.path.join(BUILD, "headpond"), "setup", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False,
                              env=clean_environment(DESTDIR=root, **environment))

    words = ("--upstream", "https://s3.eu-central-1.amazonaws.com", "--cache", "/nvme0/headpond", "--cache", "/mnt/data/cache")
    ends(setup_of("--upstream", "ftp://x", "--cache", "/nvme0/headpond"), 2, r"headpond.toml:\d+:\d+: ", "nothing was changed")
    ends(setup_of("--upstream", "http://m:9000"), 2, "headpond setup --upstream https")
    for bad, why in (("/home", "ProtectHome"), ("cache", "whole path"), ("/tmp/c", "PrivateTmp"), ("/a/../b", "whole path")):
        ends(setup_of("--upstream", "http://m:9000", "--cache", bad), 2, why)
    expect(not os.path.exists(path) and os.listdir(root) == ["etc"], "a refused setup left something")
    ends(setup_of(*words), 0, f"wrote {path}", f"made {root}/nvme0/headpond", "systemctl --root=", "headpond bench s3://")
    for cache in ("/nvme0/headpond", "/mnt/data/cache"):
        mode = stat.S_IMODE(os.stat(root + cache).st_mode)
        expect(mode == 0o700, f"{cache}: mode {mode:o}")
    expect(os.path.islink(os.path.join(root, "etc/systemd/system/multi-user.target.wants/headpond.service")), "the unit is not enabled")
    with open(unit + ".d/cache.conf", encoding="utf-8") as f:
        expect("ReadWritePaths=-/mnt/data/cache" in f.read(), "the unit does not let it write there")
    ends(subprocess.run([os.path.join(BUILD, "headpondd"), "check", "--config", path], capture_output=True, text=True, check=False,
                        env=clean_environment()), 0, "ok")
    with open(path, encoding="utf-8") as f:
        first = f.read()
    ends(setup_of(*words), 0, f"kept {path}", f"use {root}/nvme0/headpond", f"kept {unit}.d/cache.conf")
    other = ("--upstream", "http://minio:9000", *words[2:])
    ends(setup_of(*other), 1, "--force puts it aside")
    with open(path, encoding="utf-8") as f:
        expect(f.read() == first, "a refused setup changed the file")
    lines = lines_of(setup_of("--json", *other, "--force"))
    expect({"v": 1, "did": "wrote", "what": path} in lines, f"{lines}")
    with open(path + ".old", encoding="utf-8") as f:
        expect(f.read() == first, "the old file is lost")
    with open(path, encoding="utf-8") as f:
        second = f.read()
    expect('endpoint = "http://minio:9000"' in second, "another file was written")
    ends(setup_of("--upstream", "http://minio:9001", *words[2:], "--force"), 0, f"put the old file aside as {path}.old.2")
    for aside, text in (("", first), (".2", second)):
        with open(path + ".old" + aside, encoding="utf-8") as f:
            expect(f.read() == text, f"the file that was put aside as .old{aside} is lost")
    os.symlink("/nvme0", os.path.join(root, "link"))
    ends(setup_of(*other[:2], "--cache", "/link", "--force"), 1, "is no directory")
    os.mkdir(os.path.join(root, "full"))
    with open(os.path.join(root, "full", "file"), "w", encoding="utf-8"):
        pass
    if os.geteuid() == 0:
        os.chown(os.path.join(root, "full"), 12345, 12345)
        ends(setup_of(*other[:2], "--cache", "/full", "--force"), 1, "somebody else")
        argv = ["setpriv", "--reuid=65534", "--clear-groups", os.path.join(BUILD, "headpond"), "setup", *words]
        ends(subprocess.run(argv, capture_output=True, text=True, check=False, env=clean_environment()), 6, "sudo headpond setup")


PARTS = {"bench": bench, "bench-signed": bench_signed, "force": force, "via": via, "setup": setup}


def main():
    where = tempfile.mkdtemp(prefix="headpond-operator-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    world = World(where)
    try:
        PARTS[sys.argv[1]](world)
    finally:
        world.end()
        shutil.rmtree(where, ignore_errors=True)


if __name__ == "__main__":
    main()
