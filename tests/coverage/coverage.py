"""Reads gcovr's JSON: prints each file's share of lines and branches that ran, and holds the limits: what reads foreign bytes, signs,
or writes records at least 95 % of lines, all together at least 85 %. Arguments: the JSON, then files whose missed lines to show.
The last line is "limits: N passed, N failed". SPDX-License-Identifier: Apache-2.0
"""
import glob
import json
import re
import sys

STRICT, WHOLE = 95.0, 85.0
NAMED = """
common/conf_file.c common/conf_value.c common/creds.c common/keys.c common/sign.c common/sign_claim.c server/fill/keep.c
server/s3/auth.c
""".split()
# Fuzzed, but more than a parser: what is missing there are refused allocations and failing system calls, which torture brings about.
MORE_THAN_READERS = {"server/ctl/client.c", "server/origin/dir_list.c"}


def readers():
    """Those named above, and each source that a fuzzer includes: a parser that gets one is held to the limit from then on."""
    found = set(NAMED)
    for path in glob.glob("tests/fuzz/fuzz_*.c"):
        with open(path, encoding="utf-8") as f:
            found.update(re.findall(r'^#include "((?:common|server)/\S+\.c)"', f.read(), re.M))
    return sorted(found - MORE_THAN_READERS)


def tally(lines):
    """(lines, those that ran, branches, those taken)"""
    counted = [one for one in lines if not one.get("gcovr/noncode")]
    branches = [b for one in counted for b in one["branches"]]
    return len(counted), sum(one["count"] > 0 for one in counted), len(branches), sum(b["count"] > 0 for b in branches)


def share(part, whole):
    return 100.0 * part / whole if whole else 100.0


def missed(lines):
    return " ".join(str(one["line_number"]) for one in lines if not one.get("gcovr/noncode") and one["count"] == 0)


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        files = {one["file"]: one["lines"] for one in json.load(f)["files"]}
    strict_ones = readers()
    passed = failed = 0
    total = [0, 0, 0, 0]
    print(f"{'lines %':>8} {'branches %':>11}  file")
    for name in sorted(files):
        told = tally(files[name])
        total = [a + b for a, b in zip(total, told)]
        lines = share(told[1], told[0])
        strict = name in strict_ones
        good = not strict or lines >= STRICT
        passed += strict and good
        failed += not good
        mark = "" if good else f"  below {STRICT:.0f} %: {missed(files[name])[:400]}"
        print(f"{lines:8.1f} {share(told[3], told[2]):11.1f}  {name}{' *' if strict else ''}{mark}")
    for name in strict_ones:
        if name not in files:
            failed += 1
            print(f"{name}: nothing was counted")
    whole = share(total[1], total[0])
    passed += whole >= WHOLE
    failed += whole < WHOLE
    print(f"{whole:8.1f} {share(total[3], total[2]):11.1f}  all {total[0]} lines (* at least {STRICT:.0f} %, all at least {WHOLE:.0f} %)")
    for name in sys.argv[2:]:
        print(f"{name}: {missed(files.get(name, []))}")
    print(f"limits: {passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
