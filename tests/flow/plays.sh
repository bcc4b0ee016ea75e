#!/bin/bash
# Runs plays, several at a time: a play waits for most of its time, has ports and a directory of its own, and says so where it
# measures time against others.
#
#   plays.sh NAME PROGRAM [OPTION]... FILE.flow...
#
# LANES plays run at once (default 2). Their lines come play by play, in the order of their names. The last line is "NAME: N passed,
# N failed"; a play that ends without a verdict of its own counts as failed. SPDX-License-Identifier: Apache-2.0
set -u
name=$1 program=$2; shift 2
options=()
while [[ "${1:-}" == -* ]]; do options+=("$1"); shift; done
[ $# -gt 0 ] || { echo "$name: there are no plays" >&2; exit 2; }
out=$(mktemp -d); trap 'rm -rf "$out"' EXIT
printf '%s\0' "$@" | xargs -0 -n 1 -P "${LANES:-2}" bash -c '"${@:2:$#-2}" "${@: -1}" >"$1/$(basename "${@: -1}")" 2>&1' _ \
    "$out" "$program" "${options[@]}"
for play in "$@"; do
    file="$out/$(basename "$play")"
    grep -qs '^plays: ' "$file" || echo "not ok - $(basename "$play"): it came to no end" >>"$file"
    grep -v '^1\.\.' "$file"
done | awk -v name="$name" '
    /^plays: / { passed += $2; failed += $4; next }
    / it came to no end$/ { failed++ }
    { print }
    END { print name ": " passed + 0 " passed, " failed + 0 " failed"; exit failed || !passed }'
