"""A planted mistake: after a resume the data begins again, so the first samples come twice."""
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
    parser.add_argument("--save", default="", help="folder of the checkpoint, written after half of the steps")
    parser.add_argument("--resume", default="", help="folder of a checkpoint to go on from")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DDP(GPT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    done = 0
    if args.resume:
        state = torch.load(os.path.join(args.resume, "checkpoint.pt"))
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
    data = samples(args.steps * args.batch)
    sampler = DistributedSampler(data, world, rank, shuffle=False)
    loader = DataLoader(data, batch_size=args.batch // world, sampler=sampler)
    for step, tokens in zip(range(done, args.steps), loader):
        loss = loss_of(model, tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if args.save and step + 1 == args.steps // 2 and rank == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(state, os.path.join(args.save, "checkpoint.pt"))
        if rank == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
