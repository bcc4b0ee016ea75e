#!/bin/bash
# Runs plays, several at a time: a play waits for most of its time, and has ports and a directory of its own.
#
#   plays.sh NAME PROGRAM [OPTION]... FILE.flow...
#
# LANES plays run at once (default 2). What they say comes play by play, in the order in which they are named. The last line is
# "NAME: N passed, N failed"; a play that ends without a verdict, or with another status than its verdict tells, is a failure.
# SPDX-License-Identifier: Apache-2.0
set -u
name=$1 program=$2; shift 2
options=()
while [[ "${1:-}" == -* ]]; do options+=("$1"); shift; done
[ $# -gt 0 ] || { echo "$name: there are no plays" >&2; exit 2; }
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
number=0
for play in "$@"; do                 # one name may come twice
    printf '%s\0%s\0' "$out/$number" "$play"; number=$((number + 1))
done | xargs -0 -n 2 -P "${LANES:-2}" bash -c \
    '"${@:1:$#-2}" "${@: -1}" >"${@: -2:1}" 2>&1; echo "status: $?" >>"${@: -2:1}"' _ "$program" "${options[@]}"
number=0
for play in "$@"; do
    grep -sv '^1\.\.' "$out/$number" || echo "not ok - $(basename "$play") was not run"
    number=$((number + 1))
done | awk -v name="$name" '
    /^plays: / { passed += $2; failed += bad = $4; told = 1; next }
    /^status: / {
        if (!told || ($2 != 0 && !bad)) { print "not ok - the play above ended with status " $2; failed++ }
        told = bad = 0; next
    }
    / was not run$/ { failed++ }
    { print }
    END { print name ": " passed + 0 " passed, " failed + 0 " failed"; exit failed || !passed }'
