"""Tells a headpond server what a data loader is about to read: what webdataset_plan, streaming_plan and sampler_plan share.

endpoint says where a plan goes:
    http://HOST:9000      the S3 port; signed with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, else ~/.aws/credentials
    unix:/run/headpond/admin.sock     the admin socket, for whoever may open it
    http://HOST:9001/v1   the admin port; HEADPOND_TOKEN_FILE names the file whose first line is its token
    None                  AWS_ENDPOINT_URL_S3, S3_ENDPOINT_URL or AWS_ENDPOINT_URL, the first that is set

A plan that cannot be made or sent is a warning of the logger "headpond", and training goes on; with strict=True it is a
PlanError. SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import json
import logging
import os
import random
import re
import sys
import urllib.parse

from headpond_post import PlanError, post

LINE_KEYS, ENTRY_RANGES = 1000, 256
log = logging.getLogger("headpond")


def submit(make, endpoint=None, strict=False, **fields):
    """Posts the plan that make() returns: (job, epoch, streams); streams has for each worker a list of "bucket/key" or
    ("bucket/key", from, length). fields: rate_bytes_per_s, horizon_objects, expires_s. Returns the answer, or None."""
    try:
        job, epoch, streams = make()
        streams = [_entries(stream) for stream in streams]
        answer = post(endpoint, _ndjson(streams, {"job": job, "epoch": int(epoch), **fields})) if any(streams) else None
    except Exception as error:  # whatever it is: training is worth more than its plan
        why = str(error) if isinstance(error, PlanError) else f"{error!r}: look whether this is the plan for this kind of loader"
        if strict:
            raise PlanError(why) from error
        log.warning("no plan, training goes on: %s", why)
        return None
    if answer and answer.get("unknown"):
        log.warning("plan %s: the store has not %s of its objects, first %s: look at the URLs or at key=", answer["id"],
                    answer["unknown"], answer.get("first_unknown"))
    return answer


def _entries(stream):
    """The entries of a stream, with full names: each reading of an object; parts that are read one after the other are one."""
    entries = []
    for one in stream:
        name, *span = (one,) if isinstance(one, str) else one
        last = entries[-1] if entries else {}
        if span and last.get("key") == name and 0 < len(last.get("ranges", ())) < ENTRY_RANGES:
            last["ranges"].append([int(n) for n in span])
        else:
            entries.append({"key": name, "ranges": [[int(n) for n in span]]} if span else {"key": name})
    return entries


def _ndjson(streams, head):
    """The plan without its streams, then keys of each stream in turn, so that the beginning of all comes first."""
    names = [entry["key"] for stream in streams for entry in stream]
    prefix = os.path.commonprefix([min(names), max(names)])
    prefix = prefix[:prefix.rfind("/") + 1]
    if not prefix:
        raise PlanError(f"{min(names)} and {max(names)} are in two buckets: post a plan for each, or look at key=")
    lines = [json.dumps({"prefix": prefix, **head})]
    for at in range(0, max(map(len, streams)), LINE_KEYS):
        for number, stream in enumerate(streams):
            keys = [{**entry, "key": entry["key"][len(prefix):]} for entry in stream[at:at + LINE_KEYS]]
            keys = [entry if "ranges" in entry else entry["key"] for entry in keys]
            lines += [json.dumps({"stream": number, "keys": keys})] if keys else []
    return "\n".join(lines).encode() + b"\n"


def object_of(url):
    """The "bucket/key" that a URL reads: s3://bucket/key, http://any-host/bucket/key, or a pipe: with one of them in it."""
    found = re.search(r"(s3|https?)://[^\s'\"|;]+", str(url))
    if not found:
        raise PlanError(f"{url} has no s3:// or http:// in it: give key=, a function that makes 'bucket/key' of it")
    parts = urllib.parse.urlsplit(found.group())
    return parts.netloc + parts.path if parts.scheme == "s3" else urllib.parse.unquote(parts.path).lstrip("/")


def named(job):
    """The job's name with this process's rank behind it where there are several: each posts what it reads itself."""
    torch, rank, ranks = sys.modules.get("torch"), os.environ.get("RANK", 0), os.environ.get("WORLD_SIZE", 1)
    if torch and torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()
    return f"{job}.{int(rank)}" if int(ranks) > 1 else job


@contextlib.contextmanager
def kept_random():
    """What is drawn inside is drawn again outside: training with a plan has the random numbers of training without."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    states = [(random.setstate, random.getstate())]
    states += [(numpy.random.set_state, numpy.random.get_state())] if numpy else []
    states += [(torch.set_rng_state, torch.get_rng_state())] if torch else []
    try:
        yield
    finally:
        for restore, state in states:
            restore(state)
