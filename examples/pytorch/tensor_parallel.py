"""Tensor parallelism with DTensor: the linear layers of each block lie split over the ranks."""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from model import CONTEXT, VOCAB, samples


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.size = width // heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):  # (B, T, C)
        normed = self.norm1(x)
        q, k, v = (y(normed).unflatten(-1, (-1, self.size)).transpose(1, 2) for y in (self.q, self.k, self.v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)  # this rank's heads
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, layers=2, width=64, heads=4):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCAB, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCAB, bias=False)

    def forward(self, x):  # (B, T) -> (B, T, VOCAB)
        h = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)  # the same model, and below the same samples, on each rank
    model = GPT()
    mesh = init_device_mesh("cpu", (world,))
    for block in model.blocks:
        columns = {name: ColwiseParallel() for name in ("q", "k", "v", "up")}
        rows = {name: RowwiseParallel() for name in ("out", "down")}
        parallelize_module(block, mesh, {**columns, **rows})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = samples(args.steps * args.batch)
    for step in range(args.steps):
        batch = data[step * args.batch : (step + 1) * args.batch]
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, VOCAB), batch[:, 1:].reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
