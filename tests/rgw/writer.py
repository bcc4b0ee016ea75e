# Writes objects with whatever boto3 runs it: run by test_writes.py under old and new versions.
#
#   writer.py ENDPOINT BUCKET FLAVOUR FOLDER     FOLDER holds FLAVOUR-put-SIZE and FLAVOUR-upload-SIZE
#
# Complaints go to standard error.
#
# SPDX-License-Identifier: Apache-2.0
import os
import sys

import boto3
import botocore.client


def main():
    endpoint, bucket, flavour, folder = sys.argv[1:]
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1",
                          config=botocore.client.Config(retries={"max_attempts": 1}))
    for name in sorted(os.listdir(folder)):
        if not name.startswith(flavour + "-"):
            continue
        path, key = os.path.join(folder, name), flavour + "/" + name[len(flavour) + 1:]
        if "-put-" in name:
            with open(path, "rb") as f:
                client.put_object(Bucket=bucket, Key=key, Body=f, ContentType="x/y",
                                  Metadata={"writer": flavour})
            if client.head_object(Bucket=bucket, Key=key)["Metadata"] != {"writer": flavour}:
                print(f"{key}: its metadata is lost", file=sys.stderr)
        else:
            client.upload_file(path, bucket, key)
    client.delete_object(Bucket=bucket, Key=f"{flavour}/deleted")
    keys = [{"Key": f"{flavour}/bulk-1"}, {"Key": f"{flavour}/bulk-2 é&"}]
    errors = client.delete_objects(Bucket=bucket, Delete={"Objects": keys}).get("Errors")
    if errors:
        print(f"delete_objects: {errors}", file=sys.stderr)
    client.copy_object(Bucket=bucket, Key=f"{flavour}/copy",
                       CopySource={"Bucket": bucket, "Key": f"{flavour}/put-5000"})


if __name__ == "__main__":
    main()
