"""HTTP/1.1 framing as RFC 9110 and RFC 9112 have it, with the strictness that headpond documents, read by regular expressions.

Written from the RFCs, never from the C parser; where the two disagree, one is wrong. The strictness: what the RFC lets a recipient
refuse is refused (bare CR or LF, obs-fold, blanks before the colon, any transfer coding but one "chunked", that together with a length
or in HTTP/1.0, repeated length or host, CONNECT, HTTP/0.9, upgrades), and absolute-form, which it does not; a head has at most 16 KiB
(an answer's 64 KiB), 100 fields and a target of 8 KiB; lengths and chunks are below 2^63; an extension line has at most 1 KiB, a
trailer section 8 KiB.

Bytes are judged in the order of their arrival: a line is refused at its first byte that cannot be, a field that is wrong by itself or
stands twice at the end of its line, what only all fields together make wrong at the end of the head. SPDX-License-Identifier: Apache-2.0
"""
import re
from collections import namedtuple
from zlib import crc32

HEAD, ANSWER_HEAD, FIELDS, TARGET, METHOD = 16 << 10, 64 << 10, 100, 8 << 10, 32
MOST = (1 << 63) - 1
CHUNK_LINE, TRAILER = 1 << 10, 8 << 10
METHODS = {b"GET", b"HEAD", b"PUT", b"POST", b"DELETE", b"OPTIONS"}

TCHAR = rb"!#$%&'*+\-.^_`|~0-9A-Za-z"
TEXT = rb"\t -~\x80-\xff"                # field-content and blanks; obs-text
TOKEN = re.compile(rb"[%s]*" % TCHAR)
VISIBLE = re.compile(rb"[!-\"$-~]*")     # a target has no fragment
FIELD = re.compile(rb"([%s]+):([%s]*)\r\n" % (TCHAR, TEXT))
FIELD_BEGUN = re.compile(rb"[%s]*\Z|[%s]+:[%s]*\r?\Z" % (TCHAR, TCHAR, TEXT))
CRLF_BEGUN = re.compile(rb"\r?\Z")
DIGITS = re.compile(rb"[0-9]+")
HOST = re.compile(rb"(?:\[[\w.~\-:%]{2,}\]|[\w.~\-]+)(?::[0-9]{0,5})?", re.A)
CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]+)((?:;[%s]*)?)\r\n" % TEXT)
CHUNK_SIZE_BEGUN = re.compile(rb"([0-9A-Fa-f]*)\Z|([0-9A-Fa-f]+)((?:;[%s]*)?)\r?\Z" % TEXT)
TRAILER_FIELD = re.compile(rb"[%s]+:[%s]*\r\n" % (TCHAR, TEXT))
TRAILER_BEGUN = re.compile(rb"[%s]*\Z|[%s]+:[%s]*\r?\Z" % (TCHAR, TCHAR, TEXT))
STATUS = re.compile(rb" ([1-5][0-9][0-9])(?: [%s]*)?\r\n" % TEXT)
STATUS_BEGUN = re.compile(rb"(?: (?:[1-5](?:[0-9](?:[0-9](?: [%s]*)?\r?)?)?)?)?\Z" % TEXT)


class Refused(Exception):
    """bad, long, large, method, version; or more: what came so far can still become a message."""


Head = namedtuple("Head", "end framing length keep said method expects")


class Stream:
    def __init__(self, data, at, limit):
        self.data = data
        self.at = at
        self.end = min(len(data), at + limit)
        self.all = data[:self.end] if self.end < len(data) else data
        self.dry = "large" if self.end - at == limit else "more"

    def fail(self, begun):
        """The rest does not match: too little of it, or wrong."""
        raise Refused(self.dry if begun.match(self.all, self.at) else "bad")

    def expect(self, pattern):
        """These bytes; an n of the pattern is any digit."""
        for want in pattern:
            if self.at == self.end:
                raise Refused(self.dry)
            c = self.all[self.at]
            if not (0x30 <= c <= 0x39 if want == 0x6e else c == want):
                raise Refused("bad")
            self.at += 1
        return self.all[self.at - len(pattern):self.at]


def read_version(s):
    """Literal, case-sensitive (RFC 9112 2.3); 'n' stands for a digit."""
    found = s.expect(b"HTTP/n.n")
    if found[5:6] != b"1" or found[7] > 0x31:
        raise Refused("version")
    return found[7] - 0x30


def read_crlf(s):
    if not s.all.startswith(b"\r\n", s.at):
        s.fail(CRLF_BEGUN)
    s.at += 2


def request_line(s):
    method = TOKEN.match(s.all, s.at, min(s.end, s.at + METHOD)).group()
    s.at += len(method)
    if s.at == s.end:
        raise Refused(s.dry)
    if len(method) == METHOD:
        raise Refused("method")
    if s.all[s.at] != 0x20 or not method:
        raise Refused("bad")
    if method not in METHODS:
        raise Refused("method")
    s.at += 1
    if s.at == s.end:
        raise Refused(s.dry)
    star = s.all[s.at] == 0x2a and method == b"OPTIONS"
    if s.all[s.at] != 0x2f and not star:
        raise Refused("bad")
    target = VISIBLE.match(s.all, s.at).group()
    if len(target) > TARGET:
        raise Refused("long")
    s.at += len(target)
    if s.at == s.end:
        raise Refused(s.dry)
    if s.all[s.at] != 0x20 or (star and target != b"*"):
        raise Refused("bad")
    s.at += 1
    minor = read_version(s)
    read_crlf(s)
    return method, target, minor


def read_fields(s):
    fields, seen = [], {}
    while True:
        if s.at == s.end:
            raise Refused(s.dry)
        if s.all[s.at] == 0x0d:
            read_crlf(s)
            return fields, seen
        if len(fields) == FIELDS:
            raise Refused("large")
        line = FIELD.match(s.all, s.at)
        if not line:
            s.fail(FIELD_BEGUN)
        name, value = line.group(1), line.group(2).strip(b" \t")
        note(seen, name.lower(), value)
        fields.append((name, value))
        s.at = line.end()


def note(seen, name, value):
    """What one field says to the framing (RFC 9112 6, 3.2, RFC 9110 7.6.1)."""
    if name == b"content-length":
        if name in seen or not DIGITS.fullmatch(value) or len(value.lstrip(b"0")) > 19 or int(value) > MOST:
            raise Refused("bad")
        seen[name] = int(value)
    elif name == b"transfer-encoding":
        if name in seen or value.lower() != b"chunked":
            raise Refused("bad")
        seen[name] = True
    elif name == b"host":
        if name in seen:
            raise Refused("bad")
        seen[name] = value
    elif name == b"connection":
        seen.setdefault(name, set()).update(o.strip(b" \t").lower() for o in value.split(b","))
    elif name == b"upgrade":
        seen[name] = True
    elif name == b"expect" and value.lower() == b"100-continue":
        seen[name] = True


def judge_fields(seen, minor):
    if b"transfer-encoding" in seen and (b"content-length" in seen or minor == 0):
        raise Refused("bad")
    options = seen.get(b"connection", ())
    keep = b"close" not in options and (minor == 1 or b"keep-alive" in options)
    framing = "c" if b"transfer-encoding" in seen else "l" if b"content-length" in seen else "n"
    return keep, framing


def said(parts, fields):
    return crc32(b"\n".join(parts + [x for f in fields for x in f]) + b"\n")


def read_request(data, at):
    s = Stream(data, at, HEAD)
    method, target, minor = request_line(s)
    fields, seen = read_fields(s)
    host = seen.get(b"host")
    if not HOST.fullmatch(host) if host is not None else minor == 1:
        raise Refused("bad")
    if b"upgrade" in seen or b"upgrade" in seen.get(b"connection", ()):
        raise Refused("bad")
    keep, framing = judge_fields(seen, minor)
    expects = b"expect" in seen and minor == 1       # RFC 9110 10.1.1: not in 1.0
    what = said([method, target, host or b"", b"expects" if expects else b""], fields)
    return Head(s.at, framing, seen.get(b"content-length", 0), keep, what, method, expects)


def read_answer(data, at, head_request):
    s = Stream(data, at, ANSWER_HEAD)
    minor = read_version(s)
    line = STATUS.match(s.all, s.at)
    if not line:
        s.fail(STATUS_BEGUN)
    s.at = line.end()
    status = int(line.group(1))
    fields, seen = read_fields(s)
    keep, framing = judge_fields(seen, minor)
    announced = framing == "c" or seen.get(b"content-length", 0) > 0
    if status == 101 or (announced and (status < 200 or status == 204)):
        raise Refused("bad")
    if status < 200 or status in (204, 304) or head_request:
        framing = "n"
    elif framing == "n":
        framing, keep = "u", False
    return Head(s.at, framing, seen.get(b"content-length", 0), keep, said([b"%d" % status], fields), None, False)


def check_size(digits, extension):
    """Refuses as soon as there are too many digits, too large a number, or too long a line."""
    if len(digits) > 16 or int(digits or b"0", 16) > MOST or len(digits) + len(extension) > CHUNK_LINE:
        raise Refused("bad")


def read_chunk_size(data, at):
    line = CHUNK_SIZE.match(data, at)
    if line:
        check_size(*line.groups())
        return int(line.group(1), 16), line.end()
    begun = CHUNK_SIZE_BEGUN.match(data, at)
    if not begun:
        raise Refused("bad")
    check_size(begun.group(1) or begun.group(2) or b"", begun.group(3) or b"")
    raise Refused("more")


def read_trailers(data, at):
    most = at + TRAILER
    while not data.startswith(b"\r\n", at):
        line = TRAILER_FIELD.match(data, at)
        if line and line.end() <= most:
            at = line.end()
            continue
        if line or len(data) > most or not TRAILER_BEGUN.match(data, at) and data[at:] != b"\r":
            raise Refused("bad")
        raise Refused("more")
    if at + 2 > most:
        raise Refused("bad")
    return at + 2


def read_chunked(data, at):
    """(how it ended, bytes of the body, where it ended)"""
    length = 0
    try:
        while True:
            size, at = read_chunk_size(data, at)
            if size == 0:
                return "ok", length, read_trailers(data, at)
            there = min(size, len(data) - at)
            length += there
            at += there
            if not data.startswith(b"\r\n", at):
                raise Refused("more" if data[at:] in (b"", b"\r") else "bad")
            at += 2
    except Refused as why:
        return str(why), length, None


def read_body(data, at, framing, length):
    if framing == "c":
        return read_chunked(data, at)
    if framing == "u":
        return "ok", len(data) - at, len(data)
    if framing == "n":
        return "ok", 0, at
    there = min(length, len(data) - at)
    return ("ok" if there == length else "more"), there, at + there


def messages(kind, data):
    """What the harness should say of a stream: a list of words."""
    at, words = 0, []
    while True:
        try:
            head = read_request(data, at) if kind == b"Q" else read_answer(data, at, kind == b"H")
        except Refused as why:
            return words + [str(why)]
        how, got, end = read_body(data, head.end, head.framing, head.length)
        words.append(f"ok:{head.end - at}:{head.framing}:{got}:{'k' if head.keep else 'x'}:{end if how == 'ok' else how}:{head.said:08x}")
        if how != "ok" or not head.keep or end == len(data):
            return words
        at = end
