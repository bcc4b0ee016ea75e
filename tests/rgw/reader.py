# Reads a bucket with whatever boto3 runs it, and says what is wrong: run by test_bytes.py under old
# and new versions.
#
# A job comes as JSON on standard input: endpoint, access, secret, bucket, folder, and items with
# key, size, sha256, etag, fields (what was given to put_object) and how ("get" or "download"). A
# list of problems goes out as JSON.
#
# SPDX-License-Identifier: Apache-2.0
import concurrent.futures
import hashlib
import json
import os
import sys

import boto3
import botocore.client
import botocore.exceptions

THREADS = 2


def digest_of(stream):
    digest = hashlib.sha256()
    for part in iter(lambda: stream.read(1 << 20), b""):
        digest.update(part)
    return digest.hexdigest()


class Reader:
    def __init__(self, job):
        self.job, self.bucket = job, job["bucket"]
        self.client = boto3.client(
            "s3", endpoint_url=job["endpoint"], region_name="us-east-1",
            aws_access_key_id=job["access"], aws_secret_access_key=job["secret"],
            config=botocore.client.Config(max_pool_connections=20, retries={"max_attempts": 1}))

    def check(self, indexed):
        number, item = indexed
        try:
            return [f"{item['key'][:80]!r}: {p}" for p in self.problems(number, item)]
        except Exception as e:
            return [f"{item['key'][:80]!r}: {type(e).__name__}: {e}"]

    def problems(self, number, item):
        yield from self.head(item)
        if item["how"] == "download":
            yield from self.download(number, item)
        else:
            yield from self.get(item)
        yield from self.ranges(item)

    def head(self, item):
        head = self.client.head_object(Bucket=self.bucket, Key=item["key"])
        if head["ContentLength"] != item["size"]:
            yield f"HEAD: size {head['ContentLength']}"
        if head["ETag"] != item["etag"]:
            yield f"HEAD: ETag {head['ETag']}"
        yield from self.kept("HEAD", item, head)

    def kept(self, what, item, answer):
        for name, value in item["fields"].items():
            if name == "Metadata":
                value = {k.lower(): v for k, v in value.items()}
            got = answer.get(name)
            if name == "Expires" and got is not None:
                got = answer.get("ExpiresString") or got.strftime("%a, %d %b %Y %H:%M:%S GMT")
            if got != value:
                yield f"{what}: {name} {got!r}, not {value!r}"

    def get(self, item):
        answer = self.client.get_object(Bucket=self.bucket, Key=item["key"])
        if digest_of(answer["Body"]) != item["sha256"]:
            yield "get_object: other bytes"
        yield from self.kept("GET", item, answer)

    def download(self, number, item):
        path = os.path.join(self.job["folder"], str(number))
        self.client.download_file(self.bucket, item["key"], path)
        with open(path, "rb") as f:
            if digest_of(f) != item["sha256"]:
                yield "download_file: other bytes"
        os.unlink(path)

    def ranges(self, item):
        """Ranges by their length; their bytes are compared elsewhere."""
        size = item["size"]
        if size == 0:
            return
        for text, length in (("bytes=0-0", 1), (f"bytes=-{size + 5}", size),
                             (f"bytes={size - 1}-", 1),
                             (f"bytes={size // 2}-{size + 10}", size - size // 2)):
            if length > 1 << 20:
                continue
            answer = self.client.get_object(Bucket=self.bucket, Key=item["key"], Range=text)
            if len(answer["Body"].read()) != length or answer["ContentLength"] != length:
                yield f"{text}: {answer['ContentLength']} bytes, not {length}"
        try:
            self.client.get_object(Bucket=self.bucket, Key=item["key"], Range=f"bytes={size}-")
            yield "a range beyond the end was answered"
        except botocore.exceptions.ClientError as e:
            if e.response["Error"]["Code"] != "InvalidRange":
                yield f"a range beyond the end: {e.response['Error']['Code']}"

    def listing(self):
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        got = {o["Key"]: (o["Size"], o["ETag"]) for p in pages for o in p.get("Contents", ())}
        want = {i["key"]: (i["size"], i["etag"]) for i in self.job["items"]}
        return [f"listing: {k[:80]!r} is {got.get(k)}, not {want.get(k)}"
                for k in sorted(got.keys() | want.keys()) if got.get(k) != want.get(k)]


def main():
    reader = Reader(json.load(sys.stdin))
    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(reader.check, enumerate(reader.job["items"])))
    problems = [p for one in found for p in one]
    if reader.job["listing"]:
        problems += reader.listing()
    json.dump({"version": boto3.__version__, "problems": problems}, sys.stdout)


if __name__ == "__main__":
    main()
