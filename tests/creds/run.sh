#!/bin/bash
# Upstream credentials that end within seconds, in a network namespace of its own: there the
# addresses of instance metadata and of container runtimes are ours. Needs root.
# Last line: "creds: N passed, N failed". Nothing is skipped: what cannot be made is a failure.
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

fail() {
    echo "FAIL  $1"
    echo "creds: 0 passed, 1 failed"
    exit 1
}

[ "$(id -u)" = 0 ] || fail "network namespaces need root"
tests/lib/packages.sh iproute2 || fail "cannot install packages"
make --no-print-directory V=release all >/dev/null || fail "headpondd does not build"
# In the background, so that a signal reaches creds.py, which ends its processes.
unshare --net /usr/bin/python3 -B tests/creds/creds.py "$@" &
child=$!
trap 'kill "$child" 2>/dev/null' INT TERM EXIT
wait "$child"
status=$?
[ "$status" -le 1 ] || fail "the tests ended by themselves (exit $status)"
exit "$status"
