# All cases of the suite, and what they find in the store.
#
# SPDX-License-Identifier: Apache-2.0
import case_list
import cases_auth
import cases_bucket
import cases_lists
import cases_multipart
import cases_read
import cases_versions
import cases_write

FILES = (cases_read, cases_lists, cases_write, cases_multipart, cases_versions, cases_auth,
         cases_bucket)
BUCKETS = ("main", "other", "listed", "tagged", "public", "versioned", "suspended")


def prepare(side):
    """The buckets of one side. Nothing has been asked of the server yet."""
    for name in BUCKETS:
        side.store.create_bucket(Bucket=side.bucket(name))
    side.store.put_bucket_versioning(Bucket=side.bucket("versioned"),
                                     VersioningConfiguration={"Status": "Enabled"})
    for file in FILES:
        if hasattr(file, "prepare"):
            file.prepare(side)


def every(only=""):
    return [c for c in case_list.LIST if not only or only in f"{c[0]}: {c[1]}"]
