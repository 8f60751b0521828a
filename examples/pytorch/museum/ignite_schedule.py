"""ignite with a warm-up and a decay, joined by ConcatScheduler. With --resume, stopped in the decay and resumed by Checkpoint."""
import argparse

import torch
from ignite.engine import Engine, Events
from ignite.handlers import ConcatScheduler, LinearCyclicalScheduler

STEPS = 12


def build():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    warmup = LinearCyclicalScheduler(optimizer, "lr", start_value=0.01, end_value=0.1, cycle_size=8)
    decay = LinearCyclicalScheduler(optimizer, "lr", start_value=0.1, end_value=0.0, cycle_size=32)
    schedule = ConcatScheduler(schedulers=[warmup, decay], durations=[4])

    def step(engine, batch):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(batch[0]), batch[1])
        loss.backward()
        optimizer.step()
        return loss.item()

    trainer = Engine(step)
    trainer.add_event_handler(Events.ITERATION_STARTED, schedule)
    return trainer, {"model": model, "optimizer": optimizer, "schedule": schedule}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    x = torch.randn(4 * STEPS, 8, generator=torch.Generator().manual_seed(2))
    batches = [(rows, rows.sum(1, keepdim=True)) for rows in x.split(4)]
    trainer, parts = build()
    if args.resume:
        trainer.run(batches[:6])
        saved = {name: part.state_dict() for name, part in parts.items()}
        trainer, parts = build()
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        batches = batches[6:]
    trainer.run(batches)


if __name__ == "__main__":
    main()
