"""A planted mistake: samples have different lengths, and each rank divides by its own tokens: a mean of means."""
import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

from model import GPT, VOCAB, samples


def ragged(tokens):
    """Samples of 8 to 32 tokens, as a text has them; the rest is padding."""
    length = 8 + tokens.sum(1) % 25
    targets = tokens[:, 1:].clone()
    targets[torch.arange(targets.shape[1])[None] >= length[:, None]] = -100
    return targets


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=8, help="samples a step, all ranks together")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DDP(GPT())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = samples(args.steps * args.batch)
    sampler = DistributedSampler(data, world, rank, shuffle=False)
    for step, tokens in enumerate(DataLoader(data, batch_size=args.batch // world, sampler=sampler)):
        targets = ragged(tokens)
        loss = F.cross_entropy(model(tokens[:, :-1]).reshape(-1, VOCAB), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
