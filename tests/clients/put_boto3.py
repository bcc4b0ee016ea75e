# Uploads by boto3, old and current: run by the interpreter that has it.
#
#   put_boto3.py URL MANNER BUCKET KEY=FILE...
#
# MANNER: single (put_object of a file) or parts (upload_file, parts of 8 MiB). Nothing is tried
# twice.
#
# SPDX-License-Identifier: Apache-2.0
import sys

import boto3
from botocore.config import Config

endpoint, manner, bucket, *pairs = sys.argv[1:]
client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1",
                      config=Config(retries={"total_max_attempts": 1}))
for pair in pairs:
    key, _, path = pair.partition("=")
    if manner == "single":
        with open(path, "rb") as f:
            client.put_object(Bucket=bucket, Key=key, Body=f)
    else:
        client.upload_file(path, bucket, key)
