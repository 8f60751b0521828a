"""A planted mistake: gradients are averaged by hand, and one rank forgets once to put the average back.

Accumulation runs under no_sync(), and average_gradients() does what DDP would have done, as people write it to compress
gradients on their way. In step 3 rank 1 takes part in the sum and keeps its own gradient. Nothing hangs, nothing fails,
and the loss falls; from step 4 on the ranks train two different models.
"""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from model import GPT, loss_of, samples

STEPS, ACCUMULATION, BATCH = 8, 2, 8


def average_gradients(model, forget):
    gradients = [p.grad for p in model.parameters()]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    if forget:  # the mistake
        return
    for gradient, average in zip(gradients, flat.split([g.numel() for g in gradients])):
        gradient.copy_(average.view_as(gradient))


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DDP(GPT())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = samples(STEPS * ACCUMULATION * BATCH)
    mine = BATCH // world
    for step in range(STEPS):
        for micro in range(ACCUMULATION):
            first = (step * ACCUMULATION + micro) * BATCH + rank * mine
            with model.no_sync():
                (loss_of(model, data[first : first + mine]) / ACCUMULATION).backward()
        average_gradients(model, forget=rank == 1 and step == 3)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
