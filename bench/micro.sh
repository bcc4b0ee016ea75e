#!/bin/bash
# `make bench BENCH=micro`: nanoseconds and allocations per call of what a request goes through, each program of bench/micro by
# itself: the head parsed and its signature verified (wire), the head of the answer (reply), the policy (policy), hot buffers and
# checksums (pool), a hit of the cache by one thread and by several (shared), signatures made (sign), uploads (payload). Look-ups in
# an index that is worth it: make bench BENCH=index.
#
#   bench/micro.sh [PROGRAM...]
#
# The least of nine batches, so that what else runs counts little; a call that allocates where none should does not pass.
# The last line is "micro: N passed, N failed". SPDX-License-Identifier: Apache-2.0
set -euo pipefail
build=$(cd "$(dirname "$0")/.." && pwd)/build/release/bench/micro
[ $# -gt 0 ] || set -- wire reply policy pool shared sign payload
# OpenSSL's ways allocate: they are there to be compared with.
allowed='_evp_'
passed=0 failed=0
for program in "$@"; do
    lines=$("$build/$program" 2>/dev/null) || { echo "micro: FAILED: $program"; failed=$((failed + 1)); continue; }
    while read -r line; do
        echo "$line"
        if [[ $line == *allocations=0.00* || ( $line == *allocations=* && $line =~ $allowed ) ]]; then
            passed=$((passed + 1))
        elif [[ $line == *allocations=* ]]; then
            failed=$((failed + 1))
            echo "micro: FAILED: ${line%% *} allocates"
        else
            failed=$((failed + 1))
            echo "micro: FAILED: $program: ${line:-it says nothing} (no count of allocations)"
        fi
    done <<<"$lines"
done
echo "micro: $passed passed, $failed failed"
[ $failed -eq 0 ]
