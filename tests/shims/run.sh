#!/bin/bash
# Prepares and runs the plans of conf/clients against the loaders that they are for: Debian's PyTorch (PyPI's for this
# processor is 0.5 GB and more for graphics cards), and in build/shims, kept for the next time, WebDataset and MosaicML
# Streaming from PyPI, the latter with those of its requirements that reading over S3 has; and a headpond that takes them.
#
#   run.sh [word...]      only cases whose name holds one of the words
#
# Last line: "shims: N passed, N failed". Nothing is skipped: what cannot be had is a failure.
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

DEBIAN="python3-torch python3-torchvision python3-boto3 python3-venv openssl ca-certificates"
PYPI="webdataset==1.0.2 Brotli catalogue filelock python-snappy tqdm transformers==4.57.6 xxhash<4 zstd<2"
ALONE="mosaicml-streaming==0.13.0"
BUILD=$PWD/build/shims

fail() {
    echo "FAIL  $1"
    echo "shims: 0 passed, 1 failed"
    exit 1
}

install() {
    local pip="$BUILD/bin/pip install -q --disable-pip-version-check"
    /usr/bin/python3 -m venv --clear --system-site-packages "$BUILD" && xargs -n 1 <<<"$PYPI" | $pip -r /dev/stdin &&
        $pip --no-deps "$ALONE"
}

tests/lib/packages.sh $DEBIAN || fail "cannot install packages"
mkdir -p build
if [ "$(cat "$BUILD/made" 2>/dev/null)" != "$PYPI $ALONE" ]; then
    echo "# fetching"
    install >build/shims.log 2>&1 || { tail -5 build/shims.log; fail "cannot install the loaders"; }
    echo "$PYPI $ALONE" >"$BUILD/made"
fi
make --no-print-directory V=release build/release/headpondd >/dev/null || fail "headpondd does not build"

# In the background, so that a signal reaches shims.py, which ends its processes and its directory.
"$BUILD/bin/python" -B tests/shims/shims.py "$@" &
child=$!
trap 'kill "$child" 2>/dev/null' INT TERM EXIT
wait "$child"
