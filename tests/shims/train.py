# What the trainings have in common. Each is a program that imports its loader once, and then, for each line that it reads,
# a JSON list of orders, forks a process for each order, all at the same time, and writes a line with their exit statuses.
#
# SPDX-License-Identifier: Apache-2.0
import json
import os
import random
import sys
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "conf", "clients"))

import numpy  # noqa: E402
import torch  # noqa: E402
from torch.utils.data import get_worker_info  # noqa: E402

ORDER = {}


def serve(main):
    """Returns in the children only, after main()."""
    for line in sys.stdin:
        children = []
        for order in json.loads(line):
            child = os.fork()
            if not child:
                ORDER.update(order)
                return main()
            children.append(child)
        print(*(os.waitpid(child, 0)[1] for child in children), flush=True)
    return None


def reader():
    info = get_worker_info()
    return f"{ORDER['rank']}/{info.id if info else 0}"


def read(url, span=None):
    """Opens a URL under the reader's name. span: (from, length)."""
    fields = {"x-reader": reader()}
    if span:
        fields["range"] = f"bytes={span[0]}-{span[0] + span[1] - 1}"
    return urllib.request.urlopen(urllib.request.Request(url, headers=fields), timeout=60)


def mark(epoch):
    urllib.request.urlopen(f"{ORDER['endpoint']}/-/mark/{ORDER['rank']}/{epoch}", timeout=60).close()


def drawn():
    """What decides the next random numbers."""
    return random.getstate(), torch.get_rng_state().tolist(), numpy.random.get_state()[1].tolist()


def planned(epoch, post):
    """Marks an epoch and posts its plan, if this run posts any; no random number may be used up by that."""
    mark(epoch)
    before = drawn()
    if ORDER.get("plan", True):
        post()
    if drawn() != before:
        sys.exit("the plan used up random numbers of the training")
