"""Does DDP average gradients of weights in channels_last behind ZeroRedundancyOptimizer? Prints losses of rank 0.

    torchrun --nproc-per-node 2 redundancy_strided.py view            # parameters_as_bucket_view=True
    torchrun --nproc-per-node 2 redundancy_strided.py view unused     # and DDP with find_unused_parameters=True
    torchrun --nproc-per-node 2 redundancy_strided.py average unused  # PeriodicModelAverager behind each step
    torchrun --nproc-per-node 2 redundancy_strided.py copy            # right: without views
    torchrun --nproc-per-node 2 redundancy_strided.py ddp             # right: the optimizer alone
    torchrun --nproc-per-node 2 redundancy_strided.py view first      # right: the optimizer is made before DDP
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import ZeroRedundancyOptimizer

KIND, ALSO = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""


def made(model):
    if KIND in ("view", "copy"):
        return ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.SGD, lr=0.1, parameters_as_bucket_view=KIND == "view"
        )
    return torch.optim.SGD(model.parameters(), lr=0.1)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)).to(memory_format=torch.channels_last)
    optimizer = made(model) if ALSO == "first" else None
    net = nn.parallel.DistributedDataParallel(model, find_unused_parameters=ALSO == "unused")
    optimizer, averager = optimizer or made(model), PeriodicModelAverager(1)
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
    for step in range(6):
        loss = (net(x) - 1).square().mean()
        loss.backward()
        optimizer.step()
        if KIND == "average":
            averager.average_parameters(model.parameters())
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step + 1}: loss {loss.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
