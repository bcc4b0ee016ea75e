# Signatures as no SDK lets one make them: at any time, over any choice of fields, in any spelling.
# Written after the published algorithm, by other code than the server's and than botocore's.
#
# SPDX-License-Identifier: Apache-2.0
import datetime
import hashlib
import hmac
import urllib.parse

REGION = "us-east-1"
EMPTY = hashlib.sha256(b"").hexdigest()


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def stamp(offset_s=0):
    now = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=offset_s)
    return now.strftime("%Y%m%dT%H%M%SZ")


class Signer:
    """One key pair. target: as it goes on the wire. fields: {name: value}, Host among them."""

    def __init__(self, user):
        self.user = user

    def key(self, date):
        day = mac(("AWS4" + self.user.secret).encode(), date[:8])
        return mac(mac(mac(day, REGION), "s3"), "aws4_request")

    def signature(self, method, target, fields, names, payload, date):
        path, _, query = target.partition("?")
        pairs = sorted(tuple(p.partition("=")[::2]) for p in query.split("&")) if query else []
        lines = [method, path, "&".join("=".join(p) for p in pairs)]
        values = {k.lower(): " ".join(v.split()) for k, v in fields.items()}
        lines += [f"{n}:{values[n]}" for n in names] + ["", ";".join(names), payload]
        canonical = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        text = "\n".join(["AWS4-HMAC-SHA256", date, self.scope(date), canonical])
        return mac(self.key(date), text).hex()

    @staticmethod
    def scope(date):
        return f"{date[:8]}/{REGION}/s3/aws4_request"

    def head(self, method, target, fields, payload=EMPTY, date=None, unsigned=(), comma=", "):
        """The fields with Authorization and what it needs. unsigned: names that are left out."""
        date = date or stamp()
        fields = {**fields, "x-amz-date": date, "x-amz-content-sha256": payload}
        names = sorted(n.lower() for n in fields if n.lower() not in unsigned)
        sign = self.signature(method, target, fields, names, payload, date)
        credential = f"{self.user.access}/{self.scope(date)}"
        words = (f"Credential={credential}", f"SignedHeaders={';'.join(names)}",
                 f"Signature={sign}")
        fields["Authorization"] = "AWS4-HMAC-SHA256 " + comma.join(words)
        return fields

    def url(self, method, target, host, seconds=600, date=None):
        """target with a signature in its query."""
        date = date or stamp()
        credential = urllib.parse.quote(f"{self.user.access}/{self.scope(date)}", safe="")
        target += ("&" if "?" in target else "?") + (
            f"X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={date}"
            f"&X-Amz-Expires={seconds}&X-Amz-SignedHeaders=host")
        sign = self.signature(method, target, {"Host": host}, ["host"], "UNSIGNED-PAYLOAD", date)
        return target + f"&X-Amz-Signature={sign}"

    def chunks(self, content, seed, date, size):
        """aws-chunked with a signature in each chunk, chained from the head's."""
        out, last = [], seed
        for at in [*range(0, len(content), size), len(content)]:
            part = content[at:at + size]
            text = "\n".join(["AWS4-HMAC-SHA256-PAYLOAD", date, self.scope(date), last, EMPTY,
                              hashlib.sha256(part).hexdigest()])
            last = mac(self.key(date), text).hex()
            out.append(f"{len(part):x};chunk-signature={last}\r\n".encode() + part + b"\r\n")
        return b"".join(out)
