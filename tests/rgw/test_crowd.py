# Sixty-four clients on one cold object: it crosses once, everybody hears something early, and who
# leaves harms nobody.
#
# SPDX-License-Identifier: Apache-2.0
import subprocess

from corpus import MIB, settle
from lab import Headpondd, Proxy, numbers
from procs import Failure, run

KEY, SIZE = "crowd@256M", 256 * MIB
CLIENTS = 64
UPSTREAM_RATE = 96 * MIB             # slow enough that "early" means something
PART = 32 * MIB


def upload(lab, o):
    """The bytes are a function of the name (tests/lib/bytes.h): every client can check them."""
    data = run([lab.program("swarm"), "-m", o.bucket, KEY]).stdout
    if len(data) != SIZE:
        raise Failure("swarm -m made too little")
    client = o.client()
    name = {"Bucket": o.bucket, "Key": KEY}
    upload_id = client.create_multipart_upload(**name)["UploadId"]
    parts = [{"PartNumber": n, "ETag": client.upload_part(
        **name, UploadId=upload_id, PartNumber=n, Body=data[at:at + PART])["ETag"]}
        for n, at in enumerate(range(0, SIZE, PART), 1)]
    client.complete_multipart_upload(**name, UploadId=upload_id, MultipartUpload={"Parts": parts})
    settle()


def run_swarm(lab, o, server, proxy, *options):
    """(its numbers, bytes from upstream when the last client had its first byte, problems)"""
    argv = [lab.program("swarm"), "-f", "-n", str(CLIENTS), *options, str(server.port),
            o.bucket, KEY]
    swarm = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        first = swarm.stdout.readline().strip()
        so_far = proxy.stats()["object_bytes"]
        rest, told = swarm.communicate(timeout=300)
    finally:
        swarm.kill()
    if first != "first":
        raise Failure(f"swarm: {first} {told[-1000:]}")
    return numbers(rest.splitlines()[-1]), so_far, told.splitlines()


def crowd(lab, o, server, proxy, leaves):
    server.empty().start()
    proxy.mark()
    proxy.rate(UPSTREAM_RATE)
    options = ["-x", str(3 * MIB)] if leaves else []
    got, so_far, problems = run_swarm(lab, o, server, proxy, *options)
    proxy.rate(0)
    readers = CLIENTS - 1 if leaves else CLIENTS
    if got["reads"] != readers or got["failed"]:
        problems.append(f"{got['reads']} of {readers} clients got all, {got['failed']} failed")
    if so_far >= SIZE:
        problems.append("a client's first byte came after the upstream's last")
    problems += proxy.object_problems(SIZE)
    server.finish()
    return problems


def run_all(lab, o, ceph):
    upload(lab, o)
    proxy = lab.begin(Proxy(lab, "proxy-crowd", ceph.port))
    server = Headpondd(lab, "crowd", proxy.port, o.user.access, o.user.secret)
    lab.children.append(server)
    name = f"{CLIENTS} clients, one cold object: 1.00 x upstream, early bytes"
    with lab.report.test(name) as problems:
        problems += crowd(lab, o, server, proxy, leaves=False)
    server.kill()
    with lab.report.test("the same when the first client leaves midway") as problems:
        problems += crowd(lab, o, server, proxy, leaves=True)
    server.kill()
    proxy.stop()
    o.client().delete_object(Bucket=o.bucket, Key=KEY)
