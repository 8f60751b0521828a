"""Does FSDP1 add up the gradients of a block used twice, one use recomputed? Prints the block's gradient.

    torchrun --nproc-per-node 2 fsdp1_reentrant_bf16.py bf16              # one of two gradients
    torchrun --nproc-per-node 2 fsdp1_reentrant_bf16.py fp32              # right: without mixed precision
    torchrun --nproc-per-node 2 fsdp1_reentrant_bf16.py bf16 without      # right: without a checkpoint
    torchrun --nproc-per-node 2 fsdp1_reentrant_bf16.py bf16 one          # the second use alone, without a checkpoint
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision
from torch.utils.checkpoint import checkpoint

NARROW, WAY = sys.argv[1] == "bf16", sys.argv[2:]


class Model(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.first, self.block = nn.Linear(8, 8), FSDP(nn.Linear(8, 8), **options)

    def forward(self, x):
        h = self.first(x)
        if WAY == ["one"]:
            with torch.no_grad():
                h = h + self.block(h)
        else:
            h = h + (self.block(h) if WAY == ["without"] else checkpoint(self.block, h, use_reentrant=True))
        return h + self.block(h)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    policy = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if NARROW else None
    options = dict(device_id=torch.device("cpu"), use_orig_params=True, mixed_precision=policy)
    net = FSDP(Model(options), **options)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
    for step in range(3):
        loss = net(x).float().square().mean()
        loss.backward()
        with FSDP.summon_full_params(net, with_grads=True):
            gradient = net.module.block.module.bias.grad.sum().item()
        if dist.get_rank() == 0:
            print(f"step {step + 1}: loss {loss.item():.6f}, gradient {gradient:.6f}")
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
