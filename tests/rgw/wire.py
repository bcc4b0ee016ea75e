# One request on the wire, exactly as written: nothing normalises the path, adds fields or follows
# anything.
#
# Invariants:
#  1. The path is the key percent-encoded once; it reaches the socket as it was signed.
#  2. Signatures come from botocore: not from the code under test.
#
# SPDX-License-Identifier: Apache-2.0
import hashlib
import http.client
import urllib.parse
import xml.etree.ElementTree

from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

REGION = "us-east-1"
EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
READ_BYTES = 1 << 20


def path_of(bucket, key=None):
    return "/" + bucket + ("" if key is None else "/" + urllib.parse.quote(key, safe="-._~/"))


class Answer:
    def __init__(self, status, fields, body_bytes, sha256, body):
        self.status, self.fields = status, fields      # fields: {lower-case name: value}
        self.body_bytes, self.sha256 = body_bytes, sha256
        self.body = body               # without `keep` only of answers that are no 200 or 206

    def error(self):
        """{"Code": ..., ...} of an error document, {} without one."""
        try:
            root = xml.etree.ElementTree.fromstring(self.body)
        except xml.etree.ElementTree.ParseError:
            return {}
        return {e.tag.rpartition("}")[2]: e.text or "" for e in root}


class Wire:
    """A kept connection to one endpoint with one user's key (None: anonymous)."""

    def __init__(self, port, user=None, keep=False):
        self.port, self.user, self.keep = port, user, keep
        self.host = f"127.0.0.1:{port}"
        self.connection = None

    def ask(self, method, path, query=(), headers=None, body=b""):
        """query: pairs. Header values: Latin-1 characters, sent as those bytes."""
        target = path
        if query:
            target += "?" + urllib.parse.urlencode(query, quote_via=urllib.parse.quote, safe="-._~")
        fields = self._signed(method, target, dict(headers or {}), body)
        try:
            return self._exchange(method, target, fields, body)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            if self.connection is None:
                raise
            self.close()               # a kept connection that had idled out
            return self._exchange(method, target, fields, body)

    def presign(self, method, path, query=(), seconds=600):
        """A URL that carries its signature."""
        url = f"http://{self.host}{path}"
        request = AWSRequest(method, url, params=list(query))
        S3SigV4QueryAuth(self._credentials(), "s3", REGION, expires=seconds).add_auth(request)
        return request.url

    def close(self):
        if self.connection:
            self.connection.close()
        self.connection = None

    def _credentials(self):
        return Credentials(self.user.access, self.user.secret)

    def _signed(self, method, target, headers, body):
        if self.user is None:
            return {"Host": self.host, **headers}
        request = AWSRequest(method, f"http://{self.host}{target}", headers=headers, data=body)
        request.headers["X-Amz-Content-SHA256"] = (hashlib.sha256(body).hexdigest() if body
                                                   else EMPTY_SHA256)
        S3SigV4Auth(self._credentials(), "s3", REGION).add_auth(request)
        return {"Host": self.host, **dict(request.headers.items())}

    def _exchange(self, method, target, fields, body):
        if self.connection is None:
            self.connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        c = self.connection
        c.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
        for name, value in fields.items():
            c.putheader(name, value)
        if body or method in ("PUT", "POST"):
            c.putheader("Content-Length", str(len(body)))
        c.endheaders(body or None)
        return self._read(c.getresponse())

    def _read(self, response):
        keep = self.keep or response.status not in (200, 206)
        digest, length, parts = hashlib.sha256(), 0, []
        while True:
            part = response.read(READ_BYTES)
            if not part:
                break
            digest.update(part)
            length += len(part)
            if keep:
                parts.append(part)
        fields = {k.lower(): v for k, v in response.getheaders()}
        if fields.get("connection", "").lower() == "close":
            self.close()
        return Answer(response.status, fields, length, digest.hexdigest(), b"".join(parts))
