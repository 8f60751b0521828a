"""Does DDP average the gradients of two losses whose forward passes both come first? Prints what a bias gets.

    torchrun --nproc-per-node 2 ddp_two_backwards.py apart    # forward, forward, backward, backward
    torchrun --nproc-per-node 2 ddp_two_backwards.py sum      # right: one backward pass of the sum
    torchrun --nproc-per-node 2 ddp_two_backwards.py turns    # right: forward, backward, forward, backward
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn

WAY = sys.argv[1]


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.Linear(8, 4)
    net = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def loss(seed):
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(10 * seed + dist.get_rank()))
        return net(x).square().mean()

    for step in range(3):
        if WAY == "turns":
            loss(2 * step).backward()
            loss(2 * step + 1).backward()
        else:
            first, second = loss(2 * step), loss(2 * step + 1)
            if WAY == "sum":
                (first + second).backward()
            else:
                first.backward()
                second.backward()
        print(f"step {step + 1}: rank {dist.get_rank()}: gradient {model.bias.grad.sum().item():.6f}")
        optimizer.step()
        optimizer.zero_grad()
    print(f"rank {dist.get_rank()}: bias {model.bias.sum().item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
