# Buckets: their life, and what is configured in them.
#
# SPDX-License-Identifier: Apache-2.0
import functools
import json

from case_list import add, case, data


def own(s, name):
    return s.use("b-" + name)


@case("bucket", "made, seen, removed")
def _(s):
    own(s, "life")
    s.do("head_bucket")
    s.do("create_bucket")
    s.do("head_bucket")
    s.do("get_bucket_location")
    s.do("list_objects_v2")
    s.do("delete_bucket")
    s.do("head_bucket")
    s.do("list_objects_v2")


@case("bucket", "made twice")
def _(s):
    own(s, "twice")
    s.do("create_bucket")
    s.do("create_bucket")


@case("bucket", "removed though absent")
def _(s):
    own(s, "absent")
    s.do("delete_bucket")


@case("bucket", "removed though not empty")
def _(s):
    own(s, "full")
    s.do("create_bucket")
    s.do("put_object", Body=b"x")
    s.do("get_object")
    s.do("delete_bucket")
    s.do("get_object")


@case("bucket", "removed with what was cached, made again")
def _(s):
    own(s, "again")
    s.do("create_bucket")
    s.do("put_object", Body=b"x")
    s.do("get_object")
    s.do("delete_object")
    s.do("delete_bucket")
    s.do("get_object")
    s.do("create_bucket")
    s.do("get_object")
    s.do("put_object", Body=b"other")
    s.do("get_object")


def made(s, name, arguments):
    own(s, name)
    s.do("create_bucket", **arguments)
    s.do("head_bucket")
    s.do("get_bucket_acl")


for _name, _arguments in {
        "private": {"ACL": "private"}, "public-read": {"ACL": "public-read"},
        "location": {"CreateBucketConfiguration": {"LocationConstraint": "default"}},
        "no-location": {"CreateBucketConfiguration": {"LocationConstraint": "nowhere-1"}},
        "lock": {"ObjectLockEnabledForBucket": True}}.items():
    add("bucket", f"made: {_name}", functools.partial(made, name=_name, arguments=_arguments))


def named(s, name):
    s.raw("PUT", path="/" + name, key="")
    s.raw("HEAD", path="/" + name, key="")
    s.raw("GET", path="/" + name, key="")


for _name in ("ab", "UPPER", "a..b", "-dash", "under_score", "x" * 64, "192.168.1.1"):
    add("bucket", f"named {_name}", functools.partial(named, name=_name))


@case("bucket", "location of an absent one")
def _(s):
    own(s, "absent")
    s.do("get_bucket_location")
    s.do("get_bucket_acl")
    s.do("get_bucket_versioning")


@case("bucket", "ACL")
def _(s):
    own(s, "acl")
    s.do("create_bucket")
    for acl in ("public-read", "private", "no-such"):
        s.do("put_bucket_acl", ACL=acl)
        s.do("get_bucket_acl")


@case("bucket", "ACL of an object")
def _(s):
    s.do("put_object", Body=b"x")
    s.do("get_object")
    for acl in ("public-read", "private", "no-such"):
        s.do("put_object_acl", ACL=acl)
        s.do("get_object_acl")
        s.do("get_object")


@case("bucket", "ACL of an absent object")
def _(s):
    s.do("get_object_acl")
    s.do("put_object_acl", ACL="private")


def policy(bucket):
    return json.dumps({"Version": "2012-10-17", "Statement": [
        {"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject",
         "Resource": f"arn:aws:s3:::{bucket}/public/*"}]})


@case("bucket", "policy")
def _(s):
    own(s, "policy")
    s.do("create_bucket")
    s.do("put_object", Key="public/x", Body=data(200))
    s.do("get_object", Key="public/x")
    s.do("get_bucket_policy")
    s.do("put_bucket_policy", Policy=policy(s.bucket))
    s.do("get_bucket_policy")
    s.do("get_bucket_policy_status")
    s.do("get_object", Key="public/x")
    s.do("delete_bucket_policy")
    s.do("get_bucket_policy")
    s.do("get_object", Key="public/x")


@case("bucket", "policy that is none")
def _(s):
    own(s, "no-policy")
    s.do("create_bucket")
    s.do("put_bucket_policy", Policy="{")
    s.do("get_bucket_policy")


RULE = {"AllowedMethods": ["GET", "PUT"], "AllowedOrigins": ["https://*.example.com"],
        "AllowedHeaders": ["*"], "ExposeHeaders": ["ETag"], "MaxAgeSeconds": 60}


@case("bucket", "CORS")
def _(s):
    own(s, "cors")
    s.do("create_bucket")
    s.do("put_object", Key="x", Body=b"x")
    s.do("get_bucket_cors")
    s.do("put_bucket_cors", CORSConfiguration={"CORSRules": [RULE]})
    s.do("get_bucket_cors")
    asked = {"Origin": "https://a.example.com", "Access-Control-Request-Method": "GET"}
    s.raw("OPTIONS", key="x", headers=asked, user=None)
    s.raw("OPTIONS", key="x", headers={**asked, "Origin": "https://example.org"}, user=None)
    s.do("delete_bucket_cors")
    s.do("get_bucket_cors")


@case("bucket", "lifecycle")
def _(s):
    own(s, "lifecycle")
    s.do("create_bucket")
    s.do("get_bucket_lifecycle_configuration")
    rule = {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": "old/"},
            "Expiration": {"Days": 30}}
    s.do("put_bucket_lifecycle_configuration", LifecycleConfiguration={"Rules": [rule]})
    s.do("get_bucket_lifecycle_configuration")
    s.do("put_object", Key="old/x", Body=b"x")
    s.do("delete_bucket_lifecycle")
    s.do("get_bucket_lifecycle_configuration")


@case("bucket", "lifecycle that is none")
def _(s):
    own(s, "no-lifecycle")
    s.do("create_bucket")
    rule = {"ID": "x", "Status": "Enabled", "Filter": {"Prefix": ""}}
    s.do("put_bucket_lifecycle_configuration", LifecycleConfiguration={"Rules": [rule]})


@case("bucket", "public access block")
def _(s):
    own(s, "block")
    s.do("create_bucket")
    s.do("get_public_access_block")
    s.do("put_public_access_block", PublicAccessBlockConfiguration={"BlockPublicAcls": True})
    s.do("get_public_access_block")
    s.do("put_object", Body=b"x", ACL="public-read")
    s.do("delete_public_access_block")


@case("bucket", "request payment")
def _(s):
    own(s, "payment")
    s.do("create_bucket")
    s.do("get_bucket_request_payment")
    s.do("put_bucket_request_payment", RequestPaymentConfiguration={"Payer": "Requester"})
    s.do("get_bucket_request_payment")


@case("bucket", "website")
def _(s):
    own(s, "website")
    s.do("create_bucket")
    s.do("get_bucket_website")
    s.do("put_bucket_website", WebsiteConfiguration={"IndexDocument": {"Suffix": "i.html"}})
    s.do("get_bucket_website")
    s.do("delete_bucket_website")


@case("bucket", "object lock")
def _(s):
    own(s, "locked")
    s.do("create_bucket", ObjectLockEnabledForBucket=True)
    s.do("get_object_lock_configuration")
    version = s.do("put_object", Body=b"x")["VersionId"]
    s.do("put_object_legal_hold", LegalHold={"Status": "ON"})
    s.do("get_object_legal_hold")
    s.do("get_object")
    s.do("delete_object", VersionId=version)
    s.do("put_object_legal_hold", LegalHold={"Status": "OFF"})
    s.do("head_object")
    s.do("delete_object", VersionId=version)
    s.do("get_object")


for _op in ("get_bucket_encryption", "get_bucket_logging", "get_bucket_replication",
            "get_bucket_accelerate_configuration", "get_bucket_ownership_controls",
            "get_bucket_notification_configuration", "list_bucket_inventory_configurations"):
    add("bucket", _op, lambda s, op=_op: s.do(op))


@case("bucket", "a slash behind the name")
def _(s):
    s.use("listed")
    for method in ("HEAD", "GET"):
        s.raw(method, path=f"/{s.bucket}/", key="")


@case("bucket", "a sub-resource that nobody knows")
def _(s):
    s.use("listed")
    s.raw_bucket("GET", query=(("no-such-thing", ""),))
