"""A block with two backward passes in one, the later one recomputed: the loss of each step.

torchrun --nproc-per-node 2 fsdp2_reentrant.py reused fsdp2 reentrant  # or fsdp1, ddp; or not-reentrant
torchrun --nproc-per-node 2 fsdp2_reentrant.py forwards fsdp2 reentrant
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.utils.checkpoint import checkpoint

FORM, WRAPPER, RECOMPUTE = sys.argv[1:4]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.block, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = self.first(x)
        h = h + checkpoint(self.block, h, use_reentrant=RECOMPUTE == "reentrant")
        if FORM == "reused":
            h = h + self.block(h)
        return self.head(h.tanh())


dist.init_process_group("gloo")
torch.manual_seed(1)
model = net = Model()
if WRAPPER == "fsdp2":
    fully_shard(model.block)
    fully_shard(model)
elif WRAPPER == "fsdp1":
    model.block = FullyShardedDataParallel(model.block, device_id=torch.device("cpu"), use_orig_params=True)
    net = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
else:
    net = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
for step in range(4):
    generator = torch.Generator().manual_seed(2 * step + dist.get_rank())
    batches = [torch.randn(2, 4, generator=generator) for _ in range(2 if FORM == "forwards" else 1)]
    loss = sum(net(x).square().mean() for x in batches)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"step {step}: loss {loss.item():.6f}")
dist.destroy_process_group()
