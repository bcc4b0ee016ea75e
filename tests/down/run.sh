#!/bin/bash
# Life without the upstream: prepares (packages, programs), then runs down.py in a network namespace
# of its own; the store lives in another one behind a veth pair. FULL=1: the latency figure, too.
# Last line: "down: N passed, N failed". Nothing is skipped: what cannot be made is a failure.
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

fail() {
    echo "FAIL  $1"
    echo "down: 0 passed, 1 failed"
    exit 1
}

[ "$(id -u)" = 0 ] || fail "network namespaces need root"
tests/lib/packages.sh nftables iproute2 curl python3-boto3 || fail "cannot install packages"
for target in all instruments build/release/bench/load; do
    make --no-print-directory V=release "$target" >/dev/null || fail "$target does not build"
done
# In the background, so that a signal reaches down.py, which ends its processes.
unshare --net /usr/bin/python3 -B tests/down/down.py "$@" &
child=$!
trap 'kill "$child" 2>/dev/null' INT TERM EXIT
wait "$child"
status=$?
[ "$status" -le 1 ] || fail "the tests ended by themselves (exit $status)"
exit "$status"
