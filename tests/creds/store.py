# A small S3 that knows who may sign: every request's signature is recomputed, its session token and
# its expiry are looked at, and the access key is noted.
#
# SPDX-License-Identifier: Apache-2.0
import collections
import datetime
import hashlib
import hmac
import http.server
import itertools
import secrets
import threading
import time
import urllib.parse


def utc(seconds):
    at = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


class Keys:
    """Everybody's credentials. Secrets and tokens are canaries: no output of a server may show
    them."""

    def __init__(self):
        self.lock, self.known, self.canaries = threading.Lock(), {}, set()
        self.numbers = itertools.count(1)

    def canary(self, kind):
        text = f"canary{kind}{secrets.token_hex(12)}"
        with self.lock:
            self.canaries.add(text)
        return text

    def mint(self, prefix="ASIA", life=None):
        """Another set: access key, secret, token and expiry (None: a static pair)."""
        access = f"{prefix}{next(self.numbers):08d}"
        made = {"access": access, "secret": self.canary("secret"),
                "token": self.canary("token") if life is not None else "",
                "expire": int(time.time() + life) if life is not None else None}
        with self.lock:
            self.known[access] = made
        return made

    def forget(self, access):
        with self.lock:
            del self.known[access]


def sign_hmac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def verify(keys, request, body, service):
    """The access key that signed, or what is wrong, as (access, code)."""
    field = {k.lower(): v for k, v in request.headers.items()}
    words = field.get("authorization", "").replace(",", " ").split()
    if not words or words[0] != "AWS4-HMAC-SHA256":
        return None, "AccessDenied"
    part = dict(w.split("=", 1) for w in words[1:])
    access, date, region, named, end = part["Credential"].split("/")
    known = keys.known.get(access)
    if not known:
        return access, "InvalidAccessKeyId"
    if known["token"] != field.get("x-amz-security-token", ""):
        return access, "InvalidToken"
    if known["expire"] is not None and time.time() >= known["expire"]:
        return access, "ExpiredToken"
    path, _, query = request.path.partition("?")
    pairs = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
    query = "&".join(f"{urllib.parse.quote(k, safe='-_.~')}={urllib.parse.quote(v, safe='-_.~')}"
                     for k, v in pairs)
    names = part["SignedHeaders"].split(";")
    payload = field.get("x-amz-content-sha256") or hashlib.sha256(body).hexdigest()
    if payload != hashlib.sha256(body).hexdigest() or "host" not in names or named != service:
        return access, "SignatureDoesNotMatch"
    canonical = "\n".join([request.command, path, query,
                           *(f"{n}:{' '.join(field[n].split())}" for n in names), "",
                           part["SignedHeaders"], payload])
    scope = f"{date}/{region}/{named}/{end}"
    text = "\n".join(["AWS4-HMAC-SHA256", field["x-amz-date"], scope,
                      hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + known["secret"]).encode()
    for word in (date, region, named, end):
        key = sign_hmac(key, word)
    if not hmac.compare_digest(sign_hmac(key, text).hex(), part["Signature"]):
        return access, "SignatureDoesNotMatch"
    return access, None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def read_body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def answer(self, status, body=b"", kind="text/plain", **more):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in more.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


    def answer_in_chunks(self, body, size=7):
        """The same bytes in many small chunks, behind an interim answer."""
        self.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(body), size):
            part = body[at:at + size]
            self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        self.wfile.write(b"0\r\nx-trailer: 1\r\n\r\n")


class Listener(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, handler, address="127.0.0.1", port=0):
        super().__init__((address, port), handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass                           # the peer went away

    @property
    def url(self):
        return "http://{}:{}".format(*self.server_address[:2])


def content(path):
    return hashlib.sha256(path.encode()).digest() * 32


class Store(Listener):
    """Any key of bucket b exists. seen: how often each access key signed what was answered;
    refused: what was not, by code."""

    def __init__(self, keys, public=False):
        store = self
        self.keys, self.public = keys, public
        self.seen, self.refused = collections.Counter(), collections.Counter()
        self.order = []

        class Objects(Handler):
            def do_GET(self):
                access, code = verify(keys, self, b"", "s3")
                if access is None and store.public:
                    code = None
                if code:
                    store.refused[code] += 1
                    self.answer(403, f"<Error><Code>{code}</Code></Error>".encode(),
                                "application/xml")
                    return
                if access not in store.seen:
                    store.order.append(access)
                store.seen[access] += 1
                body = content(self.path.partition("?")[0])
                tag = {"ETag": f'"{hashlib.md5(body).hexdigest()}"',
                       "Last-Modified": "Fri, 20 Nov 2020 10:00:00 GMT"}
                if "Range" in self.headers:
                    first = int(self.headers["Range"].split("=")[1].split("-")[0])
                    if first < len(body):
                        span = f"bytes {first}-{len(body) - 1}/{len(body)}"
                        self.answer(206, body[first:], **tag, Content_Range=span)
                    else:
                        self.answer(416)
                    return
                self.answer(200, body, **tag)

            do_HEAD = do_GET

        super().__init__(Objects)
