# Objects that change in RGW behind the server's back: what the next read through the server must
# give.
#
# SPDX-License-Identifier: Apache-2.0
import hashlib
import random

from boto3.s3.transfer import TransferConfig
from deviations import Case, Table, compare
from lab import Headpondd, Proxy
from procs import Failure, wait_until
from wire import Wire, path_of

BUCKET = "changing"
SIZES = (5000, 6 << 20)


def data_of(name, size):
    return hashlib.shake_128(name.encode()).digest(size)


class Fresh:
    def __init__(self, lab, o, ceph, name, **settings):
        self.client = o.client()
        self.proxy = lab.begin(Proxy(lab, "proxy-" + name, ceph.port))
        server = Headpondd(lab, name, self.proxy.port, o.user.access, o.user.secret, **settings)
        self.server = lab.begin(server.empty())
        self.direct, self.through = Wire(ceph.port, o.user), Wire(self.server.port, o.user)

    def put(self, key, data):
        return self.client.put_object(Bucket=BUCKET, Key=key, Body=data)["ETag"]

    def reads(self, key, data, upstream_bytes):
        """Reads the key: these bytes, and so many of them from upstream."""
        self.proxy.mark()
        answer = self.through.ask("GET", path_of(BUCKET, key))
        problems = self.proxy.object_problems(upstream_bytes)
        if answer.status != 200 or answer.sha256 != hashlib.sha256(data).hexdigest():
            problems.append(f"{answer.status}, {answer.body_bytes} bytes, not what RGW holds now")
        return problems

    def end(self):
        self.server.finish()
        self.proxy.stop()


def always_asked(lab, o, ceph):
    """ttl = 0: what RGW holds when the request arrives."""
    f = Fresh(lab, o, ceph, "fresh", cache__ttl="0s", cache__immutable=False)
    for size in SIZES:
        key, old, new = f"key-{size}", data_of("old", size), data_of("new", size)
        f.put(key, old)
        with lab.report.test(f"{size} bytes: kept while nothing changes") as problems:
            problems += f.reads(key, old, size) + f.reads(key, old, 0)
        with lab.report.test(f"{size} bytes: replaced") as problems:
            etag = f.put(key, new)
            problems += f.reads(key, new, size) + f.reads(key, new, 0)
        with lab.report.test(f"{size} bytes: same bytes, other fields") as problems:
            f.client.copy_object(Bucket=BUCKET, Key=key, CopySource={"Bucket": BUCKET, "Key": key},
                                 MetadataDirective="REPLACE", Metadata={"now": "other"},
                                 ContentType="x/other")
            problems += f.reads(key, new, 0)
            head = f.through.ask("HEAD", path_of(BUCKET, key)).fields
            got = (head.get("x-amz-meta-now"), head.get("content-type"), head.get("etag"))
            if got != ("other", "x/other", etag):
                problems.append(f"HEAD: {head}")
        with lab.report.test(f"{size} bytes: deleted, and there again") as problems:
            f.client.delete_object(Bucket=BUCKET, Key=key)
            status = f.through.ask("GET", path_of(BUCKET, key)).status
            if status != 404:
                problems.append(f"{status} of a deleted object")
            f.put(key, data_of("again", size))
            problems += wait_negative(f, key) + f.reads(key, data_of("again", size), size)
    f.end()


def wait_negative(f, key):
    """A 404 may be remembered for cache.negative_ttl (1 s)."""
    path = path_of(BUCKET, key)
    try:
        wait_until("the 404 is forgotten", lambda: f.through.ask("HEAD", path).status == 200, 3)
    except Failure as e:
        return [str(e)]
    return []


def known_better(lab, o, ceph):
    """A long ttl, and a client whose If-Match names a newer version: it must not hear 412."""
    f = Fresh(lab, o, ceph, "conditions", cache__ttl="24h", cache__immutable=False)
    with lab.report.test("If-Match of a newer version than the cached one") as problems:
        key, old, new = "if-match", data_of("old", 5000), data_of("new", 5000)
        before = f.put(key, old)
        problems += f.reads(key, old, 5000)
        after = f.put(key, new)
        got = f.through.ask("GET", path_of(BUCKET, key), headers={"If-Match": after})
        if got.status != 200 or got.sha256 != hashlib.sha256(new).hexdigest():
            problems.append(f"{got.status} to the newer ETag")
        got = f.through.ask("GET", path_of(BUCKET, key), headers={"If-Match": before})
        if got.status != 412:
            problems.append(f"{got.status} to the older ETag")
    f.end()


class Version:
    """What deviations.py wants to know of an object."""
    part = 0

    def __init__(self, key, data):
        self.key, self.size, self.data = key, len(data), data

    def bytes(self):
        return self.data


def versions(lab, o, ceph):
    f = Fresh(lab, o, ceph, "versions", cache__ttl="0s", cache__immutable=False)
    bucket, path = "versioned", path_of("versioned", "key")
    f.client.create_bucket(Bucket=bucket)
    f.client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    made = []
    for number in range(3):
        data = data_of(f"version {number}", 4000 + number)
        made.append((f.client.put_object(Bucket=bucket, Key="key", Body=data)["VersionId"], data))
    table = Table()
    with lab.report.test("versions of an object") as problems:
        for version, data in [*made, (None, made[-1][1]), *made]:
            query = (("versionId", version),) if version else ()
            for method in ("GET", "HEAD"):
                case, item = Case(f"{method} {version}", method, query), Version("key", data)
                direct = f.direct.ask(method, path, query)
                e = table.expect(case, item, direct, direct)
                answer = f.through.ask(method, path, query)
                problems += [f"{case.name}: {p}" for p in compare(case, item, e, answer, data)]
    with lab.report.test("versions that are cached need no byte") as problems:
        f.proxy.mark()
        for version, data in made:
            if f.through.ask("GET", path, (("versionId", version),)).body_bytes != len(data):
                problems.append(f"{version}: wrong length")
        problems += f.proxy.object_problems(0)
    with lab.report.test("a delete marker hides the object, not its versions") as problems:
        f.client.delete_object(Bucket=bucket, Key="key")
        first = (("versionId", made[0][0]),)
        status = [f.through.ask("GET", path, query).status for query in ((), first)]
        if status != [404, 200]:
            problems.append(f"current and first version: {status}")
    f.end()


def uploads_in_parts(lab, o, ceph):
    """As boto3 uploads files: parts side by side, the last one, which is shorter, often first."""
    f = Fresh(lab, o, ceph, "uploads", cache__ttl="1h", cache__immutable=False)
    client = o.client(f"http://127.0.0.1:{f.server.port}")
    for size in (24 << 20, (24 << 20) + 1, (27 << 20) + 12345, (28 << 20)):
        for turn in range(3):
            key, data = f"file-{size}-{turn}", data_of(f"{size} {turn}", size)
            path = lab.path("upload")
            with open(path, "wb") as file:
                file.write(data)
            with lab.report.test(f"a file of {size} bytes is read back without asking") as problems:
                client.upload_file(path, BUCKET, key, Config=TransferConfig(max_concurrency=10))
                problems += f.reads(key, data, 0)
    for turn in range(4):
        size = (24 << 20) + 1
        key, data = f"last-first-{turn}", data_of(f"last first {turn}", size)
        with lab.report.test(f"the last part first, turn {turn}") as problems:
            parts = {}
            name = {"Bucket": BUCKET, "Key": key}
            upload = {**name, "UploadId": client.create_multipart_upload(**name)["UploadId"]}
            order = [4, *random.Random(turn).sample([1, 2, 3], 3)]
            for number in order:
                at = (number - 1) << 23
                parts[number] = client.upload_part(**upload, PartNumber=number,
                                                   Body=data[at:at + (8 << 20)])["ETag"]
            client.complete_multipart_upload(**upload, MultipartUpload={
                "Parts": [{"PartNumber": n, "ETag": parts[n]} for n in sorted(parts)]})
            problems += f.reads(key, data, 0)
    f.end()


def run_all(lab, o, ceph):
    o.client().create_bucket(Bucket=BUCKET)
    always_asked(lab, o, ceph)
    known_better(lab, o, ceph)
    versions(lab, o, ceph)
    uploads_in_parts(lab, o, ceph)
