#!/bin/bash
# Runs the simulation: run.sh torture SEED SCENARIO INJECT FULL, or run.sh random SEED ROUNDS.
# Its files live in memory where that is possible and are removed in any case.
set -u
cd "$(dirname "$0")/../.."
below=${TMPDIR:-}
[ -z "$below" ] && [ -w /dev/shm ] && below=/dev/shm
TMPDIR=$(mktemp -d "${below:-/tmp}/headpond-simulation-XXXXXX") || exit 1
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
export ASAN_OPTIONS="exitcode=23:${ASAN_OPTIONS:-}" UBSAN_OPTIONS="print_stacktrace=1:${UBSAN_OPTIONS:-}"
mode=$1; shift
build/asan/tests/sim/sim "$mode" "$@"
