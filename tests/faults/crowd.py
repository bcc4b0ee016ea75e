# A thousand clients on one cold object: it crosses once, whoever leaves and whatever breaks once.
#
# SPDX-License-Identifier: Apache-2.0
from lab import Headpondd, Origin, Proxy

M = 1 << 20
CLIENTS = 1000
TWO_CHUNKS, ONE_CHUNK = ("crowd@8M+64K", 8 * M + 65536), ("crowd@3M", 3 * M)


def run_one(lab, number, what, key, size, options, bend, gets, spare_bytes):
    """spare_bytes: what a broken transfer may cost beyond one of each byte."""
    with lab.report.test(f"{CLIENTS} clients on one cold object: {what}") as problems:
        origin = lab.begin(Origin(lab, f"origin-crowd{number}"))
        proxy = lab.begin(Proxy(lab, f"proxy-crowd{number}", origin.port))
        server = lab.begin(Headpondd(lab, f"crowd{number}", proxy.port, server__workers=2).empty())
        if bend:
            origin.do(bend)
        proxy.rate(4 * M)            # so that all of them come while it is on its way
        got, told = lab.swarm("-n", CLIENTS, "-e", *options, server.port, "c", key, timeout=300)
        problems += told
        readers = CLIENTS - bool(options)
        if got["reads"] != readers or got["failed"]:
            problems.append(f"{got['reads']} of {readers} clients got all, {got['failed']} failed")
        server.wait_committed()
        stats = proxy.stats()
        asked = [r for r in proxy.requests() if r.startswith("GET ")]
        if len(asked) > gets:
            problems.append(f"{len(asked)} transfers, at most {gets} wanted")
            problems += asked[:5]
        if not size <= stats["object_bytes"] <= size + spare_bytes:
            problems.append(f"{stats['object_bytes']} bytes from upstream for {size}")
        problems += lab.log_problems(server)
        server.finish()
        proxy.stop()
        origin.stop()


CASES = (
    # what, (key, size), swarm's options, the origin's fault, transfers at most, spare bytes
    ("one transfer per chunk", TWO_CHUNKS, [], "", 2, 0),
    ("the first one leaves", ONE_CHUNK, ["-x", M], "", 1, 0),
    ("the transfer breaks once", ONE_CHUNK, [], "next c cut=1M+4711 reset=1", 2, 0),
    ("the transfer never begins once", ONE_CHUNK, [], "next c reset=1", 2, 0),
    ("an error once", ONE_CHUNK, [], "next c status=500", 2, 0),
)


def run_all(lab):
    for number, (what, (key, size), *rest) in enumerate(CASES):
        run_one(lab, number, what, key, size, *rest)
