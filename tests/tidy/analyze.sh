#!/bin/bash
# analyze.sh add DIR MARK...: adds up what the Makefile's analysis rules left below DIR: a file without its mark has findings, told
# in its log. The last line is "analyze: N passed, N failed".
# analyze.sh canary STEM: was each line of STEM.c that ends with /* @TOOL ... */ complained about in STEM.TOOL? Names those that were not.
set -u

add() {
    local dir=$1 passed=0 failed=0 mark; shift
    for mark in "$@"; do
        if [ -e "$mark" ]; then passed=$((passed + 1)); continue; fi
        failed=$((failed + 1))
        echo "FAILED ${mark#"$dir"/}"
        grep -E '(warning|error):|: [a-zA-Z_]+: ' "$mark.log" 2>/dev/null | grep -v ' note: ' | cut -c1-200 | head -20
    done
    echo "analyze: $passed passed, $failed failed"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
}

canary() {
    local tool line marks=0 missed=0
    for tool in gcc clang tidy cppcheck; do
        for line in $(grep -nE "/\*.* @$tool( .*)? \*/" "$1.c" | cut -d: -f1); do
            marks=$((marks + 1))
            grep -E "canary\.c:$line:" "$1.$tool" | grep -vqE ' note: ' && continue
            echo "error: $tool does not see line $line: $(sed -n "${line}s/ *\/\*.*//p" "$1.c")"
            missed=$((missed + 1))
        done
    done
    [ "$missed" -eq 0 ] && [ "$marks" -gt 0 ]
}

"$@"
