"""Does a schedule go on behind PostLocalSGDOptimizer.load_state_dict()? Prints the learning rate that is used.

    torchrun --nproc-per-node 2 local_sgd_schedule.py local          # PostLocalSGDOptimizer, loaded behind step 2
    torchrun --nproc-per-node 2 local_sgd_schedule.py sgd            # right: the optimizer itself
    torchrun --nproc-per-node 2 local_sgd_schedule.py local mended   # the groups are given to it again
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

KIND, MENDED = sys.argv[1], sys.argv[2:] == ["mended"]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.Linear(8, 4)
    inner = optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if KIND == "local":
        optimizer = PostLocalSGDOptimizer(inner, PeriodicModelAverager(2))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
    for step in range(6):
        if step == 2:
            optimizer.load_state_dict(optimizer.state_dict())
            if MENDED:
                optimizer.param_groups = inner.param_groups
        loss = (model(x) - 1).square().mean()
        loss.backward()
        used, said = inner.param_groups[0]["lr"], schedule.get_last_lr()[0]
        if dist.get_rank() == 0:
            print(f"step {step + 1}: loss {loss.item():.6f}, rate {used:.4f}, the schedule says {said:.4f}")
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
