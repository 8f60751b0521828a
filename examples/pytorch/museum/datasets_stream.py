"""A stream of Hugging Face datasets. With --resume, stopped in an epoch and resumed from the state that it saved."""
import argparse

import torch
from datasets import Dataset
from torch.utils.data import DataLoader

STOP = (0, 3)  # epoch, and batches of it that are done


def build(args):
    torch.manual_seed(1)
    rows = Dataset.from_dict({"x": torch.randn(48, 8).tolist()})
    stream = rows.to_iterable_dataset(num_shards=2)
    if args.map:
        stream = stream.map(lambda row: {"x": [2 * value for value in row["x"]]})
    if args.filter:
        stream = stream.filter(lambda row: row["x"][0] > -1)
    stream = stream.with_format("torch")
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    return stream, model, torch.optim.SGD(model.parameters(), lr=0.05)


def train(stream, model, optimizer, first, last):
    """Trains from the place `first` to the place `last`, both (epoch, batches done)."""
    for epoch in range(first[0], last[0] + 1):
        stream.set_epoch(epoch)
        done = first[1] if epoch == first[0] else 0
        for number, batch in enumerate(DataLoader(stream, batch_size=4), done):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(batch["x"]), batch["x"].sum(1, keepdim=True)).backward()
            optimizer.step()
            if (epoch, number + 1) == last:
                return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--twice", action="store_true", help="stopped and resumed once more, two steps later")
    parser.add_argument("--map", action="store_true")
    parser.add_argument("--filter", action="store_true")
    args = parser.parse_args()
    stream, model, optimizer = build(args)
    first = (0, 0)
    for stop in [STOP, (STOP[0], STOP[1] + 2)][: args.resume + args.twice]:
        train(stream, model, optimizer, first, stop)
        place, weights = stream.state_dict(), model.state_dict()
        stream, model, optimizer = build(args)
        stream.load_state_dict(place)
        model.load_state_dict(weights)
        first = stop
    train(stream, model, optimizer, first, (2, 0))


if __name__ == "__main__":
    main()
