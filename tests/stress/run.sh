#!/bin/bash
# tests/stress/run.sh SECONDS SEED [kill]: one stress run against the sanitised server (V=release: the optimised one).
# The last line is "stress: N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 2
v=${V:-asan}
make --no-print-directory -s -j2 V="$v" "build/$v/headpondd" || exit 2
make --no-print-directory -s -j2 V=release build/release/tests/stress/stress >/dev/null || exit 2
HEADPONDD=${HEADPONDD:-build/$v/headpondd} exec build/release/tests/stress/stress "${1:-60}" "${2:-1}" "${3:-}"
