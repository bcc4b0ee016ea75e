#!/bin/bash
# The house's rules as a test: sizes, floors, banned names, headers, tables, dead files, wording; and a canary that breaks each of them.
# The rules stand in rules.py. What is too wide, python3 tests/tidy/format.py FILE... folds, in the style told in clang-format.
# The last line is "tidy: N passed, N failed".
set -eu
exec env PYTHONDONTWRITEBYTECODE=1 python3 "$(dirname "$0")/tidy.py" "$@"
