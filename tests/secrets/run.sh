#!/bin/bash
# Planted secrets that nobody may see again, and probes of who has no right. Needs openssl.
# Last line: "secrets: N passed, N failed". Nothing is skipped: what cannot be made is a failure.
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

fail() {
    echo "FAIL  $1"
    echo "secrets: 0 passed, 1 failed"
    exit 1
}

tests/lib/packages.sh openssl python3 || fail "cannot install packages"
make --no-print-directory V=release all >/dev/null || fail "headpondd does not build"
/usr/bin/python3 -B tests/secrets/leaks.py "$@"
status=$?
[ "$status" -le 1 ] || fail "the tests ended by themselves (exit $status)"
exit "$status"
