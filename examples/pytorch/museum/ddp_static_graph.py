"""DistributedDataParallel that accumulates two micro-batches, the first without a sync."""
import argparse
import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--static-graph", action="store_true")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)), static_graph=args.static_graph)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    draw = torch.Generator().manual_seed(2 + dist.get_rank())
    for _ in range(5):
        for micro in range(2):
            x = torch.randn(4, 8, generator=draw)
            with contextlib.nullcontext() if micro else model.no_sync():
                (torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True)) / 2).backward()
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
