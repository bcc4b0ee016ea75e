# What an upstream may do wrong, and what must come of it: the table behind matrix.py. One row per
# shape.
#
# A break ends a body at a cut point; what comes of it follows from the point (matrix.py tells the
# rule), and the row names only the status of an error before our head. A bend changes the whole
# answer; its row says what each situation must see, for an upstream that does it once and for one
# that goes on doing it.
#
#   R    right: 200 or 206, every byte, to the end          C    our head went out: visibly cut
#   S    right bytes that are held, marked stale            404  this status, and no object's bytes
#   P    right bytes, passed through and not kept           C,R  either, as clients race
#
# Situations: cold (a whole GET), range, crowd (four readers of one cold key), ahead (the fault
# meets the read-ahead of the second chunk), more (a range of an object that is known, of a chunk
# that is not here), warm (the question whether a held object is still the same), head (HEAD of a
# cold object), list, pass (an object that is not kept). "fetch" are cold, range and crowd together.
#
# SPDX-License-Identifier: Apache-2.0
from dataclasses import dataclass, field

FETCH = ("cold", "range", "crowd")
SITUATIONS = FETCH + ("ahead", "more", "warm", "head", "list", "pass")


@dataclass(frozen=True)
class Break:
    """Ends the answer at a point; `bend` has {stop}, the knobs that say where."""
    name: str
    bend: str
    in_head: int        # status of our error when upstream's head did not come whole; 0: no cell
    in_body: int        # when nothing of the body could be delivered
    retry: tuple        # reason label of our next try: broken in the head, in the body
    kind: tuple         # label of upstream_errors_total, likewise
    passes: bool = True  # whether a relay can tell
    patience: str = "5s"  # upstream's timeouts: short only where silence is the fault


@dataclass(frozen=True)
class Bend:
    name: str
    bend: str
    once: dict
    always: dict = field(default_factory=dict)
    retry: str = ""     # reason label of our next try, if there is one
    kind: str = ""      # label of upstream_errors_total where the answer is an error
    settles: bool = True  # False: for some seconds the object is passed through
    told: str = ""      # the size that the lie announces
    key: str = ""       # of the object, if the usual one is of no use
    asks: str = ""      # what the readers say besides
    patience: str = "5s"  # upstream's timeouts: short only where silence is the fault


def each(fetch=None, **more):
    """fetch= for cold, range and crowd; others by name."""
    out = {s: fetch for s in FETCH} if fetch else {}
    out.update({k.rstrip("_"): v for k, v in more.items()})
    return out


# An answer that cannot be trusted is not asked for again: the next one would not be either. Those
# who come a moment later begin anew, so a crowd may be divided.
# But what comes on a kept connection may be the rest of the answer before (more, warm, and now and
# then ahead and pass): that is asked once more on a new one.
UNTRUSTED_ONCE = each("502", crowd="502,R", ahead="C,R", more="R", warm="R", head="502",
                      list="502", pass_="502,R")
UNTRUSTED = each("502", ahead="C", more="502", warm="502", head="502", list="502", pass_="502")


def untrusted(name, bend, kind="protocol", **more):
    """Refused wherever it comes; more= the exceptions, for once and always (None: no such cell)."""
    def but(base):
        merged = {**base, **{k.rstrip("_"): v for k, v in more.items()}}
        return {k: v for k, v in merged.items() if v}
    return Bend(name, bend, but(UNTRUSTED_ONCE), but(UNTRUSTED), kind=kind)


def distrusted(name, bend, **more):
    """A well-formed answer to another question: also on a kept connection it is what it is."""
    b = untrusted(name, bend, "answer", **more)
    once = {k: {"warm": "502", "pass": "502", "more": "502"}.get(k, v) for k, v in b.once.items()}
    return Bend(name, bend, once, b.always, kind="answer")


def unusable(name, bend):
    """Without its range an answer cannot be kept, so the object is passed through."""
    return Bend(name, bend, each("P", crowd="R", ahead="C,R", more="502"),
                each("P", range="502", ahead="C", more="502"), kind="answer", settles=False)


def cured(name, bend, retry="", **more):
    """One more try, or none, and the client sees nothing of it."""
    once = each("R", ahead="R", more="R", warm="R", head="R", list="R", pass_="P")
    once.update({k.rstrip("_"): v for k, v in more.items()})
    return Bend(name, bend, {k: v for k, v in once.items() if v}, {}, retry=retry)


def status(code, retried="", stale=True):
    """An error status: passed on, after the retries if there are any."""
    text = str(code)
    bad = each(text, ahead="C", more=text, warm="S" if stale else text, head=text, list=text,
               pass_=text)
    # Of an object that is known a refusal is relayed, and that asks once more.
    more = "R" if 400 <= code < 500 else text
    once = each("R", ahead="R", more="R", warm="R", head="R", list="R", pass_="P") if retried \
        else each(text, crowd=text + ",R", ahead="C,R", more=more,
                  warm=bad["warm"], head=text, list=text, pass_=text)
    return Bend(f"status {code}", f"status={code}", once, bad, retry=retried,
                settles=code != 404)


BREAKS = [
    Break("FIN", "{stop}", 503, 502, ("reset", "short"), ("reset", "short")),
    Break("RST", "{stop} reset=1", 503, 503, ("reset", "reset"), ("reset", "reset")),
    Break("silence", "{stop}", 503, 503, ("timeout", "timeout"), ("timeout", "timeout"), patience="1s"),
    Break("chunked, FIN", "chunked=1 {stop}", 0, 502, ("", "short"), ("", "short")),
    Break("chunked, a size that is no number", 'chunked=1 {stop} tail="zz\\r\\n"', 0, 502,
          ("", "reset"), ("", "protocol")),
    Break("chunked, a size beyond 64 bit", 'chunked=1 {stop} tail="fffffffffffffffff\\r\\n"', 0,
          502, ("", "reset"), ("", "protocol")),
    Break("chunked, the last chunk too early", 'chunked=1 {stop} tail="0\\r\\n\\r\\n"', 0, 502,
          ("", "short"), ("", "answer"), passes=False),
]

HEADS = [
    untrusted("NUL in a field", 'header="x-a: a\\0b"'),
    untrusted("bare LF", 'header="x-a: a\\nx-b: b"'),
    untrusted("bare CR", 'header="x-a: a\\rb"'),
    untrusted("folded field", 'header="x-a: a\\r\\n b"'),
    untrusted("blank before the colon", 'header="x-a : a"'),
    untrusted("Content-Length and chunked", 'header="Transfer-Encoding: chunked"'),
    untrusted("two Content-Lengths", 'header="Content-Length: 5"'),
    untrusted("Content-Length of 2^64", "length=18446744073709551616"),
    untrusted("Content-Length with a sign", 'header="Content-Length: -1" length=none'),
    untrusted("Transfer-Encoding gzip, chunked", 'header="Transfer-Encoding: gzip, chunked"'),
    untrusted("HTTP/0.9", 'raw="hello" close=1'),
    untrusted("HTTP/2.0", 'raw="HTTP/2.0 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n" close=1'),
    untrusted("status 999", 'raw="HTTP/1.1 999 OK\\r\\nContent-Length: 0\\r\\n\\r\\n" close=1'),
    untrusted("101 Switching Protocols", 'raw="HTTP/1.1 101 X\\r\\nUpgrade: h2c\\r\\n\\r\\n"'),
    untrusted("a TLS alert", 'raw="\\x15\\x03\\x01\\x00\\x02\\x02\\x46" close=1'),
    untrusted("a head of 1 MB", "flood=1M"),
    untrusted("1,000 fields", "fields=1000"),
    untrusted("1xx for ever", "interim=1000"),
    cured("a few 1xx", "interim=5"),
    cured("a head byte by byte", "drip=1"),
]

RANGES = [
    unusable("no Content-Range", "content_range=none"),
    unusable("Content-Range backwards", 'content_range="bytes 9-5/10"'),
    unusable("Content-Range without a size", 'content_range="bytes 0-8388607/*"'),
    distrusted("Content-Range of something else", 'content_range="bytes 0-9/10"', ahead=None,
               more=None, warm=None, head=None, list=None, pass_=None),
    Bend("Content-Range of something else, later", 'content_range="bytes 0-9/10"',
         each(ahead="C,R", more="R"), each(ahead="C"), settles=False),
    distrusted("a range that overlaps", "shift=65537", warm=None, head=None, list=None, pass_=None),
    distrusted("half of the range", "half=1", warm=None, head=None, list=None, pass_="502"),
    distrusted("Content-Length shorter than the range", "length=-100", warm=None, head=None,
              list=None, pass_=None),
    distrusted("Content-Length longer than the range", "length=+100 close=1", warm=None, head=None,
               list=None, pass_=None),
    Bend("another total size", "total=+1", each(cold="C"), each(cold="C"), settles=False, told="12M+6"),
    Bend("another total size of a later range", "total=+1", each(ahead="C,R", more="R"),
         each(ahead="C"), settles=False),
    cured("200 to a range", "ignore_range=1", warm=None, list=None, head=None),
    Bend("200 to a range, with a wrong length", "ignore_range=1 length=-100",
         each(cold="C", crowd="C,R"), settles=False, told="12M-95"),
    Bend("200 to a later range, with a wrong length", "ignore_range=1 length=-100",
         each(ahead="C,R", more="R"), each(ahead="C"), settles=False),
    Bend("a length that does not come", "length=+100 close=1", each(pass_="C"), each(pass_="C"),
         kind="short", told="12M+105"),
    cured("bytes behind the body", "extra=1000", list=None),
    cured("an answer too many", 'after="HTTP/1.1 200 OK\\r\\nETag: \\"evil\\"\\r\\n'
          'Content-Length: 5\\r\\n\\r\\nevil!"'),
    cured("chunked instead of counted", "chunked=1", warm=None, head=None),
    cured("until the close instead of counted", "length=none", warm=None, head=None),
]

GENERATIONS = [
    Bend("no ETag", "etag=none", each("R", ahead="C,R", more="R", warm="R", head="R"),
         each("P", more="P", warm="P", head="P"), settles=False),
    Bend("a weak ETag", 'etag="W/\\"x\\""', each("R", ahead="C,R", more="R", warm="R", head="R"),
         each("P", more="P", warm="P", head="P"), settles=False),
    Bend("replaced between two ranges", "bump=1", each(ahead="C,R", more="R"), settles=False),
    Bend("replaced, and If-Match ignored", "bump=1 ignore_match=1", each(ahead="C,R", more="R"),
         settles=False),
]

STATUSES = [
    status(500, "status"), status(502, "status"), status(503, "slowdown"), status(504, "status"),
    status(429, "slowdown"), status(501, stale=True), status(400, stale=False),
    status(403, stale=False), status(404, stale=False), status(405, stale=False),
    status(409, stale=False),
    Bend("status 503, Retry-After", "status=503 retry_after=1", each(cold="R", list="R"),
         retry="slowdown"),
    Bend("status 412", "status=412", each("412", crowd="412,R", ahead="C,R", more="R",
                                                warm="412"),
         each("412", ahead="C", more="412", warm="412"), settles=False),
    Bend("status 416", "status=416", each("R", ahead="C,R", more="R", warm="416", head="416",
                                                pass_="416"),
         each("416", ahead="C", more="416", warm="416"), settles=False),
    untrusted("status 204", "status=204"),
    distrusted("status 203", "status=203", list=None),
    distrusted("status 201", "status=201", list=None),
    distrusted("status 304", "status=304"),
    distrusted("status 300", "status=300"),
]

CONTENT = [
    cured("Content-Encoding out of nowhere", 'header="Content-Encoding: gzip"'),
    cured("an Endpoint and a Region in Location", 'header="Location: http://203.0.113.1/"'),
]

# A true checksum of bytes that are damaged, and a wrong one of good bytes: nobody can tell which.
# Up to one block nothing has left when it is seen; else the last block is held back.
SUMS = [
    Bend(f"{what}, {size}", bend, {}, {"cold": want, "crowd": crowd}, kind="answer",
         key=f"/f/k@{size}", asks='header="x-amz-checksum-mode: ENABLED"', patience="10s")
    for size, want, crowd in (("700K", "502", "502"), ("4M+5", "C", "C,502"))
    for what, bend in (("wrong checksum header", 'checksum="x-amz-checksum-crc32: NhCmhg=="'),
                       ("a damaged last byte", f"sum=crc64nvme corrupt={size}"))
]

REDIRECTS = [
    distrusted(f"{code} to {what}", f'status={code} redirect="{url}"')
    for code, what, url in (
        (301, "another host", "http://203.0.113.7/stolen"),
        (302, "this host", "http://127.0.0.1:1/"),
        (307, "the metadata service", "http://169.254.169.254/latest/meta-data/"),
        (308, "an address in IPv6", "http://[fd00:ec2::254]/"),
    )
] + [
    cured("301 with a region", 'status=301 header="x-amz-bucket-region: eu-west-9"'),
    cured("307 with a region", 'status=307 header="x-amz-bucket-region: eu-west-9"'),
    Bend("400 with a region in its document",
         'status=400 header="x-amz-bucket-region: " document="<Error><Code>'
         'AuthorizationHeaderMalformed</Code><Region>eu-west-9</Region></Error>"',
         each("R", ahead="R", more="R", list="R", pass_="P")),
    distrusted("301 with the region that was asked",
              'status=301 header="x-amz-bucket-region: us-east-1"'),
]

CLOCKS = [
    Bend(f"a clock that is {by} s off", f"clock={by}", {},
         each("R", ahead="R", more="R", warm="R", head="R", list="R", pass_="P"))
    for by in ("+1200", "-1200", "+90000")
] + [
    Bend("RequestTimeTooSkewed for ever", "clock=+1200 status=403 code=RequestTimeTooSkewed", {},
         each("403", more="403", head="403", list="403", warm="403")),
]

GONE = [
    Bend("connections refused", "!listen off; cut", {},
         each("503", more="503", warm="S", head="503", list="503", pass_="503"), kind="connect"),
    Bend("accepted and never answered", "silent=1",
         each("R", ahead="R", more="R", warm="R", head="R", list="R", pass_="P"),
         each("503", more="503", warm="S", head="503", list="503", pass_="503"), retry="timeout",
         kind="timeout", patience="1s"),
    Bend("reset instead of an answer", "reset=1",
         each("R", ahead="R", more="R", warm="R", head="R", list="R", pass_="P"),
         each("503", ahead="C", more="503", warm="S", head="503", list="503", pass_="503"), retry="reset",
         kind="reset"),
]

BENDS = HEADS + RANGES + GENERATIONS + STATUSES + CONTENT + SUMS + REDIRECTS + CLOCKS + GONE
