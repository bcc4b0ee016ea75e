# Writes data sets by MosaicML Streaming's own writers: make_mds.py DIRECTORY. SPDX-License-Identifier: Apache-2.0
import os
import sys

from streaming import JSONWriter, MDSWriter

for name, writer, how, samples in (
        ("mds/plain", MDSWriter, {"size_limit": 900}, 150),
        ("mds/packed/train", MDSWriter, {"size_limit": 900, "compression": "zstd"}, 60),
        ("mds/lines", JSONWriter, {"size_limit": 900, "newline": "\n"}, 60)):
    with writer(out=os.path.join(sys.argv[1], name), columns={"id": "int", "text": "str"}, **how) as out:
        for n in range(samples):
            out.write({"id": n, "text": f"sample {n} " * 8})
