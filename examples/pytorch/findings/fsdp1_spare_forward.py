"""Does FSDP1 train a model after a forward pass that nothing uses? Prints the loss and a bias's gradient.

    torchrun --nproc-per-node 2 fsdp1_spare_forward.py bf16            # with mixed precision: it does not
    torchrun --nproc-per-node 2 fsdp1_spare_forward.py fp32            # right: without
    torchrun --nproc-per-node 2 fsdp1_spare_forward.py bf16 no_grad    # right: the pass is without gradients
"""
import contextlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.fsdp as fsdp
import torch.nn as nn

NARROW, NO_GRAD = sys.argv[1] == "bf16", sys.argv[2:] == ["no_grad"]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    policy = fsdp.MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if NARROW else None
    net = fsdp.FullyShardedDataParallel(
        nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4)), device_id=torch.device("cpu"), use_orig_params=True,
        mixed_precision=policy)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
    for step in range(3):
        with torch.no_grad() if NO_GRAD else contextlib.nullcontext():
            net(x)  # a look at the outputs, say
        loss = net(x).float().square().mean()
        loss.backward()
        with fsdp.FullyShardedDataParallel.summon_full_params(net, with_grads=True):
            gradient = net.module[1].bias.grad
            text = "none" if gradient is None else f"{gradient.sum().item():.6f}"
        if dist.get_rank() == 0:
            print(f"step {step + 1}: loss {loss.item():.6f}, gradient {text}")
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
