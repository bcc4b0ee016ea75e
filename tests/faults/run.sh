#!/bin/bash
# Every fault of an upstream: the matrix of shapes (matrix.py), then names, TLS, a hostile upstream
# and a thousand clients in a network namespace (run.py). FULL=1: all cut points, and the matrix
# once more with the sanitised server.
# Last line: "faults: N passed, N failed". Nothing is skipped: what cannot run is a failure.
#
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
passed=0
failed=0

# add LOG NAME STATUS: the verdict line of a part
add() {
    local line
    line=$(grep -E "^$2: [0-9]+ passed, [0-9]+ failed\$" "$1" | tail -1)
    if [[ "$line" =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
        passed=$((passed + BASH_REMATCH[1]))
        failed=$((failed + BASH_REMATCH[2]))
        [ "$3" -eq 0 ] || [ "${BASH_REMATCH[2]}" -gt 0 ] || failed=$((failed + 1))
    else
        echo "FAIL  $2 ended without a verdict"
        failed=$((failed + 1))
    fi
}

# part NAME COMMAND...: runs it in the background, so that a signal reaches it; shows what it says
part() {
    local log
    log=$(mktemp)
    "${@:2}" >"$log" 2>&1 &
    child=$!
    wait "$child"
    local status=$?
    grep -v "^ok" "$log"
    add "$log" "$1" "$status"
    rm -f "$log"
}

child=
trap '[ -n "$child" ] && kill "$child" 2>/dev/null' INT TERM EXIT
make --no-print-directory -s V=release build/release/headpondd instruments >/dev/null ||
    { echo "faults: 0 passed, 1 failed"; exit 1; }
part matrix python3 -B tests/faults/matrix.py
if [ "${FULL:-}" = 1 ]; then
    make --no-print-directory -s V=asan build/asan/headpondd >/dev/null
    part matrix env HEADPONDD=build/asan/headpondd python3 -B tests/faults/matrix.py
fi
if [ "$(id -u)" = 0 ]; then
    part wire unshare --net --mount -- python3 -B tests/faults/run.py
else
    echo "FAIL  names, TLS, hostile, crowd: only root can make their network namespace"
    failed=$((failed + 1))
fi
echo "faults: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
