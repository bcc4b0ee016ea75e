# moto as a store that writes down what it is sent: run by the environment that has it.
#
#   moto_store.py JOURNAL      serves on a port of the kernel's choice, which it prints: "port=N"
#
# One line of JSON in JOURNAL for each PUT with a body, or of an object: its method, path and
# query, how many bytes its body has without aws-chunked, its x-amz-content-sha256, and for each
# checksum that came with it, as a field or behind the body, whether it is right, and whether its
# algorithm was named, too: only then moto stores it. The checksums are computed here, by other code
# than the server's.
#
# SPDX-License-Identifier: Apache-2.0
import base64
import hashlib
import io
import json
import sys
import threading

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from sums import SUMS

def unwrapped(body):
    """(the bytes, {trailer: value}) of an aws-chunked body."""
    parts, at = [], 0
    while body:
        end = body.index(b"\r\n", at)
        size = int(body[at:end].split(b";")[0], 16)
        at = end + 2
        if size == 0:
            break
        parts.append(body[at:at + size])
        at += size + 2
    lines = (line.partition(b":") for line in body[at:].split(b"\r\n") if line)
    return b"".join(parts), {k.decode().lower(): v.decode() for k, _, v in lines}


def account(environ, body):
    fields = {k[5:].replace("_", "-").lower(): v for k, v in environ.items() if k[:5] == "HTTP_"}
    literal = fields.get("x-amz-content-sha256", "")
    content, trailers = unwrapped(body) if literal.startswith("STREAMING-") else (body, {})
    claims = {**fields, **trailers}
    sums = {name: base64.b64encode(of(content)).decode() == claims[name]
            for name, of in SUMS.items() if name in claims}
    if len(literal) == 64:
        sums["x-amz-content-sha256"] = hashlib.sha256(content).hexdigest() == literal
    return {"path": environ["PATH_INFO"], "query": environ["QUERY_STRING"], "bytes": len(content),
            "payload": literal if len(literal) != 64 else "literal", "sums": sums,
            "named": "x-amz-sdk-checksum-algorithm" in fields}


class Recorder:
    def __init__(self, app, journal):
        self.app, self.journal, self.lock = app, journal, threading.Lock()

    def __call__(self, environ, start_response):
        if environ["REQUEST_METHOD"] == "PUT" and environ["PATH_INFO"].count("/") > 1:
            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            environ["wsgi.input"] = io.BytesIO(body)
            line = json.dumps(account(environ, body))
            with self.lock, open(self.journal, "a") as f:
                f.write(line + "\n")
        return self.app(environ, start_response)


class Quiet(WSGIRequestHandler):
    def log_request(self, *_):
        pass


def main():
    app = Recorder(DomainDispatcherApplication(create_backend_app), sys.argv[1])
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    print(f"port={server.port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
