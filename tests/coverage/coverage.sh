#!/bin/bash
# Everything that runs the product, on a build that counts: unit tests, corpora, the framing differential, plays, operations.
# Then the share of lines and branches of each file. COVERAGE="unit corpus" runs some parts only (the limits are for all).
# The last line is "coverage: N passed, N failed": the parts, and the limits of coverage.py.
set -u
cd "$(dirname "$0")/../.."
B=build/cover
make=(${MAKE:-make} --no-print-directory V=cover)
parts=(${COVERAGE:-unit corpus differential plays admin})
passed=0; failed=0

verdict() {                          # verdict NAME STATUS LOG
    if [ "$2" -eq 0 ]; then passed=$((passed + 1)); echo "$1: $(tail -1 "$3")"
    else failed=$((failed + 1)); echo "FAILED $1"; grep -A3 -E "^not ok|FAILED" "$3" | head -40; tail -20 "$3"; fi
}

run_part() {
    case $1 in
    unit) "${make[@]}" unit;;
    plays) "${make[@]}" plays;;
    differential) "${make[@]}" differential COUNT=20000;;
    corpus) "${make[@]}" replay;;
    admin) "${make[@]}" all && B=$B tests/admin/admin.sh;;
    *) echo "no such part: $1"; false;;
    esac
}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
[ -d $B ] && find $B -name '*.gcda' -delete
for part in "${parts[@]}"; do
    run_part "$part" >"$log" 2>&1
    verdict "$part" $? "$log"
done
gcovr --root . --filter include/ --filter common/ --filter server/ --exclude-unreachable-branches --json -o $B/coverage.json $B \
    >"$log" 2>&1 || { echo "FAILED gcovr"; tail -20 "$log"; failed=$((failed + 1)); }
told=$(python3 -B tests/coverage/coverage.py $B/coverage.json) || :
head -n -1 <<<"$told"
if [[ "$(tail -1 <<<"$told")" =~ ^limits:\ ([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    passed=$((passed + BASH_REMATCH[1])); failed=$((failed + BASH_REMATCH[2]))
else
    failed=$((failed + 1))
fi
echo "coverage: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
