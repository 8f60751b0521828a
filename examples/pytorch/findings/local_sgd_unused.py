"""Does PeriodicModelAverager average what the step before did not use? Prints a bias of both ranks.

    torchrun --nproc-per-node 2 local_sgd_unused.py odd    # steps that do not average use a layer
    torchrun --nproc-per-node 2 local_sgd_unused.py all    # right: all steps use it
    torchrun --nproc-per-node 2 local_sgd_unused.py rank   # one rank uses it in each step
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager

USES = sys.argv[1]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    first, second = nn.Linear(8, 8), nn.Linear(8, 8)
    parameters = [*first.parameters(), *second.parameters()]
    optimizer, averager = torch.optim.SGD(parameters, lr=0.1), PeriodicModelAverager(2)
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
    for step in range(5):  # it averages behind steps 1, 3 and 5
        h = first(x)
        if USES == "all" or (step % 2 == 1 if USES == "odd" else dist.get_rank() == 0):
            h = h + second(h)
        (h - 1).square().mean().backward()
        optimizer.step()
        averager.average_parameters(parameters)
        optimizer.zero_grad()
    biases = torch.stack([first.bias[0], second.bias[0]]).detach()
    of_ranks = [torch.empty(2) for _ in range(dist.get_world_size())]
    dist.all_gather(of_ranks, biases)
    if dist.get_rank() == 0:
        for i, name in enumerate(("first", "second")):
            print(f"{name}.bias[0]: {', '.join(f'{one[i].item():.6f}' for one in of_ranks)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
