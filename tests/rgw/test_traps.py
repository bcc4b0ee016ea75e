# Where S3 caches go wrong, as a numbered list: each step is one trap, in the order of the list that
# this server was built by. The upstream is tests/lib/origin.h, so that every fault can be had.
#
# Many traps have tests of their own elsewhere, deeper than here; this list is for who asks "did you
# think of...".
#
# Invariants:
#  1. What is right comes from the upstream asked directly, from tests/lib/bytes.h, or stands here.
#  2. Whether upstream was asked is told by its own list of requests.
#
# SPDX-License-Identifier: Apache-2.0
import base64
import email.utils
import hashlib
import hmac
import http.client
import itertools
import os
import socket
import time
import urllib.parse
import zlib

from ceph import User
from corpus import MIB
from lab import Headpondd, Origin
from procs import run
from signer import Signer, stamp
from wire import Answer, Wire, path_of

USER = User("traps", "AKIDTEST", "secret")      # the server's own upstream key
B = "b"
WORD = (1 << 64) - 1
MODIFIED = 1767225600                           # of the upstream's objects: 2026-01-01


# ---- the bytes of tests/lib/bytes.h ----

def mix(x):
    x ^= x >> 32
    x = x * 0xd6e8feb86659fd93 & WORD
    return x ^ x >> 32


def content(key, version, size, at=0):
    """Bytes at .. at+size-1 of an object; at is a multiple of 8."""
    h = 0xcbf29ce484222325
    for byte in B.encode() + b"\xff" + key.encode():
        h = (h ^ byte) * 0x100000001b3 & WORD
    seed = mix((mix(h) + version * 0x9e3779b97f4a7c15) & WORD)
    words = (mix((seed + i * 0x9e3779b97f4a7c15) & WORD).to_bytes(8, "little")
             for i in range(at // 8, (at + size + 7) // 8))
    return b"".join(words)[:size]


class Asker(Wire):
    """Asks with the body of every answer at hand."""

    def __init__(self, port, user=None):
        super().__init__(port, user)
        self.signer = Signer(user) if user else None

    def go(self, method, target, headers=None, body=b"", fields=None):
        """fields: all of them, as they are; else they are made and signed."""
        if fields is None:
            fields = {"Host": self.host, **(headers or {})}
            if self.signer:
                payload = hashlib.sha256(body).hexdigest()
                fields = self.signer.head(method, target, fields, payload)
        try:
            return self._exchange(method, target, fields, body)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            self.close()
            return self._exchange(method, target, fields, body)

    def get(self, key, headers=None, query=""):
        return self.go("GET", path_of(B, key) + query, headers)

    def head(self, key, headers=None, query=""):
        return self.go("HEAD", path_of(B, key) + query, headers)

    def _read(self, response):
        body = response.read()
        fields = {k.lower(): v for k, v in response.getheaders()}
        if fields.get("connection", "").lower() == "close":
            self.close()
        return Answer(response.status, fields, len(body), hashlib.sha256(body).hexdigest(), body)


def seconds_after(unix_s):
    return email.utils.formatdate(unix_s, usegmt=True)


class Traps:
    def __init__(self, lab):
        self.lab = lab
        self.origin = lab.begin(Origin(lab, "origin-traps"))
        self.server = Headpondd(
            lab, "traps", self.origin.port, USER.access, USER.secret, cache__immutable=False,
            cache__ttl="1h", cache__negative_ttl="1h", auth__sigv2=True,
            auth__keys_file=lab.path("traps", "keys"), upstream__read_timeout="2s",
            upstream__retries=2, server__drain_timeout="2s").empty()
        self._write_keys()
        lab.begin(self.server)
        self.direct = Asker(self.origin.port)
        self.nobody = Asker(self.server.port)
        self.me = Asker(self.server.port, USER)
        self.wrong = []
        self.origin.do("log on")

    def _write_keys(self):
        path = self.lab.path("traps", "keys")
        with open(path, "w") as f:
            f.write(f"{USER.access} {USER.secret} rw\n")
        os.chmod(path, 0o600)
        if self.lab.user:
            os.chown(path, self.lab.user.pw_uid, self.lab.user.pw_gid)

    # ---- judging ----

    def want(self, good, text):
        if not good:
            self.wrong.append(text)

    def is_(self, got, want, text):
        self.want(got == want, f"{text}: {got!r}, not {want!r}")

    def answers(self, answer, status, code=None, x_cache=None, text=""):
        what = f"{text}: {answer.status} {answer.error() if answer.status >= 400 else ''}"
        self.want(answer.status == status, f"{what}, not {status}")
        if code:
            self.is_(answer.error().get("Code"), code, text)
        if x_cache:
            self.is_(answer.fields.get("x-cache"), x_cache, f"{text}: x-cache")
        return answer

    def warm(self, key):
        """Cached and shown to be so."""
        self.answers(self.me.get(key), 200, text=f"first read of {key!r}")
        return self.answers(self.me.get(key), 200, x_cache="hit", text=f"second read of {key!r}")

    def saw(self, *words):
        """Requests upstream since the mark that hold all of these words."""
        return [line for line in self.origin.do("requests") if all(w in line for w in words)]

    def is_asked(self, key, text):
        """What is read next is not simply what was cached."""
        self.origin.do("mark")
        answer = self.me.get(key)
        self.want(self.saw(path_of(B, key)), f"{text}: {key!r} was answered without asking upstream")
        return answer

    def raw(self, text, more=b""):
        """Bytes as they are; (all that comes until the server ends, or a second of silence)."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as s:
            s.sendall(text + more)
            got = b""
            s.settimeout(3)
            try:
                for part in iter(lambda: s.recv(65536), b""):
                    got += part
            except TimeoutError:
                return got, False
            return got, True

    # ---- the list ----

    def step_1(self):
        """lists with and without the slash behind the bucket"""
        for anybody in (self.me, self.nobody):
            a, b = anybody.go("GET", "/b?list-type=2"), anybody.go("GET", "/b/?list-type=2")
            for answer in (a, b):
                self.answers(answer, 200)
                self.want(b"<ListBucketResult" in answer.body, f"no list: {answer.body[:200]}")
            self.is_(a.body, b.body, "the two lists")

    def step_2(self):
        """?uploads and ?uploads="""
        self.origin.do(f'set {B}/mp document="<InitiateMultipartUploadResult>'
                       '<UploadId>u1</UploadId></InitiateMultipartUploadResult>"')
        for query in ("?uploads", "?uploads="):
            # both are signed as "uploads="
            fields = Signer(USER).head("POST", "/b/mp?uploads=", {"Host": self.me.host})
            answer = self.me.go("POST", "/b/mp" + query, fields=fields)
            self.answers(answer, 200, text=query)
            self.want(b"<UploadId>u1<" in answer.body, f"{query}: {answer.body[:200]}")

    def step_3(self):
        """x-id and x-amz-checksum-mode in the query still hit"""
        self.warm("plain@3000")
        self.origin.do("mark")
        for query in ("?x-id=GetObject", "?x-amz-checksum-mode=ENABLED",
                      "?x-amz-checksum-mode=ENABLED&x-id=GetObject"):
            self.answers(self.me.get("plain@3000", query=query), 200, x_cache="hit", text=query)
        self.is_(self.saw(), [], "asked upstream")

    def step_4(self):
        """keys that look alike are different objects"""
        keys = ["a//b", "a/b", "a/../b", "b", "/lead", "lead", "é", "e\u0301", "a b+c", "a+b c",
                "100%25", "100%", "a%2Fb", "dir/", "dir", ".", "k" * 1024, "k" * 1023]
        for number, key in enumerate(keys):
            self.origin.do(f'object {B} "{key}" size={1000 + number}')
        tags = set()
        for number, key in enumerate(keys):
            cold, hit = self.me.get(key), self.me.get(key)
            self.answers(hit, 200, x_cache="hit", text=f"{key[:20]!r}")
            self.want(cold.fields.get("x-cache") != "hit", f"{key[:20]!r} was another one's hit")
            self.is_(hit.body, content(key, 1, 1000 + number), f"{key[:20]!r}: bytes")
            tags.add(hit.fields.get("etag"))
        self.is_(len(tags), len(keys), "different ETags")
        self.answers(self.me.get("k" * 1025), 400, "KeyTooLongError")

    def step_5(self):
        """ranges: beyond the end, open, suffix, several, of nothing"""
        whole = content("range@5000", 1, 5000)
        table = (("bytes=0-52428799", 206, whole, "0-4999"), ("bytes=0-", 206, whole, "0-4999"),
                 ("bytes=4990-9999", 206, whole[4990:], "4990-4999"),
                 ("bytes=-10", 206, whole[-10:], "4990-4999"),
                 ("bytes=-9999", 206, whole, "0-4999"), ("bytes=0-0,2-3", 200, whole, None),
                 ("bytes=10-5", 200, whole, None), ("bytes=5000-", 416, None, None),
                 ("bytes=-0", 416, None, None))
        for _ in ("miss", "hit"):
            for text, status, body, where in table:
                answer = self.answers(self.me.get("range@5000", {"Range": text}), status, text=text)
                if body is not None:
                    self.is_(answer.body, body, f"{text}: bytes")
                if where:
                    self.is_(answer.fields.get("content-range"), f"bytes {where}/5000", text)
        for text in ("bytes=0-0", "bytes=0-8388607"):
            answer = self.me.get("empty@0", {"Range": text})
            self.answers(answer, 416, "InvalidRange", text=text)
            self.is_(answer.error().get("ActualObjectSize"), "0", "ActualObjectSize")
            self.is_(answer.fields.get("content-type"), "application/xml", "Content-Type")

    def step_6(self):
        """a 206 has no checksum"""
        crc = zlib.crc32(content("sum@3000", 1, 3000)).to_bytes(4, "big")
        named = base64.b64encode(crc).decode()   # one that is wrong would be found out
        self.origin.do(f'set {B}/sum@ checksum="x-amz-checksum-crc32: {named}"')
        mode = {"x-amz-checksum-mode": "ENABLED"}
        for key in ("sum-cold@3000", "sum@3000", "sum@3000"):
            if key == "sum@3000":
                self.me.head(key, mode)
            for text in ("bytes=0-2999", "bytes=1-5", "bytes=0-"):
                for ask in (self.me.get, self.me.head):
                    answer = self.answers(ask(key, {"Range": text, **mode}), 206, text=text)
                    self.is_([n for n in answer.fields if "checksum" in n], [], f"{text}: sums")
        for _ in ("with the head", "with the bytes"):
            answer = self.me.get("sum@3000", mode)
            self.is_(answer.fields.get("x-amz-checksum-crc32"), named, "of the whole")
        self.is_(self.me.get("sum@3000").fields.get("x-amz-checksum-crc32"), None, "not asked for")

    def step_7(self):
        """HEAD with Range"""
        for _ in ("miss", "hit"):
            answer = self.answers(self.me.head("ranged@5000", {"Range": "bytes=10-19"}), 206)
            self.is_(answer.fields.get("content-length"), "10", "Content-Length")
            self.is_(answer.fields.get("content-range"), "bytes 10-19/5000", "Content-Range")
            answer = self.answers(self.me.head("ranged@5000", {"Range": "bytes=5000-"}), 416)
            self.is_(answer.body, b"", "a body")
            self.me.get("ranged@5000")

    def step_8(self):
        """partNumber: known, out of range, passed through when unknown"""
        whole = content("part@3000", 1, 3000)
        for _ in ("miss", "hit"):
            answer = self.answers(self.me.get("part@3000", query="?partNumber=1"), 206, text="one")
            self.is_(answer.body, whole, "part 1")
            self.is_(answer.fields.get("content-range"), "bytes 0-2999/3000", "Content-Range")
            self.is_(answer.fields.get("x-amz-mp-parts-count"), None, "parts count")
            self.answers(self.me.get("part@3000", query="?partNumber=2"), 416, "InvalidPartNumber")
        for number in ("0", "10001", "x"):
            self.answers(self.me.get("part@3000", query=f"?partNumber={number}"), 400,
                         "InvalidArgument", text=number)
        self.answers(self.me.get("part@3000", {"Range": "bytes=0-1"}, "?partNumber=1"), 400,
                     "InvalidRequest")
        self.origin.do(f'object {B} parts size=3000 etag="\\"{"0" * 32}-3\\""')
        self.me.get("parts")
        self.origin.do("mark")
        for _ in range(2):
            answer = self.me.get("parts", query="?partNumber=2")
            self.is_(answer.fields.get("x-cache"), "bypass", "of an unknown part: x-cache")
        self.is_(len(self.saw("GET /b/parts?partNumber=2")), 2, "passed through")

    def step_9(self):
        """If-Match with a version that is newer than the cached one"""
        old = self.warm("match@3000").fields["etag"]
        self.origin.do(f"bump {B} match@3000")
        new = self.direct.get("match@3000").fields["etag"]
        answer = self.answers(self.me.get("match@3000", {"If-Match": new}), 200, text="the new one")
        self.is_(answer.body, content("match@3000", 2, 3000), "bytes")
        for tag in (old, '"nothing"'):
            answer = self.answers(self.me.get("match@3000", {"If-Match": tag}), 412,
                                  "PreconditionFailed")
            self.is_(answer.error().get("Condition"), "If-Match", "Condition")

    def step_10(self):
        """an overwrite between two ranges never mixes bytes"""
        key, size = "mixed@40M", 40 * MIB
        for round_ in range(1, 5):
            answer = self.me.get(key, {"Range": "bytes=0-99999"})
            self._is_one_version(key, answer, 0)
            self.origin.do(f"bump {B} {key}")
            at = size - round_ * 4 * MIB
            self._is_one_version(key, self.me.get(key, {"Range": f"bytes={at}-{at + 9999}"}), at)
        whole = "torn@4M"
        self.origin.do(f"set {B}/{whole} rate=2M")
        before = hashlib.sha256(self._made(whole)).hexdigest()
        c = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        c.request("GET", path_of(B, whole))
        response = c.getresponse()
        got = response.read(100_000)
        self.origin.do(f"bump {B} {whole}")
        try:
            got += response.read()
            self.is_(hashlib.sha256(got).hexdigest(), before, "the whole of a torn read")
        except (http.client.IncompleteRead, ConnectionError):
            pass                       # cut: the client knows
        c.close()
        self.origin.do(f"unset {B}/{whole}")

    def _made(self, key):
        return run([self.lab.program("swarm"), "-m", B, key]).stdout

    def _is_one_version(self, key, answer, at):
        """A range of at most 100,000 bytes is the version's that its ETag names."""
        self.answers(answer, 206)
        version = int(answer.fields["etag"].strip('"').partition(".")[2], 16)
        right = content(key, version, answer.body_bytes, at)
        self.want(answer.body == right, f"bytes from {at} are not those of version {version}")

    def step_11(self):
        """PUT then GET; PUT that times out, then GET"""
        key = "written@3000"
        self.warm(key)
        answer = self.me.go("PUT", path_of(B, key), body=content(key, 2, 3000))
        self.answers(answer, 200)
        answer = self.answers(self.me.get(key), 200)
        self.is_(answer.body, content(key, 2, 3000), "the new bytes")
        self.warm(key)
        self.origin.do("mark", f"next {B}/{key} method=PUT count=9 silent=1")
        body = content(key, 3, 3000)
        fields = self.me.signer.head("PUT", path_of(B, key), {"Host": self.me.host},
                                     hashlib.sha256(body).hexdigest())
        head = self._head("PUT", path_of(B, key), {**fields, "Content-Length": "3000"})
        self.is_(self.raw(head, body), (b"", False), "an answer to what has none")
        self.is_(len(self.saw("body PUT")), 1, "bodies that came upstream")
        self.origin.do("clear", f"object {B} {key} size=3000 version=7")
        answer = self.is_asked(key, "after a PUT that timed out")
        self.is_(answer.body, content(key, 7, 3000), "what upstream has now")

    def step_12(self):
        """DeleteObjects: namespaces, references, CR and LF, a thousand keys, UTF-8"""
        self.origin.do(f'set {B} document="<DeleteResult/>"')
        space = ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
        keys = (("plain-1@10", "plain-1@10"), ("a&b@10", "a&amp;b@10"), ("<é>@10", "&lt;é&gt;@10"),
                ("cr\rlf\n@10", "cr&#13;lf&#xA;@10"), (" blanks @10", " blanks @10"))
        for namespace, gap in ((space, ""), ("", "\n  ")):
            for key, text in keys:
                self.warm(key)
                self._delete(f"<Delete{namespace}>{gap}<Quiet>true</Quiet>{gap}<Object>{gap}<Key>"
                             f"{text}</Key>{gap}</Object>{gap}</Delete>", 200)
                self.is_asked(key, f"after DeleteObjects{namespace}")
        many = [f"many{i:04}@10" for i in range(1001)]
        for key in (many[0], many[500], many[999]):
            self.warm(key)
        objects = [f"<Object><Key>{key}</Key></Object>" for key in many]
        self._delete(f"<Delete>{''.join(objects[:1000])}</Delete>", 200)
        for key in (many[0], many[500], many[999]):
            self.is_asked(key, "after a thousand deletes")
        self._delete(f"<Delete>{''.join(objects)}</Delete>", 400, "MalformedXML")
        self.origin.do(f"unset {B}")

    def _delete(self, text, status, code=None):
        body = text.encode()
        md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
        answer = self.me.go("POST", "/b?delete", {"Content-MD5": md5}, body)
        self.answers(answer, status, code, text=text[:100])

    def step_13(self):
        """HTTP chunks around aws-chunked, borders anywhere"""
        for key, wrong in (("chunked@3M", False), ("chunked-wrong@3M", True)):
            data = self._made(key)
            crc = base64.b64encode((zlib.crc32(data) ^ wrong).to_bytes(4, "big")).decode()
            body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in
                            (data[at:at + MIB] for at in range(0, len(data), MIB)))
            body += f"0\r\nx-amz-checksum-crc32:{crc}\r\n\r\n".encode()
            for size in (0x20000, 99_991):
                self.origin.do("mark")
                got, _ = self._put_chunked(key, body, len(data), size)
                status = b"400" if wrong else b"200"
                self.want(got.startswith(b"HTTP/1.1 " + status), f"{key} {size}: {got[:300]}")
                self.want(not wrong or b"<Code>BadDigest<" in got, f"{key}: {got[-300:]}")
                stored = self.saw("body PUT", f"object={len(data)} version=1")
                self.is_(len(stored), 0 if wrong else 1, f"{key} {size}: stored")

    def _put_chunked(self, key, body, decoded, size):
        target, payload = path_of(B, key), "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
        fields = self.me.signer.head("PUT", target, {
            "Host": self.me.host, "Content-Encoding": "aws-chunked",
            "X-Amz-Decoded-Content-Length": str(decoded), "X-Amz-Trailer": "x-amz-checksum-crc32",
            "x-amz-sdk-checksum-algorithm": "CRC32"}, payload)
        fields.update({"Transfer-Encoding": "chunked", "Connection": "close"})
        wire = [b"%x\r\n%b\r\n" % (len(part), part) for part in
                (body[at:at + size] for at in range(0, len(body), size))]
        return self.raw(self._head("PUT", target, fields), b"".join(wire) + b"0\r\n\r\n")

    @staticmethod
    def _head(method, target, fields):
        lines = [f"{method} {target} HTTP/1.1", *(f"{k}: {v}" for k, v in fields.items())]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()

    def step_14(self):
        """signed chunks of 64 KiB, as minio-go sends them"""
        for key, wrong in (("signed@300000", False), ("forged@300000", True)):
            data, date, target = self._made(key), stamp(), path_of(B, key)
            signer = self.me.signer
            fields = signer.head("PUT", target, {
                "Host": self.me.host, "X-Amz-Decoded-Content-Length": str(len(data))},
                "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", date)
            seed = fields["Authorization"].rpartition("=")[2]
            body = bytearray(signer.chunks(data, seed, date, 65536))
            body[200_000] ^= wrong
            self.origin.do("mark")
            answer = self.me.go("PUT", target, body=bytes(body), fields=fields)
            if wrong:
                self.answers(answer, 403, "SignatureDoesNotMatch")
            else:
                self.answers(answer, 200)
                self.is_(self.me.get(key).body, data, "read back")
            self.is_(len(self.saw("body PUT", f"object={len(data)} version=1")), 1 - wrong, key)

    def step_15(self):
        """Expect: 100-Continue; an early 403 that does not wait for the body"""
        key = "awaited@2000"
        target, data = path_of(B, key), content(key, 1, 2000)
        fields = self.me.signer.head("PUT", target, {"Host": self.me.host},
                                     hashlib.sha256(data).hexdigest())
        fields.update({"Content-Length": "2000", "Expect": "100-Continue"})
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=10) as s:
            s.sendall(self._head("PUT", target, fields))
            self.want(s.recv(1000).startswith(b"HTTP/1.1 100 Continue\r\n"), "no 100")
            s.sendall(data)
            got = s.recv(1000)
            self.want(got.startswith(b"HTTP/1.1 200 "), f"then {got[:100]}")
        fields["Authorization"] = fields["Authorization"][:-4] + "0000"
        got, ended = self.raw(self._head("PUT", target, fields))
        self.want(got.startswith(b"HTTP/1.1 403 ") and ended, f"a false signature: {got[:100]}")

    def step_16(self):
        """signatures in other spellings, tokens"""
        self.me.get("spelled@1000")
        whole = content("spelled@1000", 1, 1000)
        host, signer, target = self.me.host, self.me.signer, path_of(B, "spelled@1000")
        cases = (
            ("no blanks in Authorization", {}, {}, ","),
            ("Range is not signed", {"Range": "bytes=10-19"}, {"unsigned": ("range",)}, ", "),
            ("Accept-Encoding is signed", {"Accept-Encoding": "gzip, identity"}, {}, ", "))
        for text, fields, options, comma in cases:
            made = signer.head("GET", target, {"Host": host, **fields}, comma=comma, **options)
            answer = self.me.go("GET", target, fields=made)
            self.answers(answer, 206 if "Range" in fields else 200, x_cache="hit", text=text)
            self.is_(answer.body, whole[10:20] if "Range" in fields else whole, text)
        made = signer.head("GET", target, {"Host": host, "x-amz-security-token": "of nobody"})
        self.answers(self.me.go("GET", target, fields=made), 400, "InvalidToken", text="a token")
        made = signer.url("GET", target + "?X-Amz-Security-Token=of%20nobody", host)
        self.answers(self.nobody.go("GET", made), 400, "InvalidToken", text="a token in the query")

    def step_17(self):
        """a clock that is 14 minutes off is good, one that is 16 minutes off is not"""
        for minutes, status in ((-14, 200), (14, 200), (-16, 403), (16, 403)):
            target = path_of(B, "plain@3000")
            fields = self.me.signer.head("GET", target, {"Host": self.me.host},
                                         date=stamp(minutes * 60))
            self.answers(self.me.go("GET", target, fields=fields), status,
                         "RequestTimeTooSkewed" if status == 403 else None, text=f"{minutes} min")

    def step_18(self):
        """presigned: expiry, overrides, another method, version 2"""
        target, host, signer = path_of(B, "plain@3000"), self.me.host, self.me.signer
        ask = self.nobody.go
        self.answers(ask("GET", signer.url("GET", target, host)), 200, x_cache="hit")
        old = signer.url("GET", target, host, 60, stamp(-120))
        self.answers(ask("GET", old), 403, "AccessDenied", text="expired")
        self.answers(ask("GET", signer.url("GET", target, host, 604801)), 400,
                     "AuthorizationQueryParametersError", text="more than a week")
        answer = ask("GET", signer.url("GET", target + "?response-content-type=text%2Fx", host))
        self.is_(self.answers(answer, 200).fields.get("content-type"), "text/x", "an override")
        self.answers(ask("HEAD", signer.url("GET", target, host)), 403, text="HEAD with GET's")
        self.answers(ask("HEAD", signer.url("HEAD", target, host)), 200, text="HEAD")
        for seconds, status in ((60, 200), (-60, 403)):
            expires = int(time.time()) + seconds
            text = f"GET\n\n\n{expires}\n{target}".encode()
            mac = hmac.new(USER.secret.encode(), text, hashlib.sha1).digest()
            sign = urllib.parse.quote(base64.b64encode(mac).decode(), safe="")
            answer = ask("GET", f"{target}?AWSAccessKeyId={USER.access}&Signature={sign}"
                                f"&Expires={expires}")
            self.answers(answer, status, text=f"version 2, {seconds} s")

    def step_19(self):
        """errors of HEAD have no body"""
        self.origin.do(f"set {B}/denied status=403")
        second = path_of(B, "plain@3000")
        for target, status in (("/b/absent", 404), ("/b/denied", 403)):
            fields = self.me.signer.head("HEAD", target, {"Host": self.me.host})
            after = self.me.signer.head("GET", second, {"Host": self.me.host})
            got, _ = self.raw(self._head("HEAD", target, fields) +
                              self._head("GET", second, {**after, "Connection": "close"}))
            head, _, rest = got.partition(b"\r\n\r\n")
            self.want(head.startswith(b"HTTP/1.1 %d " % status), f"{target}: {head[:100]}")
            self.want(rest.startswith(b"HTTP/1.1 200 "), f"{target}: then {rest[:100]}")

    def step_20(self):
        """what an upstream does wrong"""
        faults = {
            "region": 'status=301 code=PermanentRedirect header="x-amz-bucket-region: eu-west-1"',
            "slow-down": "status=503 code=SlowDown", "short": "cut=1000", "reset": "cut=1000 reset=1",
            "range": 'content_range="bytes 1-100/200"', "ignored": "ignore_range=1",
            "etag": 'etag="\\"other\\""', "shifted": "shift=8", "refused": "reset=1"}
        for name, knobs in faults.items():
            key = f"fault-{name}@30000"
            self.origin.do(f"next {B}/{key} method=GET {knobs}")
            answer = self.me.get(key)
            if name in ("range", "shifted", "etag") and answer.status in (502, 503):
                answer = self.me.get(key)       # told, not guessed
            self.answers(answer, 200, text=name)
            self.is_(answer.body, content(key, 1, 30000), f"{name}: bytes")
            again = self.me.get(key)
            self.is_(again.body, answer.body, f"{name}: bytes of the next read")
            self.want(again.status == 200, f"{name}: the next read: {again.status}")

    # IM absent, true, false (blocks of 27) x INM (9) x IMS (3) x IUS: "." 200, "n" 304, "p" 412
    CONDITIONS = ("..p" "..p" "nnp" "..p" "..p" "..p" "nnp" "nnp" "nnp"
                  "..." "..." "nnn" "..." "..." "..." "nnn" "nnn" "nnn" + "p" * 27)

    def step_21(self):
        """all 81 combinations of conditions"""
        tag = self.warm("asked@1000").fields["etag"]
        before, after = seconds_after(MODIFIED - 60), seconds_after(MODIFIED + 60)
        forms = (("If-Match", tag, '"x"'), ("If-None-Match", '"x"', tag),
                 ("If-Modified-Since", before, after), ("If-Unmodified-Since", after, before))
        want = {".": 200, "n": 304, "p": 412}
        self.is_(len(self.CONDITIONS), 81, "combinations")
        for number, kinds in enumerate(itertools.product(range(3), repeat=4)):
            fields = {form[0]: form[kind] for form, kind in zip(forms, kinds) if kind}
            for ask in (self.me.get, self.me.head):
                answer = ask("asked@1000", fields)
                self.is_(answer.status, want[self.CONDITIONS[number]], f"{number} {fields}")
                if answer.status == 304:
                    self.is_((answer.body, answer.fields.get("etag")), (b"", tag), "a 304")

    def step_22(self):
        """unknown sub-resources pass; unknown changes make doubtful"""
        self.warm("strange@1000")
        self.origin.do("mark")
        for _ in range(2):
            answer = self.me.get("strange@1000", query="?frobnicate=1")
            self.is_(answer.fields.get("x-cache"), "bypass", "x-cache")
        self.is_(len(self.saw("GET /b/strange@1000?frobnicate=1")) or
                 len(self.saw("GET", "frobnicate=1")), 2, "passed on")
        answer = self.me.go("PUT", path_of(B, "strange@1000") + "?frobnicate", body=b"<x/>")
        self.answers(answer, 200)
        self.is_asked("strange@1000", "after PUT ?frobnicate")

    def step_23(self):
        """objects under a client's key are never kept"""
        md5 = base64.b64encode(hashlib.md5(b"k" * 32).digest()).decode()
        name = "x-amz-server-side-encryption-customer-"
        fields = {name + "algorithm": "AES256", name + "key-MD5": md5,
                  name + "key": base64.b64encode(b"k" * 32).decode()}
        self.origin.do("mark")
        for _ in range(2):
            answer = self.answers(self.me.get("secret@1000", fields), 200, x_cache="bypass")
            self.is_(answer.body, content("secret@1000", 1, 1000), "bytes")
        self.is_(len(self.saw("GET", "secret")), 2, "passed on")
        self.want(self.me.get("secret@1000").fields["x-cache"] != "hit", "it was kept")
        self.origin.do(f'set {B}/told header="{name}algorithm: AES256"')
        self.origin.do("mark")
        for _ in range(3):
            answer = self.answers(self.me.get("told@1000"), 200, text="told by the answer")
            self.want(answer.fields["x-cache"] != "hit", "an answer that tells SSE-C was kept")

    def step_24(self):
        """response-content-type on a hit, and not kept"""
        before = self.warm("typed@1000").fields.get("content-type")
        fields = {"content-type": "text/x; y=1", "cache-control": "no-store",
                  "content-disposition": 'attachment; filename="a b"'}
        query = "&".join(sorted(f"response-{k}={urllib.parse.quote(v, safe='')}"
                                for k, v in fields.items()))
        for ask in (self.me.get, self.me.head):
            answer = self.answers(ask("typed@1000", query="?" + query), 200, x_cache="hit")
            for name, value in fields.items():
                self.is_(answer.fields.get(name), value, name)
        answer = self.answers(self.me.get("typed@1000"), 200, x_cache="hit")
        self.is_(answer.fields.get("content-type"), before, "Content-Type afterwards")
        self.is_(answer.fields.get("cache-control"), None, "Cache-Control afterwards")
        self.answers(self.nobody.get("typed@1000", query="?" + query), 400, "InvalidRequest",
                     text="anonymous")

    def step_25(self):
        """Content-Encoding: gzip to a client that does not accept it"""
        self.origin.do(f'object {B} zipped size=1000 header="Content-Encoding: gzip"')
        for more in ({}, {"Accept-Encoding": "identity"}, {"Accept-Encoding": "gzip"}):
            answer = self.answers(self.me.get("zipped", more), 200, text=f"{more}")
            self.is_(answer.fields.get("content-encoding"), "gzip", "Content-Encoding")
            self.is_(answer.body, content("zipped", 1, 1000), "bytes")
            self.is_(answer.fields.get("content-length"), "1000", "Content-Length")
        self.is_(answer.fields.get("x-cache"), "hit", "x-cache")


STEPS = 25


def run_all(lab):
    traps = Traps(lab)
    for number in range(1, STEPS + 1):
        step = getattr(traps, f"step_{number}")
        with lab.report.test(f"trap {number}: {step.__doc__}") as problems:
            traps.wrong = problems
            traps.origin.do("clear", "mark")
            step()
    with lab.report.test("traps: the server's log is clean") as problems:
        problems += lab.log_problems(traps.server)
        traps.server.finish()
