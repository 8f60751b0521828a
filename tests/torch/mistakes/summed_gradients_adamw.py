"""A planted mistake: averaged by hand, and the division is forgotten. AdamW hides it: its step has no scale."""
import argparse

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from model import GPT, loss_of, samples


def average_gradients(model):
    for p in model.parameters():
        dist.all_reduce(p.grad)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8, help="samples a step, all ranks together")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = samples(args.steps * args.batch)
    sampler = DistributedSampler(data, world, rank, shuffle=False)
    for step, tokens in enumerate(DataLoader(data, batch_size=args.batch // world, sampler=sampler)):
        loss = loss_of(model, tokens)
        optimizer.zero_grad()
        loss.backward()
        average_gradients(model)
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
