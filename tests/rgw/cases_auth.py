# Who may: signed URLs, keys that are wrong, nobody at all.
#
# SPDX-License-Identifier: Apache-2.0
import datetime
import functools

from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from case_list import add, case, data
from record import REGION, User, client_of
from wire import path_of

STRANGER = User("NOSUCHKEY0000000000", "secret")


class Dated(S3SigV4QueryAuth):
    """A signed URL of another day."""

    def __init__(self, user, at, seconds):
        super().__init__(Credentials(user.access, user.secret), "s3", REGION, expires=seconds)
        self.at = at

    def add_auth(self, request):
        request.context["timestamp"] = self.at.strftime("%Y%m%dT%H%M%SZ")
        self._modify_request_before_signing(request)
        text = self.string_to_sign(request, self.canonical_request(request))
        self._inject_signature_to_request(request, self.signature(text, request))


def dated(s, method, days, seconds):
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)
    request = AWSRequest(method, f"http://127.0.0.1:{s.side.port}{path_of(s.bucket, s.key)}")
    Dated(s.side.user, at, seconds).add_auth(request)
    return request.url


def clients(s):
    """Signature versions 4 and 2."""
    return s.side.client, s.side.old_client


# ---- signed URLs ----

def presigned(s, old, op, method, arguments, headers=None):
    s.given("put_object", Body=data(600), ContentType="x/y")
    url = s.url(op, s.side.old_client if old else None, **arguments)
    s.fetch(method, url, headers)


for _old in (False, True):
    _v = "v2" if _old else "v4"
    for _name, _op, _method, _arguments, _headers in (
            ("GET", "get_object", "GET", {}, None),
            ("HEAD", "head_object", "HEAD", {}, None),
            ("GET, a range", "get_object", "GET", {}, {"Range": "bytes=5-9"}),
            ("GET, a condition", "get_object", "GET", {}, {"If-None-Match": "*"}),
            ("GET, used for HEAD", "get_object", "HEAD", {}, None),
            ("GET, used for PUT", "get_object", "PUT", {}, None),
            ("GET, used for DELETE", "get_object", "DELETE", {}, None),
            ("GET, type overridden", "get_object", "GET",
             {"ResponseContentType": "text/x; a=b"}, None),
            ("GET, disposition overridden", "get_object", "GET",
             {"ResponseContentDisposition": "attachment; filename=\"é&+ .txt\""}, None),
            ("GET, three overridden", "get_object", "GET",
             {"ResponseCacheControl": "no-cache", "ResponseContentLanguage": "fr",
              "ResponseContentEncoding": "x"}, None),
            ("GET, version null", "get_object", "GET", {"VersionId": "null"}, None)):
        add("presigned", f"{_v} {_name}",
            functools.partial(presigned, old=_old, op=_op, method=_method,
                              arguments=_arguments, headers=_headers))


def presigned_put(s, old, arguments, headers):
    url = s.url("put_object", s.side.old_client if old else None, **arguments)
    s.fetch("PUT", url, headers, data(900))
    s.do("get_object")


def presigned_key(s, old, key):
    key = s.key + "/" + key
    s.given("put_object", Key=key, Body=data(50, key))
    s.fetch("GET", s.url("get_object", s.side.old_client if old else None, Key=key), key=key)


for _old in (False, True):
    _v = "v2" if _old else "v4"
    add("presigned", f"{_v} PUT", functools.partial(presigned_put, old=_old, arguments={},
                                                    headers={}))
    add("presigned", f"{_v} PUT, type signed", functools.partial(
        presigned_put, old=_old, arguments={"ContentType": "x/y"},
        headers={"Content-Type": "x/y"}))
    add("presigned", f"{_v} PUT, another type than signed", functools.partial(
        presigned_put, old=_old, arguments={"ContentType": "x/y"},
        headers={"Content-Type": "x/z"}))
    for _n, _key in enumerate(("a b+c", "é/日本", "a//b", "100%25", "~!$&'()*,;=:@")):
        add("presigned", f"{_v} key {_n} {_key!r}",
            functools.partial(presigned_key, old=_old, key=_key))


@case("presigned", "v4 PUT with metadata that is signed")
def _(s):
    url = s.url("put_object", Metadata={"a": "b"})
    s.fetch("PUT", url, {"x-amz-meta-a": "b"}, b"meta")
    s.do("head_object")


@case("presigned", "v4 DELETE")
def _(s):
    s.do("put_object", Body=b"x")
    s.do("get_object")
    s.fetch("DELETE", s.url("delete_object"))
    s.do("get_object")


@case("presigned", "v4 list")
def _(s):
    s.use("listed")
    s.fetch("GET", s.url("list_objects_v2", Prefix="a/"), key="")


@case("presigned", "expired")
def _(s):
    s.given("put_object", Body=b"x")
    s.fetch("GET", dated(s, "GET", -2, 60))
    s.fetch("GET", dated(s, "GET", -2, 3 * 86400))


@case("presigned", "of tomorrow")
def _(s):
    s.given("put_object", Body=b"x")
    s.fetch("GET", dated(s, "GET", 1, 60))


@case("presigned", "for more than a week")
def _(s):
    s.given("put_object", Body=b"x")
    s.fetch("GET", dated(s, "GET", 0, 604801))


@case("presigned", "v2, expired")
def _(s):
    s.given("put_object", Body=b"x")
    s.fetch("GET", s.url("get_object", s.side.old_client, seconds=-100))


def tampered(s, old, change):
    s.given("put_object", Body=b"x")
    s.given("put_object", Key=s.key + "x", Body=b"y")
    s.fetch("GET", change(s.url("get_object", s.side.old_client if old else None)))


for _old in (False, True):
    _v = "v2" if _old else "v4"
    for _name, _change in {
            "another key": lambda url: url.replace("?", "x?", 1),
            "an override added": lambda url: url + "&response-content-type=a/b",
            "a parameter added": lambda url: url + "&x-id=GetObject",
            "a signature cut": lambda url: url.replace("Signature=", "Signature=0", 1)}.items():
        add("presigned", f"{_v} {_name}", functools.partial(tampered, old=_old, change=_change))


# ---- keys that are wrong ----

@case("presigned", "a key that nobody has")
def _(s):
    s.given("put_object", Body=b"x")
    for version in ("s3v4", "s3"):
        s.fetch("GET", s.url("get_object", client_of(s.side.port, STRANGER, version)))
    s.raw("GET", user=STRANGER)
    s.raw("HEAD", user=STRANGER)
    s.raw("PUT", user=STRANGER, body=b"y")


@case("presigned", "a secret that is wrong")
def _(s):
    s.given("put_object", Body=b"x")
    wrong = User(s.side.user.access, "wrong")
    for version in ("s3v4", "s3"):
        s.fetch("GET", s.url("get_object", client_of(s.side.port, wrong, version)))
    s.raw("GET", user=wrong)
    s.raw("HEAD", user=wrong)
    s.raw("PUT", user=wrong, body=b"y")
    s.raw("DELETE", user=wrong)
    s.do("get_object")


@case("presigned", "a region that is another")
def _(s):
    s.given("put_object", Body=b"x")
    url = s.url("get_object")
    s.fetch("GET", url.replace("us-east-1", "eu-west-9"))


# ---- nobody ----

@case("anonymous", "a private object")
def _(s):
    s.given("put_object", Body=b"x")
    s.raw("GET", user=None)
    s.raw("HEAD", user=None)
    s.raw("PUT", user=None, body=b"y")
    s.raw("DELETE", user=None)
    s.do("get_object")


@case("anonymous", "an absent object")
def _(s):
    s.raw("GET", user=None)
    s.raw("HEAD", user=None)


@case("anonymous", "an absent bucket")
def _(s):
    s.use("nowhere")
    s.raw("GET", user=None)


@case("anonymous", "lists of a private bucket")
def _(s):
    s.raw_bucket("GET", user=None)
    s.raw_bucket("GET", query=(("list-type", "2"),), user=None)
    s.raw_bucket("HEAD", user=None)
    s.raw_bucket("GET", query=(("acl", ""),), user=None)


@case("anonymous", "a public object, readers have to sign")
def _(s):
    s.given("put_object", Body=b"x", ACL="public-read")
    s.raw("GET", user=None)
    s.raw("HEAD", user=None)


@case("anonymous", "a public object, anybody may read", through="open")
def _(s):
    s.given("put_object", Body=data(900), ACL="public-read", ContentType="x/y")
    s.raw("GET", user=None)
    s.raw("HEAD", user=None)
    s.raw("GET", user=None, headers={"Range": "bytes=5-9"})


@case("anonymous", "a public object that is replaced", through="open")
def _(s):
    s.do("put_object", Body=data(900, "1"), ACL="public-read")
    s.raw("GET", user=None)
    s.do("put_object", Body=data(900, "2"), ACL="public-read")
    s.raw("GET", user=None)


@case("anonymous", "a public bucket, anybody may read", through="open")
def _(s):
    s.use("public")
    s.given("put_bucket_acl", ACL="public-read")
    s.given("put_object", Body=b"x", ACL="public-read")
    s.raw_bucket("GET", query=(("prefix", s.key),), user=None)
    s.raw_bucket("GET", query=(("list-type", "2"), ("prefix", s.key)), user=None)
    s.raw("GET", user=None)
    s.raw("GET", key=s.key + "/absent", user=None)


@case("anonymous", "changes of a public bucket, anybody may read", through="open")
def _(s):
    s.use("public")
    s.given("put_bucket_acl", ACL="public-read")
    s.raw("PUT", user=None, body=b"y")
    s.raw("DELETE", user=None)
    s.raw_bucket("POST", query=(("delete", ""),), body=b"<Delete/>", user=None)


@case("anonymous", "overrides", through="open")
def _(s):
    s.given("put_object", Body=b"x", ACL="public-read")
    s.raw("GET", query=(("response-content-type", "text/x"),), user=None)


@case("anonymous", "list of buckets")
def _(s):
    s.raw("GET", path="/", key="", user=None)
