"""Makes lines fit into 100 columns and leaves the rest as it was written: comments are wrapped with hanging indents, comments behind
code that is too long move above it, rows of tables break before their text, and clang-format folds the statements that remain.

Usage: format.py FILE... (CLANG_FORMAT names the program). A file whose tokens would change is left alone, with a complaint.
SPDX-License-Identifier: Apache-2.0
"""
import os
import re
import subprocess
import sys
import textwrap

from csource import Source

COLUMNS = 100
HERE = os.path.dirname(os.path.abspath(__file__))
PREFIX = re.compile(r"^(\s*)(/\*|\*)(\s+)((?:\d+|[a-z])[.)] |- )?(.*)$")


def wrap(text, first, rest):
    return textwrap.wrap(text, COLUMNS, initial_indent=first, subsequent_indent=rest, break_long_words=False,
                         break_on_hyphens=False)


def goes_on(line, following, hang):
    """Whether a comment's next line continues the paragraph of this one."""
    m = PREFIX.match(following)
    if not m or m.group(4) or not m.group(5) or not following.startswith(hang) or following[len(hang):][:1] == " ":
        return False
    if re.match(r"[A-Z][\w ]{1,30}:|\*/", m.group(5)):
        return False
    return len(line) > COLUMNS or not line.rstrip().endswith((".", ":"))


def hanging(m):
    indent = m.group(1) + (" " if m.group(2) == "/*" else "")
    return indent + "*" + m.group(3) + " " * len(m.group(4) or "")


def wrap_comments(lines):
    """Full-line comments; a paragraph is wrapped as a whole if one of its lines is too long."""
    out, i, inside = [], 0, False
    while i < len(lines):
        line = lines[i]
        starts = line.lstrip().startswith("/*")
        if not (inside or starts):
            out.append(line)
            i += 1
            continue
        m, j = PREFIX.match(line), i + 1
        while m and m.group(5) and "*/" not in lines[j - 1] and j < len(lines) and goes_on(lines[j - 1], lines[j], hanging(m)):
            j += 1
        part = lines[i:j]
        if m and any(len(x) > COLUMNS for x in part) and (part[-1].rstrip().endswith("*/") or "*/" not in part[-1]):
            head = m.group(1) + m.group(2) + m.group(3) + (m.group(4) or "")
            text = " ".join([m.group(5)] + [PREFIX.match(x).group(5) for x in part[1:]])
            text = re.sub(r"\s+\*/$", "\0*/", text)
            part = [x.replace("\0", " ") for x in wrap(text, head, hanging(m))]
        out += part
        inside = "*/" not in lines[j - 1]
        i = j
    return out


def lift_comments(lines):
    """A comment behind code goes above it when both do not fit."""
    out, inside = [], False
    for line in lines:
        m = re.match(r"^(\s*)(\S.*?)\s*/\*(.*)\*/$", line)
        text_open = m and len(re.findall(r'(?<!\\)"', m.group(2))) % 2
        if len(line) > COLUMNS and m and not inside and not text_open and "/*" not in m.group(2):
            out += wrap(m.group(3).strip() + "\0*/", m.group(1) + "/* ", m.group(1) + " * ")
            out[-1] = out[-1].replace("\0", " ")
            out.append(m.group(1) + m.group(2))
        else:
            out.append(line)
        cut = line.rfind("/*")
        inside = "*/" not in line[cut:] if cut >= 0 else inside and "*/" not in line
    return out


def fold_rows(lines):
    """X-macro rows: the text goes to a line of its own, in two pieces if it must."""
    out = []
    for line in lines:
        m = re.match(r'^([A-Z]\w*\()(.*), ("(?:\\.|[^"\\])*"\))$', line)
        several = re.findall(r"[A-Z]\w*\([^()]*\)", line)
        if len(line) > COLUMNS and len(several) > 1 and " ".join(several) == line:
            out += wrap(line.replace(", ", ",\0"), "", "")
        elif len(line) > COLUMNS and m:
            out += wrap(m.group(1) + m.group(2) + ",", "", " " * 8)
            text, room = m.group(3), COLUMNS - 8
            while len(text) > room:
                cut = text.rfind(" ", 0, room - 1) + 1
                out.append(" " * 8 + text[:cut] + '"')
                text = '"' + text[cut:]
            out.append(" " * 8 + text)
        else:
            out.append(line)
    return [x.replace("\0", " ") for x in out]


def fold_code(lines):
    long = [n for n, line in enumerate(lines, 1) if len(line) > COLUMNS]
    if not long:
        return lines
    command = [os.environ.get("CLANG_FORMAT", "clang-format"), f"--style=file:{HERE}/clang-format", "--assume-filename=x.c"]
    told = subprocess.run(command + [f"--lines={n}:{n}" for n in long], input="\n".join(lines) + "\n", capture_output=True,
                          text=True, check=True)
    as_written = {re.sub(r"\s+", " ", x): x for x in lines}
    return [as_written.get(re.sub(r"\s+", " ", x), x) if "/*" in x else x for x in told.stdout.rstrip("\n").split("\n")]


def meaning(text):
    """Tokens and directives without the comments; neighbouring strings are one."""
    s = Source(text)
    tokens = re.sub(r'" "(?: " ")+', '" "', " ".join(t.text for t in s.tokens))
    return tokens, "".join(x.text for x in s.strings), [re.sub(r"[\s\\]+", " ", d.text) for d in s.directives]


def main():
    bad = 0
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as f:
            before = f.read()
        lines = lift_comments(before.rstrip("\n").split("\n"))
        lines = fold_rows(lines) if "include/table/" in path else fold_code(wrap_comments(lines))
        after = "\n".join(wrap_comments(lines)) + "\n"
        if meaning(before) != meaning(after):
            print(f"{path}: left alone, its tokens would change", file=sys.stderr)
            bad = 1
        elif after != before:
            with open(path, "w", encoding="utf-8") as f:
                f.write(after)
    return bad


sys.exit(main())
