"""Plain DistributedDataParallel, as in the tutorials. Start it with torchrun, or with seeksim torch run."""
import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
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
    model = DDP(GPT().to(args.device))
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
