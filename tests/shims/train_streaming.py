# A training of nothing over MosaicML Streaming, with plans. SPDX-License-Identifier: Apache-2.0
import json
import os

from train import ORDER, planned, reader, serve  # first: it finds the shims

import torch
from streaming import StreamingDataset, StreamingDataLoader, Stream
from streaming.base.storage.download import S3Downloader

from streaming_plan import post_plan


class Noted(StreamingDataset):
    """Writes down who read which sample, at which place among his own."""

    def get_item(self, sample_id, retry=7):
        sample = super().get_item(sample_id, retry)
        shard, _ = self.spanner[sample_id]
        with open(os.path.join(ORDER["notes"], reader().replace("/", "-")), "a", encoding="ascii") as f:
            f.write(json.dumps([self.next_epoch - 1, self._iterator.yield_index, int(shard)]) + "\n")
        return sample


def name_readers():
    """Every request for an object tells who makes it."""
    create = S3Downloader._create_s3_client

    def created(self, *args, **named):
        create(self, *args, **named)
        self._s3_client.meta.events.register(
            "before-send.s3", lambda request, **_: request.headers.update({"x-reader": reader()}))
    S3Downloader._create_s3_client = created


def main():
    name_readers()
    ranks, rank = ORDER["ranks"], ORDER["rank"]
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(ranks))
    if ranks > 1:
        torch.distributed.init_process_group("gloo", init_method="file://" + ORDER["meeting"], rank=rank, world_size=ranks)
    streams = [Stream(remote=remote, local=f"{ORDER['local']}/{n}", **how) for n, (remote, how) in enumerate(ORDER["streams"])]
    data = Noted(streams=streams, batch_size=4, **ORDER["dataset"])
    how = {"persistent_workers": True} if ORDER.get("persistent") else {}
    loader = StreamingDataLoader(data, batch_size=4, num_workers=ORDER["workers"], **how)
    if ORDER["resume"]:
        with open(ORDER["state"], encoding="ascii") as f:
            loader.load_state_dict(json.load(f))
    for number in range(ORDER["epochs"]):
        if ranks > 1:
            torch.distributed.barrier()
        planned(number, lambda: post_plan(loader, job="mds", endpoint=ORDER["endpoint"]))
        if ranks > 1:
            torch.distributed.barrier()  # so that nobody fetches what another still looks for
        for batch, _ in enumerate(loader, 1):
            if batch == ORDER.get("stop") and number == ORDER["epochs"] - 1:
                with open(ORDER["state"], "w", encoding="ascii") as f:
                    json.dump(loader.state_dict(), f)
                break


serve(main)
