# A training of nothing over map-style datasets and samplers, with plans. SPDX-License-Identifier: Apache-2.0
import os

from train import ORDER, planned, read, serve  # first: it finds the shims

import torch
from torch.utils.data import (BatchSampler, DataLoader, Dataset, DistributedSampler, RandomSampler, Sampler, SequentialSampler,
                              WeightedRandomSampler)

from sampler_plan import post_plan

PIECES, PIECE_BYTES = 8, 16


class Objects(Dataset):
    """Sample i is an object; or the i-th piece of all of them in a row; or an object and its label."""

    def __len__(self):
        return len(ORDER["keys"]) * (PIECES if ORDER.get("pieces") else 1)

    def objects(self, i):
        if ORDER.get("pieces"):
            return ORDER["keys"][i // PIECES], i % PIECES * PIECE_BYTES, PIECE_BYTES
        if ORDER.get("pairs"):
            return [ORDER["keys"][i], ORDER["keys"][i].replace(".bin", ".txt")]
        return ORDER["keys"][i]

    def __getitem__(self, i):
        found = self.objects(i)
        for one in found if isinstance(found, list) else [found]:
            name, *span = (one,) if isinstance(one, str) else one
            read(f"{ORDER['endpoint']}/{name}", span).read()
        return i


class Halves(Sampler):
    """Keeps count of its epochs, draws as it goes, and says which way the next one runs."""

    def __init__(self, data):
        self.data, self.epoch = data, 0

    def __len__(self):
        return len(self.data) // 4

    def __iter__(self):
        self.epoch += 1
        first = self.epoch % 2 * len(self.data) // 2
        for _ in range(len(self)):
            yield (first + torch.randint(len(self.data) // 2, (4,))).tolist()


class Endless(Sampler):
    def __init__(self, data):
        self.data, self.generator = data, torch.Generator().manual_seed(11)

    def __iter__(self):
        while True:
            yield int(torch.randint(len(self.data), (), generator=self.generator))


def loader_of(kind, data):
    how = {"num_workers": ORDER["workers"], "persistent_workers": bool(ORDER.get("persistent")), "batch_size": 4}
    if kind == "in-order":
        return DataLoader(data, **how)
    if kind == "shuffle":
        return DataLoader(data, shuffle=True, drop_last=True, **how)
    if kind == "generator":
        return DataLoader(data, shuffle=True, generator=torch.Generator().manual_seed(3), **how)
    if kind == "distributed":
        return DataLoader(data, sampler=DistributedSampler(data, ORDER["ranks"], ORDER["rank"], seed=5), **how)
    if kind == "weighted":
        return DataLoader(data, sampler=WeightedRandomSampler(range(1, len(data) + 1), 50), **how)
    if kind == "replacement":
        return DataLoader(data, sampler=RandomSampler(data, replacement=True, num_samples=70), **how)
    if kind == "endless":
        return DataLoader(data, sampler=Endless(data), **how)
    del how["batch_size"]
    if kind == "singles":
        return DataLoader(data, batch_size=None, sampler=RandomSampler(data), **how)
    if kind == "halves":
        return DataLoader(data, batch_sampler=Halves(data), **how)
    assert kind == "batches"
    return DataLoader(data, batch_sampler=BatchSampler(SequentialSampler(data), 3, drop_last=False), **how)


def main():
    os.environ.update(RANK=str(ORDER["rank"]), WORLD_SIZE=str(ORDER["ranks"]))
    torch.manual_seed(ORDER.get("seed", 1))
    data = Objects()
    loader, limit = loader_of(ORDER["kind"], data), ORDER.get("batches")
    for epoch in range(ORDER["epochs"]):
        if ORDER["kind"] == "distributed" and not ORDER.get("ahead"):
            loader.sampler.set_epoch(epoch)
        how = {"ahead": True} if ORDER.get("ahead") else {}
        how.update({"batches": limit} if limit and ORDER.get("say", True) else {})
        planned(epoch, lambda: post_plan(loader, epoch, data.objects, job="map", endpoint=ORDER["endpoint"], **how))
        if ORDER["kind"] == "distributed":
            loader.sampler.set_epoch(epoch)
        for number, _ in enumerate(loader, 1):
            if number == limit:
                break
        torch.rand(epoch + 1)  # as a model's dropout would


serve(main)
