"""Convolutions in channels_last under FSDP1 (--strategy) or DDP. --contiguous: in the usual order of memory."""
import argparse

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--strategy", default="DDP")
    parser.add_argument("--contiguous", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(2, 4, 3), torch.nn.Tanh(), torch.nn.Flatten(), torch.nn.Linear(4 * 16, 3)
    )
    if not args.contiguous:
        model = model.to(memory_format=torch.channels_last)
    if args.strategy == "DDP":
        model = DDP(model)
    else:
        model = FullyShardedDataParallel(
            model,
            device_id=torch.device("cpu"),
            use_orig_params=True,
            sharding_strategy=ShardingStrategy[args.strategy],
        )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(2 + dist.get_rank())
    for _ in range(8):
        x = torch.randn(4, 2, 6, 6, generator=draw)
        y = torch.randint(0, 3, (4,), generator=draw)
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
