"""torch's learning rate schedules with a warm-up that is left out, a rate in a tensor, or a resume by last_epoch."""
import argparse

import torch
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, LinearLR, SequentialLR

STEPS, STOP = 12, 5


def schedule_of(optimizer, args, last_epoch=-1):
    if args.warmup is None:
        return ExponentialLR(optimizer, 0.8, last_epoch=last_epoch)
    after = ExponentialLR(optimizer, 0.8) if args.warmup == 0 else CosineAnnealingLR(optimizer, STEPS)
    return SequentialLR(optimizer, [LinearLR(optimizer, 0.1, total_iters=4), after], milestones=[args.warmup])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--warmup", type=int, help="steps of a warm-up before the schedule; 0 leaves it out")
    parser.add_argument("--tensor", action="store_true", help="the rate stands in a tensor, as torch.compile wants it")
    parser.add_argument("--resume", action="store_true", help="stopped, and resumed with last_epoch")
    args = parser.parse_args()
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    rate = torch.tensor(0.1, dtype=torch.float64) if args.tensor else 0.1
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    schedule = schedule_of(optimizer, args)
    for step in range(STEPS):
        if step == STOP and args.resume:
            saved = optimizer.state_dict()
            optimizer = torch.optim.SGD(model.parameters(), lr=rate)
            optimizer.load_state_dict(saved)
            schedule = schedule_of(optimizer, args, last_epoch=step - 1)
        x = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
        loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


if __name__ == "__main__":
    main()
