"""Plans from PyTorch samplers: the objects that each worker of a DataLoader over a map-style dataset will read.

    from sampler_plan import post_plan
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)                 # if it has one
        post_plan(loader, epoch, objects=lambda i: "train-data/" + dataset.keys[i], job="vit", endpoint="http://cache:9000")
        for batch in loader: ...

objects(i) says what dataset[i] reads: "bucket/key", or ("bucket/key", from, length) for a part of an object (such plans count
for prefetch only), or a list of these. The loader's sampler is run on a copy and the state of random numbers is put back
behind it, so call it right before the epoch: what draws from the same generator in between changes the order. Batches go to
the workers in turn, as DataLoader deals them. Every rank posts its own plan, as JOB.RANK.

ahead    for an epoch to come: the copy is told set_epoch(epoch), so its sampler must have that
batches  how many are planned; needed where the sampler has no end
Other arguments: see headpond_plan.py, which has to lie beside this file, with headpond_post.py.
SPDX-License-Identifier: Apache-2.0
"""
import copy
import itertools

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from headpond_plan import PlanError, kept_random, named, submit


def post_plan(loader, epoch, objects, job, endpoint=None, ahead=False, batches=None, strict=False, **fields):
    """Posts the plan of the epoch that begins next. Returns the server's answer, or None."""
    return submit(lambda: (named(job), epoch, streams_of(loader, epoch, objects, ahead, batches)), endpoint, strict, **fields)


def streams_of(loader, epoch, objects, ahead=False, batches=None):
    """For each worker the objects that it will read, in its order."""
    if isinstance(loader.dataset, IterableDataset):
        raise PlanError("this dataset chooses its own order, no sampler does: see webdataset_plan.py and streaming_plan.py")
    # Without an order among batches the next one goes to whichever worker is free: one list for all.
    workers = max(loader.num_workers, 1) if getattr(loader, "in_order", True) else 1
    streams = [[] for _ in range(workers)]
    for number, batch in enumerate(_batches(loader, epoch, ahead, batches)):
        for index in batch if loader.batch_sampler is not None else [batch]:
            found = objects(index)
            streams[number % workers] += found if isinstance(found, list) else [found]
    return streams


def _batches(loader, epoch, ahead, count):
    """What the loader will ask of its dataset, batch by batch."""
    if count is None:
        try:
            count = len(loader)
        except TypeError:
            raise PlanError("this sampler does not tell its length: say batches=, how many are read in an epoch") from None
    clones = _clones(loader)
    sampler = copy.deepcopy(loader.batch_sampler if loader.batch_sampler is not None else loader.sampler, clones)
    if ahead:
        deciders = [one for one in (sampler, getattr(sampler, "sampler", None)) if hasattr(one, "set_epoch")]
        if not deciders:
            raise PlanError("the order of an epoch to come is known only where the sampler has set_epoch(): call without ahead")
        for one in deciders:
            one.set_epoch(epoch)
    how = {"batch_sampler": sampler} if loader.batch_sampler is not None else {"sampler": sampler, "batch_size": None}
    with kept_random():
        # A new iterator draws a seed for its workers before the sampler draws; one whose workers live on has done so.
        if not (loader.persistent_workers and loader._iterator is not None):
            generator = clones.get(id(loader.generator))
            sampler = DataLoader(_Indices(), generator=generator, collate_fn=lambda batch: batch, **how)
        return list(itertools.islice(iter(sampler), count))


class _Indices(Dataset):
    def __getitem__(self, index):
        return index


def _clones(loader):
    """The memory of a deep copy of the samplers: generators are cloned, datasets are not copied."""
    memory = {id(loader.dataset): loader.dataset}
    for owner in (loader, loader.sampler, loader.batch_sampler, getattr(loader.batch_sampler, "sampler", None)):
        for thing in vars(owner).values() if hasattr(owner, "__dict__") else ():
            if isinstance(thing, torch.Generator) and id(thing) not in memory:
                memory[id(thing)] = torch.Generator(device=thing.device)
                memory[id(thing)].set_state(thing.get_state())
            elif isinstance(thing, Dataset):
                memory[id(thing)] = thing
    return memory
