"""accelerate that accumulates four micro-batches. With --sync-each, gradients are averaged after each of them: less memory with FSDP."""
import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin, set_seed
from torch.utils.data import DataLoader, TensorDataset


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sync-each", action="store_true")
    args = parser.parse_args()
    plugin = GradientAccumulationPlugin(num_steps=4, sync_each_batch=args.sync_each)
    accelerator = Accelerator(cpu=True, gradient_accumulation_plugin=plugin)
    set_seed(1)
    x = torch.rand(128, 8)
    loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    for x, y in loader:
        with accelerator.accumulate(model):
            accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()
            optimizer.zero_grad()


if __name__ == "__main__":
    main()
