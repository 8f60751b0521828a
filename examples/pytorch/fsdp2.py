"""The same training with FSDP2: each rank holds a shard of every weight."""
import argparse
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

from model import GPT, loss_of, samples


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8, help="samples a step, all ranks together")
    parser.add_argument("--device", default="cpu", help="cuda: on GPUs, over NCCL")
    args = parser.parse_args()

    if args.device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = GPT().to(args.device)
    mesh = init_device_mesh(args.device, (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = samples(args.steps * args.batch)
    sampler = DistributedSampler(data, world, rank, shuffle=False)
    for step, tokens in enumerate(DataLoader(data, batch_size=args.batch // world, sampler=sampler)):
        loss = loss_of(model, tokens.to(args.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
