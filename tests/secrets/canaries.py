# What must not be seen, and the search for it.
#
# Invariants:
#  1. A planted canary begins with MARK and ends with random digits; both are looked for, as they are
#     and as hex, base64 (at each of its three alignments) and URL encoding.
#  2. Signatures are made in the run: those of clients and those that the store saw. A part of one
#     is enough to be found.
#
# SPDX-License-Identifier: Apache-2.0
import base64
import os
import re
import secrets
import threading

MARK = "cAnArYzQ"
BLOCK, PART = 1 << 20, 40


def base64_forms(raw):
    """The digits that raw always has in the middle of a longer text, for each alignment."""
    for lead in range(3):
        digits = base64.b64encode(b"\0" * lead + raw)
        yield digits[(0, 2, 3)[lead]:len(digits) - 4]


def forms(raw):
    hexed = raw.hex().encode()
    yield from (raw, hexed, hexed.upper(), b" ".join(hexed[i:i + 2] for i in range(0, len(hexed), 2)))
    for digits in base64_forms(raw):
        yield digits
        yield digits.replace(b"+", b"-").replace(b"/", b"_")


class Canaries:
    def __init__(self):
        self.lock = threading.Lock()
        self.pattern = {}              # bytes -> what it is
        for form in forms(MARK.encode()):
            self.pattern[form] = "the mark of all planted secrets"
        self.planted, self.signatures = {}, set()
        self.part = {}                 # parts of signatures -> whose

    def plant(self, kind):
        """A secret with characters that encodings change."""
        tail = secrets.token_hex(12)
        text = f"{MARK}/{kind}+{tail}"
        with self.lock:
            self.planted[text] = kind
            for half in (tail[:12], tail[12:]):
                for form in forms(half.encode()):
                    self.pattern[form] = kind
        return text

    def add_signature(self, text, kind):
        """Hex digits of version 4, base64 of version 2."""
        with self.lock:
            if text in self.signatures:
                return
            self.signatures.add(text)
            if len(text) != 64:
                self.pattern[text.rstrip("=").encode()] = kind
                return
            for form in (text[:PART], text[-PART:]):
                self.part[form.encode()] = kind

    def add_private_key(self, pem):
        lines = pem.strip().splitlines()[1:-1]
        raw = base64.b64decode("".join(lines))
        at = raw.index(b"\x04\x20") + 2          # the scalar of a P-256 key
        for form in forms(raw[at:at + 32]):
            self.pattern[form] = "TLS private key"
        self.pattern[lines[1].encode()] = "TLS private key (PEM)"

    def search(self, data):
        """What is found in these bytes: [(kind, excerpt)]."""
        found = []
        for pattern, kind in list(self.pattern.items()):
            at = data.find(pattern)
            if at >= 0:
                found.append((kind, data[max(0, at - 60):at + 60]))
        for run in re.finditer(b"[0-9a-fA-F]{%d,}" % PART, data):
            text = run.group().lower()
            for at in range(len(text) - PART + 1):
                if text[at:at + PART] in self.part:
                    found.append((self.part[text[at:at + PART]],
                                  data[max(0, run.start() - 60):run.end() + 60]))
                    break
        return found

    def search_file(self, path):
        """A file whatever its size; blocks of zeros are passed over."""
        found, before = [], b""
        with open(path, "rb") as f:
            while block := f.read(BLOCK):
                if block.count(0) != len(block):
                    found += self.search(re.sub(b"\\0{64,}", b"\\0\\0", before + block))
                before = block[-200:]
        return found

    def search_tree(self, where):
        found, files = [], 0
        for folder, _, names in os.walk(where):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.isfile(path):
                    files += 1
                    found += [(f"{kind} in {path}", text) for kind, text in self.search_file(path)]
        return files, found
