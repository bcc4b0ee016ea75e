"""Sends a plan to a headpond server by one of its three doors; headpond_plan.py tells what `endpoint` may be.
SPDX-License-Identifier: Apache-2.0
"""
import configparser
import contextlib
import hashlib
import hmac
import html
import http.client
import json
import os
import re
import socket
import ssl
import time
import urllib.parse

TIMEOUT_S = 20


class PlanError(RuntimeError):
    """No plan was taken; the text ends with what to do."""


class _OverSocket(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.host)  # a path


def post(endpoint, body):
    """Posts NDJSON; returns the server's answer, or raises PlanError."""
    names = ("AWS_ENDPOINT_URL_S3", "S3_ENDPOINT_URL", "AWS_ENDPOINT_URL")
    endpoint = endpoint or next((os.environ[n] for n in names if os.environ.get(n)), "")
    url, path = urllib.parse.urlsplit(endpoint), "/v1/plans"
    headers = {"content-type": "application/x-ndjson"}
    if url.scheme not in ("unix", "http", "https"):
        raise PlanError(f"endpoint {endpoint!r}: say http://HOST:9000, http://HOST:9001/v1 or unix:/run/headpond/admin.sock")
    if url.scheme == "https":
        trust = ssl.create_default_context(cafile=os.environ.get("AWS_CA_BUNDLE"))
        conn = http.client.HTTPSConnection(url.hostname, url.port, timeout=TIMEOUT_S, context=trust)
    else:
        kind = _OverSocket if url.scheme == "unix" else http.client.HTTPConnection
        conn = kind(url.hostname or url.path, url.port or 80, TIMEOUT_S)
    if url.scheme == "unix":
        headers["host"] = "localhost"
    elif url.path.rstrip("/") == "/v1":
        headers["authorization"] = "Bearer " + _token()
    else:
        path = "/-/plans"
        headers.update(_signed(url.netloc.rpartition("@")[2], path, body))
    try:
        for pause_s in (1, 2, 4, None):
            with contextlib.closing(conn):
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # refused: the answer says why
                    conn.request("POST", path, body, headers)
                answer = conn.getresponse()
                status, text = answer.status, answer.read().decode("utf-8", "replace")
            if status != 503 or not pause_s:
                return _taken(endpoint, status, text)
            time.sleep(pause_s)  # many post at once
    except (OSError, http.client.HTTPException) as error:
        raise PlanError(f"{endpoint} does not answer ({error}): look at the address, and whether it runs there") from error


def _taken(endpoint, status, text):
    try:
        said = json.loads(text)
        why = said.get("error", {})
    except (ValueError, AttributeError):
        said, why = {}, {}
    if status in (200, 202) and "id" in said:
        return said
    hint = why.get("hint") or "see 'Plans from your data loader' in headpond's README"
    found = re.search("<Message>(.*?)</Message>", text, re.S)  # of the S3 port
    words = why.get("message") or (html.unescape(found.group(1)) if found else " ".join(text.split())[:300])
    raise PlanError(f"{endpoint} answers {status} {words}: {hint}")


def _token():
    name = os.environ.get("HEADPOND_TOKEN_FILE")
    if not name:
        raise PlanError("the admin port wants a token: let HEADPOND_TOKEN_FILE name its file, or take another endpoint")
    with open(name, encoding="ascii") as f:
        return f.readline().strip()


def _credentials():
    """(key, secret, session token or None) of the environment, else of the profile in ~/.aws/credentials."""
    found = {name.lower(): value for name, value in os.environ.items()}
    if "aws_access_key_id" not in found:
        file, profile = configparser.RawConfigParser(), os.environ.get("AWS_PROFILE", "default")
        file.read(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or os.path.expanduser("~/.aws/credentials"))
        found = file[profile] if file.has_section(profile) else {}
    if not found.get("aws_access_key_id") or not found.get("aws_secret_access_key"):
        raise PlanError("no key to sign with: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to one that may read this")
    return found["aws_access_key_id"], found["aws_secret_access_key"], found.get("aws_session_token")


def _signed(host, path, body):
    """The fields of Signature Version 4 for a POST without a query."""
    access, secret, session = _credentials()
    now, digest = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()), hashlib.sha256(body).hexdigest()
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    scope = (now[:8], region, "s3", "aws4_request")
    headers = {"host": host, "x-amz-content-sha256": digest, "x-amz-date": now}
    headers.update({"x-amz-security-token": session} if session else {})
    names, where = ";".join(headers), "/".join(scope)
    request = "\n".join(["POST", path, "", *(f"{name}:{value}" for name, value in headers.items()), "", names, digest])
    text = "\n".join(["AWS4-HMAC-SHA256", now, where, hashlib.sha256(request.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in (*scope, text):
        key = hmac.digest(key, part.encode(), "sha256")
    proof = f"Credential={access}/{where}, SignedHeaders={names}, Signature={key.hex()}"
    return {**headers, "authorization": "AWS4-HMAC-SHA256 " + proof}
