# Plans against what data loaders then read: the shims of conf/clients in trainings by the real WebDataset, PyTorch DataLoader
# and MosaicML Streaming, several workers, ranks and epochs, over a stand-in that notes each plan and each read.
#
#   shims.py [word...]      only cases whose name holds one of the words
#
# A plan holds if each of its streams is, object by object and range by range, what that worker asked for in that epoch.
# For Streaming, where whoever comes first fetches a shard for all of the node, it is what follows from the samples that
# each worker was given, and the objects that were fetched are those of the plan, each once.
#
# The last line is "shims: N passed, N failed"; exit status 0 only if some passed and none failed.
#
# SPDX-License-Identifier: Apache-2.0
import io
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor

import doors
import real
from standin import Standin, USER

HERE = os.path.dirname(os.path.abspath(__file__))
LIMIT_S = 300
WDS = [{"kind": "plain"}, {"kind": "seeded", "epochs": 2}, {"kind": "by-epoch"}, {"kind": "by-epoch", "persistent": True},
       {"kind": "by-epoch", "workers": 0}, {"kind": "by-epoch", "ranks": 2, "persistent": True}, {"kind": "stages", "ranks": 2},
       {"kind": "drawn"}, {"kind": "resampled", "shards": 9}, {"kind": "resampled", "shards": 7, "persistent": True, "ranks": 2},
       {"kind": "by-epoch", "shards": 11, "persistent": True}]
WDS_REFUSED = [({"kind": "unseeded"}, "give the shard shuffle a seed"),
               ({"kind": "resampled", "shards": 9, "say": False}, "say shards=")]
MAP = [{"kind": "in-order"}, {"kind": "in-order", "workers": 0}, {"kind": "shuffle"}, {"kind": "shuffle", "persistent": True},
       {"kind": "shuffle", "workers": 0}, {"kind": "generator"}, {"kind": "generator", "persistent": True},
       {"kind": "distributed", "ranks": 2}, {"kind": "distributed", "ranks": 2, "ahead": True}, {"kind": "weighted"},
       {"kind": "replacement", "pieces": True}, {"kind": "shuffle", "pieces": True}, {"kind": "singles"},
       {"kind": "halves", "persistent": True}, {"kind": "batches", "pairs": True}, {"kind": "endless", "batches": 20}]
MAP_REFUSED = [({"kind": "endless", "batches": 5, "say": False}, "say batches="),
               ({"kind": "shuffle", "ahead": True}, "call without ahead")]
PLAIN, PACKED, LINES = ["s3://bucket/mds/plain", {}], ["s3://bucket/mds/packed", {"split": "train"}], ["s3://bucket/mds/lines", {}]
SHUFFLED = {"shuffle": True, "shuffle_seed": 4}
# Each epoch of these takes other shards, so that there is always something that no epoch before has fetched.
SOME = {**SHUFFLED, "epoch_size": 48, "sampling_granularity": 8}
STATE = {"sample_in_epoch": 0, "num_canonical_nodes": 1, "shuffle_seed": 4, "initial_physical_nodes": 1}
MDS = [{"streams": [PLAIN], "dataset": {}, "epochs": 2},
       {"streams": [PLAIN], "dataset": {**SOME, "shuffle_algo": "py1s", "num_canonical_nodes": 2}},
       {"streams": [PLAIN, PACKED, LINES], "dataset": {**SHUFFLED, "shuffle_algo": "py1br", "shuffle_block_size": 40},
        "begin": {**STATE, "epoch": 3}, "epochs": 1, "keep": 3},
       {"streams": [PLAIN, PACKED], "dataset": {**SOME, "batching_method": "stratified"}, "persistent": True},
       {"streams": [PLAIN, LINES], "dataset": SOME, "ranks": 2},
       {"streams": [PLAIN], "dataset": {**SHUFFLED, "replication": 2}, "ranks": 2, "workers": 1, "epochs": 1},
       {"streams": [PLAIN, PACKED], "dataset": SHUFFLED, "workers": 0, "begin": {**STATE, "epoch": 1, "sample_in_epoch": 80}}]
# Trainings that stop in the middle of an epoch, and what goes on from there: with the shuffle that they began with.
MDS_RESUMED = [({"streams": [PLAIN], "dataset": {**SHUFFLED, "num_canonical_nodes": 2}},
                {"streams": [PLAIN], "dataset": {**SHUFFLED, "shuffle_seed": 99}, "persistent": True}),
               ({"streams": [PLAIN, LINES], "dataset": SOME, "ranks": 2}, {"streams": [PLAIN, LINES], "dataset": SOME})]


class Training:
    """A program of train.py's kind: run() gives it orders to be carried out at the same time."""

    def __init__(self, where, name, endpoint):
        self.log = open(os.path.join(where, name + ".log"), "w+", encoding="utf-8")
        keys = {"AWS_ACCESS_KEY_ID": USER.access, "AWS_SECRET_ACCESS_KEY": USER.secret, "AWS_REGION": "us-east-1"}
        odd = ("RANK", "WORLD_SIZE", "WORKER", "NUM_WORKERS", "AWS_PROFILE", "AWS_SESSION_TOKEN", "WDS_CACHE", "HTTP_PROXY", "http_proxy")
        env = {name: value for name, value in os.environ.items() if name not in odd}
        env.update(keys, S3_ENDPOINT_URL=endpoint, AWS_EC2_METADATA_DISABLED="true", GLOO_SOCKET_IFNAME="lo", TMPDIR=where,
                   OMP_NUM_THREADS="1", TRANSFORMERS_VERBOSITY="error")
        self.process = subprocess.Popen([sys.executable, "-B", os.path.join(HERE, name + ".py")], env=env, text=True, cwd=where,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, start_new_session=True)

    def run(self, orders):
        """(what went wrong or None, what was said to stderr)."""
        begin = self.log.seek(0, io.SEEK_END)
        self.process.stdin.write(json.dumps(orders) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], LIMIT_S)
        statuses = self.process.stdout.readline().split() if ready else ["does not end"]
        self.log.seek(begin)
        said = self.log.read()
        return (None if statuses and set(statuses) == {"0"} else f"training ended with {statuses}: {said[-1500:]}"), said

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.log.close()


def shard_of(number):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for sample in range(3):
            info = tarfile.TarInfo(f"{number:03d}{sample}.txt")
            info.size = 4
            tar.addfile(info, io.BytesIO(b"text"))
    return file.getvalue()


def epochs_of(notes, rank):
    """For each epoch of a rank, as it marked them: (its plans, {worker: what it read})."""
    epochs = []
    for note in notes:
        if note[0] == "mark" and note[1] == rank:
            epochs.append(([], {}))
        elif note[0] == "plan" and rank == rank_of(note[1]):
            epochs[-1][0].append(note[1])
        elif note[0] == "read" and int(note[1].split("/")[0]) == rank and epochs:
            epochs[-1][1].setdefault(int(note[1].split("/")[1]), []).append(note[2:])
    return epochs


def rank_of(plan):
    return int(plan.head["job"].partition(".")[2] or 0)


def flat(stream):
    """(object, range or None) as it is asked for on the wire."""
    return [(name, span) for name, ranges in stream for span in (ranges or [None])]


def read_problems(order, epochs, number_of_epochs):
    problems = [] if len(epochs) == number_of_epochs else [f"{len(epochs)} epochs"]
    for number, (plans, reads) in enumerate(epochs):
        if len(plans) != 1 or plans[0].head["epoch"] != number or plans[0].door != "s3":
            problems.append(f"epoch {number}: plans {[plan.head for plan in plans]}")
            continue
        streams = [flat(stream) for stream in plans[0].streams]
        for worker in range(max(order["workers"], 1)):
            plan, done = streams[worker] if worker < len(streams) else [], reads.pop(worker, [])
            if "batches" in order:
                done = done[:len(plan)]  # it is given more to do than its training then wants
            if plan != done or not plan:
                problems.append(f"epoch {number}, worker {worker}: plan {plan[:6]}, {len(plan)} long; read {done[:6]}, {len(done)} long")
        if reads:
            problems.append(f"epoch {number}: others read as well: {sorted(reads)}")
    return problems


def files_of(objects, streams):
    """For each shard of a data set, by its number, the objects that are fetched for it."""
    files = []
    for remote, how in streams:
        place = "/".join([remote[len("s3://"):], how["split"]] if "split" in how else [remote[len("s3://"):]])
        for shard in json.loads(objects[f"{place}/index.json"])["shards"]:
            parts = [shard.get("zip_" + part[4:]) or shard[part] for part in ("raw_meta", "raw_data") if part in shard]
            files.append([f"{place}/{part['basename']}" for part in parts])
    return files


def used_of(notes, order):
    """{epoch: [(place among a worker's samples, number of the worker, shard)]}, in the order in which it was written down."""
    used = {}
    for rank in range(order["ranks"]):
        for worker in range(max(order["workers"], 1)):
            path = os.path.join(notes, f"{rank}-{worker}")
            for line in open(path, encoding="ascii") if os.path.exists(path) else ():
                epoch, place, shard = json.loads(line)
                used.setdefault(epoch, []).append((place, rank * max(order["workers"], 1) + worker, shard))
    return used


def fetch_problems(order, epochs, used, files):
    """epochs: of the whole node, (plans, objects that were fetched). Of the epoch that is cut short more is fetched than used."""
    problems = [] if len(epochs) == order["epochs"] == len(used) else [f"{len(epochs)} epochs, samples of {sorted(used)}"]
    here = set(range(0, len(files), order["keep"])) if "keep" in order else set()
    for number, (epoch, (plans, fetched)) in enumerate(zip(sorted(used), epochs)):
        wanted = [[] for _ in range(order["ranks"] * max(order["workers"], 1))]
        for _, worker, shard in sorted(used[epoch]):
            wanted[worker] += files[shard] if shard not in here else []
            here.add(shard)
        if [plan.head["epoch"] for plan in plans] != [epoch] * any(wanted):
            problems.append(f"epoch {epoch}: plans {[plan.head for plan in plans]}, of {len(wanted)} to fetch")
        if not plans:
            continue
        streams = [[name for name, _ in stream] for stream in plans[0].streams]
        streams += [[]] * (len(wanted) - len(streams))
        planned = sorted(name for stream in streams for name in stream)
        cut = number == order["epochs"] - 1 and "stop" in order
        if cut and not (set(fetched) <= set(planned) and fetched):
            problems.append(f"epoch {epoch}: {sorted(set(fetched) - set(planned))} not in the plan")
        elif not cut and streams != wanted:
            problems.append(f"epoch {epoch}: plan {streams}, samples {wanted}")
        elif not cut and planned != sorted(fetched):
            problems.append(f"epoch {epoch}: plan {planned}, fetched {sorted(fetched)}")
    return problems


def name_of(loader, order):
    words = {k: v for k, v in order.items() if k not in ("urls", "keys", "endpoint")}
    return f"{loader} " + " ".join(f"{k}={v}" for k, v in words.items())


class Cases:
    """The cases of one loader, with a stand-in of their own."""

    def __init__(self, where, words):
        self.where, self.words, self.passed, self.failed = where, words, 0, 0
        os.mkdir(where)
        self.standin = Standin({f"bucket/wds/train-{n:03d}.tar": shard_of(n) for n in range(24)})
        self.standin.objects.update({f"bucket/map/{n:02d}.{kind}": bytes(128) for n in range(30) for kind in ("bin", "txt")})

    def wanted(self, name):
        return not self.words or any(word in name for word in self.words)

    def verdict(self, name, problems):
        self.passed, self.failed = self.passed + (not problems), self.failed + bool(problems)
        lines = [f"{'FAIL' if problems else 'ok  '}  {name}"] + [f"      {problem}" for problem in problems[:6]]
        print("\n".join(lines), flush=True)

    def readers(self, loader, program, orders, refused, common):
        """Loaders whose workers read by themselves."""
        orders = [({"workers": 3, "ranks": 1, "epochs": 3, **o}, None) for o in orders] + \
                 [({"workers": 2, "ranks": 1, "epochs": 1, **o}, why) for o, why in refused]
        orders = [(order, why) for order, why in orders if self.wanted(name_of(loader, order))]
        if not orders:
            return
        with Training(self.where, program, self.standin.endpoint) as training:
            for order, why in orders:
                self.read_case(loader, training, {**order, **common}, why)

    def read_case(self, loader, training, order, why):
        """why: the shim's words, if it cannot know this order and says so; training goes on all the same."""
        self.standin.taken()
        ranks = [{**order, "rank": rank, "endpoint": self.standin.endpoint} for rank in range(order["ranks"])]
        wrong, said = training.run(ranks)
        notes, problems = self.standin.taken(), [wrong] if wrong else []
        for rank in range(order["ranks"]):
            epochs = epochs_of(notes, rank)
            if why:
                plans = [plan for plans, _ in epochs for plan in plans]
                problems += [] if why in said and not plans and epochs and epochs[0][1] else [f"no refusal: {said[-300:]}, {plans}"]
            else:
                problems += read_problems(order, epochs, order["epochs"])
                problems += [f"said: {said[-300:]}"] if "no plan" in said else []
        self.verdict(name_of(loader, order), problems)
        if order["kind"] in ("shuffle", "weighted") and not why:
            self.unchanged(loader, training, order, ranks, notes)

    def streaming(self):
        """MosaicML Streaming, which keeps what it fetches: epochs after which all or some of it is forgotten, and resumed ones."""
        usual = {"workers": 2, "ranks": 1, "epochs": 3}
        cases = [[{**usual, **order}] for order in MDS]
        cases += [[{**usual, **first, "epochs": 2, "stop": 3}, {**usual, **then, "epochs": 2}] for first, then in MDS_RESUMED]
        cases = [orders for orders in cases if self.wanted(name_of("streaming", orders[-1]))]
        if not cases:
            return
        made = os.path.join(self.where, "made")
        subprocess.run([sys.executable, "-B", os.path.join(HERE, "make_mds.py"), made], check=True, timeout=LIMIT_S,
                       env={**os.environ, "TRANSFORMERS_VERBOSITY": "error"})
        for folder, _, names in os.walk(made):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    self.standin.objects["bucket/" + os.path.relpath(path, made)] = f.read()
        with Training(self.where, "train_streaming", self.standin.endpoint) as training:
            for number, orders in enumerate(cases):
                problems = []
                for part, order in enumerate(orders):
                    problems += self.streamed(training, order, os.path.join(self.where, f"{number}"), part)
                self.verdict(name_of("streaming", orders[-1]) + (", resumed" if len(orders) > 1 else ""), problems)

    def streamed(self, training, order, where, part):
        self.standin.taken()
        notes = os.path.join(where, f"notes-{part}")
        os.makedirs(notes)
        files = files_of(self.standin.objects, order["streams"])
        common = {"endpoint": self.standin.endpoint, "notes": notes, "local": os.path.join(where, f"local-{part}"),
                  "meeting": os.path.join(where, f"meeting-{part}"), "state": os.path.join(where, "state"),
                  "resume": bool(part or "begin" in order)}
        if "begin" in order:
            with open(common["state"], "w", encoding="ascii") as f:
                json.dump(order["begin"], f)
        for name in sum(files[::order["keep"]], []) if "keep" in order else ():
            number = next(n for n, (remote, _) in enumerate(order["streams"]) if name.startswith(remote[len("s3://"):] + "/"))
            kept = os.path.join(common["local"], str(number), name[len(order["streams"][number][0][len("s3://"):]) + 1:])
            os.makedirs(os.path.dirname(kept), exist_ok=True)
            with open(kept, "wb") as f:
                f.write(self.standin.objects[name])
        wrong, said = training.run([{**order, **common, "rank": rank} for rank in range(order["ranks"])])
        happened = self.standin.taken()
        ranks = [epochs_of(happened, rank) for rank in range(order["ranks"])]
        node = [(ranks[0][n][0], [name for rank in ranks for reads in rank[n][1].values() for name, _ in reads])
                for n in range(min(map(len, ranks)))]
        problems = [wrong] if wrong else fetch_problems(order, node, used_of(notes, order), files)
        return problems + ([f"said: {said[-300:]}"] if "no plan" in said else [])

    def unchanged(self, loader, training, order, ranks, notes):
        """The training without plans reads the same."""
        wrong, _ = training.run([{**one, "plan": False} for one in ranks])
        again = self.standin.taken()
        same = all([reads for _, reads in epochs_of(notes, rank)] == [reads for _, reads in epochs_of(again, rank)]
                   for rank in range(order["ranks"]))
        self.verdict(name_of(loader, order) + ", without plans the same", [wrong] if wrong else [] if same else ["another order"])


def main():
    where, words, parts = tempfile.mkdtemp(prefix="shims-"), sys.argv[1:], {}
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.chmod(where, 0o711)  # the server is another user
    try:
        for part in ("doors", "webdataset", "sampler", "streaming", "headpond"):
            parts[part] = Cases(os.path.join(where, part), words)
        posts = doors.run(parts["doors"])
        if parts["headpond"].wanted("headpond"):
            real.run(parts["headpond"], posts, Training)
        objects = parts["webdataset"].standin.objects
        urls = [f"{parts['webdataset'].standin.endpoint}/{name}" for name in sorted(objects) if name.endswith(".tar")]
        keys = [name for name in sorted(objects) if name.endswith(".bin")]
        with ThreadPoolExecutor(len(parts)) as pool:
            runs = [pool.submit(parts["streaming"].streaming),
                    pool.submit(parts["sampler"].readers, "sampler", "train_sampler", MAP, MAP_REFUSED, {"keys": keys}),
                    pool.submit(parts["webdataset"].readers, "webdataset", "train_webdataset", WDS, WDS_REFUSED, {"urls": urls})]
        for run in runs:
            run.result()
    finally:
        shutil.rmtree(where, ignore_errors=True)
    passed, failed = sum(part.passed for part in parts.values()), sum(part.failed for part in parts.values())
    print(f"shims: {passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
