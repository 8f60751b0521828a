"""A pipeline of torch.distributed.pipelining: each rank has a part of the layers, micro-batches run through them."""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from model import CONTEXT, VOCAB, GPT, samples


class Part(nn.Module):
    """The layers of one stage, out of the whole model."""

    def __init__(self, model, stage, stages):
        super().__init__()
        each = len(model.blocks) // stages
        self.tokens = model.tokens if stage == 0 else None
        self.places = model.places if stage == 0 else None
        numbers = range(stage * each, (stage + 1) * each)
        self.blocks = nn.ModuleDict({str(n): model.blocks[n] for n in numbers})  # named as in the whole model
        self.norm, self.head = (model.norm, model.head) if stage == stages - 1 else (None, None)

    def forward(self, x):  # (B, T) or (B, T, C)
        if self.tokens is not None:
            x = self.tokens(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks.values():
            x = block(x)
        return x if self.head is None else self.head(self.norm(x))


def loss_of(logits, targets):
    return F.cross_entropy(logits.reshape(-1, VOCAB), targets.reshape(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--micro-batches", type=int, default=4)
    parser.add_argument("--schedule", choices=["gpipe", "1f1b"], default="1f1b")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    part = Part(GPT(layers=2 * world), rank, world)
    stage = PipelineStage(part, rank, world, torch.device("cpu"))
    make = ScheduleGPipe if args.schedule == "gpipe" else Schedule1F1B
    schedule = make(stage, n_microbatches=args.micro_batches, loss_fn=loss_of)
    optimizer = torch.optim.AdamW(part.parameters(), lr=1e-3)
    data = samples(args.steps * args.batch)
    for step in range(args.steps):
        batch = data[step * args.batch : (step + 1) * args.batch]
        tokens, targets = batch[:, :CONTEXT].contiguous(), batch[:, 1:].contiguous()
        optimizer.zero_grad()
        losses = []
        given = (tokens,) if rank == 0 else ()
        wanted = {"target": targets, "losses": losses} if rank == world - 1 else {}
        schedule.step(*given, **wanted)
        optimizer.step()
        if losses:
            print(f"step {step}: loss {torch.stack(losses).mean().item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
