# A training whose reads and plans go through a real headpond: it takes the plans by each door, and sees them followed.
#
# SPDX-License-Identifier: Apache-2.0
import json
import os
import urllib.request

from doors import KEYS, TWO, environment
from lab import Headpondd, Lab
from procs import Failure, wait_until
from standin import TOKEN, USER

EPOCHS, WORKERS = 2, 3


def start(where, port):
    lab = Lab(where, server=os.environ.get("HEADPONDD"))
    os.makedirs(lab.path("pond"), exist_ok=True)
    pond = Headpondd(lab, "pond", port, USER.access, USER.secret, admin__token_file=f"{lab.path('pond')}/token").empty()
    path = os.path.join(pond.dir, "token")
    with open(path, "w", encoding="ascii") as f:
        f.write(TOKEN + "\n")
    os.chmod(path, 0o600)
    if lab.user:
        os.chown(path, lab.user.pw_uid, lab.user.pw_gid)
    return pond.start()


def plans(pond):
    with urllib.request.urlopen(f"http://127.0.0.1:{pond.admin_port}/v1/plans", timeout=60) as answer:
        return json.load(answer)["plans"]


def door_problems(doors, pond):
    """The same plan by each door; the server knows its objects afterwards."""
    problems, admin = [], f"http://127.0.0.1:{pond.admin_port}/v1"
    with environment(**KEYS, HEADPOND_TOKEN_FILE=os.path.join(pond.dir, "token")):
        for endpoint in (f"unix:{pond.dir}/admin.sock", admin, pond.endpoint):
            answer = doors.post(endpoint, TWO)
            if not answer or answer["objects"] != 3 or doors.heard.said and "has not" not in doors.heard.said[0]:
                problems.append(f"{endpoint}: {answer}, {doors.heard.said}")
    with environment(AWS_ACCESS_KEY_ID=USER.access, AWS_SECRET_ACCESS_KEY="another"):
        return problems + doors.refused(pond.endpoint, "403")


def training_problems(training, pond, standin):
    """Every shard of every epoch was in its plan, and the server saw it read to its end."""
    names = sorted(name for name in standin.objects if name.endswith(".tar"))
    order = {"kind": "by-epoch", "workers": WORKERS, "ranks": 1, "rank": 0, "epochs": EPOCHS, "persistent": True,
             "endpoint": standin.endpoint, "post": f"unix:{pond.dir}/admin.sock", "urls": [f"{pond.endpoint}/{name}" for name in names]}
    wrong, said = training.run([order])

    def read():
        found = {plan["epoch"]: plan for plan in plans(pond) if plan["job"] == "wds"}
        ended = [plan for plan in found.values() if plan["state"] in ("read", "overtaken")]
        return [plan["cursor"] for plan in ended] == [len(names)] * EPOCHS
    if wrong or "no plan" in said:
        return [wrong or said[-500:]]
    try:
        wait_until("the plans were read", read, 120)
    except Failure:  # what the server knows says more
        return [f"{plans(pond)}"]
    return []


def run(cases, doors, training_of):
    pond = start(cases.where, cases.standin.server_address[1])
    try:
        cases.verdict("headpond takes plans by each door", door_problems(doors, pond))
        with training_of(cases.where, "train_webdataset", cases.standin.endpoint) as training:
            cases.verdict("headpond follows a training by its plans", training_problems(training, pond, cases.standin))
    finally:
        pond.stop(60)
