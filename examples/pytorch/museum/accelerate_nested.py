"""accelerate that accumulates two micro-batches. With --evaluate, a second loader is gone through in the epoch."""
import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--evaluate", action="store_true")
    args = parser.parse_args()
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    set_seed(1)
    x = torch.randn(64, 8)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model, optimizer, loader, held_out = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=4), DataLoader(data, batch_size=32))
    for number, (x, y) in enumerate(loader):
        with accelerator.accumulate(model):
            accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()
        if args.evaluate and number % 4 == 1:
            with torch.no_grad():
                print("held out:", sum(float(torch.nn.functional.mse_loss(model(x), y)) for x, y in held_out))


if __name__ == "__main__":
    main()
