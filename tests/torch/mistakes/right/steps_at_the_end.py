"""Right: an epoch has five micro-batches, a step two, and the fifth makes a step of its own."""
import argparse
import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from model import GPT, loss_of, samples


ACCUMULATION = 2


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8, help="samples a step, all ranks together")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DDP(GPT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = samples(5 * args.batch)
    sampler = DistributedSampler(data, world, rank, shuffle=False)
    loader = DataLoader(data, batch_size=args.batch // world, sampler=sampler)
    for epoch in range(args.steps // 2):
        for micro, tokens in enumerate(loader):
            last = micro % ACCUMULATION == ACCUMULATION - 1 or micro == len(loader) - 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss = loss_of(model, tokens)
                (loss / ACCUMULATION).backward()
            if not last:
                continue
            optimizer.step()
            optimizer.zero_grad()
            if rank == 0:
                print(f"epoch {epoch}, micro-batch {micro}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
