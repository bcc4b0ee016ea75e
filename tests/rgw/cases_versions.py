# Versions and delete markers.
#
# SPDX-License-Identifier: Apache-2.0
import functools

from case_list import add, case, data


def put(s, seed, **more):
    return s.do("put_object", Body=data(800, seed), **more).get("VersionId")


def read_all(s, versions):
    for version in versions:
        s.do("get_object", VersionId=version)
        s.do("head_object", VersionId=version)
    s.do("get_object")
    s.do("head_object")
    s.do("list_object_versions", Prefix=s.key)


def versioned(name):
    def keep(function):
        def run(s):
            s.use("versioned")
            function(s)
        add("versioning", name, run)
        return function
    return keep


@versioned("three versions")
def _(s):
    read_all(s, [put(s, f"{n}", Metadata={"n": str(n)}) for n in range(3)])


@versioned("an older one while it is the current one")
def _(s):
    first = put(s, "first")
    s.do("get_object", VersionId=first)
    s.do("get_object")
    second = put(s, "second")
    s.do("get_object")
    read_all(s, [first, second])


@versioned("ranges of an older one")
def _(s):
    first = put(s, "first")
    put(s, "second")
    s.do("get_object", VersionId=first, Range="bytes=0-9")
    s.do("get_object", Range="bytes=0-9")
    s.do("get_object", VersionId=first, Range="bytes=-9")


@versioned("a delete marker")
def _(s):
    first = put(s, "first")
    s.do("get_object")
    s.do("delete_object")
    read_all(s, [first])


@versioned("a delete marker by its id")
def _(s):
    put(s, "first")
    marker = s.do("delete_object")["VersionId"]
    s.do("get_object", VersionId=marker)
    s.do("head_object", VersionId=marker)


@versioned("a delete marker is removed")
def _(s):
    first = put(s, "first")
    s.do("get_object")
    marker = s.do("delete_object")["VersionId"]
    s.do("get_object")
    s.do("delete_object", VersionId=marker)
    read_all(s, [first])


@versioned("a delete marker, then a new version")
def _(s):
    first = put(s, "first")
    s.do("delete_object")
    s.do("get_object")
    read_all(s, [first, put(s, "second")])


@versioned("two delete markers")
def _(s):
    first = put(s, "first")
    s.do("delete_object")
    s.do("delete_object")
    read_all(s, [first])


@versioned("a delete marker of what never was")
def _(s):
    s.do("delete_object")
    s.do("get_object")
    s.do("list_object_versions", Prefix=s.key)


@versioned("the current version is deleted by its id")
def _(s):
    first, second = put(s, "first"), put(s, "second")
    s.do("get_object")
    s.do("get_object", VersionId=second)
    s.do("delete_object", VersionId=second)
    read_all(s, [first, second])


@versioned("an older version is deleted by its id")
def _(s):
    first, second = put(s, "first"), put(s, "second")
    s.do("get_object", VersionId=first)
    s.do("delete_object", VersionId=first)
    read_all(s, [first, second])


@versioned("the only version is deleted by its id")
def _(s):
    first = put(s, "first")
    s.do("get_object")
    s.do("delete_object", VersionId=first)
    read_all(s, [first])


@versioned("the version null of what has none")
def _(s):
    put(s, "first")
    s.do("get_object", VersionId="null")
    s.do("delete_object", VersionId="null")
    s.do("get_object")


@versioned("a copy of an older version")
def _(s):
    first = put(s, "first", Metadata={"n": "1"})
    put(s, "second")
    s.do("copy_object", Key=s.key + "/copy",
         CopySource={"Bucket": s.bucket, "Key": s.key, "VersionId": first})
    s.do("get_object", Key=s.key + "/copy")
    s.do("head_object", Key=s.key + "/copy")


@versioned("an older version becomes the current one by a copy")
def _(s):
    first = put(s, "first")
    put(s, "second")
    s.do("get_object")
    s.do("copy_object", CopySource={"Bucket": s.bucket, "Key": s.key, "VersionId": first})
    read_all(s, [first])


@versioned("a copy of a version that never was")
def _(s):
    put(s, "first")
    s.do("copy_object", Key=s.key + "/copy",
         CopySource={"Bucket": s.bucket, "Key": s.key, "VersionId": "a" * 32})


@versioned("a multipart upload is a version")
def _(s):
    first = put(s, "first")
    upload = s.do("create_multipart_upload")["UploadId"]
    etag = s.do("upload_part", UploadId=upload, PartNumber=1, Body=data(500, "part"))["ETag"]
    s.do("complete_multipart_upload", UploadId=upload,
         MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": etag}]})
    s.do("list_object_versions", Prefix=s.key)
    read_all(s, [first])


@versioned("tags of a version")
def _(s):
    first = put(s, "first")
    put(s, "second", Tagging="b=2")
    s.do("get_object", VersionId=first)
    s.do("put_object_tagging", VersionId=first,
         Tagging={"TagSet": [{"Key": "a", "Value": "1"}]})
    s.do("get_object_tagging", VersionId=first)
    s.do("get_object_tagging")
    s.do("get_object", VersionId=first)
    s.do("delete_object_tagging", VersionId=first)
    s.do("get_object_tagging", VersionId=first)


@versioned("ACL of a version")
def _(s):
    first = put(s, "first")
    put(s, "second")
    s.do("put_object_acl", VersionId=first, ACL="public-read")
    s.do("get_object_acl", VersionId=first)
    s.do("get_object_acl")


@versioned("a list of versions is deleted")
def _(s):
    versions = [put(s, f"{n}") for n in range(3)]
    s.do("get_object")
    s.do("get_object", VersionId=versions[0])
    s.do("delete_objects", Delete={"Objects": [{"Key": s.key, "VersionId": versions[0]},
                                               {"Key": s.key, "VersionId": versions[2]}]})
    read_all(s, versions)


@versioned("a list of deletes makes markers")
def _(s):
    first = put(s, "first")
    s.do("get_object")
    s.do("delete_objects", Delete={"Objects": [{"Key": s.key}]})
    read_all(s, [first])


def bad_version(s, version):
    s.use("versioned")
    put(s, "first")
    s.do("get_object", VersionId=version)
    s.do("head_object", VersionId=version)
    s.do("delete_object", VersionId=version)
    s.do("get_object")


for _name, _version in {"of another form": "x", "of its form": "a" * 32,
                        "with odd characters": "../ \u00e9&"}.items():
    add("versioning", f"a version id {_name}", functools.partial(bad_version, version=_version))


@case("versioning", "conditions and versions")
def _(s):
    s.use("versioned")
    first = put(s, "first")
    put(s, "second")
    tag = s.do("head_object", VersionId=first)["ETag"]
    s.do("get_object", VersionId=first, IfMatch=tag)
    s.do("get_object", VersionId=first, IfNoneMatch=tag)
    s.do("get_object", IfMatch=tag)
    s.do("get_object", IfNoneMatch=tag)


@case("versioning", "turned on, suspended, on again")
def _(s):
    s.use("switched")
    s.given("create_bucket")
    s.do("get_bucket_versioning")
    ids = []
    for number, status in enumerate((None, "Enabled", "Suspended", "Suspended", "Enabled")):
        if status:
            s.do("put_bucket_versioning", VersioningConfiguration={"Status": status})
        s.do("get_bucket_versioning")
        ids.append(put(s, f"{number}"))
        s.do("get_object")
        s.do("get_object", VersionId="null")
    read_all(s, [i for i in ids if i and i != "null"])


@case("versioning", "suspended: deletes")
def _(s):
    s.use("suspended")
    s.given("put_bucket_versioning", VersioningConfiguration={"Status": "Enabled"})
    first = put(s, "first")
    s.do("put_bucket_versioning", VersioningConfiguration={"Status": "Suspended"})
    s.do("get_object")
    s.do("delete_object")
    s.do("get_object")
    put(s, "null")
    s.do("get_object", VersionId="null")
    s.do("delete_object", VersionId="null")
    read_all(s, [first])


@case("versioning", "a status that is none")
def _(s):
    s.use("other")
    s.do("put_bucket_versioning", VersioningConfiguration={"Status": "Maybe"})
    s.do("get_bucket_versioning")
