# Who gives credentials: STS, the endpoint of a container's runtime, and EC2 instance metadata, each
# with the ways in which it may misbehave. What they give lives for seconds.
#
#   mode "ok"; "refuse": an error with a canary in its message; "garbage", "html", "huge", "cut",
#   "late": no answer until the mode changes; "expired": good form, bad time. IMDS also: "off" (403)
#   and "old" (404 to a PUT, as version 1 would).
#
# SPDX-License-Identifier: Apache-2.0
import collections
import json
import ssl
import threading
import time
import urllib.parse

from store import Handler, Listener, utc, verify


class Issuer(Listener):
    def __init__(self, keys, address="127.0.0.1", port=0):
        issuer = self
        self.keys, self.life, self.mode = keys, 4, "ok"
        self.asked, self.changed = collections.Counter(), threading.Condition()
        self.given = []

        class Talk(Handler):
            def do_GET(self):
                issuer.serve(self, self.read_body())

            do_POST = do_PUT = do_GET

        super().__init__(Talk, address, port)

    def speak_tls(self, cert, key):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        self.socket = context.wrap_socket(self.socket, server_side=True)

    def set_mode(self, mode, life=None):
        with self.changed:
            self.mode = mode
            self.life = life if life is not None else self.life
            self.changed.notify_all()

    def mint(self):
        made = self.keys.mint(life=-60 if self.mode == "expired" else self.life)
        self.given.append(made["access"])
        return made

    def misbehaves(self, request):
        """True: it was answered, one way or another."""
        mode = self.mode
        if mode == "late":
            with self.changed:
                self.changed.wait_for(lambda: self.mode != "late", 60)
            request.close_connection = True
        elif mode == "garbage":
            request.answer(200, b"{\"AccessKeyId\": <<" + self.keys.canary("garbage").encode())
        elif mode == "html":
            request.answer(200, b"<html><p>" + self.keys.canary("html").encode() + b"</html>")
        elif mode == "huge":
            request.answer(200, b"{\"a\":\"" + self.keys.canary("huge").encode() * 5000 + b"\"}")
        elif mode == "cut":
            request.send_response(200)
            request.send_header("Content-Length", "1000")
            request.end_headers()
            request.wfile.write(b"{" + self.keys.canary("cut").encode())
            request.close_connection = True
        elif mode == "refuse":
            request.answer(403, self.error("AccessDenied"))
        else:
            return False
        return True


class Sts(Issuer):
    """roles: name -> who may take it (access key, or "*"), its external id or None."""

    def __init__(self, keys):
        self.roles, self.token, self.chunked = {}, None, False
        super().__init__(keys)

    def error(self, code):
        return (f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code><Message>"
                f"{self.keys.canary('message')}</Message></Error></ErrorResponse>").encode()

    def serve(self, request, body):
        form = dict(urllib.parse.parse_qsl(body.decode()))
        action = form.get("Action")
        self.asked[action] += 1
        if self.misbehaves(request):
            return
        code = self.judge(request, body, form)
        if code:
            self.asked[code] += 1
            request.answer(403, self.error(code))
            return
        m = self.mint()
        answer = (
            f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            f"<{action}Result><Credentials><AccessKeyId>{m['access']}</AccessKeyId>"
            f"<SecretAccessKey>{m['secret']}</SecretAccessKey><SessionToken>{m['token']}"
            f"</SessionToken><Expiration>{utc(m['expire'])}</Expiration></Credentials>"
            f"</{action}Result></{action}Response>").encode()
        if self.chunked:
            request.answer_in_chunks(answer)
        else:
            request.answer(200, answer, "text/xml")

    def judge(self, request, body, form):
        role = self.roles.get(form.get("RoleArn"))
        if request.path != "/" or request.command != "POST" or not role or \
                form.get("Version") != "2011-06-15" or not form.get("RoleSessionName"):
            return "ValidationError"
        for name, value in role.items():
            if name != "who" and form.get(name) != value:
                return "WrongParameter"
        if form["Action"] == "AssumeRoleWithWebIdentity":
            return None if form.get("WebIdentityToken") == self.token else "InvalidIdentityToken"
        access, code = verify(self.keys, request, body, "sts")
        if not code and role["who"] not in ("*", access):
            code = "AccessDenied"
        return code


def as_json(m, token="Token", **more):
    return json.dumps({"AccessKeyId": m["access"], "SecretAccessKey": m["secret"],
                       token: m["token"], "Expiration": utc(m["expire"]), **more}).encode()


class Container(Issuer):
    """Gives /creds to who shows the authorization token; /process to anybody: what a command of
    the tests prints."""

    def __init__(self, keys, **where):
        self.authorization = None
        super().__init__(keys, **where)

    def error(self, code):
        return json.dumps({"code": code, "message": self.keys.canary("message")}).encode()

    def serve(self, request, body):
        self.asked[request.path] += 1
        if self.misbehaves(request):
            return
        if request.path == "/process":
            request.answer(200, as_json(self.mint(), "SessionToken", Version=1))
        elif request.headers.get("Authorization") != self.authorization:
            request.answer(401, self.error("NotAllowed"))
        else:
            request.answer(200, as_json(self.mint()))


class Metadata(Issuer):
    role = "node-role"

    def error(self, code):
        return json.dumps({"Code": code, "Message": self.keys.canary("message")}).encode()

    def serve(self, request, body):
        self.asked[f"{request.command} {request.path}"] += 1
        if self.mode == "off" or self.mode == "old":
            request.answer(403 if self.mode == "off" else 404)
        elif self.misbehaves(request):
            pass
        elif request.command == "PUT":
            good = request.path == "/latest/api/token" and \
                request.headers.get("X-aws-ec2-metadata-token-ttl-seconds") == "21600"
            self.session = self.keys.canary("session")
            request.answer(200 if good else 400, self.session.encode())
        elif request.headers.get("X-aws-ec2-metadata-token") != self.session:
            self.asked["without a session"] += 1
            request.answer(401)
        else:
            self.tell(request)

    def tell(self, request):
        where = "/latest/meta-data/iam/security-credentials/"
        if request.path == where:
            request.answer(200, self.role.encode())
        elif request.path == where + self.role:
            request.answer(200, as_json(self.mint(), Code="Success", Type="AWS-HMAC",
                                        LastUpdated=utc(time.time())))
        else:
            request.answer(404)
