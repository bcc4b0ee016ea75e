# How plans leave, and what becomes of those that cannot: the parts of conf/clients that know no loader.
#
# Each case is a function that takes Doors and returns what is wrong, as a list of sentences.
#
# SPDX-License-Identifier: Apache-2.0
import contextlib
import logging
import os
import ssl
import subprocess
import sys

from standin import SESSION, Standin, TOKEN, USER

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "conf", "clients"))
import headpond_plan  # noqa: E402
from headpond_post import PlanError  # noqa: E402

KEYS = {"AWS_ACCESS_KEY_ID": USER.access, "AWS_SECRET_ACCESS_KEY": USER.secret}
TWO = [["bucket/a/1.tar", "bucket/a/2.tar"], ["bucket/a/3.tar"]]
NAMES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_REGION",
         "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3", "S3_ENDPOINT_URL", "AWS_ENDPOINT_URL", "HEADPOND_TOKEN_FILE", "AWS_CA_BUNDLE")


@contextlib.contextmanager
def environment(**values):
    """These of the variables that the shims look at, and no others."""
    old = {name: os.environ.pop(name) for name in NAMES if name in os.environ}
    os.environ.update({"AWS_SHARED_CREDENTIALS_FILE": os.devnull, **values})
    try:
        yield
    finally:
        for name in NAMES:
            os.environ.pop(name, None)
        os.environ.update(old)


class Heard(logging.Handler):
    def __init__(self):
        super().__init__()
        self.said = []

    def emit(self, record):
        self.said.append(record.getMessage())


class Doors:
    def __init__(self, where):
        self.where, self.heard = where, Heard()
        self.s3, self.unix = Standin({}), Standin({}, path=os.path.join(where, "admin.sock"))

    def write(self, name, text):
        path = os.path.join(self.where, name)
        with open(path, "w", encoding="ascii") as f:
            f.write(text)
        return path

    def post(self, endpoint, streams=TWO, **fields):
        self.heard.said.clear()
        return headpond_plan.submit(lambda: ("night", 4, streams), endpoint, **fields)

    def taken(self, standin, endpoint, door, **fields):
        """Posts, and says what is wrong unless it comes by that door."""
        answer, plans = self.post(endpoint, **fields), standin.taken()
        if not answer or len(plans) != 1 or self.heard.said:
            return [f"answer {answer}, {len(plans)} plans, said {self.heard.said}"]
        plan = plans[0][1]
        names = [[name for name, _ in stream] for stream in plan.streams]
        wanted = {"job": "night", "epoch": 4, "prefix": "bucket/a/", **fields}
        return [f"{plan}"] if (plan.door, plan.head, names) != (door, wanted, TWO) else []

    def refused(self, endpoint, *words, streams=TWO):
        """Training goes on with a warning that has these words; strict=True makes an error of it."""
        answer, problems = self.post(endpoint, streams), []
        said = " ".join(self.heard.said)
        if answer is not None or len(self.heard.said) != 1 or not all(word in said for word in words):
            problems.append(f"answer {answer}, said {self.heard.said}, not {words}")
        try:
            problems.append(f"strict gives {self.post(endpoint, streams, strict=True)}")
        except PlanError as error:
            problems += [] if all(word in str(error) for word in words) else [f"strict says {error}, not {words}"]
        return problems


def case_the_s3_port_takes_a_signed_plan(doors):
    with environment(**KEYS, AWS_REGION="eu-central-1"):
        there = doors.refused(doors.s3.endpoint, "signature")  # the stand-in knows one region: the signature tells which
    with environment(**KEYS):
        return there + doors.taken(doors.s3, doors.s3.endpoint + "/", "s3", rate_bytes_per_s=5, expires_s=60)


def case_a_session_token_is_signed(doors):
    with environment(**KEYS, AWS_SESSION_TOKEN=SESSION):
        return doors.taken(doors.s3, doors.s3.endpoint, "s3+session")


def case_keys_come_from_a_profile(doors):
    keys = f"aws_access_key_id = {USER.access}\naws_secret_access_key = {USER.secret}\n"
    path = doors.write("credentials", "[default]\naws_access_key_id = OTHER\naws_secret_access_key = x\n[train]\n" + keys)
    with environment(AWS_SHARED_CREDENTIALS_FILE=path, AWS_PROFILE="train"):
        return doors.taken(doors.s3, doors.s3.endpoint, "s3")


def case_the_endpoint_is_the_clients(doors):
    with environment(**KEYS, AWS_ENDPOINT_URL_S3=doors.s3.endpoint, AWS_ENDPOINT_URL="http://127.0.0.1:1"):
        return doors.taken(doors.s3, None, "s3")


def case_over_tls_with_an_own_authority(doors):
    key, cert = (os.path.join(doors.where, name) for name in ("tls.key", "tls.pem"))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=cache",
                    "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    standin = Standin({}, context=context)
    with environment(**KEYS):
        problems = doors.refused(standin.endpoint, "does not answer", "look at the address")
    with environment(**KEYS, AWS_CA_BUNDLE=cert):
        return problems + doors.taken(standin, standin.endpoint, "s3")


def case_the_admin_socket_wants_nothing(doors):
    with environment():
        return doors.taken(doors.unix, doors.unix.endpoint, "unix", horizon_objects=7)


def case_the_admin_port_wants_a_token(doors):
    with environment():
        problems = doors.refused(doors.s3.endpoint + "/v1", "HEADPOND_TOKEN_FILE")
    with environment(HEADPOND_TOKEN_FILE=doors.write("token", TOKEN + "\nother\n")):
        return problems + doors.taken(doors.s3, doors.s3.endpoint + "/v1", "admin")


def case_nobody_answers(doors):
    standin = Standin({})
    standin.shutdown()
    standin.server_close()
    with environment(**KEYS):
        return doors.refused(standin.endpoint, standin.endpoint, "does not answer", "look at the address") + \
            doors.refused("unix:" + os.path.join(doors.where, "none"), "does not answer")


def case_no_endpoint_no_key_no_sense(doors):
    with environment(**KEYS):
        problems = doors.refused(None, "say http://HOST:9000") + doors.refused("cache:9000", "say http://HOST:9000")
    with environment():
        return problems + doors.refused(doors.s3.endpoint, "set AWS_ACCESS_KEY_ID")


def case_a_refusal_says_why_and_what_to_do(doors):
    doors.s3.refusal = (403, "the key may not read bucket/a/", "take a key that may")
    try:
        with environment(**KEYS):
            return doors.refused(doors.s3.endpoint, "403", "may not read bucket/a/", "take a key that may")
    finally:
        doors.s3.refusal = None


def case_a_plan_too_large_for_the_server_is_told_before_it_is_sent(doors):
    doors.s3.refusal = (413, "more than is taken", "send less")
    many = [[f"bucket/a/{n:080d}" for n in range(200_000)]]
    try:
        with environment(**KEYS):
            answer = doors.post(doors.s3.endpoint, many)
    finally:
        doors.s3.refusal = None
    said = " ".join(doors.heard.said)
    # The answer may be lost with the connection that ends while more is sent; that it failed is known in any case.
    known = "413 more than is taken: send less" in said or "does not answer" in said
    return [] if answer is None and known else [f"answer {answer}, said {said[:300]}"]


def case_a_large_plan_arrives_whole_and_its_beginning_first(doors):
    streams = [[f"bucket/a/{worker}/{n:06d}.tar" for n in range(20_000 + worker)] for worker in range(6)]
    with environment(**KEYS):
        answer, plans = doors.post(doors.s3.endpoint, streams), doors.s3.taken()
    got = [[name for name, _ in stream] for stream in plans[0][1].streams] if plans else None
    lines = headpond_plan._ndjson([headpond_plan._entries(s) for s in streams], {}).decode().splitlines()
    turns = [line[:14] for line in lines[1:7]]
    problems = [] if answer and answer["objects"] == 120_015 and got == streams else [f"{answer}, {doors.heard.said}"]
    return problems + ([] if len(set(turns)) == 6 else [f"not in turn: {turns}"])


def case_parts_in_a_row_are_one_entry(doors):
    stream = [("bucket/x", 0, 5), ("bucket/x", 9, 1), "bucket/x", "bucket/x", ("bucket/x", 2, 2), ("bucket/y", 0, 1), ("bucket/x", 0, 1)]
    wanted = [("bucket/x", [[0, 5], [9, 1]]), ("bucket/x", None), ("bucket/x", None), ("bucket/x", [[2, 2]]), ("bucket/y", [[0, 1]]),
              ("bucket/x", [[0, 1]])]
    many = [("bucket/z", 10 * n, 3) for n in range(600)]  # an entry's ranges have a limit
    with environment(**KEYS):
        doors.post(doors.s3.endpoint, [[], stream, many])
    plans = doors.s3.taken()
    got = plans[0][1].streams if plans else [f"{doors.heard.said}", 0, 0]
    problems = [] if got[:2] == [[], wanted] else [f"{got[:2]}"]
    spans = [span for _, ranges in got[2] or () for span in ranges]
    return problems + ([] if len(got[2]) == 3 and spans == [[n, size] for _, n, size in many] else [f"{got[2]}"])


def case_two_buckets_are_two_plans(doors):
    with environment(**KEYS):
        return doors.refused(doors.s3.endpoint, "two buckets", "post a plan for each", streams=[["one/a"], ["two/b"]])


def case_nothing_to_read_is_no_plan(doors):
    with environment(**KEYS):
        answer = doors.post(doors.s3.endpoint, [[], []])
    return [] if answer is None and not doors.heard.said and not doors.s3.taken() else [f"{answer}, {doors.heard.said}"]


def case_objects_that_are_not_there_are_told(doors):
    doors.s3.objects = {"bucket/a/1.tar": b"", "bucket/a/3.tar": b""}
    with environment(**KEYS):
        answer = doors.post(doors.s3.endpoint)
    doors.s3.objects = {}
    doors.s3.taken()
    said = " ".join(doors.heard.said)
    return [] if answer and "has not 1 of its objects" in said and "bucket/a/2.tar" in said else [f"{answer}, {said}"]


def case_urls_become_objects(doors):
    wanted = {"s3://bucket/a/b%20c.tar": "bucket/a/b%20c.tar", "http://cache:9000/bucket/a%20b.tar?x=1": "bucket/a b.tar",
              "pipe:aws s3 cp s3://bucket/a.tar - | cat": "bucket/a.tar", "pipe:curl -s 'https://cache/bucket/a.tar'": "bucket/a.tar"}
    problems = [f"{url}: {headpond_plan.object_of(url)}" for url, name in wanted.items() if headpond_plan.object_of(url) != name]
    try:
        problems.append(headpond_plan.object_of("/data/a.tar"))
    except PlanError as error:
        problems += [] if "give key=" in str(error) else [str(error)]
    return problems


def run(cases):
    doors, log = Doors(cases.where), logging.getLogger("headpond")
    log.addHandler(doors.heard)
    log.propagate = False
    for name, case in list(globals().items()):
        if name.startswith("case_") and cases.wanted("doors " + name):
            cases.verdict("doors " + name[len("case_"):].replace("_", " "), case(doors))
    return doors
