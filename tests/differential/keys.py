"""Keys that want out, asked of a server over a directory: each answer is the one that the decoded bytes of the key deserve, nothing
outside the directory is read, and nothing anywhere is changed. SPDX-License-Identifier: Apache-2.0"""
import os
import random
import re
import socket

import wire

CANARY = b"canary-outside"
FILES = {b"train/x": b"inside x", b"a b": b"inside blank", b"%41": b"inside percent", "é/ü".encode(): b"inside umlauts", b"..x/y..": b"inside dots",
         b"deep/" + b"d" * 200 + b"/" + b"e" * 200: b"inside deep"}
# What would lead out if the file system were asked without care.
WAYS_OUT = [b"link", b"dir/secret", b"secret", b"../outside/secret", b"../../outside/secret", b"train/../../../outside/secret", b"dir/../up/b/link",
            b"/outside/secret", b"link/", b"dir", b"train/../link"]
PIECES = [b"..", b".", b"", b"train", b"x", b"a b", b"link", b"dir", b"up", b"outside", b"secret", b"etc", b"passwd", b"\x00", b"\xff", b"\xc0\xaf",
          b"\xed\xa0\x80", b"\r\n", b"\\..\\", b"%2e%2e", b"%41", "é".encode(), "ü".encode(), b"..x", b"y..", b"~", b"...", b"-", b"CON", b"*",
          b"d" * 200, b"e" * 200, b"l" * 255, b"l" * 256, b"k" * 1024]


def plant(top):
    """Files inside, a secret outside, and links that lead to it."""
    for key, content in FILES.items():
        path = os.path.join(os.fsencode(top), b"up", b"b", key)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(content)
    os.mkdir(f"{top}/outside")
    with open(f"{top}/outside/secret", "wb") as f:
        f.write(CANARY)
    os.symlink("../../outside/secret", f"{top}/up/b/link")
    os.symlink(f"{top}/outside", f"{top}/up/b/dir")
    os.symlink("../outside", f"{top}/up/out")


def snapshot(top):
    found = []
    for part in ("up", "outside"):
        for folder, names, files in os.walk(os.path.join(os.fsencode(top), part.encode())):
            for name in names + files:
                path = os.path.join(folder, name)
                st = os.lstat(path)
                content = open(path, "rb").read() if name in files and not os.path.islink(path) else b""
                found.append((path, st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns, content))
    return sorted(found) + [sorted(os.listdir(top))]


def escape(r, key):
    """The key as a path, each byte spelled as it happens; what cannot stand in a target is escaped."""
    style = r.choice((0, .2, 1))
    out = bytearray()
    for c in key:
        if c <= 0x20 or c >= 0x7f or c in b"#?%" or r.random() < style:
            out += (b"%%%02x" if r.random() < .5 else b"%%%02X") % c
        else:
            out.append(c)
    return bytes(out)


def spoil(r, path):
    """Sometimes an escape that is none, or one escaped twice."""
    how = r.randrange(12)
    at = r.randrange(len(path) + 1)
    if how == 0:
        return path[:at] + r.choice((b"%", b"%2", b"%zz", b"%00", b"%u002e")) + path[at:]
    if how == 1:
        return path.replace(b"%", b"%25")
    return path


def make(number, seed):
    """(target, what it must be answered with)"""
    r = random.Random(f"keys {seed} {number}")
    key = r.choice(list(FILES)) if r.random() < .2 else b"/".join(r.choice(PIECES) for _ in range(r.randrange(1, 9)))
    if r.random() < .15:
        key = r.choice(WAYS_OUT)
    if r.random() < .1:
        key = (b"/.." * r.randrange(1, 400))[:r.choice((1, 100, 1023, 1024, 1025))].ljust(r.choice((0, 1024)), b"z")
    bucket = r.choice((b"b",) * 12 + (b"out", b"..", b"%2e%2e", b"b%2f..", b".", b"%00", b"b\xff".replace(b"\xff", b"%ff")))
    path = spoil(r, escape(r, key))
    return b"/" + bucket + b"/" + path, wanted(bucket, path)


def decoded(path):
    """None: not well escaped, or a byte that no key has."""
    if re.search(rb"%(?![0-9A-Fa-f]{2})|%00", path):
        return None
    raw = re.sub(rb"%(..)", lambda m: bytes((int(m.group(1), 16),)), path)
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return raw


def wanted(bucket, path):
    key = decoded(path)
    if not key and bucket in (b"b", b"out"):
        return (400, b"") if key is None else None   # no key at all: a listing
    name = decoded(bucket)
    if name is None or not re.fullmatch(rb"[A-Za-z0-9][A-Za-z0-9._-]*", name) or key is None or len(key) > 1024:
        return 400, b""
    return (200, FILES[key]) if bucket == b"b" and key in FILES else (404, b"")


def ask(port, targets):
    """The answers to some targets over one connection: [(status, body)]."""
    sent = b"".join(b"GET " + t + b" HTTP/1.1\r\nHost: a\r\n\r\n" for t in targets)
    with socket.create_connection(("127.0.0.1", port), 20) as s:
        s.sendall(sent)
        s.shutdown(socket.SHUT_WR)
        got = b""
        while part := s.recv(65536):
            got += part
    answers = []
    while got:
        head = re.match(rb"HTTP/1\.1 (\d\d\d) [^\r\n]*\r\n((?:[^\r\n]+\r\n)*)\r\n", got)
        length = int(re.search(rb"content-length: *(\d+)", head.group(2), re.I).group(1))
        answers.append((int(head.group(1)), got[head.end():head.end() + length]))
        got = got[head.end() + length:]
    return answers


def run(program, count, seed):
    server = wire.Server(program, plant)
    before = snapshot(server.dir)
    wrong = found = 0
    for first in range(0, count, 50):
        asked = [make(n, seed) for n in range(first, min(count, first + 50))]
        asked = [a for a in asked if a[1] is not None]
        answers = ask(server.port, [target for target, _ in asked])
        if len(answers) != len(asked):
            print(f"hostile keys: {len(answers)} answers to {len(asked)} requests from {first}")
            wrong += 1
        for (target, (status, body)), (got, content) in zip(asked, answers):
            good = got == status and CANARY not in content and (status != 200 or content == body)
            found += good and got == 200
            wrong += not good
            if not good and wrong < 4:
                print(f"hostile key {target[:300]!r}\n  wanted {status} {body!r}, got {got} {content[:200]!r}")
    same = snapshot(server.dir) == before or print("the directories were changed")
    print(f"hostile keys: {count} keys, {found} of them files, {wrong} wrong answers")
    return [wrong == 0 and found > 0, bool(same), bool(server.stop())]
