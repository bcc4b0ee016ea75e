# Three hundred objects: sizes around every border, keys that proxies get wrong, fields that S3
# keeps, parts.
#
# Invariants:
#  1. The same list, with the same bytes, every time: bytes are a function of key and size.
#  2. What an object's answers must show stands here, not in what a server said about it.
#
# SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import dataclasses
import gzip
import hashlib
import random
import time

import boto3
import botocore.client

from procs import Failure, wait_until
from wire import Wire, path_of

KIB, MIB = 1 << 10, 1 << 20
COUNT = 300
# A younger object may still be changing: if it is larger than a chunk, it is relayed to each client
# rather than put together from ranges.
SETTLED_SECONDS = 4
PART = 5 * MIB

BORDERS = [0, 1, 2, 4095, 4096, 4097, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 128 * KIB - 1,
           128 * KIB, 128 * KIB + 1, 256 * KIB - 1, 256 * KIB, 256 * KIB + 1, MIB - 1, MIB,
           MIB + 1, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1,
           16 * MIB - 1, 16 * MIB, 16 * MIB + 1, 24 * MIB + 4097]
BIG = [100 * MIB, 128 * MIB + 1, 300 * MIB]
SMALL = [1, 100, 4095, 4096, 4097, 70000, 128 * KIB + 1]

AWKWARD = [
    # what path normalisers change
    "a//b", "a///b//", "a/b", "/lead", "//lead", "a/./b", "a/../b", "../up", "..", ".", "./dot",
    "a/..", "a/.", "dir/", "dir", "dir//", "trailing.", "trailing..", "trailing./", "...", "/",
    "//", "a/b/../../c",
    # percent, plus, blank
    "100%25", "100%", "100%zz", "%2F", "a%2Fb", "%2e%2e/x", "per%20cent", "a b+c", " lead",
    "trail ", "two  blanks",
    "+", "plus+plus", "a=b&c=d", "?acl", "key?versionId=1", "hash#tag", "~!$&'()*,;=:@", "-_.~",
    # other ASCII
    "back\\slash", "quote\"quote", "<xml>&amp;</xml>", "^`{|}", "[1]", "tab\there", "line\nfeed",
    "\x7f", "*",
    "%", "semi;colon", "http://x/y", "user@host:1", "--", "-/ready", ".headpond", "UPPER", "upper",
    # beyond ASCII
    "é", "e\u0301", "日本/語", "\U0001f986 pond", "\u200bzero", "\ufeffbom", "ÿ", "Ω≈ç√",
    "ı/İ", "\u202eright",
    # length
    "k" * 1024, "é" * 512, "d/" * 511 + "dd", "x" * 255 + "/" + "y" * 255, "%" * 1024,
]


@dataclasses.dataclass
class Item:
    key: str
    size: int
    fields: dict = dataclasses.field(default_factory=dict)   # boto3 arguments: ContentType, ...
    part: int = 0                                            # multipart with parts of so many bytes
    wire: dict = dataclasses.field(default_factory=dict)     # header fields sent as they are
    text: bytes = None                                       # the bytes, if they are not made
    sha256: str = ""
    etag: str = ""

    def bytes(self):
        if self.text is not None:
            return self.text
        return hashlib.shake_128(f"{self.size}:{self.key}".encode()).digest(self.size)

    @property
    def gzipped(self):
        return self.fields.get("ContentEncoding") == "gzip"

    @property
    def plain_name(self):
        """Whether a file system can hold it under its own name."""
        return self.key.startswith("plain/")


def attributes():
    zipped = gzip.compress(b"the quick brown fox\n" * 5000, mtime=0)
    return [
        Item("attr/type", 5000, {"ContentType": "text/plain; charset=utf-8"}),
        Item("attr/cache-control", 5000, {"CacheControl": "max-age=0, no-store"}),
        Item("attr/expires", 5000, {"Expires": "Thu, 01 Dec 1994 16:00:00 GMT"}),
        Item("attr/gzip", len(zipped), {"ContentEncoding": "gzip", "ContentType": "text/plain"},
             text=zipped),
        Item("attr/disposition", 300, {"ContentDisposition": "attachment; filename=\"a b.txt\""}),
        Item("attr/language", 300, {"ContentLanguage": "de-CH, en"}),
        Item("attr/meta", 300, {"Metadata": {"owner": "me", "empty": "", "mixed-Case": "A b  c"}}),
        Item("attr/meta-long", 300, {"Metadata": {f"m{i}": "v" * 100 for i in range(18)}}),
        Item("attr/meta-encoded", 300, {"Metadata": {"town": "=?UTF-8?B?WsO8cmljaA==?="}}),
        Item("attr/meta-raw", 300, wire={"x-amz-meta-town": "Z\u00c3\u00bcrich"}),
        Item("attr/redirect", 300, {"WebsiteRedirectLocation": "/elsewhere"}),
        Item("attr/empty-typed", 0, {"ContentType": "application/x-empty", "Metadata": {"a": "b"}}),
        Item("attr/everything", 2 * MIB + 7, {
            "ContentType": "application/x-tar", "CacheControl": "public, max-age=31536000",
            "ContentDisposition": "inline", "ContentLanguage": "ja", "ContentEncoding": "br",
            "Metadata": {"sha": "0" * 64, "x": "1"}}),
        Item("attr/multi-meta", 11 * MIB,
             {"ContentType": "video/mp4", "Metadata": {"k": "v"}}, PART),
    ]


def items():
    draw = random.Random(20250101)
    every = [Item(f"border/{size}", size) for size in BORDERS]
    every += [Item(f"big/{size}", size, part=8 * MIB if i else 0) for i, size in enumerate(BIG)]
    every += [Item(f"multi/{size}", size, part=part)
              for size, part in ((PART, PART), (PART + 1, PART), (2 * PART, PART),
                                 (23 * MIB + 1, PART), (33 * MIB, 16 * MIB), (8 * MIB, 8 * MIB),
                                 (17 * MIB, 8 * MIB))]
    every += attributes()
    every += [Item(key, SMALL[i % len(SMALL)]) for i, key in enumerate(AWKWARD)]
    every += [Item(f"plain/dir{i % 4}/{i:03}.bin", draw.choice(BORDERS[:18])) for i in range(40)]
    while len(every) < COUNT:
        size = int(2 ** draw.uniform(0, 22))
        every.append(Item(f"fill/shard-{len(every):05}.tar", size))
    if len(every) != COUNT or len({i.key for i in every}) != COUNT:
        raise Failure("the corpus is not what it says")
    return every


def settle():
    """Until what was just uploaded is no longer young."""
    done = time.monotonic()
    wait_until("the objects settle", lambda: time.monotonic() > done + SETTLED_SECONDS, 60)


class Corpus:
    def __init__(self, bucket, user, endpoint, port):
        self.bucket, self.items = bucket, items()
        self.endpoint, self.user, self.port = endpoint, user, port
        self.bytes = sum(i.size for i in self.items)

    def client(self, endpoint=None):
        """Of the store; with an endpoint, of what stands before it."""
        return boto3.client(
            "s3", endpoint_url=endpoint or self.endpoint, region_name="us-east-1",
            aws_access_key_id=self.user.access, aws_secret_access_key=self.user.secret,
            config=botocore.client.Config(max_pool_connections=20, retries={"max_attempts": 2},
                                          s3={"addressing_style": "path"}))

    def upload(self):
        """All of it, past the server under test; fills in sha256 and etag."""
        client = self.client()
        client.create_bucket(Bucket=self.bucket)
        order = sorted(self.items, key=lambda i: -i.size)
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda i: self._put(client, i), order))
        settle()

    def _put(self, client, item):
        data = item.bytes()
        item.sha256 = hashlib.sha256(data).hexdigest()
        if item.wire:
            item.etag = self._put_raw(item, data)
        elif item.part:
            item.etag = self._put_parts(client, item, data)
        else:
            item.etag = client.put_object(Bucket=self.bucket, Key=item.key, Body=data,
                                          **item.fields)["ETag"]

    def _put_raw(self, item, data):
        """With a signed URL: what no SDK would sign may stand in the head."""
        path = path_of(self.bucket, item.key)
        url = Wire(self.port, self.user).presign("PUT", path)
        wire = Wire(self.port)
        answer = wire.ask("PUT", url.partition(str(self.port))[2], headers=item.wire, body=data)
        wire.close()
        if answer.status != 200:
            raise Failure(f"PUT {item.key}: {answer.status} {answer.error()}")
        return answer.fields["etag"]

    def _put_parts(self, client, item, data):
        name = {"Bucket": self.bucket, "Key": item.key}
        upload = client.create_multipart_upload(**name, **item.fields)["UploadId"]
        parts = []
        for number, at in enumerate(range(0, len(data), item.part), 1):
            got = client.upload_part(**name, UploadId=upload, PartNumber=number,
                                     Body=data[at:at + item.part])
            parts.append({"PartNumber": number, "ETag": got["ETag"]})
        client.complete_multipart_upload(**name, UploadId=upload, MultipartUpload={"Parts": parts})
        return client.head_object(**name)["ETag"]  # RGW 16 leaves it empty in its answer
