# Where the server under test answers otherwise than Ceph RGW 16.2.15 does, and by which rule of S3.
#
# The table below is complete: an answer through the server must equal the direct one as changed by
# the rows that apply, in their order. A difference that no row explains fails the test, and so does
# a row that never applied.
#
# Sources are the S3 API reference and RFC 9110; where AWS documents nothing, the public conformance
# tests of versitygw.
#
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import hashlib

# Fields that belong to one answer, not to the object (RFC 9110 6.6.1, 7.6.1; S3: common response
# headers).
PER_ANSWER = {"date", "server", "connection", "keep-alive", "x-amz-request-id", "x-amz-id-2"}
# What a cache adds and S3 clients ignore (RFC 9111 5.1, 5.5; the rest are our own names).
OWN = {"age", "warning", "x-cache", "x-headpond-cached", "x-headpond-upstream-request-id"}

BAD_RANGES = {"bytes=10-5", "bytes=abc", "bytes=,", "bytes=--1", "bytes= -1", "foo=0-1",
              "bytes=1-x"}
FUTURE = "Mon, 01 Jan 2035 00:00:00 GMT"
PAST = "Mon, 01 Jan 2001 00:00:00 GMT"


@dataclasses.dataclass
class Case:
    name: str
    method: str = "GET"
    query: tuple = ()
    headers: dict = dataclasses.field(default_factory=dict)

    @property
    def range(self):
        return self.headers.get("Range", "")

    @property
    def part_number(self):
        return dict(self.query).get("partNumber", "")


@dataclasses.dataclass
class Expected:
    status: int
    fields: dict                     # lower-case name: value, without those of one answer
    code: str = ""                   # of an error document; "" for HEAD
    span: tuple = None               # (from, end) of the object's bytes
    must_say: dict = dataclasses.field(default_factory=dict) # elements of the error document


def expected_of(direct, case, size):
    fields = {k: v for k, v in direct.fields.items() if k not in PER_ANSWER}
    e = Expected(direct.status, fields)
    if direct.status == 206:
        first, _, rest = fields["content-range"].partition(" ")[2].partition("-")
        e.span = (int(first), int(rest.partition("/")[0]) + 1)
    elif direct.status == 200:
        e.span = (0, size)
    elif case.method == "GET":
        e.code = direct.error().get("Code", "")
    return e


# ---- what rows do to an expectation ----
# o: the object's item; plain: its direct 200 answer to HEAD

def whole(e, o, plain):
    fields = {k: v for k, v in plain.fields.items() if k not in PER_ANSWER}
    return Expected(200, fields, span=(0, o.size))


def part(e, o, plain):
    e = whole(e, o, plain)
    e.status = 206
    e.fields["content-range"] = f"bytes 0-{o.size - 1}/{o.size}"
    return e


def error(status, code, **must_say):
    return lambda e, o, plain: Expected(status, {}, code, must_say=must_say)


def not_modified(e, o, plain):
    kept = ("etag", "last-modified", "cache-control", "expires", "x-amz-version-id")
    return Expected(304, {k: v for k, v in plain.fields.items() if k in kept})


def only_status(e, o, plain):
    return dataclasses.replace(e, fields={})


def say_range(e, o, plain):
    return dataclasses.replace(e, must_say={"ActualObjectSize": str(o.size)},
                               fields={"content-range": f"bytes */{o.size}"})


def say_condition(case):
    name = "If-Match" if "If-Match" in case.headers else "If-Unmodified-Since"
    return lambda e, o, plain: dataclasses.replace(e, must_say={"Condition": name})


def has(case, name, value):
    return case.headers.get(name) == value


def single(o, case):
    return (not o.part and not case.range and case.part_number.isdigit() and
            int(case.part_number) >= 1)


# (name, the rule, applies(case, o, e), change) - e is the expectation so far.
TABLE = [
    ("a range that is malformed counts as absent",
     "RFC 9110 14.2: a server MUST ignore a Range field with a unit it does not understand and MAY "
     "ignore an invalid one; S3 answers 200 (versitygw: GetObject_with_range). "
     "RGW: 416, or an odd 206",
     lambda c, o, e: c.range in BAD_RANGES, lambda c: whole),
    ("several ranges count as none",
     "GetObject: S3 does not support retrieving multiple ranges per GET request, answers 200. "
     "RGW: the first one",
     lambda c, o, e: "," in c.range and c.range not in BAD_RANGES, lambda c: whole),
    ("a suffix range of an empty object counts as absent",
     "versitygw: GetObject_zero_len_with_range: bytes=-1 is 200 without Content-Range. RGW: 416",
     lambda c, o, e: o.size == 0 and c.range.startswith("bytes=-") and c.range not in BAD_RANGES and
     c.range != "bytes=-0", lambda c: whole),
    ("a suffix of length 0 cannot be satisfied",
     "RFC 9110 14.1.2: a suffix-length of 0 is unsatisfiable: 416. RGW: the whole object",
     lambda c, o, e: c.range == "bytes=-0", lambda c: error(416, "InvalidRange")),
    ("Range and partNumber exclude each other",
     "GetObject: 400 InvalidRequest, Cannot specify both Range header and partNumber query "
     "parameter. RGW: the range",
     lambda c, o, e: c.part_number and c.range, lambda c: error(400, "InvalidRequest")),
    ("partNumber is a number from 1 to 10000",
     "GetObject: a positive integer between 1 and 10,000, else 400 InvalidArgument. RGW: ignores",
     lambda c, o, e: c.part_number and not c.range and
     not (c.part_number.isdigit() and 1 <= int(c.part_number) <= 10000),
     lambda c: error(400, "InvalidArgument", ArgumentName="partNumber")),
    ("part 1 of an object without parts is all of it",
     "versitygw: GetObject_by_part_number: 206 with Content-Range; an empty object 200. "
     "RGW: 200, ignores it",
     lambda c, o, e: single(o, c) and int(c.part_number) == 1 and o.size > 0, lambda c: part),
    ("an object without parts has no part 2",
     "versitygw: 416 InvalidPartNumber. RGW: 200, ignores it",
     lambda c, o, e: single(o, c) and 1 < int(c.part_number) <= 10000,
     lambda c: error(416, "InvalidPartNumber", ActualPartCount="1",
                     PartNumberRequested=c.part_number)),
    ("If-Match: * is any current object",
     "RFC 9110 13.1.1. RGW: takes it for an entity tag, 412",
     lambda c, o, e: has(c, "If-Match", "*"), lambda c: whole),
    ("If-None-Match: * is false for any current object",
     "RFC 9110 13.1.2: 304 for GET and HEAD. RGW: takes it for an entity tag, 200",
     lambda c, o, e: has(c, "If-None-Match", "*"), lambda c: not_modified),
    ("a date in the future is no condition",
     "RFC 9110 13.1.3 as S3 does it: a date later than the server's clock is ignored. RGW: 304",
     lambda c, o, e: has(c, "If-Modified-Since", FUTURE) and "If-None-Match" not in c.headers,
     lambda c: whole),
    ("304 shows the entity tag and what caches need",
     "RFC 9110 15.4.5: ETag, Last-Modified, Cache-Control, Expires as in a 200. RGW: none of them",
     lambda c, o, e: e.status == 304, lambda c: not_modified),
    ("errors have a document of ours",
     "S3 error responses: Code decides; the fields of the head are those of the document. "
     "HEAD: status only",
     lambda c, o, e: e.status >= 400, lambda c: only_status),
    ("416 says how long the object is",
     "S3 error responses: InvalidRange carries ActualObjectSize, which CRT clients need; RFC 9110 "
     "15.5.17: Content-Range. RGW: neither",
     lambda c, o, e: e.status == 416 and e.code != "InvalidPartNumber", lambda c: say_range),
    ("412 names the condition",
     "S3 error responses: PreconditionFailed carries Condition. RGW: does not",
     lambda c, o, e: e.status == 412, say_condition),
]


def matrix(etag):
    """What is asked for one object, by GET and by HEAD."""
    other = '"0123456789abcdef0123456789abcdef"'
    ranges = ["bytes=0-0", "bytes=0-", "bytes=00-01", "bytes=1-", "bytes=-1", "bytes=-99999999999",
              "bytes=0-99999999999", "bytes=99999999999-", "bytes=99999999999-99999999999",
              "bytes=-0", "bytes=0-0,2-3", *sorted(BAD_RANGES)]
    conditions = [
        {"If-Match": etag}, {"If-Match": etag.strip('"')}, {"If-Match": other}, {"If-Match": "*"},
        {"If-None-Match": etag}, {"If-None-Match": etag.strip('"')}, {"If-None-Match": other},
        {"If-None-Match": "*"}, {"If-Modified-Since": PAST}, {"If-Modified-Since": FUTURE},
        {"If-Unmodified-Since": PAST}, {"If-Unmodified-Since": FUTURE},
        {"If-Match": etag, "If-Unmodified-Since": PAST}, {"If-Match": etag, "If-None-Match": etag},
        {"If-Match": other, "If-None-Match": etag},
        {"If-None-Match": etag, "If-Modified-Since": PAST},
        {"If-None-Match": other, "If-Unmodified-Since": PAST},
        {"If-None-Match": etag, "Range": "bytes=99999999999-"},
        {"If-Match": other, "Range": "bytes=0-0"},
    ]
    queries = [
        [("partNumber", "1")], [("partNumber", "2")], [("partNumber", "0")],
        [("partNumber", "10001")], [("x-id", "GetObject")], [("versionId", "null")],
        [("response-content-type", "text/x; a=b"), ("response-cache-control", "no-cache"),
         ("response-content-disposition", "attachment; filename=\"é.txt\""),
         ("response-expires", "Thu, 01 Dec 1994 16:00:00 GMT"), ("response-content-language", "fr"),
         ("response-content-encoding", "x")],
    ]
    cases = [Case(r, headers={"Range": r}) for r in ranges]
    cases += [Case(" ".join(f"{k}: {v}" for k, v in c.items()), headers=c) for c in conditions]
    cases += [Case("&".join(f"{k}={v}" for k, v in q), query=tuple(q)) for q in queries]
    cases.append(Case("partNumber=1 with Range", query=(("partNumber", "1"),),
                      headers={"Range": "bytes=0-0"}))
    cases.append(Case("x-amz-checksum-mode", headers={"x-amz-checksum-mode": "ENABLED"}))
    return cases + [dataclasses.replace(c, method="HEAD", name="HEAD " + c.name) for c in cases]


class Table:
    def __init__(self):
        self.applied = {row[0]: 0 for row in TABLE}

    def expect(self, case, item, direct, plain):
        e = expected_of(direct, case, item.size)
        for name, _, applies, change in TABLE:
            if applies(case, item, e):
                self.applied[name] += 1
                e = change(case)(e, item, plain)
        if case.method == "HEAD":
            e.code, e.must_say = "", {}
        return e

    def unused(self):
        return [f"this row never applied: {n}" for n, count in self.applied.items() if count == 0]


def compare(case, item, e, answer, data):
    """What is wrong with the answer; data: the object's bytes, None when only the head counts."""
    problems = []
    if answer.status != e.status:
        said = f"{answer.status} {answer.error().get('Code', '')}"
        return [f"status {said}, expected {e.status} {e.code}"]
    got = {k: v for k, v in answer.fields.items() if k not in PER_ANSWER and k not in OWN}
    if e.status >= 400:
        got = {k: v for k, v in got.items() if k in e.fields}
        said = answer.error()
        if e.code and said.get("Code") != e.code:
            problems.append(f"code {said.get('Code')}, expected {e.code}")
        problems += [f"<{k}> is {said.get(k)}, expected {v}" for k, v in e.must_say.items()
                     if said.get(k) != v]
        if case.method == "GET" and answer.fields.get("content-type") != "application/xml":
            problems.append(f"content-type of the error {answer.fields.get('content-type')}")
    for name in sorted(got.keys() | e.fields.keys()):
        if got.get(name) != e.fields.get(name):
            problems.append(f"{name}: {got.get(name)!r}, expected {e.fields.get(name)!r}")
    if e.span and case.method == "GET" and data is not None:
        right = hashlib.sha256(data[e.span[0]:e.span[1]]).hexdigest()
        if answer.sha256 != right:
            problems.append(f"bytes differ ({answer.body_bytes} bytes came, {e.span} asked)")
    elif case.method == "HEAD" and answer.body_bytes:
        problems.append("HEAD with a body")
    return problems
