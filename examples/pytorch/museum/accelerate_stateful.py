"""accelerate with torchdata's loader that knows its place. With --resume, stopped in the epoch and resumed by load_state()."""
import argparse
import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import DataLoaderConfiguration, broadcast_object_list, set_seed
from torch.utils.data import DataLoader, TensorDataset

STOP = 3


def build():
    set_seed(1)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(use_stateful_dataloader=True))
    x = torch.randn(64, 8)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    return accelerator, *accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05), loader)


def train(parts, steps=None):
    accelerator, model, optimizer, loader = parts
    for number, (x, y) in enumerate(loader, 1):
        optimizer.zero_grad()
        accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
        optimizer.step()
        if number == steps:
            return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume", action="store_true")
    args = parser.parse_args()
    parts = build()
    if args.resume:
        train(parts, STOP)
        folder = broadcast_object_list([tempfile.mkdtemp()])[0]
        parts[0].save_state(folder)
        parts = build()
        parts[0].load_state(folder)
    train(parts)


if __name__ == "__main__":
    main()
