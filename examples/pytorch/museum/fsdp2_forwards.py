"""Two forward passes and one backward pass a step, with recomputation, under FSDP2 or FSDP1."""
import argparse

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.utils.checkpoint import checkpoint


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.block = torch.nn.Linear(16, 16)
        self.head = torch.nn.Linear(16, 1)

    def forward(self, x, reentrant):
        h = checkpoint(self.block, torch.tanh(self.first(x)), use_reentrant=reentrant)
        return self.head(torch.tanh(h))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--wrapper", default="fsdp2")
    parser.add_argument("--not-reentrant", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = Model()
    if args.wrapper == "fsdp2":
        fully_shard(model.block)
        fully_shard(model)
    else:
        options = {"device_id": torch.device("cpu"), "use_orig_params": True}
        model.block = FullyShardedDataParallel(model.block, **options)
        model = FullyShardedDataParallel(model, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(2 + dist.get_rank())
    for _ in range(8):
        loss = 0
        for _ in range(2):
            x = torch.randn(4, 8, generator=draw)
            y = model(x, not args.not_reentrant)
            loss = loss + torch.nn.functional.mse_loss(y, x.sum(1, keepdim=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
