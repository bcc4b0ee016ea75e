# Writes of single requests: uploads, copies, deletes, tags.
#
# SPDX-License-Identifier: Apache-2.0
import base64
import binascii
import functools
import hashlib
import urllib.parse

from case_list import KIB, MIB, add, case, data
from cases_read import FIELDS, FUTURE, KEYS, OTHER, PAST


def md5_of(body):
    return base64.b64encode(hashlib.md5(body).digest()).decode()


def crc32_of(body):
    return base64.b64encode(binascii.crc32(body).to_bytes(4, "big")).decode()


def read_back(s, **name):
    s.do("head_object", **name)
    s.do("get_object", **name)


# ---- put ----

def put(s, body, arguments):
    s.do("put_object", Body=body, **arguments)
    read_back(s)


for _size in (0, 1, 4096, 128 * KIB, 252 * KIB - 1, 252 * KIB, 252 * KIB + 1, 256 * KIB, MIB - 1,
              MIB, MIB + 1, 3 * MIB, 8 * MIB):
    add("put", f"{_size} bytes", functools.partial(put, body=data(_size), arguments={}))
for _name, _arguments in FIELDS.items():
    add("put", _name, functools.partial(put, body=data(900), arguments=_arguments))
_BODY = data(5000, "checked")
for _name, _arguments in {
        "Content-MD5": {"ContentMD5": md5_of(_BODY)},
        "Content-MD5 of other bytes": {"ContentMD5": md5_of(b"other")},
        "Content-MD5 that is none": {"ContentMD5": "xx"},
        "crc32": {"ChecksumCRC32": crc32_of(_BODY)},
        "sha256": {"ChecksumSHA256": base64.b64encode(hashlib.sha256(_BODY).digest()).decode()},
        "sha1": {"ChecksumSHA1": base64.b64encode(hashlib.sha1(_BODY).digest()).decode()},
        "crc32 asked of boto3": {"ChecksumAlgorithm": "CRC32"},
        "sha256 asked of boto3": {"ChecksumAlgorithm": "SHA256"},
        "storage class": {"StorageClass": "STANDARD"},
        "storage class that is none": {"StorageClass": "COLDER"},
        "tags": {"Tagging": "a=1&b=x%20y&empty="},
        "tags, eleven": {"Tagging": "&".join(f"k{n}=v" for n in range(11))},
        "tags, one twice": {"Tagging": "a=1&a=2"},
        "encryption that the store does not have": {"ServerSideEncryption": "aws:kms",
                                                    "SSEKMSKeyId": "none"},
        "locked without object lock": {"ObjectLockLegalHoldStatus": "ON"},
}.items():
    add("put", _name, functools.partial(put, body=_BODY, arguments=_arguments))


def put_acl(s, acl):
    s.do("put_object", Body=b"acl", ACL=acl)
    s.do("get_object_acl")
    s.do("get_object")


for _acl in ("private", "public-read", "public-read-write", "authenticated-read",
             "bucket-owner-full-control", "no-such-acl"):
    add("put", f"ACL {_acl}", functools.partial(put_acl, acl=_acl))


def put_key(s, key):
    key = s.key + "/" + key
    s.do("put_object", Key=key, Body=data(60, key))
    read_back(s, Key=key)
    s.do("list_objects_v2", Prefix=key)


for _n, _key in enumerate(KEYS):
    add("put", f"key {_n} {_key!r}", functools.partial(put_key, key=_key))


@case("put", "grants")
def _(s):
    s.do("put_object", Body=b"g",
         GrantRead="uri=\"http://acs.amazonaws.com/groups/global/AllUsers\"")
    s.do("get_object_acl")


@case("put", "other bytes over it, three times")
def _(s):
    for number in range(3):
        s.do("put_object", Body=data(3000 + number, "over"))
        read_back(s)


@case("put", "other bytes of the same size over it")
def _(s):
    for seed in ("one", "two", "three"):
        s.do("put_object", Body=data(4000, seed))
        s.do("get_object")
        s.do("get_object", Range="bytes=3990-")


@case("put", "the same bytes, other fields")
def _(s):
    for number in ("1", "2"):
        s.do("put_object", Body=data(4000), Metadata={"n": number}, ContentType="x/" + number)
        read_back(s)


@case("put", "larger and smaller")
def _(s):
    for size in (2 * MIB, 10, 300 * KIB, 0, 77):
        s.do("put_object", Body=data(size))
        read_back(s)


@case("put", "absent, asked for, then there")
def _(s):
    s.do("get_object")
    s.do("head_object")
    s.do("put_object", Body=b"now")
    read_back(s)


@case("put", "into an absent bucket")
def _(s):
    s.use("nowhere")
    s.do("put_object", Body=b"x")


@case("put", "a key of 1024 bytes, and of one more")
def _(s):
    for length in (1024, 1025):
        key = s.key + "/" + "k" * (length - 1 - len(s.key))
        s.do("put_object", Key=key, Body=b"long")
        s.do("get_object", Key=key)


@case("put", "a hash of other bytes")
def _(s):
    s.raw("PUT", headers={"X-Amz-Content-SHA256": "0" * 64}, body=b"body")
    s.do("head_object")


@case("put", "a folder")
def _(s):
    s.do("put_object", Key=s.key + "/", Body=b"")
    s.do("put_object", Key=s.key + "/in", Body=b"in")
    s.do("list_objects_v2", Prefix=s.key + "/", Delimiter="/")
    s.do("head_object", Key=s.key + "/")


@case("put", "metadata of more than 2 KiB")
def _(s):
    s.do("put_object", Body=b"x", Metadata={f"m{i}": "v" * 120 for i in range(24)})
    s.do("head_object")


@case("put", "crc32 of other bytes")
def _(s):
    s.do("put_object", Body=_BODY, ChecksumCRC32=crc32_of(b"other"))
    s.do("head_object")


# ---- conditions of writes ----

def put_if(s, there, headers):
    if there:
        s.do("put_object", Body=b"before")
        s.do("get_object")
    s.raw("PUT", headers=headers, body=b"after it")
    s.do("get_object")


_BEFORE = '"' + hashlib.md5(b"before").hexdigest() + '"'
for _name, _headers in {"If-None-Match *": {"If-None-Match": "*"},
                        "If-None-Match other": {"If-None-Match": OTHER},
                        "If-None-Match same": {"If-None-Match": _BEFORE},
                        "If-Match same": {"If-Match": _BEFORE},
                        "If-Match *": {"If-Match": "*"},
                        "If-Match other": {"If-Match": OTHER}}.items():
    for _there in (True, False):
        _where = "present" if _there else "absent"
        add("conditional", f"PUT, {_name}, {_where}",
            functools.partial(put_if, there=_there, headers=_headers))


# ---- copy ----

def source(s, key=None, bucket=None, version=None):
    of = {"Bucket": bucket or s.bucket, "Key": key or s.key + "/from"}
    return {**of, "VersionId": version} if version else of


@case("copy", "plain")
def _(s):
    s.given("put_object", Key=s.key + "/from", Body=data(5000), ContentType="x/y",
            Metadata={"a": "b"})
    s.do("copy_object", CopySource=source(s))
    read_back(s)


def copy_fields(s, arguments):
    s.do("put_object", Key=s.key + "/from", Body=data(5000), ContentType="x/y",
         Metadata={"a": "b"}, CacheControl="no-store")
    s.do("copy_object", CopySource=source(s), **arguments)
    read_back(s)
    s.do("head_object", Key=s.key + "/from")


for _name, _arguments in {
        "metadata replaced": {"MetadataDirective": "REPLACE", "Metadata": {"c": "d"},
                              "ContentType": "z/z"},
        "metadata replaced by none": {"MetadataDirective": "REPLACE"},
        "metadata copied, others given": {"MetadataDirective": "COPY", "Metadata": {"c": "d"}},
        "an ACL": {"ACL": "public-read"},
        "tags replaced": {"TaggingDirective": "REPLACE", "Tagging": "x=y"},
        "a storage class that is none": {"StorageClass": "COLDER"},
        "a directive that is none": {"MetadataDirective": "MAYBE"}}.items():
    add("copy", _name, functools.partial(copy_fields, arguments=_arguments))


@case("copy", "onto itself, nothing changed")
def _(s):
    s.do("put_object", Body=data(900))
    s.do("copy_object", CopySource=source(s, s.key))
    read_back(s)


@case("copy", "onto itself, metadata replaced")
def _(s):
    s.do("put_object", Body=data(900), Metadata={"n": "1"})
    read_back(s)
    s.do("copy_object", CopySource=source(s, s.key), MetadataDirective="REPLACE",
         Metadata={"n": "2"}, ContentType="x/two")
    read_back(s)


def copy_if(s, make):
    tag = s.do("put_object", Key=s.key + "/from", Body=data(700))["ETag"]
    at = s.do("head_object", Key=s.key + "/from")["LastModified"]
    s.do("copy_object", CopySource=source(s), **make(tag, at))
    s.do("get_object")


for _name, _make in {
        "if-match same": lambda tag, at: {"CopySourceIfMatch": tag},
        "if-match other": lambda tag, at: {"CopySourceIfMatch": OTHER},
        "if-none-match same": lambda tag, at: {"CopySourceIfNoneMatch": tag},
        "if-none-match other": lambda tag, at: {"CopySourceIfNoneMatch": OTHER},
        "if-modified-since past": lambda tag, at: {"CopySourceIfModifiedSince": PAST},
        "if-modified-since then": lambda tag, at: {"CopySourceIfModifiedSince": at},
        "if-unmodified-since past": lambda tag, at: {"CopySourceIfUnmodifiedSince": PAST},
        "if-unmodified-since future": lambda tag, at: {"CopySourceIfUnmodifiedSince": FUTURE},
}.items():
    add("copy", _name, functools.partial(copy_if, make=_make))


def copy_key(s, key):
    """An awkward key is copied, and copied to."""
    key = s.key + "/" + key
    s.do("put_object", Key=key, Body=data(90, key))
    s.do("copy_object", CopySource=source(s, key), Key=key + ".copy")
    s.do("get_object", Key=key + ".copy")


for _n, _key in enumerate(KEYS):
    add("copy", f"key {_n} {_key!r}", functools.partial(copy_key, key=_key))


@case("copy", "over what is cached")
def _(s):
    s.do("put_object", Key=s.key + "/from", Body=data(2000, "new"))
    s.do("put_object", Body=data(2000, "old"))
    s.do("get_object")
    s.do("copy_object", CopySource=source(s))
    read_back(s)


@case("copy", "source absent")
def _(s):
    s.do("copy_object", CopySource=source(s))
    s.do("head_object")


@case("copy", "source in an absent bucket")
def _(s):
    s.do("copy_object", CopySource=source(s, bucket=s.side.bucket("nowhere")))


@case("copy", "into an absent bucket")
def _(s):
    s.given("put_object", Key=s.key + "/from", Body=b"x")
    s.do("copy_object", CopySource=source(s), Bucket=s.side.bucket("nowhere"))


@case("copy", "between buckets")
def _(s):
    s.do("put_object", Body=data(3000), Metadata={"from": "main"})
    s.do("copy_object", Bucket=s.side.bucket("other"), CopySource=source(s, s.key))
    read_back(s, Bucket=s.side.bucket("other"))


@case("copy", "5 MiB")
def _(s):
    s.do("put_object", Key=s.key + "/from", Body=data(5 * MIB))
    s.do("copy_object", CopySource=source(s))
    read_back(s)


@case("copy", "a source that is written in odd ways")
def _(s):
    s.do("put_object", Key=s.key + "/a b", Body=b"odd")
    name = urllib.parse.quote(f"{s.bucket}/{s.key}/a b")
    for number, text in enumerate((name, "/" + name, name.replace("/", "%2F", 1), s.bucket, "",
                                   name + "?versionId=null", name + "?other=1")):
        s.raw("PUT", key=f"{s.key}/{number}", headers={"x-amz-copy-source": text})
        s.do("get_object", Key=f"{s.key}/{number}")


# ---- delete ----

@case("delete", "one")
def _(s):
    s.do("put_object", Body=b"x")
    s.do("get_object")
    s.do("delete_object")
    read_back(s)


@case("delete", "absent, and twice")
def _(s):
    s.do("delete_object")
    s.do("delete_object")
    s.do("head_object")


@case("delete", "in an absent bucket")
def _(s):
    s.use("nowhere")
    s.do("delete_object")
    s.do("delete_objects", Delete={"Objects": [{"Key": "a"}]})


@case("delete", "version null")
def _(s):
    s.do("put_object", Body=b"x")
    s.do("get_object")
    s.do("delete_object", VersionId="null")
    s.do("get_object")


@case("delete", "and there again")
def _(s):
    for size in (50, 60):
        s.do("put_object", Body=data(size))
        s.do("get_object")
        s.do("delete_object")
        s.do("get_object")
    s.do("put_object", Body=b"at last")
    read_back(s)


def delete_many(s, names, quiet):
    keys = [f"{s.key}/{name}" for name in names]
    for key in keys[:30]:
        s.given("put_object", Key=key, Body=data(40, key))
        s.do("get_object", Key=key)
    objects = {"Objects": [{"Key": key} for key in keys]}
    s.do("delete_objects", Delete={**objects, "Quiet": True} if quiet else objects)
    for key in keys[:30]:
        s.do("get_object", Key=key)
    s.do("list_objects_v2", Prefix=s.key + "/")


for _quiet in (False, True):
    _how = ", quiet" if _quiet else ""
    add("delete", "three at once" + _how,
        functools.partial(delete_many, names=("a", "b", "c/d"), quiet=_quiet))
    add("delete", "awkward ones at once" + _how,
        functools.partial(delete_many, names=[*KEYS, "cr\rlf\n", "&", "&amp;", "]]>", "'\""],
                          quiet=_quiet))
add("delete", "1000 at once",
    functools.partial(delete_many, names=[f"{n:04}" for n in range(1000)], quiet=False))
for _n, _key in enumerate(("&", "cr\rhere", "line\nfeed", "both\r\n", "é", "日本/語", "<Key>", " lead",
                           "trail ", "a//b", "tab\t")):
    add("delete", f"key {_n} {_key!r} in a list",
        functools.partial(delete_many, names=(_key,), quiet=False))


@case("delete", "absent ones at once")
def _(s):
    s.do("delete_objects", Delete={"Objects": [{"Key": s.key + "/1"}, {"Key": s.key + "/2"}]})


@case("delete", "1001 at once")
def _(s):
    s.do("delete_objects",
         Delete={"Objects": [{"Key": f"{s.key}/{n}"} for n in range(1001)]})


def delete_text(s, text):
    """A body that no SDK would write."""
    s.do("put_object", Body=b"x")
    s.do("get_object")
    body = text.replace("KEY", s.key).replace("TAIL", s.key[1:]).encode()
    s.raw_bucket("POST", query=(("delete", ""),), headers={"Content-MD5": md5_of(body)}, body=body)
    s.do("get_object")


for _name, _text in {
        "without a namespace": "<Delete><Object><Key>KEY</Key></Object></Delete>",
        "on several lines": "<Delete>\n  <Quiet>true</Quiet>\n  <Object>\n    <Key>KEY</Key>\n"
                            "  </Object>\n</Delete>\n",
        "with a declaration": "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Delete>"
                              "<Object><Key>KEY</Key></Object></Delete>",
        "with the version null": "<Delete><Object><Key>KEY</Key><VersionId>null</VersionId>"
                                 "</Object></Delete>",
        "with character references": "<Delete><Object><Key>&#100;TAIL</Key></Object></Delete>",
        "cut off": "<Delete><Object><Key>KEY</Key>",
        "that is no XML": "delete KEY",
        "of another name": "<Remove><Object><Key>KEY</Key></Object></Remove>",
        "without keys": "<Delete></Delete>",
        "empty": ""}.items():
    add("delete", "a list " + _name, functools.partial(delete_text, text=_text))


# ---- tags ----

TAGS = {"TagSet": [{"Key": "team", "Value": "a b"}, {"Key": "é", "Value": "ü&<"}]}


@case("tagging", "put, get, delete")
def _(s):
    s.do("put_object", Body=b"x")
    s.do("get_object")
    s.do("get_object_tagging")
    s.do("put_object_tagging", Tagging=TAGS)
    s.do("get_object_tagging")
    read_back(s)
    s.do("delete_object_tagging")
    s.do("get_object_tagging")
    read_back(s)


@case("tagging", "of an absent key")
def _(s):
    s.do("get_object_tagging")
    s.do("put_object_tagging", Tagging=TAGS)
    s.do("delete_object_tagging")


def tag_set(s, tags):
    s.do("put_object", Body=b"x", Tagging="old=1")
    s.do("get_object")
    s.do("put_object_tagging", Tagging={"TagSet": [{"Key": k, "Value": v} for k, v in tags]})
    s.do("get_object_tagging")
    s.do("get_object")


for _name, _tags in {"none": [], "ten": [(f"k{n}", "v") for n in range(10)],
                     "eleven": [(f"k{n}", "v") for n in range(11)],
                     "one twice": [("a", "1"), ("a", "2")],
                     "a key of 128": [("k" * 128, "v")], "a key of 129": [("k" * 129, "v")],
                     "a value of 256": [("k", "v" * 256)], "a value of 257": [("k", "v" * 257)],
                     "an empty value": [("k", "")]}.items():
    add("tagging", _name, functools.partial(tag_set, tags=_tags))


@case("tagging", "of a bucket")
def _(s):
    s.use("tagged")
    s.do("get_bucket_tagging")
    s.do("put_bucket_tagging", Tagging=TAGS)
    s.do("get_bucket_tagging")
    s.do("delete_bucket_tagging")
    s.do("get_bucket_tagging")


@case("tagging", "given with the upload, then overwritten")
def _(s):
    s.do("put_object", Body=b"1", Tagging="a=1")
    s.do("get_object_tagging")
    s.do("put_object", Body=b"2")
    s.do("get_object_tagging")
    read_back(s)
