"""Does FSDP train on with the weights of before a step, behind a validation pass? Prints the losses.

    torchrun --nproc-per-node 2 fsdp_late_validation.py fsdp2          # the pass is before optimizer.step()
    torchrun --nproc-per-node 2 fsdp_late_validation.py fsdp1          # the same in FullyShardedDataParallel
    torchrun --nproc-per-node 2 fsdp_late_validation.py ddp            # right: DistributedDataParallel
    torchrun --nproc-per-node 2 fsdp_late_validation.py fsdp2 mended   # reshard() behind the pass
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

WRAPPER, MENDED = sys.argv[1], sys.argv[2:] == ["mended"]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = net = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    if WRAPPER == "fsdp2":
        fully_shard(model)
    elif WRAPPER == "fsdp1":
        net = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
    else:
        net = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
    for step in range(4):
        loss = (net(x) - 1).square().mean()
        loss.backward()
        with torch.no_grad():
            net(x)  # validation, before the optimizer's step
        if MENDED:
            model.reshard()
        optimizer.step()
        optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"step {step + 1}: loss {loss.item():.6f}")
    weights = {name[-6:]: value for name, value in net.state_dict().items()}["2.bias"]
    weights = weights.full_tensor() if hasattr(weights, "full_tensor") else weights
    if dist.get_rank() == 0:
        print(f"saved: a bias of {weights.flatten()[0].item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
