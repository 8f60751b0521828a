"""Does parallelize_module() keep a tied weight tied? Prints losses, and how far the two weights are apart at the end.

    torchrun --nproc-per-node 2 tp_tied.py parallel
    torchrun --nproc-per-node 2 tp_tied.py parallel again    # tied once more behind it: right
    torchrun --nproc-per-node 2 tp_tied.py plain             # on each rank alone: right
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.head = nn.Linear(8, 12, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.embed(x).tanh())


def whole(weight):
    return weight.full_tensor() if hasattr(weight, "full_tensor") else weight


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = Model()
    if sys.argv[1] == "parallel":
        embed = RowwiseParallel(input_layouts=Replicate())
        head = ColwiseParallel(output_layouts=Replicate())
        parallelize_module(model, init_device_mesh("cpu", (2,)), {"embed": embed, "head": head})
    if "again" in sys.argv:
        model.head.weight = model.embed.weight
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    tokens, losses = torch.arange(12), []
    for _ in range(4):
        loss = F.cross_entropy(model(tokens), tokens.roll(1))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(f"{loss.item():.6f}")
    apart = (whole(model.head.weight) - whole(model.embed.weight)).abs().max().item()
    if dist.get_rank() == 0:
        print("losses", *losses, f"apart {apart:.6f}, {len(list(model.parameters()))} parameters")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
