"""Plans from WebDataset: the shards that each worker of a loader will open, by the dataset's own shard stages.

    from webdataset_plan import post_plan
    for epoch in range(epochs):
        post_plan(loader, epoch, job="resnet", endpoint="http://cache:9000")     # a WebLoader or DataLoader
        for batch in loader: ...

The stages before the one that opens shards (list, splits by node and worker, shuffles) run here on a copy, once as each
worker. So the order must not be drawn anew in the workers: WebDataset(shardshuffle=N, detshuffle=True, seed=S), or
shuffle(N, seed=S), or ResampledShards(..., deterministic=True). Every rank posts its own plan, as JOB.RANK.

shards  how many of them a worker opens in an epoch, buffers of shuffle() included; needed where its list has no end
        (resampled, repeat(), with_epoch())
passes  how many epochs the workers have read before. A worker of its own for each epoch (the default of DataLoader) has
        read none; with persistent_workers it is `epoch`, if this process began with epoch 0
key     makes "bucket/key" of a URL; without it s3:// and http:// URLs are understood, also inside of pipe:
Other arguments: see headpond_plan.py, which has to lie beside this file, with headpond_post.py.
SPDX-License-Identifier: Apache-2.0
"""
import contextlib
import copy
import itertools
import os

from webdataset.pipeline import DataPipeline

from headpond_plan import PlanError, kept_random, named, object_of, submit

OPENERS = {"StreamingOpen", "FileCache", "url_opener", "cached_url_opener", "tarfile_samples", "tarfile_to_samples",
           "cached_tarfile_samples", "cached_tarfile_to_samples"}
ENDLESS = 1_000_000


def post_plan(loader, epoch, job, endpoint=None, shards=None, passes=None, key=object_of, strict=False, **fields):
    """Posts the plan of the epoch that begins next. Returns the server's answer, or None."""
    return submit(lambda: (named(job), epoch, streams_of(loader, epoch, shards, passes, key)), endpoint, strict, **fields)


def streams_of(loader, epoch=0, shards=None, passes=None, key=object_of):
    """For each worker the objects that it will read, in its order."""
    while isinstance(loader, DataPipeline):  # a WebLoader has the DataLoader as its first stage
        loader = loader.pipeline[0]
    if passes is None:
        passes = epoch if loader.persistent_workers and loader.num_workers else 0
    workers = loader.num_workers or 1
    with kept_random():
        lists, again = ([_urls(loader.dataset, worker, workers, shards, 0) for worker in range(workers)] for _ in range(2))
        if passes and lists == again:
            lists = again = [_urls(loader.dataset, worker, workers, shards, passes) for worker in range(workers)]
    if lists != again:
        raise PlanError("the workers will draw this order themselves: give the shard shuffle a seed (detshuffle=True, seed=7; "
                        "for resampled shards ResampledShards(..., deterministic=True))")
    return [[key(url) for url in urls] for urls in lists]


def _urls(dataset, worker, workers, shards, passes):
    stages = getattr(dataset, "pipeline", [])
    names = [getattr(getattr(stage, "f", stage), "__name__", type(stage).__name__) for stage in stages]
    opener = next((at for at, name in enumerate(names) if name in OPENERS), 0)
    if not opener:
        raise PlanError(f"no list of shards in {names}: plans are for WebDataset() or DataPipeline(SimpleShardList(...), ...)")
    line = copy.copy(dataset)
    line.pipeline, line.nsamples = copy.deepcopy(stages[:opener]), -1
    with _as_worker(worker, workers):
        for _ in range(passes + 1):
            urls = [sample["url"] for sample in itertools.islice(iter(line), shards or ENDLESS)]
    if not shards and len(urls) == ENDLESS:
        raise PlanError("the list of shards has no end: say shards=, how many of them a worker reads in an epoch")
    return urls


@contextlib.contextmanager
def _as_worker(worker, workers):
    """Lets WebDataset believe that it runs in this worker, by the variables that it reads for that."""
    new = {"WORKER": str(worker), "NUM_WORKERS": str(workers)}
    old = {name: os.environ.get(name) for name in new}
    os.environ.update(new)
    try:
        yield
    finally:
        for name, value in old.items():
            os.environ.pop(name)
            os.environ.update({} if value is None else {name: value})
