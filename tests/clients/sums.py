# The checksums that come with uploads, by field name: from bytes to digest. By other code than the
# server's.
#
# SPDX-License-Identifier: Apache-2.0
import hashlib
import zlib

from awscrt import checksums

SUMS = {
    "x-amz-checksum-crc32": lambda b: zlib.crc32(b).to_bytes(4, "big"),
    "x-amz-checksum-crc32c": lambda b: checksums.crc32c(b).to_bytes(4, "big"),
    "x-amz-checksum-crc64nvme": lambda b: checksums.crc64nvme(b).to_bytes(8, "big"),
    "x-amz-checksum-sha1": lambda b: hashlib.sha1(b).digest(),
    "x-amz-checksum-sha256": lambda b: hashlib.sha256(b).digest(),
    "content-md5": lambda b: hashlib.md5(b).digest(),
}
