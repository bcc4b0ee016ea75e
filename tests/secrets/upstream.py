# A store that keeps whatever it is given, fails as the key says, and repeats in its errors all that it
# was told: as S3 repeats a token that it does not take, and as gateways print whole requests.
#
#   key fail-HOW-...   status 400, 403 or 500 with: "s3" a SignatureDoesNotMatch, "token" an InvalidToken,
#                      "page" the request's head in HTML, "json"; "redirect", "reset", "cut", "garbage"
#
# SPDX-License-Identifier: Apache-2.0
import hashlib
import os
import re
import socket
import struct
import sys
import threading
import urllib.parse
from xml.sax.saxutils import escape

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "creds"))
from store import Handler, Listener    # noqa: E402

DATE = "Fri, 20 Nov 2020 10:00:00 GMT"


def hex_bytes(text):
    return " ".join(f"{b:02x}" for b in text.encode())


class Store(Listener):
    """heads: the heads of all requests, as texts. objects: path -> bytes."""

    def __init__(self, canaries):
        store = self
        self.canaries, self.heads, self.objects = canaries, [], {}
        self.lock, self.echoed = threading.Lock(), 0

        class Objects(Handler):
            def do_GET(self):
                store.serve(self, self.read_body())

            do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

        super().__init__(Objects)

    def serve(self, request, body):
        head = f"{request.requestline}\n{request.headers}"
        with self.lock:
            self.heads.append(head)
        for made in re.findall(r"Signature=([0-9a-f]{64})", request.headers.get("authorization", "")):
            self.canaries.add_signature(made, "signature of ours")
        path, _, query = request.path.partition("?")
        how = re.search(r"fail-([a-z0-9]+)-?(\d*)", urllib.parse.unquote(request.path))
        if how:
            self.fail(request, head, how.group(1), int(how.group(2) or 403))
        elif request.command in ("GET", "HEAD"):
            self.give(request, path, query)
        elif request.command == "PUT":
            self.take(request, path, query, body)
        elif request.command == "POST":
            self.post(request, path, query)
        else:
            self.objects.pop(path, None)
            request.answer(204)

    # ---- answers ----
    def give(self, request, path, query):
        if query or path.count("/") < 2:
            request.answer(200, b"<ListBucketResult><Name>b</Name></ListBucketResult>",
                           "application/xml")
            return
        body = self.objects.get(path)
        if body is None:
            request.answer(404, b"<Error><Code>NoSuchKey</Code></Error>", "application/xml")
            return
        sent = {"ETag": f'"{hashlib.md5(body).hexdigest()}"', "Last-Modified": DATE,
                "x-amz-security-token": request.headers.get("x-amz-security-token", ""),
                "Authorization": request.headers.get("authorization", ""), "Set-Cookie": "a=b"}
        span = re.match(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        if span and int(span.group(1)) < len(body):
            first, last = int(span.group(1)), min(int(span.group(2) or len(body)), len(body) - 1)
            sent["Content-Range"] = f"bytes {first}-{last}/{len(body)}"
            request.answer(206, body[first:last + 1], **sent)
        else:
            request.answer(200, body, **sent)

    def take(self, request, path, query, body):
        tag = f'"{hashlib.md5(body).hexdigest()}"'
        if "x-amz-copy-source" in request.headers:
            request.answer(200, (f"<CopyObjectResult><ETag>{escape(tag)}</ETag><LastModified>"
                                 "2020-11-20T10:00:00.000Z</LastModified></CopyObjectResult>"
                                 ).encode(), "application/xml")
            return
        if not query:
            self.objects[path] = body
        request.answer(200, ETag=tag)

    def post(self, request, path, query):
        if query.startswith("uploads"):
            text = ("<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key>"
                    "<UploadId>U1</UploadId></InitiateMultipartUploadResult>")
        elif query.startswith("delete"):
            text = "<DeleteResult></DeleteResult>"
        else:
            text = ('<CompleteMultipartUploadResult><ETag>"0-1"</ETag>'
                    "</CompleteMultipartUploadResult>")
        request.answer(200, text.encode(), "application/xml")

    # ---- failures ----
    def document(self, how, head, request):
        authorization = request.headers.get("authorization", "")
        token = request.headers.get("x-amz-security-token", "")
        made = authorization.rpartition("Signature=")[2]
        if how == "s3":
            canonical = head.lower()
            return (f"<Error><Code>SignatureDoesNotMatch</Code><Message>no {escape(token)} "
                    f"{escape(authorization)}</Message><AWSAccessKeyId>A</AWSAccessKeyId>"
                    f"<StringToSign>AWS4\n{made}</StringToSign><SignatureProvided>{made}"
                    f"</SignatureProvided><StringToSignBytes>{hex_bytes(made)}</StringToSignBytes>"
                    f"<CanonicalRequest>{escape(canonical)}</CanonicalRequest>"
                    f"<CanonicalRequestBytes>{hex_bytes(head)}</CanonicalRequestBytes></Error>")
        if how == "token":
            return (f"<Error><Code>InvalidToken</Code><Message>The provided token {escape(token)} is "
                    f"malformed.</Message><Token-0>{escape(token)}</Token-0></Error>")
        if how == "json":
            return f'{{"error":"no","token":"{token}","query":"t={urllib.parse.quote(token, "")}"}}'
        return f"<html><pre>{escape(head)}</pre></html>"

    def fail(self, request, head, how, status):
        with self.lock:
            self.echoed += 1
        token = request.headers.get("x-amz-security-token", "")
        repeat = {"Authorization": request.headers.get("authorization", ""),
                  "x-amz-security-token": token, "x-debug": f"token={token}",
                  "Location": f"http://127.0.0.1:9/?t={token}&{request.headers.get('authorization')}"}
        if how == "redirect":
            request.answer(307, self.document("page", head, request).encode(), **repeat)
        elif how == "reset":
            request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                          struct.pack("ii", 1, 0))
            request.close_connection = True
            request.connection.close()
        elif how == "cut":
            request.send_response(200)
            request.send_header("Content-Length", "100000")
            request.send_header("ETag", '"cut"')
            request.end_headers()
            request.wfile.write(b"x" * 5000)
            request.close_connection = True
        elif how == "garbage":
            request.wfile.write(f"HTTP/1.1 2x0 {token}\r\n{head}\r\n\r\n".encode())
            request.close_connection = True
        else:
            kind = "application/xml" if how in ("s3", "token") else "text/html"
            request.answer(status, self.document(how, head, request).encode(), kind, **repeat)
