# Lists: of objects in both versions, of versions, of uploads, of parts, of buckets.
#
# SPDX-License-Identifier: Apache-2.0
import functools

from case_list import add, case, data

KEYS = ["a", "a/1", "a/2", "a/b/1", "a//x", "b", "b b", "b+b", "b&b", "c/é", "c/日本", "dir/",
        "dir/file", "z/<xml>", "z/%20", "z/\"quoted\"", "z/line\nfeed", "~tilde"]
MANY = 1003                          # one page holds 1000


def prepare(side):
    for key in KEYS:
        side.store.put_object(Bucket=side.bucket("listed"), Key=key, Body=data(len(key), key))
    versioned = side.bucket("listed-versions")
    side.store.create_bucket(Bucket=versioned)
    side.store.put_bucket_versioning(Bucket=versioned,
                                     VersioningConfiguration={"Status": "Enabled"})
    for number in range(3):
        for key in ("a/x", "a/y", "b/x", "é"):
            side.store.put_object(Bucket=versioned, Key=key, Body=data(10 + number, key))
    side.store.delete_object(Bucket=versioned, Key="a/y")
    uploads = side.bucket("listed-uploads")
    side.store.create_bucket(Bucket=uploads)
    for key in ("a/x", "a/y", "b", "b&b", "é"):
        side.store.create_multipart_upload(Bucket=uploads, Key=key)


def listing(s, op, bucket, arguments):
    s.use(bucket)
    s.do(op, **arguments)


COMMON = {
    "all": {},
    "a prefix": {"Prefix": "a/"},
    "a prefix that is a key": {"Prefix": "a"},
    "a prefix of nothing": {"Prefix": "nothing/"},
    "a prefix beyond ASCII": {"Prefix": "c/é"},
    "a prefix with a plus": {"Prefix": "b+"},
    "a delimiter": {"Delimiter": "/"},
    "a prefix and a delimiter": {"Prefix": "a/", "Delimiter": "/"},
    "a delimiter of two characters": {"Delimiter": "//"},
    "a delimiter that is in no key": {"Delimiter": "|"},
    "an empty delimiter": {"Delimiter": ""},
    "encoding-type": {"EncodingType": "url"},
    "encoding-type, prefix and delimiter": {"EncodingType": "url", "Prefix": "z/",
                                            "Delimiter": "%"},
    "one key a page": {"MaxKeys": 1},
    "five keys a page": {"MaxKeys": 5},
    "no key a page": {"MaxKeys": 0},
    "2000 keys a page": {"MaxKeys": 2000},
    "-1 keys a page": {"MaxKeys": -1},
    "a full page of prefixes": {"MaxKeys": 3, "Delimiter": "/"},
}
V1 = {"a marker": {"Marker": "b"}, "a marker that is no key": {"Marker": "a/15"},
      "a marker behind all": {"Marker": "\U0010ffff"},
      "a marker and a prefix": {"Marker": "a/1", "Prefix": "a/"}}
V2 = {"start-after": {"StartAfter": "b"}, "start-after, no key": {"StartAfter": "a/15"},
      "start-after and a prefix": {"StartAfter": "a/1", "Prefix": "a/", "MaxKeys": 1},
      "fetch-owner": {"FetchOwner": True, "MaxKeys": 3},
      "a token of our own": {"ContinuationToken": "b"}}
VERSIONS = {"all": {}, "a prefix": {"Prefix": "a/"}, "a delimiter": {"Delimiter": "/"},
            "four a page": {"MaxKeys": 4}, "a key marker": {"KeyMarker": "a/x"},
            "encoding-type": {"EncodingType": "url"}, "none a page": {"MaxKeys": 0}}
UPLOADS = {"all": {}, "a prefix": {"Prefix": "a/"}, "a delimiter": {"Delimiter": "/"},
           "two a page": {"MaxUploads": 2}, "a key marker": {"KeyMarker": "a/x"},
           "encoding-type": {"EncodingType": "url"}}
for _op, _bucket, _cases in (("list_objects", "listed", {**COMMON, **V1}),
                             ("list_objects_v2", "listed", {**COMMON, **V2}),
                             ("list_object_versions", "listed-versions", VERSIONS),
                             ("list_multipart_uploads", "listed-uploads", UPLOADS)):
    for _name, _arguments in _cases.items():
        add("list", f"{_op}: {_name}", functools.partial(listing, op=_op, bucket=_bucket,
                                                         arguments=_arguments))


def pages(s, bucket, op, size, markers):
    """All pages, each asked for with what the one before said; markers: {argument: member}."""
    s.use(bucket)
    arguments = {}
    for _ in range(20):
        page = s.do(op, **size, **arguments)
        if not page.get("IsTruncated"):
            return
        arguments = {k: page.get(member, "") for k, member in markers.items()}
    s.problems.append("more than 20 pages")


add("list", "pages of version 2", functools.partial(
    pages, bucket="listed", op="list_objects_v2", size={"MaxKeys": 4},
    markers={"ContinuationToken": "NextContinuationToken"}))
add("list", "pages of version 2 with a delimiter", functools.partial(
    pages, bucket="listed", op="list_objects_v2", size={"MaxKeys": 2, "Delimiter": "/"},
    markers={"ContinuationToken": "NextContinuationToken"}))
add("list", "pages of version 1 with a delimiter", functools.partial(
    pages, bucket="listed-versions", op="list_objects", size={"MaxKeys": 1, "Delimiter": "/"},
    markers={"Marker": "NextMarker"}))
add("list", "pages of versions", functools.partial(
    pages, bucket="listed-versions", op="list_object_versions", size={"MaxKeys": 3},
    markers={"KeyMarker": "NextKeyMarker", "VersionIdMarker": "NextVersionIdMarker"}))
add("list", "pages of uploads", functools.partial(
    pages, bucket="listed-uploads", op="list_multipart_uploads", size={"MaxUploads": 2},
    markers={"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}))


@case("list", "an empty bucket")
def _(s):
    s.use("listed-empty")
    s.given("create_bucket")
    for op in ("list_objects", "list_objects_v2", "list_object_versions",
               "list_multipart_uploads"):
        s.do(op)


@case("list", "an absent bucket")
def _(s):
    s.use("nowhere")
    for op in ("list_objects", "list_objects_v2", "list_object_versions",
               "list_multipart_uploads"):
        s.do(op)


@case("list", "what was just written, deleted, written again")
def _(s):
    s.use("other")
    prefix = "seen/"
    s.do("put_object", Key=prefix + "1", Body=b"1")
    s.do("list_objects_v2", Prefix=prefix)
    s.do("put_object", Key=prefix + "2", Body=b"22")
    s.do("list_objects_v2", Prefix=prefix)
    s.do("delete_object", Key=prefix + "1")
    s.do("list_objects_v2", Prefix=prefix)
    s.do("put_object", Key=prefix + "2", Body=b"333")
    s.do("list_objects_v2", Prefix=prefix)


@case("list", f"pages of {MANY} keys")
def _(s):
    for number in range(MANY if s.share("many") else 0):
        s.given("put_object", Key=f"{number:05}", Body=b"")
    first = s.do("list_objects_v2")
    s.do("list_objects_v2", ContinuationToken=first["NextContinuationToken"])
    s.do("list_objects")


@case("list", "a slash behind the bucket")
def _(s):
    s.use("listed")
    s.raw_bucket("GET", query=(("list-type", "2"), ("prefix", "a/")))
    s.raw("GET", path=f"/{s.bucket}/?list-type=2&prefix=a/", key="")


@case("list", "parameters that nobody knows")
def _(s):
    s.use("listed")
    s.raw_bucket("GET", query=(("list-type", "2"), ("unknown", "x"), ("prefix", "b")))


@case("list", "list-type that nobody knows")
def _(s):
    s.use("listed")
    s.raw_bucket("GET", query=(("list-type", "3"), ("prefix", "b")))


@case("list", "an encoding-type that nobody knows")
def _(s):
    s.use("listed")
    s.raw_bucket("GET", query=(("encoding-type", "rot13"), ("prefix", "b")))


@case("list", "buckets")
def _(s):
    names = {b["Name"] for b in s.side.client.list_buckets()["Buckets"]}
    s.note([name in names for name in (s.side.bucket("main"), s.side.bucket("listed"),
                                       s.side.bucket("nowhere"))])
