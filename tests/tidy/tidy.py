"""Runs the house's rules over the tree, then over the canary, which breaks each of them and must be caught line by line.

Usage: tidy.py [ROOT]. Each rule is one check, and so is each line of the canary. SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import sys
import tempfile

from rules import RULES, Broken, Tree

SHOWN = int(os.environ.get("TIDY_SHOWN", "40"))


def run_rules(tree):
    return {name: list(check(tree)) for name, check in RULES.items()}


def hatch(text, root):
    """Writes the canary's files below root; returns what it expects: (rule, path, line), line 0 for a whole file.

    "@file PATH" begins a file, "@expect RULE PATH" names what is wrong with a whole one, "@lines N TEXT" is N such lines, and
    " @RULE" at a line's end names what is wrong with that line; it is not written.
    """
    expected, path, lines = set(), None, []

    def flush():
        if path:
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as f:
                f.write("\n".join(lines) + "\n")

    for line in text.split("\n"):
        order = re.match(r"@(file|expect|lines) (\S+) ?(.*)", line)
        marks = re.search(r"((?: @[a-z-]+)+)$", line)
        if order and order.group(1) == "file":
            flush()
            path, lines = order.group(2), []
        elif order and order.group(1) == "expect":
            expected.add((order.group(2), order.group(3), 0))
        elif order:
            lines += [order.group(3)] * int(order.group(2))
        elif marks:
            lines.append(line[:marks.start()])
            expected |= {(name, path, len(lines)) for name in marks.group(1).replace("@", "").split()}
        else:
            lines.append(line)
    flush()
    return expected


def try_canary(file):
    with open(file, encoding="utf-8") as f, tempfile.TemporaryDirectory(prefix="tidy-canary-") as root:
        expected = hatch(f.read(), root)
        found = {(name, b.path, b.line) for name, broken in run_rules(Tree(root)).items() for b in broken}
    results = [(f"canary: {name} in {path}:{line}", (name, path, line) in found) for name, path, line in sorted(expected)]
    results += [(f"canary: rule {name} has a violation to catch", name in {e[0] for e in expected}) for name in RULES]
    extra = sorted(found - expected)
    results.append((f"canary: nothing else is rejected {extra if extra else ''}", not extra))
    return results


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(here))
    passed = failed = 0
    for name, broken in run_rules(Tree(root)).items():
        for b in broken[:SHOWN]:
            print(f"{b.path}:{b.line}: {name}: {b.text}" if b.line else f"{b.path}: {name}: {b.text}")
        if len(broken) > SHOWN:
            print(f"... {name}: {len(broken)} in all")
        passed, failed = passed + (not broken), failed + bool(broken)
    for text, ok in try_canary(os.path.join(here, "canary.c.txt")):
        if not ok:
            print(f"not caught, or caught wrongly: {text}")
        passed, failed = passed + ok, failed + (not ok)
    print(f"tidy: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


sys.exit(main())
