# A training of nothing over WebDataset, with plans. SPDX-License-Identifier: Apache-2.0
import os

from train import ORDER, planned, read, serve  # first: it finds the shims

import webdataset as wds
from webdataset.gopen import gopen_schemes

from webdataset_plan import post_plan

SHARD_SAMPLES = 3


def dataset(kind, urls):
    if kind == "resampled":
        return wds.DataPipeline(wds.ResampledShards(urls, deterministic=True, seed=5), wds.tarfile_to_samples())
    if kind in ("stages", "unseeded"):
        seed = {"seed": 3} if kind == "stages" else {}
        return wds.DataPipeline(wds.SimpleShardList(urls), wds.split_by_node, wds.split_by_worker, wds.shuffle(10, **seed),
                                wds.tarfile_to_samples())
    how = {"plain": {"shardshuffle": False}, "seeded": {"shardshuffle": 100, "seed": 7}, "drawn": {"shardshuffle": 100},
           "by-epoch": {"shardshuffle": 100, "seed": 7, "detshuffle": True}}[kind]
    data = wds.WebDataset(urls, nodesplitter=wds.split_by_node, **how)
    return data if ORDER.get("shards") else data.shuffle(20)


def main():
    os.environ.update(RANK=str(ORDER["rank"]), WORLD_SIZE=str(ORDER["ranks"]))
    gopen_schemes["http"] = lambda url, mode="rb", bufsize=8192, **_: read(url)
    data = dataset(ORDER["kind"], ORDER["urls"])
    shards, limit = ORDER.get("shards"), {}
    if shards:
        # the last sample of a shard is there only once the next shard was opened
        data, limit = data.with_epoch(shards * SHARD_SAMPLES - 1), {"shards": shards if ORDER.get("say", True) else None}
    workers = ORDER["workers"]
    how = {"persistent_workers": True} if ORDER.get("persistent") else {}
    loader = wds.WebLoader(data, batch_size=None, num_workers=workers, **how).shuffle(5)
    for epoch in range(ORDER["epochs"]):
        planned(epoch, lambda: post_plan(loader, epoch, job="wds", endpoint=ORDER.get("post", ORDER["endpoint"]), expires_s=600, **limit))
        for _ in loader:
            pass


serve(main)
