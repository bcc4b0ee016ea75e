#!/bin/bash
# Disks that fail: prepares (packages, programs), then runs disks.py in a mount namespace of its own.
# WORDS run only the scenes whose names contain one of them. Last line: "disks: N passed, N failed".
# Nothing is skipped: what cannot be made is a failure.
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

fail() {
    echo "FAIL  $1"
    echo "disks: 0 passed, 1 failed"
    exit 1
}

[ "$(id -u)" = 0 ] || fail "mounting needs root"
[ -c /dev/fuse ] || fail "there is no /dev/fuse"
tests/lib/packages.sh libfuse3-dev pkg-config || fail "cannot install packages"
for target in all instruments build/release/tests/faultfs; do
    make --no-print-directory V=release "$target" >/dev/null || fail "$target does not build"
done
# In the background, so that a signal reaches disks.py, which ends its processes.
unshare --mount /usr/bin/python3 -B tests/fuse/disks.py "$@" &
child=$!
trap 'kill "$child" 2>/dev/null' INT TERM EXIT
wait "$child"
status=$?
[ "$status" -le 1 ] || fail "the tests ended by themselves (exit $status)"
exit "$status"
