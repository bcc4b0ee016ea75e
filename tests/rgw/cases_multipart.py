# Uploads in parts.
#
# SPDX-License-Identifier: Apache-2.0
import functools

from case_list import MIB, add, case, data
from cases_read import KEYS

PART = 5 * MIB


def begin(s, **arguments):
    return s.do("create_multipart_upload", **arguments)["UploadId"]


def part(s, upload, number, body, **more):
    etag = s.do("upload_part", UploadId=upload, PartNumber=number, Body=body, **more).get("ETag")
    return {"PartNumber": number, "ETag": etag}


def complete(s, upload, parts, **more):
    return s.do("complete_multipart_upload", UploadId=upload, MultipartUpload={"Parts": parts},
                **more)


def read_back(s, **name):
    s.do("head_object", **name)
    s.do("get_object", **name)
    s.do("get_object", Range="bytes=-100", **name)


def whole(s, sizes, arguments):
    upload = begin(s, **arguments)
    parts = [part(s, upload, n, data(size, f"part {n}")) for n, size in enumerate(sizes, 1)]
    s.do("list_parts", UploadId=upload)
    complete(s, upload, parts)
    read_back(s)


for _name, _sizes in {"one small part": [1000], "an empty part": [0], "two parts": [PART, 17],
                      "three parts of odd sizes": [PART + 1, PART + 3, 1],
                      "two equal parts": [PART, PART]}.items():
    add("multipart", _name, functools.partial(whole, sizes=_sizes, arguments={}))
for _name, _arguments in {
        "metadata and type": {"Metadata": {"a": "b"}, "ContentType": "video/mp4"},
        "every field": {"CacheControl": "no-store", "ContentDisposition": "inline",
                        "ContentEncoding": "br", "ContentLanguage": "de"},
        "tags": {"Tagging": "a=1"}, "an ACL": {"ACL": "public-read"},
        "storage class that is none": {"StorageClass": "COLDER"}}.items():
    add("multipart", _name, lambda s, a=_arguments: begun_only(s, a))


def begun_only(s, arguments):
    upload = s.do("create_multipart_upload", **arguments).get("UploadId")
    if upload:
        complete(s, upload, [part(s, upload, 1, data(4000))])
        s.do("get_object_acl")
    read_back(s)


@case("multipart", "parts in the wrong order")
def _(s):
    upload = begin(s)
    second = part(s, upload, 2, data(PART, "2"))
    first = part(s, upload, 1, data(PART, "1"))
    complete(s, upload, [second, first])
    s.do("head_object")
    complete(s, upload, [first, second])
    read_back(s)


@case("multipart", "a part that is too small")
def _(s):
    upload = begin(s)
    parts = [part(s, upload, n, data(1000, str(n))) for n in (1, 2)]
    complete(s, upload, parts)
    s.do("head_object")


@case("multipart", "a part that was not uploaded")
def _(s):
    upload = begin(s)
    first = part(s, upload, 1, data(1000))
    complete(s, upload, [first, {"PartNumber": 2, "ETag": first["ETag"]}])
    s.do("head_object")


@case("multipart", "another ETag than the part's")
def _(s):
    upload = begin(s)
    part(s, upload, 1, data(1000))
    complete(s, upload, [{"PartNumber": 1, "ETag": '"0123456789abcdef0123456789abcdef"'}])
    s.do("head_object")


@case("multipart", "an ETag without quotes")
def _(s):
    upload = begin(s)
    first = part(s, upload, 1, data(1000))
    complete(s, upload, [{**first, "ETag": first["ETag"].strip('"')}])
    read_back(s)


@case("multipart", "no parts")
def _(s):
    upload = begin(s)
    complete(s, upload, [])
    s.do("head_object")


@case("multipart", "a part uploaded twice")
def _(s):
    upload = begin(s)
    part(s, upload, 1, data(1000, "first"))
    last = part(s, upload, 1, data(1200, "last"))
    s.do("list_parts", UploadId=upload)
    complete(s, upload, [last])
    read_back(s)


@case("multipart", "a part left out")
def _(s):
    upload = begin(s)
    part(s, upload, 1, data(PART, "left out"))
    second = part(s, upload, 2, data(2000, "taken"))
    complete(s, upload, [second])
    read_back(s)


@case("multipart", "an upload id that is unknown")
def _(s):
    for op, more in (("upload_part", {"PartNumber": 1, "Body": b"x"}), ("list_parts", {}),
                     ("abort_multipart_upload", {}),
                     ("complete_multipart_upload",
                      {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": "x"}]}})):
        s.do(op, UploadId="2~unknownunknownunknown", **more)


def part_number(s, number):
    upload = begin(s)
    s.raw("PUT", query=(("partNumber", number), ("uploadId", upload)), body=b"x")


for _number in ("0", "10000", "10001", "-1", "x", ""):
    add("multipart", f"part number {_number!r}", functools.partial(part_number, number=_number))


@case("multipart", "abort")
def _(s):
    upload = begin(s)
    part(s, upload, 1, data(1000))
    s.do("list_multipart_uploads", Prefix=s.key)
    s.do("abort_multipart_upload", UploadId=upload)
    s.do("list_multipart_uploads", Prefix=s.key)
    s.do("list_parts", UploadId=upload)
    s.do("abort_multipart_upload", UploadId=upload)
    s.do("head_object")


@case("multipart", "completed twice")
def _(s):
    upload = begin(s)
    first = part(s, upload, 1, data(1000))
    complete(s, upload, [first])
    complete(s, upload, [first])
    read_back(s)


@case("multipart", "over an object that is cached")
def _(s):
    s.do("put_object", Body=data(1000, "old"))
    read_back(s)
    upload = begin(s)
    one = part(s, upload, 1, data(1000, "new"))
    s.do("get_object")
    complete(s, upload, [one])
    read_back(s)


@case("multipart", "under an object that is put meanwhile")
def _(s):
    upload = begin(s)
    one = part(s, upload, 1, data(1000, "parts"))
    s.do("put_object", Body=data(900, "put"))
    read_back(s)
    complete(s, upload, [one])
    read_back(s)


@case("multipart", "two uploads of one key")
def _(s):
    first, second = begin(s), begin(s)
    one = part(s, first, 1, data(1000, "one"))
    two = part(s, second, 1, data(1000, "two"))
    complete(s, second, [two])
    s.do("get_object")
    complete(s, first, [one])
    read_back(s)


@case("multipart", "pages of parts")
def _(s):
    upload = begin(s)
    for number in (1, 2, 3, 7, 9):
        part(s, upload, number, data(100 + number))
    page = s.do("list_parts", UploadId=upload, MaxParts=2)
    page = s.do("list_parts", UploadId=upload, MaxParts=2,
                PartNumberMarker=page["NextPartNumberMarker"])
    s.do("list_parts", UploadId=upload, PartNumberMarker=9)
    s.do("list_parts", UploadId=upload, MaxParts=0)


@case("multipart", "a part of an absent bucket")
def _(s):
    s.use("nowhere")
    s.do("create_multipart_upload")


@case("multipart", "Content-MD5 of other bytes")
def _(s):
    upload = begin(s)
    part(s, upload, 1, b"x" * 100, ContentMD5="1B2M2Y8AsgTpgAmY7PhCfg==")
    s.do("list_parts", UploadId=upload)


@case("multipart", "a crc32 that boto3 makes")
def _(s):
    upload = begin(s)
    one = part(s, upload, 1, data(300), ChecksumAlgorithm="CRC32")
    complete(s, upload, [one])
    read_back(s)


def copied(s, ranges):
    """Parts that are copied from ranges of an object."""
    s.do("put_object", Key=s.key + "/from", Body=data(PART + 5000, "from"))
    upload = begin(s)
    parts = []
    for number, text in enumerate(ranges, 1):
        got = s.do("upload_part_copy", UploadId=upload, PartNumber=number, CopySourceRange=text,
                   CopySource={"Bucket": s.bucket, "Key": s.key + "/from"})
        parts.append({"PartNumber": number, "ETag": got.get("CopyPartResult", {}).get("ETag", "")})
    s.do("list_parts", UploadId=upload)
    complete(s, upload, parts)
    read_back(s)


for _name, _ranges in {"whole": [None], "a range": ["bytes=10-2009"],
                       "two ranges": [f"bytes=0-{PART - 1}", f"bytes={PART}-{PART + 4999}"],
                       "beyond the end": [f"bytes=0-{PART + 5000}"],
                       "no range": ["bytes=9-1"], "an open range": ["bytes=10-"]}.items():
    add("multipart", f"a part copied: {_name}", functools.partial(copied, ranges=_ranges))


@case("multipart", "a part copied: source absent")
def _(s):
    upload = begin(s)
    s.do("upload_part_copy", UploadId=upload, PartNumber=1,
         CopySource={"Bucket": s.bucket, "Key": s.key + "/from"})


@case("multipart", "a part copied: if-match other")
def _(s):
    s.do("put_object", Key=s.key + "/from", Body=data(500))
    upload = begin(s)
    s.do("upload_part_copy", UploadId=upload, PartNumber=1, CopySourceIfMatch='"0123"',
         CopySource={"Bucket": s.bucket, "Key": s.key + "/from"})


def multipart_key(s, key):
    key = s.key + "/" + key
    upload = begin(s, Key=key)
    one = part(s, upload, 1, data(70, key), Key=key)
    s.do("list_parts", Key=key, UploadId=upload)
    complete(s, upload, [one], Key=key)
    read_back(s, Key=key)


for _n, _key in enumerate(KEYS[::3]):
    add("multipart", f"key {_n} {_key!r}", functools.partial(multipart_key, key=_key))
