#!/bin/bash
# Fuzzers: "corpus" replays every kept input of each; "fuzz SECONDS" searches that long each and keeps crashes in build/fuzz/.
set -u
mode=$1 seconds=$2; shift 2
here=$(cd "$(dirname "$0")" && pwd)
passed=0; failed=0
for program in "$@"; do
    name=$(basename "$program"); name=${name#fuzz_}
    corpus=$here/corpus/$name
    if [ ! -d "$corpus" ] || [ -z "$(ls -A "$corpus")" ]; then
        echo "FAILED $name: no corpus in tests/fuzz/corpus/$name"; failed=$((failed + 1)); continue
    fi
    if [ "$mode" = corpus ]; then
        out=$("$program" "$corpus"/* 2>&1); status=$?
    else
        mkdir -p "build/fuzz/found/$name"
        words=()
        for dict in "$here"/dict/*.dict; do
            case " $(sed -n 's/^# for: //p' "$dict") " in *" $name "*) words=("-dict=$dict");; esac
        done
        out=$("$program" "${words[@]}" -max_total_time="$seconds" -artifact_prefix="build/fuzz/found/$name-" -print_final_stats=1 \
              "build/fuzz/found/$name" "$corpus" 2>&1); status=$?
        grep -E 'number_of_executed_units' <<<"$out" | sed "s/^/$name: /"
    fi
    if [ "$status" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED $name"; tail -30 <<<"$out"; fi
done
echo "$mode: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
