"""A convolution in channels_last under FSDP1 or DDP: the loss of each step.

torchrun --nproc-per-node 2 fsdp1_channels_last.py NO_SHARD    # or FULL_SHARD, SHARD_GRAD_OP, DDP
torchrun --nproc-per-node 1 fsdp1_channels_last.py FULL_SHARD  # FSDP takes NO_SHARD for one process
torchrun --nproc-per-node 2 fsdp1_channels_last.py NO_SHARD contiguous
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

STRATEGY = sys.argv[1]

dist.init_process_group("gloo")
torch.manual_seed(1)
model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
if "contiguous" not in sys.argv:
    model = model.to(memory_format=torch.channels_last)
if STRATEGY == "DDP":
    net = nn.parallel.DistributedDataParallel(model)
else:
    net = FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True,
                                   sharding_strategy=ShardingStrategy[STRATEGY])
optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
for step in range(6):
    generator = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    x, y = torch.randn(8, 2, 6, 6, generator=generator), torch.randint(0, 3, (8,), generator=generator)
    loss = nn.functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(f"step {step}: loss {loss.item():.6f}")
dist.destroy_process_group()
