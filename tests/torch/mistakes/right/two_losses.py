"""No mistake: two losses of each step, whose forward passes both come before their backward passes."""
import argparse

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from model import GPT, loss_of, samples


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8, help="samples a step, all ranks together")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = GPT()
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data, others = samples(args.steps * args.batch), samples(args.steps * args.batch).flip(0)
    mine = args.batch // world
    for step in range(args.steps):
        begin = step * args.batch + rank * mine
        near, far = loss_of(model, data[begin:][:mine]), loss_of(model, others[begin:][:mine])
        near.backward()
        far.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(f"step {step}: losses {near.item():.4f} and {far.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
