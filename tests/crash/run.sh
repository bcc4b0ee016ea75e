#!/bin/bash
# tests/crash/run.sh PROGRAM: PART (all of them) with ROUNDS and SEED; as a part of make check some rounds of each.
# The last line is "crash: N passed, N failed".
#
# SPDX-License-Identifier: Apache-2.0
set -u
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
program=$1
declare -A some=([kill]=24 [power]=10 [damage]=60 [start]=12 [full]=1)
passed=0; failed=0
for part in ${PART:-kill power damage start full}; do
    verdict=""
    while IFS= read -r line; do
        if [[ "$line" =~ ^crash-$part:\ ([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
            verdict=told
            passed=$((passed + BASH_REMATCH[1])); failed=$((failed + BASH_REMATCH[2]))
        fi
        echo "$line"
    done < <("$program" "$part" "${ROUNDS:-${some[$part]}}" "${SEED:-1}" 2>&1)
    [ -n "$verdict" ] || { echo "FAILED crash-$part ended without a verdict"; failed=$((failed + 1)); }
done
echo "crash: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
