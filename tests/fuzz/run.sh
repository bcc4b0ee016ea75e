#!/bin/bash
# Fuzzers: "corpus" replays every kept input of each; "fuzz SECONDS" replays what it found before and searches that long each.
# What makes a target fail is kept in build/fuzz/crashes/NAME, and fails again until it is mended or removed.
set -u
mode=$1 seconds=$2; shift 2
here=$(cd "$(dirname "$0")" && pwd)
passed=0; failed=0

# Every input of a folder, each on its own: a target that ends hides those behind it.
replay_crashes() {
    local input out still=0
    for input in "$crashes"/*; do
        [ -f "$input" ] || continue
        out=$(timeout 300 "$program" "$input" 2>&1) && continue
        still=1; echo "FAILED $name, still: $input"; tail -30 <<<"$out"
    done
    return $still
}

search() {
    local words=() dict
    for dict in "$here"/dict/*.dict; do
        case " $(sed -n 's/^# for: //p' "$dict") " in *" $name "*) words=("-dict=$dict");; esac
    done
    "$program" "${words[@]}" -max_total_time="$seconds" -artifact_prefix="$crashes/" -print_final_stats=1 \
        "build/fuzz/found/$name" "$corpus" 2>&1
}

tell_crashes() {
    local input
    find "$crashes" -type f -newer "$begun" | sort | while read -r input; do
        echo "kept:            $input"
        echo "again:           $program $input"
        echo "when it passes:  mv $input ${corpus#"$PWD"/}/WHAT-IT-SHOWS"
    done
}

begun=$(mktemp) || exit 1
trap 'rm -f "$begun"' EXIT
for program in "$@"; do
    name=$(basename "$program"); name=${name#fuzz_}
    corpus=$here/corpus/$name crashes=build/fuzz/crashes/$name
    if [ ! -d "$corpus" ] || [ -z "$(ls -A "$corpus")" ]; then
        echo "FAILED $name: no corpus in tests/fuzz/corpus/$name"; failed=$((failed + 1)); continue
    fi
    status=0
    if [ "$mode" = corpus ]; then
        out=$("$program" "$corpus"/* 2>&1); status=$?
    else
        mkdir -p "build/fuzz/found/$name" "$crashes"
        replay_crashes || { failed=$((failed + 1)); continue; }
        touch "$begun"
        out=$(search); status=$?
        grep -E 'number_of_executed_units' <<<"$out" | sed "s/^/$name: /"
    fi
    if [ "$status" -eq 0 ]; then passed=$((passed + 1)); continue; fi
    failed=$((failed + 1)); echo "FAILED $name"; tail -30 <<<"$out"
    [ "$mode" = corpus ] || tell_crashes
done
echo "$mode: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
