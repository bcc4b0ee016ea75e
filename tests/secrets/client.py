# Clients that sign in every way and note every byte that they were told.
#
# SPDX-License-Identifier: Apache-2.0
import base64
import datetime
import hashlib
import hmac
import http.client
import re
import socket
import ssl
import urllib.parse

EMPTY = hashlib.sha256(b"").hexdigest()
REGION = "us-east-1"


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def quote(text):
    return urllib.parse.quote(text, safe="-_.~")


class Key:
    def __init__(self, access, secret):
        self.access, self.secret = access, secret

    def day_key(self, scope):
        key = ("AWS4" + self.secret).encode()
        for word in scope.split("/"):
            key = mac(key, word)
        return key


def times(ago=0):
    now = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=ago)
    stamp = now.strftime("%Y%m%dT%H%M%SZ")
    return stamp, f"{stamp[:8]}/{REGION}/s3/aws4_request"


def query_text(query):
    return "&".join(f"{quote(k)}={quote(v)}" for k, v in sorted(query))


def signature(key, method, path, query, fields, payload, ago=0):
    """(signature, names, stamp, scope) over fields with lower-case names."""
    stamp, scope = times(ago)
    names = ";".join(sorted(fields))
    canonical = "\n".join([method, path, query_text(query),
                           *(f"{n}:{fields[n]}" for n in sorted(fields)), "", names, payload])
    text = "\n".join(["AWS4-HMAC-SHA256", fields.get("x-amz-date", stamp), scope,
                      hashlib.sha256(canonical.encode()).hexdigest()])
    return mac(key.day_key(scope), text).hex(), names, stamp, scope


class Client:
    """Requests on a connection of their own each. told: [(bytes, own signature)]."""

    def __init__(self, port, canaries, tls=False):
        self.port, self.canaries, self.tls, self.told = port, canaries, tls, []
        self.statuses = {}
        self.host = f"127.0.0.1:{port}"

    def sign(self, key, method, path, query=(), fields=None, payload=EMPTY, ago=0):
        stamp, _ = times(ago)
        signed = {"host": self.host, "x-amz-date": stamp, "x-amz-content-sha256": payload,
                  **(fields or {})}
        made, names, _, scope = signature(key, method, path, query, signed, payload, ago)
        self.canaries.add_signature(made, "signature of a client")
        signed["authorization"] = (f"AWS4-HMAC-SHA256 Credential={key.access}/{scope}, "
                                   f"SignedHeaders={names}, Signature={made}")
        return signed, made

    def ask(self, key, method, path, query=(), fields=None, body=b"", **more):
        """Signed in the head; its answer's status."""
        payload = more.pop("payload", hashlib.sha256(body).hexdigest())
        late = more.pop("unsigned", {})
        signed, made = self.sign(key, method, path, query, fields, payload, more.get("ago", 0))
        return self.send(method, path, query, {**signed, **late}, body, made)

    def presigned(self, key, method, path, query=(), ago=0, expires=600, body=b"", fields=None):
        stamp, scope = times(ago)
        query = [*query, ("X-Amz-Algorithm", "AWS4-HMAC-SHA256"), ("X-Amz-Date", stamp),
                 ("X-Amz-Credential", f"{key.access}/{scope}"), ("X-Amz-Expires", str(expires)),
                 ("X-Amz-SignedHeaders", "host")]
        canonical = "\n".join([method, path, query_text(query), f"host:{self.host}", "", "host",
                               "UNSIGNED-PAYLOAD"])
        text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope,
                          hashlib.sha256(canonical.encode()).hexdigest()])
        made = mac(key.day_key(scope), text).hex()
        self.canaries.add_signature(made, "signature of a URL")
        return self.send(method, path, [*query, ("X-Amz-Signature", made)],
                         {"host": self.host, **(fields or {})}, body, made)

    def version_2(self, key, path):
        """Signature Version 2 in the head."""
        date = datetime.datetime.now(datetime.timezone.utc).strftime("%a, %d %b %Y %H:%M:%S GMT")
        made = base64.b64encode(hmac.new(key.secret.encode(), f"GET\n\n\n{date}\n{path}".encode(),
                                         hashlib.sha1).digest()).decode()
        self.canaries.add_signature(made, "signature of version 2")
        return self.send("GET", path, (), {"host": self.host, "date": date,
                                           "authorization": f"AWS {key.access}:{made}"}, b"", made)

    def stream(self, key, path, body, spoil=False):
        """A PUT in chunks that are signed each."""
        form = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
        fields = {"content-encoding": "aws-chunked",
                  "x-amz-decoded-content-length": str(len(body))}
        signed, seed = self.sign(key, "PUT", path, (), fields, form)
        stamp = signed["x-amz-date"]
        scope, wire, before = times()[1], b"", seed
        for part in (body[:65536], body[65536:], b""):
            text = "\n".join(["AWS4-HMAC-SHA256-PAYLOAD", stamp, scope, before, EMPTY,
                              hashlib.sha256(part + (b"x" if spoil else b"")).hexdigest()])
            before = mac(key.day_key(scope), text).hex()
            self.canaries.add_signature(before, "signature of a chunk")
            wire += f"{len(part):x};chunk-signature={before}\r\n".encode() + part + b"\r\n"
        return self.send("PUT", path, (), signed, wire, seed)

    def send(self, method, path, query, fields, body=b"", own=""):
        target = path + ("?" + query_text(query) if query else "")
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        if self.tls:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            c.sock = context.wrap_socket(socket.create_connection(("127.0.0.1", self.port), 30))
        status, told = 0, b""
        try:
            c.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
            for name, value in fields.items():
                c.putheader(name, value)
            if body or method in ("PUT", "POST"):
                c.putheader("content-length", str(len(body)))
            c.endheaders(body or None)
            r = c.getresponse()
            status, told = r.status, str(r.headers).encode(errors="replace")
            told += r.read()
        except (OSError, http.client.HTTPException) as e:
            told += b"\n" + str(e).encode(errors="replace")
        finally:
            c.close()
        self.told.append((told, own))
        self.statuses[status] = self.statuses.get(status, 0) + 1
        return status, told


def without_own(told, own):
    """An answer without the one thing that it may repeat: as S3 does, a SignatureDoesNotMatch shows
    the client the signature which he sent with this very request."""
    if own and b"<Code>SignatureDoesNotMatch</Code>" in told:
        return re.sub(b"<SignatureProvided>" + re.escape(own.encode()) + b"</SignatureProvided>",
                      b"", told, count=1)
    return told
