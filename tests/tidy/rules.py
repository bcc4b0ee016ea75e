"""The house's rules, one function each: given a Tree it yields what breaks the rule. SPDX-License-Identifier: Apache-2.0"""
import os
import re
import subprocess
from collections import namedtuple

from csource import Source

FILE_LINES, LINE_COLUMNS, FUNCTION_LINES, STEP_LINES, NESTING, HEADER_LINES = 800, 100, 60, 40, 3, 25
# System calls take up to six (mmap), and a call that mirrors one, or carries a transfer's coordinates (the operation, descriptor,
# memory, length, offset), says them plainly besides its machine or result: a struct made for one call would only hide their names.
PARAMETERS = 7

Broken = namedtuple("Broken", "path line text")
RULES = {}


def rule(name):
    def keep(check):
        RULES[name] = check
        return check
    return keep


class Tree:
    """The files of a tree, read once. Those git ignores are not part of it."""

    def __init__(self, root):
        self.root = root
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                                capture_output=True, check=False)
        if listed.returncode == 0:
            names = listed.stdout.decode().split("\0")
        else:
            names = [os.path.relpath(os.path.join(d, f), root) for d, _, files in os.walk(root) for f in files]
        self.files = sorted(f for f in set(names) if f and os.path.isfile(os.path.join(root, f)))
        self._text, self._source = {}, {}

    def text(self, path):
        if path not in self._text:
            with open(os.path.join(self.root, path), "rb") as f:
                self._text[path] = f.read().decode("utf-8", "replace")
        return self._text[path]

    def source(self, path):
        if path not in self._source:
            self._source[path] = Source(self.text(path))
        return self._source[path]

    def c(self, *folders):
        """C files, of these folders only if any are named."""
        return [f for f in self.files if f.endswith((".c", ".h")) and (not folders or f.startswith(folders))]

    def functions(self, *folders):
        return [(f, x) for f in self.c(*folders) for x in self.source(f).functions]

    def words(self):
        """Text files in which people write; data, licences and the canary are not."""
        out = (".json", ".req", ".txt", ".bin")
        return [f for f in self.files if not f.endswith(out) and "/corpus/" not in f and "/data/" not in f
                and not os.path.basename(f).startswith("LICENSE")]


# ---- sizes ----

@rule("file-length")
def file_length(tree):
    for path in tree.c():
        lines = len(tree.source(path).lines)
        if lines > FILE_LINES:
            yield Broken(path, 0, f"{lines} lines, at most {FILE_LINES}")


@rule("line-length")
def line_length(tree):
    for path in tree.c():
        for number, line in enumerate(tree.source(path).lines, 1):
            if len(line) > LINE_COLUMNS:
                yield Broken(path, number, f"{len(line)} columns, at most {LINE_COLUMNS}")


LENGTH, SIGNATURE = "length", "signature"


def excuse(tree, path, f):
    """What the comment on the line before a function, or on its first, excuses: "long: signature of LIBRARY" the parameters of a
    callback that a library dictates, "long: REASON" the lines."""
    for comment in tree.source(path).comments:
        found = re.fullmatch(r"/\* long: (\S.*?) \*/", comment.text, re.S)
        if found and f.line - 1 <= comment.line + comment.text.count("\n") and comment.line <= f.line + 1:
            return SIGNATURE if re.fullmatch(r"signature of \S+", found.group(1)) else LENGTH
    return None


def is_step(f):
    return re.fullmatch(r"[a-z][a-z0-9_]*_[A-Z][A-Z0-9_]*", f.name) is not None


def lines_over(f):
    limit = STEP_LINES if is_step(f) else FUNCTION_LINES
    lines = f.end - f.line + 1
    return f"{f.name} has {lines} lines, at most {limit}" if lines > limit else None


@rule("function-length")
def function_length(tree):
    for path, f in tree.functions():
        over = lines_over(f)
        if over and not is_step(f) and excuse(tree, path, f) != LENGTH:
            yield Broken(path, f.line, over)


@rule("step-length")
def step_length(tree):
    for path, f in tree.functions():
        over = lines_over(f)
        if over and is_step(f) and excuse(tree, path, f) != LENGTH:
            yield Broken(path, f.line, over)


@rule("parameters")
def parameters(tree):
    for path, f in tree.functions():
        if f.params > PARAMETERS and excuse(tree, path, f) != SIGNATURE:
            yield Broken(path, f.line, f"{f.name} has {f.params} parameters, at most {PARAMETERS}")


@rule("excuses")
def excuses(tree):
    """Functions that may break a limit for a reason told: as many as long.txt says, and never more again."""
    kept, count = "tests/tidy/long.txt", 0
    for path, f in tree.functions():
        what = excuse(tree, path, f)
        if what:
            count += 1
            if not (lines_over(f) if what == LENGTH else f.params > PARAMETERS):
                yield Broken(path, f.line, f"{f.name} needs no excuse for its {what}: drop the mark")
    allowed = int(tree.text(kept).split()[0]) if kept in tree.files else 0
    if count > allowed:
        yield Broken(kept, 0, f"{count} functions are excused, at most {allowed}: the count may only fall")
    if count < allowed:
        yield Broken(kept, 0, f"only {count} functions are excused: write that number here, so that it cannot rise again")


@rule("nesting")
def nesting(tree):
    for path, f in tree.functions():
        if f.depth > NESTING:
            yield Broken(path, f.line, f"{f.name} nests {f.depth} deep, at most {NESTING}")


# ---- what code may not do ----

def calls(f):
    """(name, line) of what is called in a function; members are not."""
    t = f.body
    for i in range(1, len(t) - 1):
        if t[i + 1].text == "(" and t[i - 1].text not in (".", "->") and re.match(r"[A-Za-z_]", t[i].text):
            yield t[i].text, t[i].line


@rule("recursion")
def recursion(tree):
    """Functions that reach themselves by direct calls, also through others."""
    graph, where = {}, {}
    public = {f.name: p for p, f in tree.functions("common/", "server/") if not f.static}
    for path, f in tree.functions("include/", "common/", "server/", "tests/", "bench/"):
        mine = {x.name for x in tree.source(path).functions}
        node = (path, f.name)
        where[node] = f.line
        graph[node] = {(path, n) if n in mine else (public[n], n) for n, _ in calls(f) if n in mine or n in public}
    for node in graph:
        seen, open_ = set(), list(graph[node])
        while open_:
            at = open_.pop()
            if at not in seen:
                seen.add(at)
                open_ += graph.get(at, ())
        if node in seen:
            yield Broken(node[0], where[node], f"{node[1]} can call itself")


BANNED = {
    "strcpy": "snprintf or struct text", "strcat": "struct text", "strncpy": "snprintf", "strncat": "struct text",
    "stpcpy": "snprintf", "sprintf": "snprintf", "vsprintf": "vsnprintf", "strtok": "struct span", "strtok_r": "struct span",
    "atoi": "a parser that can fail", "atol": "a parser that can fail", "atoll": "a parser that can fail",
    "atof": "a parser that can fail", "gets": "fgets", "alloca": "an arena",
}
# A measurement may pace itself and call a shell. The product has timers; a test that sleeps guesses how long something takes.
# clock_nanosleep() is no guess: instruments hold a rate with it, each wait until a moment that they computed.
BANNED_BUT_IN_BENCH = {
    "sleep": "a timer, or AWAIT", "usleep": "a timer, or AWAIT", "nanosleep": "a timer, or AWAIT",
    "system": "no shell", "popen": "no shell",
}
MEMORY = ("malloc", "calloc", "realloc", "reallocarray", "free", "strdup", "strndup", "asprintf", "aligned_alloc", "posix_memalign")


@rule("banned-name")
def banned_name(tree):
    for path, f in tree.functions():
        for name, line in calls(f):
            instead = BANNED.get(name) or (not path.startswith("bench/") and BANNED_BUT_IN_BENCH.get(name))
            if instead:
                yield Broken(path, line, f"{name}(): use {instead}")


@rule("percent-n")
def percent_n(tree):
    for path in tree.c():
        for s in tree.source(path).strings:
            if re.search(r"(?<!%)(?:%%)*%[-+ #0-9.*]*(?:hh?|ll?|[jzt])?n", s.text):
                yield Broken(path, s.line, "%n writes through a pointer")


@rule("memory")
def memory(tree):
    for path, f in tree.functions("include/", "common/", "server/"):
        for name, line in calls(f):
            if name in MEMORY and path != "common/mem.c":
                yield Broken(path, line, f"{name}(): memory comes from include/mem.h")


@rule("vla")
def vla(tree):
    flags = tree.text("Makefile") if "Makefile" in tree.files else ""
    for flag in ("-Wvla", "-Werror"):
        if flag not in flags.split():
            yield Broken("Makefile", 0, f"{flag} is missing")
    for path in tree.c():
        for d in tree.source(path).directives:
            if "pragma" in d.text and "-Wvla" in d.text:
                yield Broken(path, d.line, "variable length arrays are switched on")


IMPURE = re.compile(r"(clock|core|op|timer|machine)_\w+|log_event|fopen|open|openat|p?read|p?write|socket|time|getenv|random_\w+")


@rule("pure")
def pure(tree):
    """A file whose header says "Pure." has no I/O, no clock, no core."""
    for path in tree.c("common/", "server/"):
        source = tree.source(path)
        if not source.comments or not re.search(r"\bPure\.", source.comments[0].text):
            continue
        for f in source.functions:
            for name, line in calls(f):
                if IMPURE.fullmatch(name):
                    yield Broken(path, line, f"{name}() in a file that calls itself pure")


# ---- floors ----

BELOW = {
    "include": (), "common": (), "server": (), "server/loop": ("server",),
    "server/net": ("server", "server/loop"), "server/policy": ("server",),
    "server/cache": ("server", "server/loop", "server/policy"), "server/origin": ("server", "server/loop"),
    "server/fill": ("server", "server/loop", "server/cache", "server/origin"),
    "server/s3": ("server", "server/loop", "server/net", "server/cache", "server/origin", "server/fill"),
    "server/jobs": ("server", "server/loop", "server/cache", "server/origin", "server/fill"),
    "server/admin": ("server", "server/loop", "server/net", "server/cache", "server/origin", "server/fill", "server/jobs"),
    "server/ctl": (),
}
LIBRARIES = {
    "liburing": ("server/loop/",), "lmdb.h": ("server/cache/journal.c", "server/cache/journal_env.c", "server/cache/recover.c", "server/cache/reader.c"),
    "microhttpd": ("server/admin/",), "libxml/": ("common/xml.c",),
    "openssl/": ("common/sign.c", "common/payload_sum.c", "common/sign_v2.c", "common/tls.c", "common/tls_server.c", "common/creds.c", "server/main.c"),
    "jansson": ("common/creds_answer.c", "server/jobs/plan_body.c", "server/jobs/plan_told.c", "server/admin/", "server/ctl/"), "xxhash": ("server/cache/", "server/origin/dir_walk.c", "common/payload_sum.c"),
    "isa-l": ("common/sign.c", "common/payload_sum.c"),
}


def includes(tree, path):
    for d in tree.source(path).directives:
        found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)', d.text)
        if found:
            yield d.line, found.group(1) == "<", found.group(2)


def folder(path):
    return "include" if path.startswith("include/") else os.path.dirname(path)


@rule("floors")
def floors(tree):
    """A file includes its own folder's header and those of the floors below; main.c stands above all, ctl/ sees include/ only."""
    for path in tree.c("include/", "common/", "server/"):
        own = folder(path)
        for line, system, name in includes(tree, path):
            target = folder(name) if name.startswith(("server/", "common/", "tests/")) else "include"
            if system or target in ("include", own) or path == "server/main.c":
                continue
            if target not in BELOW.get(own, ()) or name.startswith("..") or os.path.basename(name) == "inside.h":
                yield Broken(path, line, f"{own}/ may not include {name}")


@rule("libraries")
def libraries(tree):
    for path in tree.c("include/", "common/", "server/"):
        for line, _, name in includes(tree, path):
            for library, places in LIBRARIES.items():
                if name.startswith(library) and not path.startswith(places):
                    yield Broken(path, line, f"{name} belongs to {', '.join(places)}")


@rule("one-face")
def one_face(tree):
    """A folder of the server shows one header, with its name; what only its own files need may stand in inside.h beside it, and, where that
    is too long, in headers that nobody outside the folder includes."""
    headers = [path for path in tree.c("server/", "common/") if path.endswith(".h")]
    users = {path: set() for path in headers}
    for path in tree.c("include/", "common/", "server/"):
        for _, _, name in includes(tree, path):
            users.get(name, set()).add(folder(path))
    for path in headers:
        own = folder(path)
        part = f"{own}/inside.h" in headers and users[path] == {own}
        if path not in (f"{own}/{os.path.basename(own)}.h", f"{own}/inside.h") and not part:
            yield Broken(path, 0, f"the face of {own}/ is {os.path.basename(own)}.h")


# ---- what files must say ----

SPDX = "/* SPDX-License-Identifier: Apache-2.0 */"


@rule("header-comment")
def header_comment(tree):
    for path in tree.c():
        source = tree.source(path)
        first = source.comments[0] if source.comments else None
        if not first or first.line != 1 or not first.text.startswith("/* "):
            yield Broken(path, 1, "begins without a header comment")
        elif first.text.count("\n") >= HEADER_LINES and not path.startswith("tests/"):
            yield Broken(path, 1, f"its header comment has {first.text.count(chr(10)) + 1} lines, at most {HEADER_LINES}")
        elif len(source.comments) < 2 or source.comments[1].text != SPDX or \
                source.comments[1].line != first.text.count("\n") + 2:
            yield Broken(path, 1, "the SPDX line does not follow the header comment")


@rule("header-sections")
def header_sections(tree):
    """A part of the product says its invariants, its life, and what can fail."""
    for path in tree.c("common/", "server/"):
        if path.endswith(".h"):
            continue
        comments = tree.source(path).comments
        text = comments[0].text if comments else ""
        for word in ("Invariant", "Life", "Failure|can fail"):
            if not re.search(word, text):
                yield Broken(path, 1, f"its header comment does not tell: {word.split('|', maxsplit=1)[0]}")


@rule("table-text")
def table_text(tree):
    row = re.compile(r'\b([A-Z]\w*)\s*\(((?:"(?:\\.|[^"\\])*"|\([^()"]*\)|[^()"])*)\)')
    for path in tree.c("include/table/"):
        text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), tree.text(path), flags=re.S)
        for m in row.finditer(text):
            if "," in m.group(2) and not re.search(r'"(?:\\.|[^"\\])*\w(?:\\.|[^"\\])*"\s*$', m.group(2)):
                yield Broken(path, text.count("\n", 0, m.start()) + 1, f"the row {m.group(0)[:40]} has no text")


@rule("option-shown")
def option_shown(tree):
    sample, table = "conf/headpond.toml", "include/table/options.h"
    shown, section = set(), ""
    for line in tree.text(sample).split("\n") if sample in tree.files else ():
        head = re.match(r"\[(\w+)\]", line)
        key = re.match(r"#?(\w+) = ", line)
        section = head.group(1) if head else section
        shown.add((section, key.group(1) if key else ""))
    for m in re.finditer(r'^OPT_\w+\("(\w+)", "(\w+)"', tree.text(table) if table in tree.files else "", re.M):
        if m.groups() not in shown:
            yield Broken(sample, 0, f"does not show {m.group(1)}.{m.group(2)}")


# ---- nothing lies about ----

def built(tree):
    """The sources in the Makefile's lists (every variable named *_C)."""
    ask = "tidy-sources:;@echo $(foreach v,$(filter %_C,$(.VARIABLES)),$($v))"
    told = subprocess.run(["make", "-s", "--no-print-directory", "-C", tree.root, "--eval", ask, "tidy-sources"],
                          capture_output=True, text=True, check=False)
    return set(told.stdout.split())


@rule("unused-source")
def unused_source(tree):
    sources = built(tree)
    recipes = "".join(tree.text(f) for f in tree.files if f == "Makefile" or f.endswith((".mk", ".sh")))
    included = {os.path.basename(n) for p in tree.c() for _, _, n in includes(tree, p)}
    for path in tree.files:
        stem = os.path.basename(path)[:-2]
        if path.endswith(".c") and path not in sources and os.path.basename(path) not in included \
                and not re.search(rf"\b{re.escape(stem)}\.[oc]\b", recipes):
            yield Broken(path, 0, "no rule builds it")


@rule("unused-header")
def unused_header(tree):
    included = {n for p in tree.c() for _, _, n in includes(tree, p)}
    included.update(re.findall(r"-include (\S+\.h)", "".join(tree.text(f) for f in tree.files if f == "Makefile")))
    for path in tree.files:
        if path.endswith(".h") and not any(path == n or path.endswith("/" + n) for n in included):
            yield Broken(path, 0, "nothing includes it")


@rule("unused-script")
def unused_script(tree):
    texts = {f: tree.text(f) for f in tree.words()}
    for path in tree.words():
        name = os.path.basename(path)
        if not path.endswith((".sh", ".py", ".mk", ".service", ".json", ".cfg", ".yml")) or path.startswith("."):
            continue
        wanted = rf"\b{re.escape(name)}" if not name.endswith(".py") else rf"\b{re.escape(name[:-3])}\b"
        if not any(f != path and re.search(wanted, t) for f, t in texts.items()):
            yield Broken(path, 0, "nothing mentions it")


def said(tree, pattern):
    for path in tree.words():
        for number, line in enumerate(tree.text(path).split("\n"), 1):
            found = re.search(pattern, line)
            if found:
                yield Broken(path, number, f'says "{found.group()}"')


@rule("left-over")
def left_over(tree):
    yield from said(tree, r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X)\b")


@rule("machine-path")
def machine_path(tree):
    """Places of one machine: someone's home, a checkout, a scratch directory."""
    yield from said(tree, r"(?<![\w./$}])/(?:work|root|home|Users|tmp/wt)/[\w.]+")


@rule("wording")
def wording(tree):
    """The tree explains itself: no pointers to papers and talks that its readers do not have."""
    papers = "house|decisions|product|policy|reliability|dataplane|peers|features|models|upstreams|s3"
    talks = "|".join((r"[Ii]ssues? #?\d+", r"#\d+ (?:says|asks|wants)", r"(?:in|by|of) (?:this|an earlier|the previous) session\b",
                      r"\bas (?:the )?(?:lead|task|brief|ticket)\b", r"\b(?:sub-?agent|work" r"tree|Cla" r"ude|Anth" r"ropic|the bri" r"ef)\b"))
    yield from said(tree, rf"\b(?:{papers})\.md\b|{talks}")
