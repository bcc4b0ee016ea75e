# What the command line's completions offer, asked of the shells themselves, and its manual pages, read by those who show them.
#
# Invariants:
#  1. One table of lines is asked of every shell: they offer the same words.
#  2. A shell reads the script as it would from where it is installed; what of it needs a terminal (zsh's) is put in its place.
#
# SPDX-License-Identifier: Apache-2.0
import os
import re
import subprocess
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "rgw")]
import procs                           # noqa: E402

# What has been typed -> what is offered: exactly that, or (a set) at least that.
LINES = [
    ("headpond sta", ["status"]),
    ("headpond ", {"status", "prewarm", "job", "config", "disk", "completion", "man"}),
    ("headpond config ", ["show", "reload"]),
    ("headpond config rel", ["reload"]),
    ("headpond disk ", ["ls", "fence", "readmit"]),
    ("headpond job wait j7 --ti", ["--timeout"]),
    ("headpond job wa", ["wait"]),
    ("headpond --server http://10.0.0.1:9001 sta", ["status"]),
    ("headpond --json --timeout 3s conf", ["config"]),
    ("headpond prewarm s3://b/p/ --include *.tar --ex", ["--exclude"]),
    ("headpond prewarm --include status s3://b --dry", ["--dry-run"]),
    ("headpond evict s3://b/p --unread-for 7d --keep", ["--keep-pinned"]),
    ("headpond status --wat", ["--watch"]),
    ("headpond env --shell ", ["sh", "fish", "python", "docker", "k8s"]),
    ("headpond env --shell p", ["python"]),
    ("headpond top --by ", ["prefix", "client", "object"]),
    ("headpond completion ", ["bash", "zsh", "fish"]),
    ("headpond completion z", ["zsh"]),
    ("headpond jobs --dry", []),
    ("headpond pins --un", []),
    ("headpond prewarm --bandwidth sta", []),
    ("headpond --token-file /etc/hostn", ["/etc/hostname"]),
]

BASH = r"""
source "$1"
while IFS= read -r COMP_LINE; do
    COMP_POINT=${#COMP_LINE} COMPREPLY=()
    _headpond
    printf '%s\n' "${COMPREPLY[@]}" .
done
"""
# What belongs to the line editor: the words, and three builtins that hand it what was found.
ZSH = r"""
offer() { local w; for w; do [[ $w == ${words[CURRENT]}* ]] && print -r -- $w; done }
compadd() { [[ $1 == -- ]] && shift; offer "$@" }
_describe() { local name=$2; offer "${(@)${(@P)name}%%:*}" }
_files() { print -rl -- ${words[CURRENT]}*(N) }
_message() { }
compdef() { }
source $1
while IFS= read -r line; do
    words=(${(s: :)line})
    [[ $line == *' ' ]] && words+=('')
    CURRENT=$#words
    _headpond
    print .
done
"""
FISH = r"""
source $argv[1]
while read -l line
    complete -C $line | string replace -r '\t.*' ''
    echo .
end
"""
SHELLS = {
    "bash": ["bash", "--norc", "-c", BASH, "bash"],
    "zsh": ["zsh", "-f", "-c", ZSH, "zsh"],
    "fish": ["fish", "--no-config", "-c", FISH],
}


def offered(shell, script):
    """What each of LINES is answered with."""
    lines = "".join(f"{line}\n" for line, _ in LINES)
    done = procs.run([*SHELLS[shell], script], input=lines.encode(), check=False, timeout=60)
    said = done.stdout.decode().split(".\n")
    if done.returncode or done.stderr or len(said) != len(LINES) + 1:
        raise procs.Failure(f"{shell}: exit {done.returncode}: {done.stderr.decode()[:500]} {said}")
    return [answer.split() for answer in said[:-1]]


def wrong(shell, script):
    """Sentences about lines that are answered otherwise."""
    for (line, wanted), got in zip(LINES, offered(shell, script)):
        good = wanted <= set(got) if isinstance(wanted, set) else sorted(wanted) == sorted(got)
        if not good:
            yield f"{shell}: {line!r} offers {got}, wanted {wanted}"


# ---- pages ----

# No page has a date: it would be that of the build.
EXCUSED = re.compile(r"missing date|no date")


def lint(page):
    """What groff and mandoc have to say about a page."""
    groff = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z", page], capture_output=True, timeout=60)
    mandoc = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], capture_output=True, timeout=60)
    shown = subprocess.run(["man", "--warnings", "-l", page], capture_output=True, timeout=60,
                           env={**os.environ, "MANPAGER": "cat", "MANWIDTH": "80", "LC_ALL": "C.UTF-8"})
    said = (groff.stdout + groff.stderr + mandoc.stdout + mandoc.stderr + shown.stderr).decode().splitlines()
    return [line for line in said if line and not EXCUSED.search(line)], re.sub(".\b", "", shown.stdout.decode())
