#!/bin/bash
# Adds up what the Makefile's analysis rules left below the given folder: a file without its mark has findings, told in its log.
# The last line is "analyze: N passed, N failed".
set -u
dir=$1; shift
passed=0; failed=0
for mark in "$@"; do
    if [ -e "$mark" ]; then passed=$((passed + 1)); continue; fi
    failed=$((failed + 1))
    echo "FAILED ${mark#"$dir"/}"
    grep -E '(warning|error):|: [a-zA-Z_]+: ' "$mark.log" 2>/dev/null | grep -v ' note: ' | cut -c1-200 | head -20
done
echo "analyze: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
