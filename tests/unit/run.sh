#!/bin/bash
# Runs cmocka programs one after the other and adds up their verdicts. The last line is "unit: N passed, N failed".
set -u
passed=0; failed=0
for program in "$@"; do
    out=$(CMOCKA_MESSAGE_OUTPUT=TAP timeout -s KILL 600 "$program" 2>&1); status=$?
    ok=$(grep -c '^ok ' <<<"$out"); bad=$(grep -c '^not ok ' <<<"$out")
    if [ "$status" -ne 0 ] && [ "$bad" -eq 0 ]; then bad=1; fi
    passed=$((passed + ok)); failed=$((failed + bad))
    if [ "$bad" -ne 0 ]; then echo "FAILED $program (exit $status)"; tail -40 <<<"$out"; fi
done
echo "unit: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
