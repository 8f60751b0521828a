"""accelerate with a shuffled loader. With --resume, stopped in the middle of the second epoch and resumed."""
import argparse
import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, set_seed
from torch.utils.data import DataLoader, TensorDataset

STOP = (1, 3)  # epoch, and batches of it that are done


def build():
    set_seed(1)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True))
    x = torch.randn(32, 8)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    return accelerator, *accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-2), loader)


def train(parts, first, last):
    """Trains from the place `first` to the place `last`, both (epoch, batches done)."""
    accelerator, model, optimizer, loader = parts
    for epoch in range(first[0], last[0] + 1):
        loader.set_epoch(epoch)
        done = first[1] if epoch == first[0] else 0
        batches = accelerator.skip_first_batches(loader, done) if done else loader
        for number, (x, y) in enumerate(batches, done):
            if (epoch, number) == last:
                return
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    parts = build()
    first = (0, 0)
    if args.resume:
        train(parts, first, STOP)
        folder = tempfile.mkdtemp()
        parts[0].save_state(folder)
        parts, first = build(), STOP
        parts[0].load_state(folder)
    train(parts, first, (2, 0))


if __name__ == "__main__":
    main()
