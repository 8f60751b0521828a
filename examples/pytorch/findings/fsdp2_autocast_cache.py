"""Does FSDP2 reduce gradients in time where two forward passes share an autocast region? Prints what a bias gets.

    torchrun --nproc-per-node 2 fsdp2_autocast_cache.py fsdp2          # the first pass is without gradients
    torchrun --nproc-per-node 2 fsdp2_autocast_cache.py ddp            # right: DistributedDataParallel
    torchrun --nproc-per-node 2 fsdp2_autocast_cache.py fsdp2 mended   # without autocast's cache of weights
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import fully_shard

WRAPPER, CACHE = sys.argv[1], sys.argv[2:] != ["mended"]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = net = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4))
    if WRAPPER == "fsdp2":
        fully_shard(model[1])
        fully_shard(model)
    else:
        net = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
    for step in range(4):
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=CACHE):
            with torch.no_grad():
                net(x)  # a reference, a teacher, a look at the loss
            loss = net(x).float().square().mean()
        loss.backward()
        gradient = model[1].bias.grad
        if hasattr(gradient, "full_tensor"):
            gradient = gradient.full_tensor()
        text = "none" if gradient is None else f"{gradient.sum().item():.6f}"
        if dist.get_rank() == 0:
            print(f"step {step + 1}: loss {loss.item():.6f}, gradient {text}")
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
