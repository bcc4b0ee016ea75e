#!/bin/bash
# Prepares and runs the proof against a real S3 server: packages, a current boto3, the instruments,
# then run.py.
# Last line: "rgw: N passed, N failed". Nothing is skipped: what cannot be installed or built is a
# failure.
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

PACKAGES="radosgw ceph-mon ceph-osd ceph-common python3-boto3 python3-venv awscli rclone s3cmd curl"
VENV=build/venv

fail() {
    echo "FAIL  $1"
    echo "rgw: 0 passed, 1 failed"
    exit 1
}

missing_packages() {
    for p in $PACKAGES; do
        dpkg-query -W -f '${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || echo "$p"
    done
}

install_packages() {
    local missing
    missing=$(missing_packages)
    [ -z "$missing" ] && return
    echo "# installing $(echo $missing)"
    local sudo=""
    [ "$(id -u)" = 0 ] || sudo="sudo -n"
    # Only these: ceph's recommended packages bring services of their own.
    local patient="-o DPkg::Lock::Timeout=600 -o Acquire::Retries=5"
    { $sudo apt-get update -qq $patient && $sudo env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq $patient --no-install-recommends $missing; } >/tmp/rgw-apt.$$ 2>&1 ||
        { tail -5 /tmp/rgw-apt.$$; fail "cannot install: $(echo $missing)"; }
    rm -f /tmp/rgw-apt.$$
}

make_venv() {
    # Signatures, checksums and If-Match changed with boto3 1.36: older ones are Debian's.
    local current='import boto3; assert tuple(map(int, boto3.__version__.split(".")[:2])) >= (1, 36)'
    "$VENV/bin/python" -c "$current" 2>/dev/null && [ -x "$VENV/bin/aws" ] && return
    echo "# making $VENV with a current boto3 and aws"
    { /usr/bin/python3 -m venv --clear "$VENV" &&
        "$VENV/bin/pip" install -q --disable-pip-version-check 'boto3>=1.36' 'awscli>=1.37'; } ||
        fail "cannot make $VENV"
}

install_packages
make_venv
build() {
    make --no-print-directory V=release "$1" >/dev/null || fail "$1 does not build"
}

[ -n "${HEADPONDD:-}" ] || build build/release/headpondd
build instruments

# In the background, so that a signal reaches run.py, which ends its processes and its directory.
/usr/bin/python3 -B tests/rgw/run.py "$@" &
child=$!
trap 'kill "$child" 2>/dev/null' INT TERM EXIT
wait "$child"
