# Every client uploads, through the server, to every store, and everybody reads what was written.
#
#   clients.py [word...]       only uploads whose name holds one of the words; FULL=1: 1 GiB as well
#
# Each of uploaders.CLIENTS, over HTTP and over the server's own HTTPS, uploads to
#
#   store      how                     sizes
#   scripted   one request             0, 8 MiB + 1, 64 MiB (FULL: 1 GiB)
#   moto       as the client does      5 MiB, 8 MiB + 1 (FULL: 0, 64 MiB)
#   RGW        as the client does      5 MiB, 64 MiB (FULL: 0, 8 MiB + 1, 1 GiB)
#
# For each object:
#  - the store, read past the server, has the right bytes;
#  - the checksums that the store was sent are the ones that this client sends, all of them right,
#    and moto, which keeps them, has them;
#  - the server's own answer has the right bytes, and is a hit, if parts were whole MiBs and the
#    store told their ETag.
# In the end the logs of the servers have no line above info, and nothing that was kept was wrong.
#
# The last line is "clients: N passed, N failed"; exit status 0 only if some passed and none failed.
#
# SPDX-License-Identifier: Apache-2.0
import hashlib
import os
import shutil
import signal
import ssl
import sys
import tempfile
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", name) for name in ("rgw", "drain")]
import uploaders                       # noqa: E402
from drain import Authority            # noqa: E402
from lab import Headpondd, Lab         # noqa: E402
from procs import run, wait_until      # noqa: E402
from stores import Gateway, Moto, Scripted  # noqa: E402
from wire import path_of               # noqa: E402

MIB, GIB = 1 << 20, 1 << 30
BUCKET = "uploads"
FULL = os.environ.get("FULL") == "1"
SIZES = {
    "scripted": [0, 8 * MIB + 1, 64 * MIB] + [GIB] * FULL,
    "moto": [5 * MIB, 8 * MIB + 1] + [0, 64 * MIB] * FULL,
    "rgw": [5 * MIB, 64 * MIB] + [0, 8 * MIB + 1, GIB] * FULL,
}

# of each start here
EXPECTED = ("upstream without TLS", "server.congestion=cubic")


class Pond(Headpondd):
    """A server before one store, with TLS or without."""

    def __init__(self, lab, name, store, authority, **settings):
        super().__init__(lab, name, store.port, store.user.access, store.user.secret,
                         cache__size="6GiB" if FULL else "3GiB", cache__immutable=False, **settings)
        self.authority = authority
        self.ca = os.path.join(authority.where, "ca.pem") if authority else None
        self.context = ssl.create_default_context(cafile=self.ca) if authority else None
        if authority:
            self.endpoint = self.endpoint.replace("http:", "https:")
            self.settings["server.tls_cert"] = f"{self.dir}/tls.pem"
            self.settings["server.tls_key"] = f"{self.dir}/tls.key"

    def empty(self):
        super().empty()
        if self.authority:
            self.authority.issue(f"{self.dir}/tls.pem", f"{self.dir}/tls.key")
            if self.lab.user:
                os.chown(f"{self.dir}/tls.key", self.lab.user.pw_uid, self.lab.user.pw_gid)
        return self

    def _status(self, port, path):
        try:
            with self.open(path) as answer:
                return answer.status
        except urllib.error.HTTPError as e:
            return e.code
        except (urllib.error.URLError, OSError):
            return 0

    def open(self, path):
        return urllib.request.urlopen(self.endpoint + path, timeout=60, context=self.context)

    def read(self, key):
        """(sha256, x-cache) of the object through the server, unsigned."""
        digest = hashlib.sha256()
        with self.open(path_of(BUCKET, key)) as answer:
            for part in iter(lambda: answer.read(MIB), b""):
                digest.update(part)
            return digest.hexdigest(), answer.headers["x-cache"]


def size_name(size):
    unit, letter = (GIB, "G") if size >= GIB else (MIB, "M")
    return f"{size // unit}{letter}" + ("+1" if size % unit else "")


def make(lab, key, size):
    """The bytes that the scripted store takes for that key, as a file."""
    path = lab.path("file." + key.replace("/", "."))
    with open(path, "wb") as f:
        if size:
            f.write(run([lab.program("swarm"), "-m", BUCKET, f"{key}"]).stdout)
    if os.path.getsize(path) != size:
        raise RuntimeError(f"{path}: {os.path.getsize(path)} bytes made, not {size}")
    return path


def sums_problems(client, sent, empty):
    """Of every request with bytes: what the client sends is there, and all that is there right.
    minio-go announces a trailer for an empty body, and sends none."""
    problems = []
    for sums in sent:
        problems += [f"{name} is wrong at the store" for name, right in sums.items() if not right]
        if not empty:
            problems += [f"{name} did not come to the store" for name in client.sums - sums.keys()]
    return sorted(set(problems))


def object_problems(client, store, pond, key, path, kept):
    with open(path, "rb") as f:
        content = f.read()
    want = hashlib.sha256(content).hexdigest()
    problems = []
    got = store.sha256(BUCKET, key)
    if got != want:
        problems.append(f"the store has other bytes: {got}")
    problems += sums_problems(client, store.sent(BUCKET, key, content) or [], not content)
    problems += store.problems(BUCKET, key, content)
    got, x_cache = pond.read(key)
    if got != want:
        problems.append("read through the server it has other bytes")
    if kept and x_cache != "hit":
        problems.append(f"x-cache is {x_cache}, not hit")
    return [f"{key}: {p}" for p in problems]


def is_kept(store, size, single):
    """Certainly a hit. Of parts in parallel a short last one may come first: that is not kept."""
    return size > 0 and (single or (store.keeps_parts and size % MIB == 0))


def upload_test(lab, client, store_name, store, pond, scheme):
    parts = client.parts and store.parts and (client.moto_parts or store_name != "moto")
    folder = f"{client.name.replace(' ', '-')}-{scheme}"
    keys = {f"{folder}/{size_name(s)}@{s}": s for s in SIZES[store_name]}
    pairs = [(key, make(lab, key, size)) for key, size in keys.items()]
    for key, path in pairs:
        with open(path, "rb") as f:
            store.prepare(BUCKET, key, f.read())
    problems = []
    client.upload(uploaders.Job(pond.endpoint, pond.ca, store.user, BUCKET, pairs, not parts))
    for key, path in pairs:
        kept = is_kept(store, keys[key], not parts)
        problems += object_problems(client, store, pond, key, path, kept)
        os.unlink(path)
        store.remove(BUCKET, key)
    return problems


def framing_problems(lab, store):
    """Whether minio-go still does what it stands for here; asked without the server."""
    problems = []
    for client in uploaders.CLIENTS:
        want = {"minio-go": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
                "minio-go trailer": "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"}.get(client.name)
        if not want:
            continue
        key = f"direct/{client.name.replace(' ', '-')}@{MIB}"
        client.upload(uploaders.Job(f"http://127.0.0.1:{store.port}", None, store.user, BUCKET,
                                    [(key, make(lab, key, MIB))], True))
        got = [put["payload"] for put in store.puts(BUCKET, key)]
        if got != [want]:
            problems.append(f"{client.name} sends {got}, not {want}")
    return problems


def wanted(name, words):
    return not words or any(w in name for w in words)


def server_problems(lab, pond):
    with open(pond.log, errors="replace") as f:
        bad = [line.rstrip() for line in f if (" l=warn " in line or " l=error " in line)
               and not any(word in line for word in EXPECTED)]
    failed = {k: v for k, v in pond.metrics().items()
              if k.startswith("headpond_checksum_failures_total") and v}
    return lab.log_problems(pond) + bad + [f"{k} is {v}" for k, v in failed.items()]


def run_store(lab, name, begin, words):
    tests = [(c, s) for c in uploaders.CLIENTS for s in uploaders.SCHEMES
             if wanted(f"{c.name} {s} {name}", words) and (c.single or name != "scripted")]
    if not tests:
        return
    store = begin(lab)                 # or nothing of this is run, which fails
    store.make_bucket(BUCKET)
    if name == "moto":
        with lab.report.test("minio-go signs its chunks, and its trailer") as problems:
            problems += framing_problems(lab, store)
    ponds = {}
    for scheme in sorted({s for _, s in tests}):
        authority = None
        if scheme == "https":
            authority = Authority(lab.path())
        ponds[scheme] = lab.begin(Pond(lab, f"{name}-{scheme}", store, authority,
                                       **store.settings).empty())
    for client, scheme in tests:
        with lab.report.test(f"{client.name} {scheme} {name}") as problems:
            problems += upload_test(lab, client, name, store, ponds[scheme], scheme)
    for scheme, pond in ponds.items():
        with lab.report.test(f"{name} {scheme}: the server's log is clean") as problems:
            problems += server_problems(lab, pond)
            pond.finish()


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = tempfile.mkdtemp(prefix="headpond-clients-", dir=os.environ.get("TMPDIR", "/var/tmp"))
    lab = Lab(folder, server=os.environ.get("HEADPONDD"))
    stores = {"scripted": Scripted, "moto": lambda lab: Moto(lab, uploaders.CURRENT_PYTHON),
              "rgw": Gateway}
    try:
        for name, begin in stores.items():
            with lab.report.test(f"uploads to {name} run to their end", guard=True):
                run_store(lab, name, begin, sys.argv[1:])
            lab.end()
    finally:
        lab.end()
        if lab.report.failed:
            print(f"# kept {lab.dir}")
        else:
            shutil.rmtree(lab.dir, ignore_errors=True)
    r = lab.report
    print(f"clients: {r.passed} passed, {r.failed} failed", flush=True)
    sys.exit(1 if r.failed or not r.passed else 0)


if __name__ == "__main__":
    main()
