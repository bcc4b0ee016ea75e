"""Plans from MosaicML Streaming: the shard files that a node will fetch, by the dataset's own partition and shuffle.

    from streaming_plan import post_plan
    for epoch in range(epochs):
        post_plan(loader, job="mpt", endpoint="http://cache:9000")     # a DataLoader over a StreamingDataset
        for batch in loader: ...

Call it on every rank before each epoch, after load_state_dict() if training resumes: the first rank of a node posts for all
of the node, as JOB.NODE if there are several. A node fetches a shard once, so it is in the plan of the worker that comes to
it first, and not at all if the node has it already (but with cache_limit, which may drop it again, it is).

epoch   an epoch to come, instead of the next
key     makes "bucket/key" of a URL; without it s3:// and http:// URLs are understood
Other arguments: see headpond_plan.py, which has to lie beside this file, with headpond_post.py.
SPDX-License-Identifier: Apache-2.0
"""
import os

import numpy as np
from streaming.base.batching import generate_work
from streaming.base.dataset import _ShardState
from streaming.base.world import World

from headpond_plan import PlanError, object_of, submit


def post_plan(loader, job, endpoint=None, epoch=None, key=object_of, strict=False, **fields):
    """Posts the plan of the epoch that begins next, or of `epoch`. Returns the server's answer, or None."""
    def make():
        number, streams = streams_of(loader, epoch, key)
        world = loader.dataset._unique_rank_world
        return f"{job}.{world.node}" if world.is_multinode else job, number, [] if world.rank_of_node else streams
    return submit(make, endpoint, strict, **fields)


def streams_of(loader, epoch=None, key=object_of):
    """(epoch, for each worker of this node the objects that it will fetch, in its order)."""
    dataset = _copy(loader.dataset)
    files = [[key(url) for url in _urls(dataset, shard)] for shard in range(dataset.num_shards)]
    epoch, samples = _samples(dataset, loader, epoch)
    bounds, first_uses = dataset.spanner.shard_bounds, []
    for number, ids in enumerate(samples):
        at = np.flatnonzero(ids >= 0)  # the rest is padding
        shards, begins = np.unique(np.searchsorted(bounds, ids[at], side="right") - 1, return_index=True)
        first_uses += zip(at[begins].tolist(), [number] * len(shards), shards.tolist())
    here = dataset._shard_states.numpy() == _ShardState.LOCAL
    planned = set() if dataset.cache_limit else set(np.flatnonzero(here).tolist())
    streams = [[] for _ in samples]
    for _, number, shard in sorted(first_uses):
        streams[number] += files[shard] if shard not in planned else []
        planned.add(shard)
    return epoch, streams


def _samples(dataset, loader, epoch):
    """(epoch, for each worker of this node the samples of that epoch), as the dataset's __iter__ gets them in the workers."""
    here, workers = dataset._unique_rank_world, max(loader.num_workers, 1)
    world = _rank(dataset, here.rank, workers)
    if getattr(loader, "persistent_workers", False):
        dataset._resume(world, 0)  # workers that live on keep what they took from the state that was loaded first
    epoch, begin = dataset._resume(world, dataset.next_epoch if epoch is None else epoch)
    work, node = generate_work(dataset.batching_method, dataset, world, epoch, begin), []
    for rank in range(here.node * here.ranks_per_node, (here.node + 1) * here.ranks_per_node):
        world = _rank(dataset, rank, workers)
        node += [work[world.node, world.rank_of_node, worker].flatten() for worker in range(workers)]
    return epoch, node


def _rank(dataset, rank, workers):
    here = dataset._unique_rank_world
    world = World(here.num_nodes, here.ranks_per_node, workers, rank * workers)
    return world.replicate(dataset.replication) if dataset.replication else world


def _copy(dataset):
    """One that may be asked: asking sets defaults, which are the workers' to set. Its end gives no shared memory back."""
    class Copy(type(dataset)):
        def __del__(self):
            pass
    copy = object.__new__(Copy)
    vars(copy).update(vars(dataset))
    return copy


def _urls(dataset, shard):
    """What is fetched for a shard: its files, compressed where they are."""
    stream = dataset.streams[dataset.stream_per_shard[shard]]
    if not stream.remote:
        raise PlanError("a stream without remote is read from the local disk: no plan is needed, or give it its remote=")
    files = [(zipped or raw).basename for raw, zipped in dataset.shards[shard].file_pairs]
    return [os.path.join(stream.remote, stream.split, name) for name in files]
