"""Does FSDP or a parallel layer call the hook of a parameter? Prints the gradient of a bias, which it halves.

    torchrun --nproc-per-node 2 fsdp_weight_hook.py fsdp2
    torchrun --nproc-per-node 2 fsdp_weight_hook.py fsdp1
    torchrun --nproc-per-node 2 fsdp_weight_hook.py tp             # ColwiseParallel
    torchrun --nproc-per-node 2 fsdp_weight_hook.py ddp            # right
    torchrun --nproc-per-node 2 fsdp_weight_hook.py ddp without    # without the hook
    torchrun --nproc-per-node 2 fsdp_weight_hook.py fsdp2 late     # the hook is registered on the wrapped model
"""
import sys

import torch
import torch.distributed as dist
import torch.distributed.fsdp as fsdp
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module

WRAPPER, WITHOUT, LATE = sys.argv[1], "without" in sys.argv, "late" in sys.argv


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = net = nn.Linear(8, 4)
    calls = []

    def halve(gradient):
        calls.append(1)
        return gradient * 0.5

    if not (WITHOUT or LATE):
        model.bias.register_hook(halve)
    if WRAPPER == "fsdp1":
        net = fsdp.FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True)
    elif WRAPPER == "fsdp2":
        fsdp.fully_shard(model)
    elif WRAPPER == "tp":
        parallelize_module(model, init_device_mesh("cpu", (2,)), ColwiseParallel())
    else:
        net = nn.parallel.DistributedDataParallel(model)
    if LATE:
        dict(net.named_parameters())["_fsdp_wrapped_module.bias" if WRAPPER == "fsdp1" else "bias"].register_hook(halve)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
    net(x).square().mean().backward()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    optimizer.step()
    net(x)
    state = net.state_dict()
    bias = next(value for name, value in state.items() if name.endswith("bias"))
    bias = bias.full_tensor() if hasattr(bias, "full_tensor") else bias
    if dist.get_rank() == 0:
        print(f"bias {bias.sum().item():.6f}, the hook was called {len(calls)} times")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
