"""FSDP2 that saves with torch.distributed.checkpoint, and goes on from the newest checkpoint that it finds."""
import argparse
import pathlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

from model import VOCAB, GPT, loss_of, samples


class Everything:
    """All that a checkpoint needs so that the training goes on as if nothing had been."""

    def __init__(self, model, optimizer, scheduler):
        self.model, self.optimizer, self.scheduler = model, optimizer, scheduler
        self.step = 0
        self.rank = dist.get_rank()

    def state_dict(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        return {
            "model": model,
            "optimizer": optimizer,
            "scheduler": self.scheduler.state_dict(),
            "step": self.step,
            f"rng.{self.rank}": torch.get_rng_state(),
        }

    def load_state_dict(self, state):
        set_state_dict(
            self.model, self.optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"]
        )
        self.scheduler.load_state_dict(state["scheduler"])
        self.step = state["step"]
        torch.set_rng_state(state[f"rng.{self.rank}"])


def noisy(tokens):
    """One token in ten is another one; which ones is drawn anew in each step."""
    other = torch.randint(0, VOCAB, tokens.shape)
    return torch.where(torch.rand(tokens.shape) < 0.1, other, tokens)


def newest(folder):
    # The metadata is written last: without it a checkpoint is not whole.
    whole = [path for path in pathlib.Path(folder).glob("step-*") if (path / ".metadata").exists()]
    return max(whole, default=None, key=lambda path: int(path.name[5:]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batches", type=int, default=4, help="an epoch")
    parser.add_argument("--batch", type=int, default=8, help="samples a step, all ranks together")
    parser.add_argument("--folder", default="", help="of the checkpoints; none: nothing is saved")
    parser.add_argument("--every", type=int, default=3, help="steps from one checkpoint to the next")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = GPT()
    mesh = init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.epochs * args.batches)
    data = samples(args.batches * args.batch)
    sampler = DistributedSampler(data, world, rank, shuffle=True)
    # A loader without a generator of its own draws from the default one whenever a pass begins.
    loader = DataLoader(data, batch_size=args.batch // world, sampler=sampler, generator=torch.Generator())
    torch.manual_seed(100 + rank)

    state = Everything(model, optimizer, scheduler)
    found = newest(args.folder) if args.folder else None
    if found:
        dcp.load({"all": state}, checkpoint_id=found)
        if rank == 0:
            print(f"goes on from {found.name}")
    for epoch in range(state.step // args.batches, args.epochs):
        sampler.set_epoch(epoch)
        first = state.step % args.batches
        for tokens in (tokens for i, tokens in enumerate(loader) if i >= first):
            loss = loss_of(model, noisy(tokens))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            if rank == 0:
                print(f"step {state.step}: loss {loss.item():.4f}")
            state.step += 1
            if args.folder and state.step % args.every == 0:
                dcp.save({"all": state}, checkpoint_id=pathlib.Path(args.folder) / f"step-{state.step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
