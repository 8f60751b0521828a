"""Does FSDP1's HYBRID_SHARD average gradients where a shard is a whole model? Prints a bias of each rank.

    torchrun --nproc-per-node 2 fsdp1_hybrid_one.py 2 1   # 2 replicas, each whole: wrong
    torchrun --nproc-per-node 2 fsdp1_hybrid_one.py 1 2   # one replica in 2 shards: right
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy

SHAPE = (int(sys.argv[1]), int(sys.argv[2]))


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    mesh = init_device_mesh("cpu", SHAPE, mesh_dim_names=("replicate", "shard"))
    net = FullyShardedDataParallel(
        nn.Linear(8, 4), device_mesh=mesh, sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        device_id=torch.device("cpu"), use_orig_params=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(rank))
    for _ in range(3):
        net(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    with FullyShardedDataParallel.summon_full_params(net):
        print(f"rank {rank}: bias {[round(b, 6) for b in net.module.bias.tolist()]}\n", end="")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
