"""Byte streams for the framing differential: from valid ones to garbage, each from a seed and a number. SPDX-License-Identifier: Apache-2.0"""
import random

# Every group makes streams of one kind of trouble; the name tells which.
GROUPS = {}
NAMES = [b"Host", b"host", b"Content-Length", b"content-length", b"Transfer-Encoding", b"Connection", b"Expect", b"Upgrade", b"Range",
         b"Accept", b"X-Amz-Date", b"TE", b"Trailer", b"User-Agent", b"x", b"A1-_.~!#$%&'*+^`|"]
VALUES = [b"a", b"", b" a ", b"\ta\t", b"cache:9000", b"[::1]:80", b"chunked", b"Chunked", b"gzip, chunked", b"identity", b"0", b"5", b"+5",
          b"5,5", b"0x5", b"9223372036854775807", b"9223372036854775808", b"18446744073709551616", b"00000000000000000000000000000005",
          b"close", b"keep-alive", b"Keep-Alive , close", b"upgrade", b"x,close,y", b"100-continue", b"100-Continue", b"h2c", b"\x80\xff",
          b"a\x00b", b"a\rb", b"a\x0bb", b"a b", b"u@a", b"a:99999", b"a:999999", b"a:", b"[::1", b"a,b"]
BYTES = [b"\r", b"\n", b"\r\n", b" ", b"\t", b":", b"\x00", b"\x7f", b"\x0b", b",", b";", b"0", b"5", b"a", b"/", b"#", b"?", b"%", b"\x80",
         b"\xff", b"\r\n ", b"\r\n\r\n", b"\n\n", b"HTTP/1.1", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"]
METHODS = [b"GET"] * 6 + [b"HEAD", b"PUT", b"POST", b"DELETE", b"OPTIONS"]
TARGETS = [b"/", b"/b", b"/b/k", b"/b/k?versionId=1&partNumber=2", b"/b/%41%2f..//./", b"/b?list-type=2&prefix=a%20b", b"/b/{|}\"<>\\^`"]


def group(make):
    GROUPS[make.__name__] = make
    return make


def field(r):
    return r.choice(NAMES) + r.choice((b": ", b":", b":  ", b":\t")) + r.choice(VALUES) + b"\r\n"


def good_fields(r):
    some = [b"Accept: */*\r\n", b"Range: bytes=0-99\r\n", b"User-Agent: sdk/1.0 (x; y)\r\n", b"x-amz-date: 20261120T091623Z\r\n",
            b"Connection: keep-alive\r\n", b"If-Match: \"e\"\r\n", b"X-Empty:\r\n", b"x-long: " + b"v" * r.randrange(300) + b"\r\n"]
    picked = r.sample(some, r.randrange(len(some))) + [b"Host: cache:9000\r\n"]
    r.shuffle(picked)
    return picked


def line(r):
    return r.choice(METHODS) + b" " + r.choice(TARGETS) + b" HTTP/1.1\r\n"


def chunks(r, good=True):
    out = []
    for _ in range(r.randrange(4)):
        n = r.choice((1, 2, 5, 16, 255, r.randrange(1, 600)))
        size = r.choice((b"%x", b"%X", b"0%x", b"000%x")) % n
        out.append(size + r.choice((b"",) * 4 + (b";a", b";a=\"b c\"", b";", b"; x")) + b"\r\n" + b"d" * n + b"\r\n")
    out.append(r.choice((b"0", b"000", b"0;x=y")) + b"\r\n")
    out += [r.choice((b"X-Sum: a b\r\n", b"y:\r\n", b"z:\t \x80\r\n")) for _ in range(r.choice((0, 0, 0, 1, 3)))]
    out.append(b"\r\n")
    return b"".join(out) if good else damage(r, b"".join(out))


def body(r):
    """Fields that frame a body, and the body."""
    how = r.randrange(5)
    if how < 2:
        return b"", b""
    if how == 2:
        n = r.choice((0, 0, 1, 5, 100, r.randrange(3000)))
        return b"Content-Length: %d\r\n" % n, b"b" * n
    if how == 3:
        n = r.choice((65536, 65537, 70000))
        return b"content-length:%d\r\n" % n, b"b" * r.choice((0, n))
    return b"Transfer-Encoding: chunked\r\n", chunks(r)


def request(r):
    fields = good_fields(r)
    framing, content = body(r)
    fields.insert(r.randrange(len(fields) + 1), framing)
    return line(r) + b"".join(fields) + b"\r\n" + content


def damage(r, data, most=3):
    for _ in range(r.randrange(1, most + 1)):
        at = r.randrange(len(data) + 1)
        how = r.randrange(7)
        if how == 0:
            data = data[:at] + r.choice(BYTES) + data[at:]
        elif how == 1:
            data = data[:at] + data[at + r.randrange(1, 4):]
        elif how == 2:
            data = data[:at] + bytes((r.randrange(256),)) + data[at + 1:]
        elif how == 3:
            data = data[:at] + r.choice(BYTES) + data[at + 1:]
        elif how == 4:
            data = data[:at]
        elif how == 5:
            end = min(len(data), at + r.randrange(40))
            data = data[:at] + data[at:end] * 2 + data[end:]
        else:
            other = r.randrange(len(data) + 1)
            data = data[:min(at, other)] + data[max(at, other):]
    return data


@group
def pipelines(r):
    return b"Q", b"".join(request(r) for _ in range(r.randrange(1, 5)))


@group
def damaged(r):
    return b"Q", damage(r, b"".join(request(r) for _ in range(r.randrange(1, 3))))


@group
def request_lines(r):
    parts = [r.choice(METHODS), b" ", r.choice(TARGETS), b" ", r.choice((b"HTTP/1.1",) * 4 + (b"HTTP/1.0",)), b"\r\n"]
    trouble = ((b"get", b"", b"PATCH", b"CONNECT", b"G T", b"GET\t", b"A" * r.choice((31, 32, 33)), b"G\x80T", b"(GET)"), (b"  ", b"\t", b""),
               (b"*", b"*x", b"", b"http://a/b", b"a:80", b"/b#c", b"/b c", b"/\x80", b"/\x00", b"?x", b"//", b"/" + b"t" * 20, b"/\x7f"),
               (b"  ", b"\t", b""), (b"HTTP/1.2", b"HTTP/2.0", b"HTTP/0.9", b"http/1.1", b"HTTP/1.", b"HTTP/11.1", b"", b"HTTP/1.1 ",
                                    b"HTTP/1,1", b"HTTP/+1.1", b"HTTPS/1.1", b"HTTP/1.10"), (b"\n", b"\r", b"\r\r\n", b"", b" \r\n"))
    for _ in range(r.choice((0, 1, 1, 1, 2))):
        at = r.randrange(len(parts))
        parts[at] = r.choice(trouble[at])
    return b"Q", b"".join(parts) + b"Host: a\r\n\r\n" + r.choice((b"", request(r)))


@group
def fields(r):
    lines = good_fields(r)
    for _ in range(r.choice((0, 1, 1, 2))):
        lines.insert(r.randrange(len(lines) + 1), field(r))
    if r.random() < .1:
        lines = [one for one in lines if not one.startswith(b"Host")]
    data = line(r) + b"".join(lines) + b"\r\n"
    return b"Q", (damage(r, data, 1) if r.random() < .3 else data) + r.choice((b"", b"hello", chunks(r), request(r)))


@group
def framing(r):
    lines = [b"Host: a\r\n"]
    for _ in range(r.choice((1, 1, 1, 2, 3))):
        name, values = r.choice(((b"Content-Length", (b"0", b"5", b"5", b"100")), (b"CONTENT-LENGTH", VALUES), (b"Transfer-Encoding", (b"chunked",)),
                                 (b"transfer-encoding", VALUES), (b"Connection", (b"close", b"keep-alive", b"x , CLOSE", b"close;x", b"\"close\"")),
                                 (b"Connection", VALUES), (b"Expect", (b"100-continue", b"100-CONTINUE", b"100-continue,x"))))
        gap = r.choice((b": ", b":", b": ", b":\t ", b": ", b" : "))
        lines.append(name + gap + r.choice(values) + r.choice((b"", b"", b" ", b"\t")) + b"\r\n")
    r.shuffle(lines)
    version = r.choice((b"HTTP/1.1", b"HTTP/1.1", b"HTTP/1.0"))
    tail = r.choice((b"", b"hello", b"hello" * 20, chunks(r), chunks(r, False))) + r.choice((b"", request(r)))
    return b"Q", r.choice((b"PUT", b"GET", b"HEAD")) + b" /b/k " + version + b"\r\n" + b"".join(lines) + b"\r\n" + tail


@group
def chunked(r):
    head = b"PUT /b/k HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    how = r.randrange(8)
    if how == 0:
        size = r.choice((b"7fffffffffffffff", b"8000000000000000", b"ffffffffffffffff", b"10000000000000000", b"0" * r.randrange(14, 19) + b"5",
                         b"", b" 5", b"5 ", b"+5", b"-5", b"0x5", b"5_0", b"g"))
        return b"Q", head + size + b"\r\nhello\r\n0\r\n\r\n"
    if how == 1:
        return b"Q", head + b"5;" + b"e" * r.randrange(1015, 1030) + b"\r\nhello\r\n0\r\n\r\n"
    if how == 2:
        return b"Q", head + b"0\r\n" + b"t: " + b"v" * r.randrange(8175, 8195) + b"\r\n\r\n"
    if how == 3:
        return b"Q", head + b"0\r\n" + b"t: 12345\r\n" * r.randrange(815, 825) + b"\r\n"
    return b"Q", head + chunks(r, how > 5) + r.choice((b"", request(r)))


@group
def limits(r):
    how = r.randrange(7)
    if how == 0:
        return b"Q", b"GET /" + b"t" * r.randrange(8185, 8200) + b" HTTP/1.1\r\nHost: a\r\n\r\n"
    if how == 1:
        return b"Q", line(r) + b"Host: a\r\n" + b"x: y\r\n" * r.randrange(97, 102) + b"\r\n"
    if how == 2:
        data = line(r) + b"Host: a\r\nx: "
        return b"Q", data + b"v" * (16384 - len(data) - r.randrange(12)) + b"\r\n\r\n" + r.choice((b"", request(r)))
    if how == 3:
        data = line(r) + b"Host: a\r\n" + b"n" * r.choice((10, 17000)) + r.choice((b"", b": a"))
        return b"Q", data + b" " * r.randrange(16300, 16420) + b"\r\n\r\n"
    if how == 4:
        return b"Q", b"A" * r.randrange(28, 36) + r.choice((b"", b" / HTTP/1.1\r\nHost: a\r\n\r\n"))
    if how == 5:
        return b"R", b"HTTP/1.1 200 " + b"r" * r.choice((10, 65510, r.randrange(65500, 65540))) + b"\r\nContent-Length: 0\r\n\r\n"
    return b"R", b"HTTP/1.1 200 OK\r\n" + b"x: " + b"v" * r.randrange(65480, 65520) + b"\r\n\r\n"


@group
def cut(r):
    data = b"".join(request(r) for _ in range(r.randrange(1, 3)))
    return b"Q", data[:r.randrange(len(data) + 1)]


@group
def garbage(r):
    return r.choice((b"Q", b"R")), b"".join(r.choice(BYTES + METHODS + NAMES + VALUES) for _ in range(r.randrange(30)))


def answer(r):
    status = r.choice((b"200 OK",) * 4 + (b"206 P", b"204 N", b"304 N", b"404", b"100 Continue", b"101 S", b"500 ", b"599 x", b"600 x", b"99 x",
                                         b"2x0 OK", b"200\tOK", b"1000 x"))
    version = r.choice((b"HTTP/1.1",) * 8 + (b"HTTP/1.0", b"HTTP/1.2", b"HTTP/2.0", b"ICY"))
    lines = [b"ETag: \"e\"\r\n", b"Date: Fri, 20 Nov 2026 09:16:23 GMT\r\n"][:r.randrange(3)]
    how = r.randrange(6)
    content = b""
    if how < 2:
        content = b"b" * r.choice((0, 1, 5, r.randrange(2000)))
        lines.append(b"Content-Length: %d\r\n" % (len(content) + r.choice((0,) * 6 + (1, 100))))
    elif how == 2:
        lines.append(b"Transfer-Encoding: chunked\r\n")
        content = chunks(r, r.random() < .7)
    elif how == 3:
        content = r.choice((b"", b"until the end"))
    else:
        lines.append(field(r))
        content = r.choice((b"", b"hello", chunks(r)))
    r.shuffle(lines)
    return version + b" " + status + b"\r\n" + b"".join(lines) + b"\r\n" + content


@group
def answers(r):
    return r.choice((b"R", b"R", b"H")), b"".join(answer(r) for _ in range(r.randrange(1, 4)))


@group
def damaged_answers(r):
    return r.choice((b"R", b"R", b"H")), damage(r, answer(r))


def stream(name, seed, number):
    """(kind, bytes) of one stream of a group."""
    return GROUPS[name](random.Random(f"{name} {seed} {number}"))
