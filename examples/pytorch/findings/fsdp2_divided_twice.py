"""Does FSDP2 divide gradients once, where a shard is a whole model? Prints a gradient.

    torchrun --nproc-per-node 2 fsdp2_divided_twice.py both       # a divide factor, and sums alone
    torchrun --nproc-per-node 2 fsdp2_divided_twice.py factor     # the factor alone
    torchrun --nproc-per-node 2 fsdp2_divided_twice.py fp16       # the factor, and reduce_dtype=torch.float16
    torchrun --nproc-per-node 2 fsdp2_divided_twice.py both shard # one replica of two shards
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

KIND, SHARDS = sys.argv[1], sys.argv[2:] == ["shard"]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.Linear(8, 4)
    mesh = init_device_mesh("cpu", (1, 2) if SHARDS else (2, 1), mesh_dim_names=("replicate", "shard"))
    policy = MixedPrecisionPolicy(reduce_dtype=torch.float16) if KIND == "fp16" else MixedPrecisionPolicy()
    fully_shard(model, mesh=mesh, mp_policy=policy)
    model.set_gradient_divide_factor(2.0)  # as many as there are ranks: the mean
    model.set_force_sum_reduction_for_comms(KIND == "both")
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
    (model(x) - 1).square().mean().backward()
    gradient = model.bias.grad.full_tensor().sum().item()
    if dist.get_rank() == 0:
        print(f"gradient of the bias: {gradient:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
