# Reads of objects: whole, heads, ranges, conditions, parts, fields.
#
# SPDX-License-Identifier: Apache-2.0
import datetime
import functools
import gzip

from case_list import KIB, MIB, add, case, data
from deviations import BAD_RANGES

FUTURE = datetime.datetime(2035, 1, 1, tzinfo=datetime.timezone.utc)
PAST = datetime.datetime(2001, 1, 1, tzinfo=datetime.timezone.utc)
OTHER = '"0123456789abcdef0123456789abcdef"'
KEYS = ("a//b", "/lead", "a/./b", "a/../b", "..", "dir/", "trailing.", "a b+c", "100%25", "a%2Fb",
        "?acl", "hash#tag", "~!$&'()*,;=:@", "<xml>&amp;</xml>", "line\nfeed", "tab\there",
        "\x7f", "é", "e\u0301", "日本/語", "\U0001f986 pond", "\ufeffbom", "back\\slash")
BIG = 9 * MIB + 5


# ---- get and head ----

def read_size(s, size):
    s.given("put_object", Body=data(size))
    s.do("get_object")
    s.do("head_object")


def head_size(s, size):
    s.given("put_object", Body=data(size), Metadata={"size": str(size)})
    s.do("head_object")
    s.do("get_object")
    s.do("head_object")


def read_key(s, key):
    key = s.key + "/" + key
    s.given("put_object", Key=key, Body=data(100, key))
    s.do("get_object", Key=key)
    s.do("head_object", Key=key)
    s.do("get_object", Key=key + "x")


for _size in (0, 1, 4095, 4096, 128 * KIB, 128 * KIB + 1, MIB, MIB + 1, 5 * MIB + 3):
    add("get", f"{_size} bytes", functools.partial(read_size, size=_size))
    add("head", f"{_size} bytes", functools.partial(head_size, size=_size))
for _n, _key in enumerate(KEYS):
    add("get", f"key {_n} {_key!r}", functools.partial(read_key, key=_key))


@case("get", "key of 1024 bytes")
def _(s):
    key = s.key + "/" + "k" * (1023 - len(s.key))
    s.given("put_object", Key=key, Body=b"long")
    s.do("get_object", Key=key)
    s.do("head_object", Key=key)


@case("get", "two keys that differ in a slash")
def _(s):
    for n, key in enumerate(("x", "x/", "x//", "/x")):
        s.given("put_object", Key=f"{s.key}/{key}", Body=data(50 + n))
    for key in ("x", "x/", "x//", "/x", "x///"):
        s.do("get_object", Key=f"{s.key}/{key}")


@case("get", "absent key")
def _(s):
    s.do("get_object")
    s.do("head_object")


@case("get", "absent bucket")
def _(s):
    s.do("get_object", Bucket=s.side.bucket("nowhere"))
    s.do("head_object", Bucket=s.side.bucket("nowhere"))


@case("get", "bucket name that cannot be")
def _(s):
    s.raw("GET", path="/UPPER..case/key")


@case("get", "there, then deleted in the store")
def _(s):
    s.do("put_object", Body=b"first")
    s.do("get_object")
    s.do("delete_object")
    s.do("get_object")
    s.do("head_object")


@case("get", "multipart object")
def _(s):
    s.do("get_object", Key="read/parts")
    s.do("head_object", Key="read/parts")


@case("get", "9 MiB")
def _(s):
    s.do("get_object", Key="read/big")
    s.do("head_object", Key="read/big")


@case("get", "checksum mode")
def _(s):
    s.given("put_object", Body=data(3000))
    s.do("get_object", ChecksumMode="ENABLED")
    s.do("head_object", ChecksumMode="ENABLED")
    s.do("get_object", ChecksumMode="ENABLED", Range="bytes=0-9")


@case("get", "x-id in the query")
def _(s):
    s.given("put_object", Body=data(300))
    s.raw("GET", query=(("x-id", "GetObject"),))
    s.raw("GET")
    s.raw("HEAD", query=(("x-id", "HeadObject"),))


@case("get", "version null")
def _(s):
    s.given("put_object", Body=data(300))
    s.do("get_object", VersionId="null")
    s.do("head_object", VersionId="null")


@case("get", "version that never was")
def _(s):
    s.given("put_object", Body=data(300))
    s.do("get_object", VersionId="AbCdEfGhIjKlMnOpQrStUvWxYz01234")


@case("get", "encodings a client may accept")
def _(s):
    s.given("put_object", Body=data(300))
    for accepted in ("identity", "gzip", "gzip, deflate", "*"):
        s.raw("GET", headers={"Accept-Encoding": accepted})


# ---- ranges ----

RANGES = ["bytes=0-0", "bytes=0-", "bytes=00-01", "bytes=1-", "bytes=5-7", "bytes=-1", "bytes=-101",
          "bytes=0-99999999999", "bytes=99999999999-", "bytes=100-", "bytes=99-", "bytes=100-110",
          "bytes=-0", "bytes=0-0,2-3", "bytes=0-18446744073709551616", *sorted(BAD_RANGES)]


def read_range(s, size, text):
    s.given("put_object", Body=data(size))
    s.do("get_object", Range=text)
    s.do("head_object", Range=text)


for _text in RANGES:
    add("range", f"{_text} of 100", functools.partial(read_range, size=100, text=_text))
for _text in ("bytes=0-", "bytes=0-0", "bytes=-1", "bytes=-0", "bytes=abc", "bytes=00-01"):
    add("range", f"{_text} of 0", functools.partial(read_range, size=0, text=_text))
for _text in ("bytes=131071-131072", "bytes=131072-", "bytes=1048575-1048576", "bytes=-1048577",
              "bytes=0-1048575"):
    add("range", f"{_text} of 2 MiB + 1",
        functools.partial(read_range, size=2 * MIB + 1, text=_text))


def read_big(s, text):
    s.do("get_object", Key="read/big", Range=text)


for _text in ("bytes=8388607-8388608", "bytes=8388608-", "bytes=-5", "bytes=0-8388607",
              "bytes=4000000-9000000"):
    add("range", f"{_text} of 9 MiB", functools.partial(read_big, text=_text))


@case("range", "across the parts of a multipart object")
def _(s):
    s.do("get_object", Key="read/parts", Range="bytes=5242870-5242889")


@case("range", "of an absent key")
def _(s):
    s.do("get_object", Range="bytes=0-9")


@case("range", "pieces that make the whole")
def _(s):
    s.given("put_object", Body=data(10000))
    for first in range(0, 10000, 2500):
        s.do("get_object", Range=f"bytes={first}-{first + 2499}")
    s.do("get_object")


# ---- conditions ----

def conditional(s, make):
    s.given("put_object", Body=data(500), CacheControl="max-age=5",
            Expires=datetime.datetime(1994, 12, 1, 16, tzinfo=datetime.timezone.utc))
    head = s.do("head_object")
    arguments = make(head["ETag"], head["LastModified"])
    s.do("get_object", **arguments)
    s.do("head_object", **arguments)


CONDITIONS = {
    "If-Match same": lambda tag, at: {"IfMatch": tag},
    "If-Match same, bare": lambda tag, at: {"IfMatch": tag.strip('"')},
    "If-Match other": lambda tag, at: {"IfMatch": OTHER},
    "If-Match *": lambda tag, at: {"IfMatch": "*"},
    "If-None-Match same": lambda tag, at: {"IfNoneMatch": tag},
    "If-None-Match same, bare": lambda tag, at: {"IfNoneMatch": tag.strip('"')},
    "If-None-Match other": lambda tag, at: {"IfNoneMatch": OTHER},
    "If-None-Match *": lambda tag, at: {"IfNoneMatch": "*"},
    "If-Modified-Since past": lambda tag, at: {"IfModifiedSince": PAST},
    "If-Modified-Since then": lambda tag, at: {"IfModifiedSince": at},
    "If-Modified-Since future": lambda tag, at: {"IfModifiedSince": FUTURE},
    "If-Unmodified-Since past": lambda tag, at: {"IfUnmodifiedSince": PAST},
    "If-Unmodified-Since then": lambda tag, at: {"IfUnmodifiedSince": at},
    "If-Unmodified-Since future": lambda tag, at: {"IfUnmodifiedSince": FUTURE},
    "If-Match same, If-Unmodified-Since past":
        lambda tag, at: {"IfMatch": tag, "IfUnmodifiedSince": PAST},
    "If-Match same, If-None-Match same": lambda tag, at: {"IfMatch": tag, "IfNoneMatch": tag},
    "If-Match other, If-None-Match same": lambda tag, at: {"IfMatch": OTHER, "IfNoneMatch": tag},
    "If-None-Match same, If-Modified-Since past":
        lambda tag, at: {"IfNoneMatch": tag, "IfModifiedSince": PAST},
    "If-None-Match other, If-Unmodified-Since past":
        lambda tag, at: {"IfNoneMatch": OTHER, "IfUnmodifiedSince": PAST},
    "If-None-Match same, a range": lambda tag, at: {"IfNoneMatch": tag, "Range": "bytes=0-9"},
    "If-None-Match same, no such range":
        lambda tag, at: {"IfNoneMatch": tag, "Range": "bytes=9999-"},
    "If-Match other, a range": lambda tag, at: {"IfMatch": OTHER, "Range": "bytes=0-9"},
    "If-Match same, a range": lambda tag, at: {"IfMatch": tag, "Range": "bytes=0-9"},
}
for _name, _make in CONDITIONS.items():
    add("conditional", _name, functools.partial(conditional, make=_make))


@case("conditional", "of an absent key")
def _(s):
    s.do("get_object", IfMatch=OTHER)
    s.do("get_object", IfNoneMatch="*")
    s.do("head_object", IfModifiedSince=PAST)


@case("conditional", "on a multipart object")
def _(s):
    tag = s.do("head_object", Key="read/parts")["ETag"]
    s.do("get_object", Key="read/parts", IfMatch=tag, Range="bytes=0-99")
    s.do("get_object", Key="read/parts", IfNoneMatch=tag)


# ---- parts ----

def read_part(s, key, number):
    s.do("get_object", Key=key, PartNumber=number)
    s.do("head_object", Key=key, PartNumber=number)


for _number in (0, 1, 2, 10000, 10001):
    add("attributes", f"part {_number} of an object without parts",
        functools.partial(read_part, key="read/small", number=_number))
for _number in (1, 3):
    add("attributes", f"part {_number} of an object of three",
        functools.partial(read_part, key="read/parts", number=_number))
add("attributes", "part 1 of an empty object",
    functools.partial(read_part, key="read/empty", number=1))


@case("attributes", "part and range")
def _(s):
    s.do("get_object", Key="read/small", PartNumber=1, Range="bytes=0-9")


@case("attributes", "GetObjectAttributes")
def _(s):
    s.do("get_object_attributes", Key="read/small", ObjectAttributes=["ETag", "ObjectSize"])


@case("attributes", "GetObjectAttributes of an absent key")
def _(s):
    s.do("get_object_attributes", ObjectAttributes=["ETag", "ObjectParts"])


# ---- fields ----

def with_fields(s, arguments):
    s.given("put_object", Body=data(700), **arguments)
    s.do("head_object")
    s.do("get_object")
    s.do("get_object", Range="bytes=10-19")


FIELDS = {
    "Content-Type": {"ContentType": "text/plain; charset=utf-8"},
    "Content-Type, odd": {"ContentType": "x"},
    "Cache-Control": {"CacheControl": "max-age=0, no-store"},
    "Expires": {"Expires": datetime.datetime(1994, 12, 1, 16, tzinfo=datetime.timezone.utc)},
    "Content-Disposition": {"ContentDisposition": "attachment; filename=\"a b.txt\""},
    "Content-Language": {"ContentLanguage": "de-CH, en"},
    "Content-Encoding": {"ContentEncoding": "br"},
    "metadata": {"Metadata": {"owner": "me", "mixed-Case": "A b  c"}},
    "metadata, empty": {"Metadata": {"empty": ""}},
    "metadata, encoded words": {"Metadata": {"town": "=?UTF-8?B?WsO8cmljaA==?="}},
    "metadata, 1800 bytes": {"Metadata": {f"m{i}": "v" * 96 for i in range(18)}},
    "website redirect": {"WebsiteRedirectLocation": "/elsewhere"},
    "all at once": {"ContentType": "application/x-tar", "CacheControl": "public, max-age=31536000",
                    "ContentDisposition": "inline", "ContentLanguage": "ja",
                    "ContentEncoding": "br", "Metadata": {"sha": "0" * 64, "x": "1"}},
}
for _name, _arguments in FIELDS.items():
    add("headers", _name, functools.partial(with_fields, arguments=_arguments))


@case("headers", "gzip, read as it is")
def _(s):
    s.given("put_object", Body=gzip.compress(b"the quick brown fox\n" * 500, mtime=0),
            ContentEncoding="gzip", ContentType="text/plain")
    s.do("get_object")
    s.raw("GET", headers={"Accept-Encoding": "identity"})


OVERRIDES = {
    "ResponseContentType": "text/x; a=b", "ResponseCacheControl": "no-cache",
    "ResponseContentDisposition": "attachment; filename=\"é.txt\"",
    "ResponseContentLanguage": "fr", "ResponseContentEncoding": "x",
    "ResponseExpires": datetime.datetime(1994, 12, 1, 16, tzinfo=datetime.timezone.utc),
}


def override(s, arguments):
    s.given("put_object", Body=data(700), ContentType="text/plain", CacheControl="max-age=9")
    s.do("get_object", **arguments)
    s.do("get_object", Range="bytes=1-2", **arguments)
    s.do("get_object")


for _name in OVERRIDES:
    add("headers", _name, functools.partial(override, arguments={_name: OVERRIDES[_name]}))
add("headers", "every override", functools.partial(override, arguments=OVERRIDES))


@case("headers", "an override of an error")
def _(s):
    s.do("get_object", ResponseContentType="text/x")


@case("headers", "metadata of raw UTF-8")
def _(s):
    s.raw("PUT", headers={"x-amz-meta-town": "Zürich".encode().decode("latin-1")}, body=b"town")
    s.do("get_object")
    s.do("head_object")


@case("headers", "If-Range is no condition of S3")
def _(s):
    s.given("put_object", Body=data(700))
    tag = s.do("head_object")["ETag"]
    s.raw("GET", headers={"Range": "bytes=0-9", "If-Range": tag})


def prepare(side):
    """Objects that are read by several cases: large ones, which are no longer young by then."""
    bucket = side.bucket("main")
    put = functools.partial(side.store.put_object, Bucket=bucket)
    put(Key="read/small", Body=data(100))
    put(Key="read/empty", Body=b"")
    put(Key="read/big", Body=data(BIG))
    name = {"Bucket": bucket, "Key": "read/parts"}
    upload = side.store.create_multipart_upload(**name)["UploadId"]
    parts = [{"PartNumber": n, "ETag": side.store.upload_part(
        **name, UploadId=upload, PartNumber=n, Body=data(size, "part"))["ETag"]}
        for n, size in ((1, 5 * MIB), (2, 5 * MIB), (3, 17))]
    side.store.complete_multipart_upload(**name, UploadId=upload, MultipartUpload={"Parts": parts})
