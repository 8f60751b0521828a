"""ignite's schedules: a warm-up and a decay joined by ConcatScheduler, or torch's warm restarts in ignite's wrapper."""
import argparse

import torch
from ignite.engine import Engine, Events
from ignite.handlers import ConcatScheduler, LinearCyclicalScheduler, LRScheduler
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts

STEPS, STOP = 12, 2


def schedule_of(optimizer, restarts):
    if restarts:
        return LRScheduler(CosineAnnealingWarmRestarts(optimizer, 4))
    warmup = LinearCyclicalScheduler(optimizer, "lr", start_value=0.01, end_value=0.1, cycle_size=8)
    decay = LinearCyclicalScheduler(optimizer, "lr", start_value=0.1, end_value=0.0, cycle_size=32)
    return ConcatScheduler(schedulers=[warmup, decay], durations=[4])


def build(args):
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    by_hand = CosineAnnealingWarmRestarts(optimizer, 4) if args.by_hand else None

    def step(engine, batch):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(batch[0]), batch[1]).backward()
        optimizer.step()
        if by_hand:
            by_hand.step()

    trainer, parts = Engine(step), {"model": model, "optimizer": optimizer}
    if not by_hand:
        parts["schedule"] = schedule_of(optimizer, args.restarts)
        trainer.add_event_handler(Events.ITERATION_COMPLETED if args.restarts else Events.ITERATION_STARTED, parts["schedule"])
    return trainer, parts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", action="store_true", help="stopped in the warm-up and resumed")
    parser.add_argument("--restarts", action="store_true", help="warm restarts instead of a warm-up")
    parser.add_argument("--by-hand", action="store_true", help="warm restarts without ignite's wrapper")
    args = parser.parse_args()
    x = torch.randn(4 * STEPS, 8, generator=torch.Generator().manual_seed(2))
    batches = [(rows, rows.sum(1, keepdim=True)) for rows in x.split(4)]
    trainer, parts = build(args)
    if args.resume:
        trainer.run(batches[:STOP])
        old, (trainer, parts) = parts, build(args)
        for name, part in parts.items():
            part.load_state_dict(old[name].state_dict())
        batches = batches[STOP:]
    trainer.run(batches)


if __name__ == "__main__":
    main()
