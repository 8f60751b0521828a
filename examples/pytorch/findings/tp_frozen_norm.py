"""Does a frozen LayerNorm stay frozen under SequenceParallel? Prints what requires a gradient, and what a step moves.

    torchrun --nproc-per-node 2 tp_frozen_norm.py sequence
    torchrun --nproc-per-node 2 tp_frozen_norm.py sequence again    # frozen once more behind it: right
    torchrun --nproc-per-node 2 tp_frozen_norm.py plain             # the norm is not parallel: right
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, SequenceParallel, parallelize_module


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 4))
    model.requires_grad_(False)
    model[1].weight.requires_grad_(True)
    mesh = init_device_mesh("cpu", (2,))
    plan = {"1": ColwiseParallel(output_layouts=Replicate())}
    if sys.argv[1] == "sequence":
        plan = {
            "0": SequenceParallel(sequence_dim=0),
            "1": ColwiseParallel(input_layouts=Shard(0), output_layouts=Replicate()),
        }
    parallelize_module(model, mesh, plan)
    if "again" in sys.argv:
        model[0].requires_grad_(False)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0)
    x = torch.randn(4, 8)
    x = x.chunk(2)[dist.get_rank()] if sys.argv[1] == "sequence" else x
    model(x).square().mean().backward()
    optimizer.step()
    norm = model[0].weight
    norm = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
    if dist.get_rank() == 0:
        trained = [name for name, p in model.named_parameters() if p.requires_grad]
        print(f"trained {', '.join(trained)}; the norm's weight moved by {(norm - 1).abs().max().item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
