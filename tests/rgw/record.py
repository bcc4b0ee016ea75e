# One case of the suite on one side: what it asked, and what it heard, told so that both sides can be
# compared.
#
# Invariants:
#  1. A transcript holds nothing that belongs to one answer (times, ids, ports) or to one side
#     (buckets): these are replaced by names, in the order in which they appeared.
#  2. Through the server every read is made twice, and again when the case is over: all the same.
#
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import datetime
import email.utils
import hashlib
import re
import time

import boto3
import botocore.client
import botocore.exceptions
import botocore.parsers

from deviations import OWN, PER_ANSWER, Case
from wire import Wire, path_of

REGION = "us-east-1"
READS = ("get_", "head_", "list_")
TIMES = {"LastModified", "Initiated", "CreationDate", "Date"}
VERSION_IDS = {"VersionId", "NextVersionIdMarker", "VersionIdMarker", "CopySourceVersionId",
               "DeleteMarkerVersionId", "x-amz-version-id", "x-amz-copy-source-version-id"}
UPLOAD_IDS = {"UploadId", "UploadIdMarker", "NextUploadIdMarker"}
IDS = VERSION_IDS | UPLOAD_IDS
UNORDERED = {"Deleted", "Errors"}      # RGW deletes by many hands
OBJECT_READS = {"get_object", "head_object"}
# Of an answer without an object: where it was cut into pieces, and how long these are.
FRAMING = {"content-length", "transfer-encoding"}
STRANGERS_WRITE_SECONDS = 20           # a list of a thousand, on a slow machine
ERROR_FIELDS = {"x-amz-delete-marker", "x-amz-version-id", "allow", "content-range"}


class User:
    def __init__(self, access, secret):
        self.access, self.secret = access, secret


def client_of(port, user, version="s3v4"):
    """Nothing is tried twice: what fails once is seen."""
    return boto3.client(
        "s3", endpoint_url=f"http://127.0.0.1:{port}", region_name=REGION,
        aws_access_key_id=user.access, aws_secret_access_key=user.secret,
        config=botocore.client.Config(retries={"max_attempts": 0}, signature_version=version,
                                      s3={"addressing_style": "path"}))


@dataclasses.dataclass
class Step:
    """One request and its answer."""
    op: str                            # boto3's name, or the method of a request of our own
    status: int = 0
    fields: dict = dataclasses.field(default_factory=dict)
    code: str = ""
    document: object = None            # what the body says; None: of an object, or nothing
    errors: dict = dataclasses.field(default_factory=dict)
    body: bytes = b""
    case: Case = None                  # of the read of an object
    plain: object = None               # that object, whole, as the store has it then
    name: str = ""

    @property
    def sha256(self):
        return hashlib.sha256(self.body).hexdigest()

    @property
    def body_bytes(self):
        return len(self.body)

    @property
    def hit(self):
        return self.fields.get("x-cache") == "hit"

    def error(self):
        return self.errors


class Side:
    """One way to the store: straight, or through the server."""

    def __init__(self, job, name):
        self.job, self.name = job, name
        self.through = name != "direct"
        self.port = job[name]
        self.user = User(job["access"], job["secret"])
        self.prefix = f"suite-{job['flavour'][0]}{name[0]}-"
        self.store = client_of(job["direct"], self.user)
        self.wires = {}
        self.connect()

    def connect(self):
        self.client = client_of(self.port, self.user)
        self.old_client = client_of(self.port, self.user, "s3")
        for wire in self.wires.values():
            wire.close()
        self.wires = {}

    def bucket(self, name):
        return self.prefix + name

    def wire(self, user):
        key = (user.access, user.secret) if user else None
        if key not in self.wires:
            self.wires[key] = Wire(self.port, user, keep=True)
        return self.wires[key]


def http_date(value):
    if isinstance(value, str):
        return value
    return email.utils.format_datetime(value.astimezone(datetime.timezone.utc), usegmt=True)


class Call:
    """A request by boto3."""

    def __init__(self, op, arguments):
        self.op, self.arguments = op, arguments
        self.is_read = op.startswith(READS)
        self.identity = repr((op, sorted(arguments.items(), key=str)))
        self.said = None

    def send(self, run):
        try:
            self.said = getattr(run.side.client, self.op)(**self.arguments)
        except botocore.exceptions.ClientError as e:
            self.said = e.response
        except (botocore.exceptions.BotoCoreError, botocore.parsers.ResponseParserError) as e:
            return Step(self.op, code=type(e).__name__)
        meta = self.said["ResponseMetadata"]
        step = Step(self.op, meta["HTTPStatusCode"], run.plain_fields(meta["HTTPHeaders"]))
        if "Error" in self.said:
            self._drop_connection(run)
            step.errors = self.said["Error"]
            step.code = step.errors.get("Code", "")
        elif self.op == "get_object":
            try:
                step.body = self.said["Body"].read()
            except botocore.exceptions.BotoCoreError as e:
                step.code = type(e).__name__
        if self.op not in OBJECT_READS:
            step.document = run.plain_document(
                {k: v for k, v in self.said.items() if k not in ("ResponseMetadata", "Error")})
        return step

    def _drop_connection(self, run):
        """RGW refuses a body without a 100 and without closing, and boto3 hangs in what comes next
        on that connection. Through the server that must not be."""
        if not run.side.through and not self.is_read:
            run.side.client.close()

    def case(self):
        if self.op not in OBJECT_READS:
            return None
        a = self.arguments
        headers = {"Range": a.get("Range"), "If-Match": a.get("IfMatch"),
                   "If-None-Match": a.get("IfNoneMatch"),
                   "If-Modified-Since": a.get("IfModifiedSince"),
                   "If-Unmodified-Since": a.get("IfUnmodifiedSince")}
        headers = {k: http_date(v) for k, v in headers.items() if v is not None}
        query = (("partNumber", str(a["PartNumber"])),) if "PartNumber" in a else ()
        return Case(self.op, "GET" if self.op == "get_object" else "HEAD", query, headers)

    def object(self):
        names = ("Bucket", "Key", "VersionId")
        return {k: v for k, v in self.arguments.items() if k in names}


class Raw:
    """A request as it is written, whatever boto3 thinks of it."""

    def __init__(self, method, target, query, headers, body, user, names):
        self.op, self.target, self.query, self.headers = method, target, query, headers
        self.body, self.user, self.names = body, user, names
        self.is_read = method in ("GET", "HEAD")
        self.identity = repr((method, target, query, headers, user and user.access))

    def send(self, run):
        answer = run.side.wire(self.user).ask(self.op, self.target, self.query, self.headers,
                                              self.body)
        step = Step(self.op, answer.status, run.plain_fields(answer.fields), body=answer.body)
        if answer.status >= 300:
            step.errors = answer.error()
            step.code = step.errors.get("Code", "")
        if not self.case():
            step.document = run.plain_text(answer.body) if answer.status < 300 else None
        return step

    def case(self):
        other = [k for k, _ in self.query if k not in ("partNumber", "versionId", "x-id") and
                 not k.startswith("response-")]
        if not self.is_read or other or "Key" not in self.names:
            return None
        return Case(self.op, self.op, tuple(self.query), dict(self.headers))

    def object(self):
        version = dict(self.query).get("versionId")
        return {**self.names, **({"VersionId": version} if version else {})}


class Run:
    """One case on one side."""

    def __init__(self, side, group, name):
        self.side, self.group, self.name = side, group, name
        self.key = f"{group}/{re.sub('[^A-Za-z0-9]+', '-', name).strip('-')[:60]}/o"
        self.bucket = side.bucket("main")
        self.steps, self.reads, self.problems, self.ids = [], {}, [], {}

    # ---- what cases call ----

    def use(self, bucket):
        self.bucket = self.side.bucket(bucket)
        return self.bucket

    def given(self, op, **arguments):
        """A preparation, past the server and not told."""
        return getattr(self.side.store, op)(**self._complete(op, arguments))

    def do(self, op, **arguments):
        """A request by boto3. Returns what boto3 says, or the document of the error."""
        call = Call(op, self._complete(op, arguments))
        self._step(call)
        return call.said or {}

    def raw(self, method, key=None, query=(), headers=None, body=b"", user="own", path=None):
        """A request as it is written here; user: None is nobody."""
        key = self.key if key is None else key
        return self._step(Raw(
            method, path or path_of(self.bucket, key), query, headers or {}, body,
            self.side.user if user == "own" else user,
            {"Bucket": self.bucket, "Key": key} if key else {"Bucket": self.bucket}))

    def raw_bucket(self, method, query=(), headers=None, body=b"", user="own"):
        return self._step(Raw(method, path_of(self.bucket), query, headers or {}, body,
                              self.side.user if user == "own" else user, {"Bucket": self.bucket}))

    def fetch(self, method, url, headers=None, body=b"", key=None):
        """A signed URL, as anybody may use it."""
        target = url.partition(f"127.0.0.1:{self.side.port}")[2]
        return self.raw(method, key, headers=headers, body=body, user=None, path=target)

    def url(self, op, client=None, seconds=3600, **arguments):
        return (client or self.side.client).generate_presigned_url(
            op, Params=self._complete(op, arguments), ExpiresIn=seconds)

    def note(self, value):
        """Something that a case found out by itself."""
        self.steps.append(Step("note", document=value, name=f"{len(self.steps) + 1} note"))

    def share(self, bucket):
        """A bucket that all sides have: for what is only read. True for the first who asks."""
        self.bucket = f"suite-{self.side.job['flavour'][0]}s-{bucket}"
        if self.side.through:
            return False
        self.given("create_bucket")
        return True

    # ---- what is told ----

    def plain_fields(self, fields):
        told = {}
        for name, value in fields.items():
            name = name.lower()
            if name in VERSION_IDS:
                value = self._id(value)
            elif name == "last-modified":
                value = "TIME"
            if name not in PER_ANSWER:
                told[name] = self.plain_text(value)
        return told

    def plain_document(self, value, name=""):
        if isinstance(value, dict):
            return {k: self.plain_document(v, k) for k, v in value.items()}
        if isinstance(value, list):
            told = [self.plain_document(v, name) for v in value]
            return sorted(told, key=repr) if name in UNORDERED else told
        if isinstance(value, datetime.datetime):
            return "TIME" if name in TIMES else value.isoformat()
        if isinstance(value, str):
            return self._id(value) if name in IDS else self.plain_text(value)
        return value if isinstance(value, (int, float, bool, type(None))) else repr(type(value))

    def plain_text(self, text):
        if isinstance(text, bytes):
            text = text.decode("utf-8", "backslashreplace")
        text = re.sub(r"suite-[oc][dtos]-", "suite-", text)
        text = re.sub(r"127\.0\.0\.1:\d+", "HOST", text)
        text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "TIME", text)
        for real, told in self.ids.items():
            text = text.replace(real, told)
        return text

    def _id(self, value):
        if value in ("", "null"):
            return value
        return self.ids.setdefault(value, f"ID{len(self.ids) + 1}")

    # ---- the machinery ----

    def _complete(self, op, arguments):
        meta = self.side.client.meta
        shape = meta.service_model.operation_model(meta.method_to_api_mapping[op]).input_shape
        members = shape.members if shape else {}
        have = dict(arguments)
        for name, value in (("Bucket", self.bucket), ("Key", self.key)):
            if name in members:
                have.setdefault(name, value)
        return {k: v for k, v in have.items() if v is not None}

    def _ask(self, request):
        step = request.send(self)
        step.case = request.case()
        if step.case and not self.side.through:
            whole = Call("get_object", request.object())
            store = Run(self.side, self.group, self.name)
            store.ids = self.ids
            step.plain = whole.send(store)
        return step

    def _step(self, request):
        step = self._ask(request)
        self.steps.append(step)
        step.name = f"{len(self.steps)} {request.op}"
        if request.is_read:
            self.reads[request.identity] = request
            if self.side.through:
                self._again(step, request)
        return step

    def _again(self, step, request):
        """Once more. While a write is under way that shares its count with this key (the other
        boto3's list of a thousand deletes, say), nothing is learnt of it: that passes, and who
        asks next misses once. And an answer has its bytes before all of their block came: who is
        as quick as that is told so until it did (tests/flow/31-first-bytes.flow)."""
        last, again = step, self._ask(request)
        late = time.monotonic() + STRANGERS_WRITE_SECONDS
        while (self.must_hit(request, again) and time.monotonic() < late and
               (again.fields.get("x-cache") in ("bypass", "partial", "joined") or
                (again.fields.get("x-cache") == "miss" and last.fields.get("x-cache") == "bypass"))):
            last, again = again, self._ask(request)
        self.problems += [f"{step.name}, asked again: {p}" for p in differences(step, again)]
        if self.must_hit(request, again) and not again.hit:
            self.problems.append(f"{step.name}, asked again: x-cache {again.fields.get('x-cache')}")

    def must_hit(self, request, step):
        case = step.case
        return (case and case.method == "GET" and step.status in (200, 206) and
                not case.part_number)

    def end(self):
        """The reads of the case, as they are answered now."""
        steps = []
        for number, request in enumerate(list(self.reads.values()), 1):
            step = self._ask(request)
            step.name = f"end {number} {request.op}"
            steps.append((request, step))
        return steps


def told(step):
    """What of a step is compared where nothing may differ."""
    return {"status": step.status, "code": step.code, "fields": said_fields(step),
            "document": None if step.status >= 300 else step.document,
            "body": step.sha256 if step.case and step.status < 300 else None}


def said_fields(step):
    """The fields of an answer that tell something about what was asked for."""
    if step.status >= 400:
        return {k: v for k, v in step.fields.items() if k in ERROR_FIELDS}
    left_out = OWN if step.case else OWN | FRAMING
    return {k: v for k, v in step.fields.items() if k not in left_out}


def differences(expected, got):
    """What is wrong with a step that should say what another one says."""
    a, b = told(expected), told(got)
    problems = [f"{n}: {b[n]!r}, expected {a[n]!r}" for n in a if n != "fields" and a[n] != b[n]]
    for name in sorted(a["fields"].keys() | b["fields"].keys()):
        x, y = a["fields"].get(name), b["fields"].get(name)
        if x != y:
            problems.append(f"{name}: {y!r}, expected {x!r}")
    return problems
