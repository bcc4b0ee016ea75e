# Where the server under test answers otherwise than Ceph RGW 16.2.15 does to the requests of the
# suite, and by which rule of S3. Reads of objects that are there have a table of their own, in
# deviations.py; this one is asked first.
#
# The table is complete: a difference that no row explains fails the case, and a row that never
# applied fails the suite.
#
# SPDX-License-Identifier: Apache-2.0
import dataclasses
import types

import deviations
from record import differences


def becomes(status, code, **fields):
    """The answer is this error. That of a HEAD is its status only, which boto3 takes for a code."""
    def change(step):
        told = {k.replace("_", "-"): v for k, v in fields.items()}
        said = {"HEAD": "", "head_object": str(status), "head_bucket": str(status)}
        return dataclasses.replace(step, status=status, code=said.get(step.op, code),
                                   fields=told, document=None, case=None)
    return change


def is_list_of_deletes(step):
    return step.op in ("delete_objects", "POST")


PART_NUMBERS = ("multipart: part number '0'", "multipart: part number '10001'",
                "multipart: part number '-1'")

# (name, the rule, applies(case, step), change(step)); case is "group: name".
TABLE = [
    ("a position beyond 64 bits cannot be satisfied",
     "versitygw: GetObject_with_range: a start or an end that overflows is 416 InvalidRange. "
     "RGW: the whole object",
     lambda c, s: s.case and "18446744073709551616" in s.case.range and s.status == 206,
     becomes(416, "InvalidRange", content_range="bytes */100")),
    ("a key has at most 1024 bytes",
     "S3 error codes: KeyTooLongError, 400. RGW: 400 InvalidObjectName",
     lambda c, s: s.code == "InvalidObjectName" and "of one more" in c,
     becomes(400, "KeyTooLongError")),
    ("a checksum is compared with the bytes",
     "PutObject: x-amz-checksum-crc32; S3 error codes: BadDigest, 400. RGW: ignores it",
     lambda c, s: c == "put: crc32 of other bytes" and s.op == "put_object",
     becomes(400, "BadDigest")),
    ("what was refused is not there",
     "PutObject: Amazon S3 never adds partial objects. RGW: see the row before",
     lambda c, s: c == "put: crc32 of other bytes" and s.op == "head_object",
     becomes(404, "NoSuchKey")),
    ("an error has a document",
     "S3 error responses: a list of deletes that is malformed, or of more than 1000 keys "
     "(DeleteObjects) is 400 MalformedXML. RGW: 400 without a document",
     lambda c, s: is_list_of_deletes(s) and s.status == 400 and s.code in ("", "400"),
     becomes(400, "MalformedXML")),
    ("a list of deletes names at least one key",
     "DeleteObjects: Object is required, else MalformedXML. RGW: 200 and nothing",
     lambda c, s: c == "delete: a list without keys" and is_list_of_deletes(s),
     becomes(400, "MalformedXML")),
    ("a part has a number from 1 to 10000",
     "UploadPart: Part numbers can be any number from 1 to 10,000, inclusive; else 400 "
     "InvalidArgument. RGW: takes any",
     lambda c, s: c in PART_NUMBERS and s.op == "PUT", becomes(400, "InvalidArgument")),
    ("a bucket's name begins with a letter or a number",
     "Bucket naming rules; S3 error codes: InvalidBucketName, 400. RGW: 404 NoSuchBucket",
     lambda c, s: c == "bucket: named -dash" and s.op in ("GET", "HEAD"),
     becomes(400, "InvalidBucketName")),
    ("a signed URL holds from its date on",
     "Authenticating requests, query parameters: X-Amz-Date is when the URL begins to hold; 403 "
     "AccessDenied. RGW: 200",
     lambda c, s: c == "presigned: of tomorrow", becomes(403, "AccessDenied")),
    ("a signed URL holds for a week at most",
     "Authenticating requests, query parameters: X-Amz-Expires, at most 604800; else 400 "
     "AuthorizationQueryParametersError. RGW: 403 AccessDenied",
     lambda c, s: c == "presigned: for more than a week",
     becomes(400, "AuthorizationQueryParametersError")),
    ("unsigned requests do not change the fields of an answer",
     "GetObject: to override response header values the request must be signed; 400 "
     "InvalidRequest. RGW: 200",
     lambda c, s: c == "anonymous: overrides", becomes(400, "InvalidRequest")),
    ("an ambiguous text is not taken for signed",
     "Signing requests, version 2: overrides are signed decoded and undelimited, so that an & in "
     "one could stand between two; 400 InvalidRequest asks for version 4. RGW: 200",
     lambda c, s: c == "presigned: v2 GET, disposition overridden",
     becomes(400, "InvalidRequest")),
    ("a type is given once",
     "S3 error codes: InvalidArgument, 400: query and field say different types. RGW: 403 "
     "SignatureDoesNotMatch",
     lambda c, s: c == "presigned: v2 PUT, another type than signed" and s.op == "PUT",
     becomes(400, "InvalidArgument")),
    ("nobody has buckets to list",
     "ListBuckets: anonymous requests are never allowed to list buckets; 403 AccessDenied. "
     "RGW: 200 and an empty list",
     lambda c, s: c == "anonymous: list of buckets", becomes(403, "AccessDenied")),
    ("who must sign hears nothing without",
     "S3 error codes: AccessDenied, 403. Here auth.anonymous decides, before the store is asked, "
     "and names nobody. RGW: looks at what is asked for",
     lambda c, s: c in ("anonymous: an absent bucket",
                        "anonymous: a public object, readers have to sign"),
     becomes(403, "AccessDenied")),
]


class Known:
    def __init__(self):
        self.applied = {row[0]: 0 for row in TABLE}
        self.objects = deviations.Table()

    def problems(self, case, direct, through):
        """What is wrong with a step through the server, given the direct one."""
        rows = [row for row in TABLE if row[2](case, direct)]
        expected = direct
        for name, _, _, change in rows:
            self.applied[name] += 1
            expected = change(expected)
        if rows or not direct.case or not direct.plain or direct.plain.status != 200:
            return differences(expected, through)
        return self._object_problems(direct, through)

    def _object_problems(self, direct, through):
        plain = direct.plain
        item = types.SimpleNamespace(size=len(plain.body), key="",
                                     part=int("-" in plain.fields["etag"]))
        e = self.objects.expect(direct.case, item, direct, plain)
        return deviations.compare(direct.case, item, e, through, plain.body)

    def counts(self):
        return {**self.applied, **self.objects.applied}
