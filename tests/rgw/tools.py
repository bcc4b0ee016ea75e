# The command line clients that people use, each told where the server is as its users do it.
#
# Each function returns a list of what is wrong. `o` is a corpus with its items uploaded; `port` is
# the server's.
#
# SPDX-License-Identifier: Apache-2.0
import hashlib
import os
import shutil

from procs import clean_environment, run
from wire import Wire, path_of

PREFIX = "plain/"


def digest(path):
    h = hashlib.sha256()
    try:
        with open(path, "rb") as f:
            for part in iter(lambda: f.read(1 << 20), b""):
                h.update(part)
    except OSError as e:
        return str(e)
    return h.hexdigest()


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    return folder


def tree_problems(folder, items, strip):
    """Whether the folder holds exactly the items, under their keys without `strip`."""
    want = {i.key[len(strip):]: i.sha256 for i in items}
    got = {os.path.relpath(os.path.join(d, name), folder)
           for d, _, names in os.walk(folder) for name in names}
    problems = [f"{k} is missing" for k in sorted(want.keys() - got)]
    problems += [f"{k} is there" for k in sorted(got - want.keys())]
    return problems + [f"{k}: other bytes" for k in sorted(want.keys() & got)
                       if digest(os.path.join(folder, k)) != want[k]]


def plain(o):
    return [i for i in o.items if i.key.startswith(PREFIX)]


def some_awkward(o):
    """Keys that a shell user could meet, and that the tools themselves do not change."""
    names = ("a//b", "/lead", "dir/", "trailing.", "a b+c", "100%25", "a%2Fb", "~!$&'()*,;=:@",
             "日本/語", "é", "plus+plus", "k" * 1024, "attr/gzip", "border/0", "border/8388609",
             "multi/24117249")
    return [i for i in o.items if i.key in names]


# ---- aws ----

def aws_environment(o):
    return clean_environment(AWS_ACCESS_KEY_ID=o.user.access, AWS_SECRET_ACCESS_KEY=o.user.secret,
                             AWS_DEFAULT_REGION="us-east-1", AWS_PAGER="")


def aws(program, o, port, folder):
    def call(*arguments):
        return run([program, "--endpoint-url", f"http://127.0.0.1:{port}", "s3", *arguments],
                   env=aws_environment(o), timeout=300)

    call("sync", "--only-show-errors", f"s3://{o.bucket}/{PREFIX}", fresh(folder))
    problems = [f"sync: {p}" for p in tree_problems(folder, plain(o), PREFIX)]
    for number, item in enumerate(some_awkward(o)):
        path = os.path.join(folder, f"awkward-{number}")
        call("cp", "--only-show-errors", f"s3://{o.bucket}/{item.key}", path)
        if digest(path) != item.sha256:
            problems.append(f"cp {item.key[:60]!r}: other bytes")
    big = max(o.items, key=lambda i: i.size)
    call("cp", "--only-show-errors", f"s3://{o.bucket}/{big.key}", os.path.join(folder, "big"))
    if digest(os.path.join(folder, "big")) != big.sha256:
        problems.append(f"cp {big.key}: other bytes")
    listed = call("ls", f"s3://{o.bucket}/{PREFIX}dir0/").stdout.decode().splitlines()
    want = sorted((i.size, i.key.rpartition("/")[2]) for i in plain(o) if "/dir0/" in i.key)
    got = sorted((int(line.split()[2]), line.split()[3]) for line in listed)
    return problems + ([] if got == want else [f"ls: {got}, not {want}"])


# ---- rclone ----

def rclone_environment(o, port):
    """What the remote's section in rclone.conf would say."""
    return clean_environment(
        RCLONE_CONFIG="/nonexistent/rclone.conf", RCLONE_CONFIG_POND_TYPE="s3",
        RCLONE_CONFIG_POND_PROVIDER="Other", RCLONE_CONFIG_POND_ENDPOINT=f"http://127.0.0.1:{port}",
        RCLONE_CONFIG_POND_ACCESS_KEY_ID=o.user.access,
        RCLONE_CONFIG_POND_SECRET_ACCESS_KEY=o.user.secret,
        RCLONE_CONFIG_POND_REGION="us-east-1", RCLONE_CONFIG_POND_FORCE_PATH_STYLE="true",
        RCLONE_S3_NO_CHECK_BUCKET="true")


def rclone(o, port, folder):
    def call(*arguments):
        return run(["rclone", *arguments], env=rclone_environment(o, port), timeout=300)

    call("copy", "--transfers", "4", f"pond:{o.bucket}/{PREFIX}", fresh(folder))
    problems = [f"copy: {p}" for p in tree_problems(folder, plain(o), PREFIX)]
    call("check", "--download", f"pond:{o.bucket}/{PREFIX}", folder)
    names = ("a b+c", "100%25", "~!$&'()*,;=:@", "日本/語", "é", "plus+plus", "border/0",
             "border/8388609", "big/104857600", "multi/24117249")
    for item in (i for i in o.items if i.key in names):
        got = call("cat", f"pond:{o.bucket}/{item.key}").stdout
        if hashlib.sha256(got).hexdigest() != item.sha256:
            problems.append(f"cat {item.key!r}: other bytes")
    return problems


# ---- s3cmd ----

def s3cmd_config(o, port, folder):
    path = os.path.join(fresh(folder), "s3cfg")
    with open(path, "w") as f:
        f.write(f"[default]\naccess_key = {o.user.access}\nsecret_key = {o.user.secret}\n"
                f"host_base = 127.0.0.1:{port}\nhost_bucket = 127.0.0.1:{port}/%(bucket)\n"
                "use_https = False\nbucket_location = us-east-1\nsignature_v2 = False\n")
    return path


def s3cmd(o, port, folder):
    config = s3cmd_config(o, port, folder + "-config")

    def call(*arguments):
        return run(["s3cmd", "-c", config, "--no-progress", *arguments], timeout=300)

    call("get", "--recursive", f"s3://{o.bucket}/{PREFIX}", fresh(folder) + "/")
    problems = [f"get: {p}" for p in tree_problems(folder, plain(o), PREFIX)]
    for key in ("日本/語", "multi/24117249", "attr/type", "a b+c"):
        item = next(i for i in o.items if i.key == key)
        path = os.path.join(folder, "one")
        call("get", "--force", f"s3://{o.bucket}/{key}", path)
        if digest(path) != item.sha256:
            problems.append(f"get {key!r}: other bytes")
    listed = call("ls", "--recursive", f"s3://{o.bucket}/{PREFIX}").stdout.decode().splitlines()
    if len(listed) != len(plain(o)):
        problems.append(f"ls: {len(listed)} lines, not {len(plain(o))}")
    return problems


# ---- curl ----

def curl(o, folder, url_of, items):
    """One curl for all: url_of(item) may be anonymous or presigned."""
    config = os.path.join(fresh(folder), "curlrc")
    with open(config, "w") as f:
        for number, item in enumerate(items):
            url = url_of(item)
            escaped = url.replace("\\", "\\\\").replace('"', '\\"')
            f.write(f'url = "{escaped}"\noutput = "{folder}/{number}"\n')
    run(["curl", "-q", "-sS", "--globoff", "--path-as-is", "--fail", "-K", config], timeout=300)
    problems = []
    for number, item in enumerate(items):
        path = os.path.join(folder, str(number))
        if item.size == 0 and not os.path.exists(path):
            continue                   # curl makes no file for an empty body
        if digest(path) != item.sha256:
            problems.append(f"{item.key[:80]!r}: other bytes")
    shutil.rmtree(folder)
    return problems


def curl_anonymous(o, port, folder):
    return curl(o, folder, lambda i: f"http://127.0.0.1:{port}{path_of(o.bucket, i.key)}", o.items)


def curl_presigned(o, port, folder):
    wire = Wire(port, o.user)
    return curl(o, folder, lambda i: wire.presign("GET", path_of(o.bucket, i.key)),
                [i for i in o.items if i.size <= 32 << 20])
