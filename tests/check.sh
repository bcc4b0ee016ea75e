#!/bin/bash
# Runs the named make targets one after the other and adds up their verdicts. Each part ends with a line
# "<name>: N passed, N failed"; a part that ends without one, or with an error, counts as one failure.
# The last line is "N passed, N failed"; above it stands once more, briefly, what failed, for who keeps only the end.
set -u
passed=0; failed=0
failures=$(mktemp); trap 'rm -f "$failures"' EXIT
for part in "$@"; do
    began=$SECONDS
    log=$(mktemp)
    ${MAKE:-make} --no-print-directory "$part" >"$log" 2>&1
    status=$?
    line=$(grep -E '^[a-z-]+: [0-9]+ passed, [0-9]+ failed$' "$log" | tail -1)
    if [[ "$line" =~ ([0-9]+)\ passed,\ ([0-9]+)\ failed ]]; then
        ok=${BASH_REMATCH[1]}; bad=${BASH_REMATCH[2]}
        [ "$status" -ne 0 ] && [ "$bad" -eq 0 ] && bad=1
    else
        ok=0; bad=1
    fi
    if [ "$bad" -ne 0 ]; then
        # what failed may stand far above the end
        { grep -nE -A5 '^(not ok|NOT OK|FAIL|WRONG)' "$log" | head -60; tail -40 "$log"; } | sed 's/^/    /'
        { grep -E -A10 '^(not ok|NOT OK|FAIL|WRONG)' "$log" || tail -5 "$log"; } | head -24 | sed "s/^/    $part: /" >>"$failures"
    fi
    echo "$part: $ok passed, $bad failed ($((SECONDS - began)) s)"
    passed=$((passed + ok)); failed=$((failed + bad))
    rm -f "$log"
done
cat "$failures"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
