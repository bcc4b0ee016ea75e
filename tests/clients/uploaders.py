# How each client uploads, told where the server is as its users tell it.
#
# An uploader is called with a Job and uploads all its files; what goes wrong is a procs.Failure.
# None of them tries anything twice: a retry would hide what the server did.
#
# SPDX-License-Identifier: Apache-2.0
import os

from procs import clean_environment, run

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.join(HERE, "..", "..", "build", "clients")
VENV = os.path.join(BUILD, "venv", "bin")
SECONDS = 300
BIGGEST_PART_MIB = 1024


class Job:
    """Files to upload: url and ca (None: plain HTTP) of the server, access and secret, the bucket,
    pairs (key, path), and whether each file shall go by one request or by the client's parts."""

    def __init__(self, url, ca, user, bucket, pairs, single):
        self.url, self.ca, self.user, self.bucket = url, ca, user, bucket
        self.pairs, self.single = pairs, single

    def words(self):
        return [f"{key}={path}" for key, path in self.pairs]

    def environment(self, **more):
        names = ("AWS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE") if self.ca else ()
        return {**clean_environment(
            AWS_ACCESS_KEY_ID=self.user.access, AWS_SECRET_ACCESS_KEY=self.user.secret,
            AWS_PAGER="", AWS_MAX_ATTEMPTS="1", AWS_DEFAULT_REGION="us-east-1"),
            **dict.fromkeys(names, self.ca), **more}

    def run(self, *argv, **more):
        run(list(argv), env=self.environment(**more), timeout=SECONDS)


def boto3(python):
    def upload(job):
        job.run(python, "-B", os.path.join(HERE, "put_boto3.py"), job.url,
                "single" if job.single else "parts", job.bucket, *job.words())
    return upload


def javascript(manner):
    def upload(job):
        job.run(os.path.join(VENV, "node"), "--preserve-symlinks-main",
                os.path.join(BUILD, "js", "put_js.mjs"), job.url, manner, job.bucket, *job.words())
    return upload


def aws(program):
    def upload(job):
        for key, path in job.pairs:
            if job.single:
                job.run(program, "--endpoint-url", job.url, "s3api", "put-object", "--bucket",
                        job.bucket, "--key", key, "--body", path)
            else:
                job.run(program, "--endpoint-url", job.url, "s3", "cp", "--only-show-errors", path,
                        f"s3://{job.bucket}/{key}")
    return upload


def rclone(job):
    trust = {"RCLONE_CA_CERT": job.ca, "AWS_CA_BUNDLE": ""} if job.ca else {}
    size = ("--s3-upload-cutoff", "4Gi") if job.single else (
        "--s3-upload-cutoff", "8Mi", "--s3-chunk-size", "8Mi")
    for key, path in job.pairs:
        job.run("rclone", "copyto", "--retries", "1", "--low-level-retries", "1", "--ignore-times", *size, path,
                f"pond:{job.bucket}/{key}", RCLONE_CONFIG="/nonexistent/rclone.conf",
                RCLONE_CONFIG_POND_TYPE="s3", RCLONE_CONFIG_POND_PROVIDER="Other",
                RCLONE_CONFIG_POND_ENDPOINT=job.url, RCLONE_CONFIG_POND_ENV_AUTH="true",
                RCLONE_CONFIG_POND_REGION="us-east-1", RCLONE_S3_NO_CHECK_BUCKET="true", **trust)


def s3cmd(job):
    host = job.url.partition("//")[2]
    trust = ["--ssl", "--ca-certs", job.ca] if job.ca else ["--no-ssl"]
    size = ["--disable-multipart"] if job.single else []
    for key, path in job.pairs:
        job.run("s3cmd", "-c", os.devnull, "--access_key", job.user.access, "--secret_key",
                job.user.secret, "--region", "us-east-1", "--host", host, "--host-bucket",
                f"{host}/%(bucket)", "--no-progress", *trust, *size, "put", path,
                f"s3://{job.bucket}/{key}")


def s5cmd(job):
    size = ["--part-size", str(BIGGEST_PART_MIB + 1)] if job.single else []
    for key, path in job.pairs:
        job.run(os.path.join(VENV, "s5cmd"), "--endpoint-url", job.url, "--retry-count", "0", "cp",
                *size, path, f"s3://{job.bucket}/{key}")


def minio(*manner):
    def upload(job):
        words = [*manner, "single" if job.single else "parts"]
        job.run(os.path.join(BUILD, "put_minio"), job.url, ",".join(words), job.bucket,
                *job.words())
    return upload


class Client:
    """sums: the checksums that it sends with every byte, at least. parts: whether it can send one
    object by several requests, and by one. moto_parts: moto takes its parts without us, too."""

    def __init__(self, name, upload, *sums, parts=True, single=True, moto_parts=True):
        self.name, self.upload, self.sums = name, upload, frozenset(sums)
        self.parts, self.single, self.moto_parts = parts, single, moto_parts


SCHEMES = ("http", "https")
DEBIAN_PYTHON, CURRENT_PYTHON = "/usr/bin/python3", os.path.join(VENV, "python")
MD5, SHA256, CRC32 = "content-md5", "x-amz-content-sha256", "x-amz-checksum-crc32"
CLIENTS = (
    Client("boto3 1.26", boto3(DEBIAN_PYTHON), MD5),
    Client("boto3 current", boto3(CURRENT_PYTHON), CRC32),
    Client("js buffer", javascript("buffer"), CRC32, SHA256, parts=False),
    Client("js stream", javascript("stream"), CRC32, parts=False),
    Client("js upload", javascript("upload"), CRC32, SHA256, single=False),
    Client("aws v1", aws(os.path.join(VENV, "aws")), CRC32),
    Client("aws v2", aws("/usr/bin/aws"), MD5),
    Client("rclone", rclone, MD5, moto_parts=False),
    Client("s3cmd", s3cmd, SHA256),
    Client("s5cmd", s5cmd, MD5, SHA256),
    Client("minio-go", minio("plain")),
    Client("minio-go trailer", minio("trailer"), "x-amz-checksum-crc32c"),
)
