"""torchdata's StatefulDataLoader on several processes. With --resume, stopped in an epoch and resumed from the state that it saved."""
import argparse

import torch
import torch.distributed as dist
from torch.utils.data import TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

STOP = (1, 3)  # epoch, and batches of it that are done


def build():
    torch.manual_seed(1)
    x = torch.randn(48, 8)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    loader = StatefulDataLoader(data, batch_size=4, sampler=StatefulDistributedSampler(data, seed=1))
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    return loader, model, torch.optim.SGD(model.parameters(), lr=0.05)


def train(loader, model, optimizer, first, last):
    """Trains from the place `first` to the place `last`, both (epoch, batches done)."""
    for epoch in range(first[0], last[0] + 1):
        if epoch > first[0]:
            loader.sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(loader, first[1] if epoch == first[0] else 0):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            for p in model.parameters():
                dist.all_reduce(p.grad)
            optimizer.step()
            if (epoch, number + 1) == last:
                return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--by-hand", action="store_true", help="tell the sampler its epoch after the resume")
    args = parser.parse_args()
    dist.init_process_group("gloo")
    (loader, model, optimizer), first = build(), (0, 0)
    if args.resume:
        train(loader, model, optimizer, first, STOP)
        place, weights, first = loader.state_dict(), model.state_dict(), STOP
        loader, model, optimizer = build()
        loader.load_state_dict(place)
        model.load_state_dict(weights)
        if args.by_hand:
            loader.sampler.set_epoch(first[0])
    train(loader, model, optimizer, first, (2, 6))


if __name__ == "__main__":
    main()
