# One client among others: random reads and writes, each judged by the history.
#
# Invariants:
#  1. A read that began behind an acknowledged write shows that state or a later one, and never less
#     than a read that ended before it began has shown. Lists are the store's own words: they are
#     judged, but nobody else has to have seen what they show.
#  2. A body, a range and a head are those of one state, whole, or the answer breaks visibly.
#  3. An error or a break needs a reason: the server was away, the store broke off an answer, or the
#     key was changed meanwhile.
#
# Life: a thread; step() is one operation. Failure: `wrong` of the run, which goes on.
#
# SPDX-License-Identifier: Apache-2.0
import random
import re
import time
from xml.sax.saxutils import unescape

from client import Away, Client, Cut, range_of
from store import tag_of

KIB, MIB = 1024, 1024 * 1024
KEYS = [f"k{n}" for n in range(14)] + ["dir/a b", "dir/ü+c"]
READS = (("whole", 34), ("piece", 24), ("head", 12), ("unless", 6), ("listed", 4))
WRITES = (("small", 9), ("streamed", 5), ("large", 3), ("delete", 4), ("delete_some", 2),
          ("parts", 3), ("touched", 3), ("copied", 3), ("left", 2), ("claimed", 2))


class Actor:
    def __init__(self, run, number, writes=True):
        self.run, self.history, self.number = run, run.history, number
        self.random = random.Random(f"{run.seed} {run.name} {number}")
        self.client = Client(run.port)
        self.count = 0
        self.kinds = [k for kinds in (READS, WRITES if writes else ())
                      for k, weight in kinds for _ in range(weight)]

    def step(self):
        kind = self.random.choice(self.kinds)
        key = self.random.choice(KEYS[:5] if self.random.random() < 0.6 else KEYS)
        if self.client.since < self.run.up_since:
            self.client.close()          # the other end died with the server before this one
        self.began = time.monotonic()
        try:
            getattr(self, kind)(key)
            self.run.note(kind)
        except Away:
            self.run.note("away")
            if kind != "left" and self.run.was_up(self.began):
                self.wrong(kind, key, "no answer came")
            self.run.wait_up()
        except Cut:
            self.run.note("cut")
            if self.run.was_up(self.began) and self.history.calm(key, self.began):
                self.wrong(kind, key, "the answer was cut")

    def wrong(self, kind, key, what, answer=None):
        seen = ""
        if answer:
            seen = f" ({answer.status}, {answer.token}, {answer.fields})"
        with self.history.lock:
            k = self.history.key(key)
            states = [(s.number, s.token, s.etag[:9]) for s in k.states[-4:]]
            self.run.wrong(f"{kind} {key}: {what}{seen}; floor {k.floor}, last {states}")

    def acceptable(self, kind, key, answer):
        """An error: with a reason, or told."""
        reason = (answer.status >= 500 and
                  not (self.run.was_up(self.began) and self.history.calm(key, self.began)))
        self.run.note("error")
        if not reason:
            self.wrong(kind, key, f"{answer.body[:200]}", answer)

    # ---- reads ----

    def judge(self, kind, key, floor, answer):
        """The state that the answer shows; None: an error, or it was wrong."""
        if answer.status == 404:
            matches = lambda s: s.token is None              # noqa: E731
        elif answer.status in (200, 206, 304, 416):
            etag = answer.fields.get("etag")
            matches = lambda s: s.token == answer.token and etag in (None, s.etag)  # noqa: E731
            if answer.status == 416:
                size = int(answer.field("content-range", "*/0").split("/")[1])
                matches = lambda s: s.token and s.size == size  # noqa: E731
        else:
            self.acceptable(kind, key, answer)
            return None
        if not self.run.is_young(key, matches, self.began):
            self.wrong(kind, key, "older than the time to live", answer)
        state = self.history.seen(key, matches, floor, self.run.shown)
        if not state:
            self.wrong(kind, key, f"older than floor {floor}, or another's ETag", answer)
        self.run.count_hit(answer)
        return state

    def compare(self, kind, key, answer, state):
        first, last, size = 0, len(answer.body) - 1, len(answer.body)
        if answer.status == 206:
            first, last, size = range_of(answer) or (0, -1, -1)
        if size != state.size or len(answer.body) != last + 1 - first:
            return self.wrong(kind, key, f"{first}-{last}/{size} of {state.size} bytes", answer)
        if state.body is not None and memoryview(state.body)[first:last + 1] != answer.body:
            return self.wrong(kind, key, "other bytes than the state's", answer)
        return None

    def get(self, kind, key, fields=None):
        floor = self.history.floor(key)
        answer = self.client.ask("GET", key, fields=fields)
        state = self.judge(kind, key, floor, answer)
        if state and answer.status in (200, 206):
            self.compare(kind, key, answer, state)
        return answer

    def whole(self, key):
        answer = self.get("whole", key)
        if answer.status not in (200, 404) and answer.status < 500:
            self.wrong("whole", key, "a status that nobody asked for", answer)

    def piece(self, key):
        size = self.history.now(key).size or 1
        first = self.random.randrange(size)
        last = first + self.random.choice((0, 99, 128 * KIB, MIB, 3 * MIB))
        asked = self.random.choice((f"{first}-{last}", f"{first}-", f"-{last - first + 1}"))
        self.get("piece", key, {"range": f"bytes={asked}"})

    def head(self, key):
        floor = self.history.floor(key)
        answer = self.client.ask("HEAD", key)
        state = self.judge("head", key, floor, answer)
        if state and state.token and int(answer.field("content-length")) != state.size:
            self.wrong("head", key, f"{state.size} bytes were due", answer)

    def unless(self, key):
        """304 is a statement about now, too."""
        etag = self.history.now(key).etag or '"none"'
        floor = self.history.floor(key)
        answer = self.client.ask("GET", key, fields={"if-none-match": etag})
        if answer.status == 304:
            answer.fields["etag"] = etag
            if not self.history.seen(key, lambda s: s.etag == etag, floor, self.run.shown):
                self.wrong("unless", key, "304 for what is older than the floor", answer)
            return
        state = self.judge("unless", key, floor, answer)
        if state and answer.status == 200:
            self.compare("unless", key, answer, state)

    def listed(self, _):
        floors = {key: self.history.floor(key) for key in KEYS}
        answer = self.client.ask("GET", "", query={"list-type": "2", "prefix": ""})
        if answer.status != 200:
            return self.acceptable("listed", KEYS[0], answer)
        found = {unescape(key): (etag.replace("&quot;", '"'), int(size)) for key, size, etag in
                 re.findall(r"<Contents><Key>(.*?)</Key><Size>(\d+)</Size><ETag>(.*?)</ETag>",
                            answer.body.decode())}
        for key, floor in floors.items():
            shown = found.get(key, ("", 0))
            if not self.history.seen(key, lambda s: (s.etag, s.size) == shown, floor, False):
                self.wrong("listed", key, f"listed as {shown}, floor {floor}")
        return None

    # ---- writes ----

    def new_body(self, size):
        self.count += 1
        token = f"{self.run.name}-{self.number}-{self.count}"
        body = random.Random(f"{self.run.seed} {token}").randbytes(size)
        self.run.bodies[token] = tag_of(body)
        return token, body

    def judge_write(self, kind, key, answer, token):
        if answer.status != 200 or b"<Error>" in answer.body:
            return self.acceptable(kind, key, answer)
        if not self.history.written(key, token):
            self.wrong(kind, key, f"{token} was acknowledged, but the store has never had it")
        return None

    def put(self, kind, key, size):
        token, body = self.new_body(size)
        wrapped = self.random.random() < 0.3
        answer = self.client.ask("PUT", key, fields={"x-amz-meta-token": token}, body=body,
                                 wrapped=wrapped)
        self.judge_write(kind, key, answer, token)
        if self.random.random() < 0.3:   # what was just written is read at once
            self.began = time.monotonic()
            self.get("read back", key)

    def small(self, key):
        self.put("small", key, self.random.choice((0, 1, 4096, self.random.randrange(250 * KIB))))

    def streamed(self, key):
        self.put("streamed", key, 253 * KIB + self.random.randrange(900 * KIB))

    def large(self, key):
        self.put("large", key, MIB + self.random.randrange(5 * MIB))

    def claimed(self, key):
        """A write that only the first of several may do."""
        token, body = self.new_body(self.random.choice((100, 300 * KIB)))
        floor = self.history.floor(key)
        answer = self.client.ask("PUT", key, body=body, fields={"x-amz-meta-token": token,
                                                                "if-none-match": "*"})
        if answer.status != 412:
            self.judge_write("claimed", key, answer, token)
        elif not self.history.seen(key, lambda s: s.token, floor, False):
            self.wrong("claimed", key, "412, but there was none", answer)

    def left(self, key):
        """A client that leaves in the middle of its body: nothing has happened."""
        token, body = self.new_body(self.random.choice((70 * KIB, 400 * KIB, 3 * MIB)))
        stop = self.random.randrange(len(body))
        self.run.bodies[token] = "of which the store may know nothing"
        self.client.send("PUT", key, fields={"x-amz-meta-token": token}, body=body, stop=stop)

    def delete(self, key):
        answer = self.client.ask("DELETE", key)
        if answer.status != 204:
            return self.acceptable("delete", key, answer)
        if not self.history.deleted(key, self.began):
            self.wrong("delete", key, "acknowledged, but the store was not asked", answer)
        return None

    def delete_some(self, key):
        keys = self.random.sample(KEYS, 2) + [key]
        body = "".join(f"<Object><Key>{k}</Key></Object>" for k in keys)
        answer = self.client.ask("POST", "", query={"delete": ""}, body=(
            f"<Delete>{body}</Delete>").encode())
        if answer.status != 200:
            return self.acceptable("delete_some", key, answer)
        for k in keys:
            if f"<Deleted><Key>{k}</Key>" in answer.body.decode() and \
                    not self.history.deleted(k, self.began):
                self.wrong("delete_some", k, "acknowledged, but the store was not asked", answer)
        return None

    def parts(self, key):
        """A multipart upload, now and then one that is given up."""
        sizes = [self.random.choice((MIB, MIB, 300_000))] * self.random.randrange(1, 4)
        sizes[-1] = 1 + self.random.randrange(sizes[0])
        token, body = self.new_body(sum(sizes))
        answer = self.client.ask("POST", key, query={"uploads": ""},
                                 fields={"x-amz-meta-token": token})
        found = re.search(rb"<UploadId>(.*?)</UploadId>", answer.body)
        if not found:
            return self.acceptable("parts", key, answer)
        upload, lines, at = found[1].decode(), [], 0
        for number, size in enumerate(sizes, 1):
            answer = self.client.ask("PUT", key, body=body[at:at + size],
                                     query={"partNumber": str(number), "uploadId": upload})
            if answer.status != 200:
                return self.acceptable("parts", key, answer)
            lines.append(f"<Part><PartNumber>{number}</PartNumber>"
                         f"<ETag>{answer.field('etag')}</ETag></Part>")
            at += size
        if self.random.random() < 0.15:
            answer = self.client.ask("DELETE", key, query={"uploadId": upload})
            return None if answer.status == 204 else self.acceptable("parts", key, answer)
        text = f"<CompleteMultipartUpload>{''.join(lines)}</CompleteMultipartUpload>"
        answer = self.client.ask("POST", key, query={"uploadId": upload}, body=text.encode())
        return self.judge_write("parts", key, answer, token)

    def copy(self, kind, key, source):
        token, _ = self.new_body(0)
        answer = self.client.ask("PUT", key, fields={
            "x-amz-copy-source": f"/b/{source.replace(' ', '%20').replace('+', '%2B')}"
            .replace("ü", "%C3%BC"), "x-amz-metadata-directive": "REPLACE",
            "x-amz-meta-token": token})
        if answer.status != 404 or self.run.missed(source, self.began):
            self.judge_write(kind, key, answer, token)

    def touched(self, key):
        """The same bytes with new fields."""
        self.copy("touched", key, key)

    def copied(self, key):
        self.copy("copied", key, self.random.choice(KEYS))
