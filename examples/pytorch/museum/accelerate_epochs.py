"""accelerate with a sampler of one's own that shuffles by epoch, as DistributedSampler does; 8 samples a step."""
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, Sampler, TensorDataset


class ByEpoch(Sampler):
    def __init__(self, size):
        self.size, self.epoch = size, 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter(torch.randperm(self.size, generator=torch.Generator().manual_seed(self.epoch)).tolist())

    def __len__(self):
        return self.size


def main():
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(1)
    x = torch.randn(32, 8)
    data = TensorDataset(x, x.sum(1, keepdim=True))
    loader = DataLoader(data, batch_size=8 // accelerator.num_processes, sampler=ByEpoch(32))
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    for epoch in range(3):
        loader.set_epoch(epoch)
        for x, y in loader:
            optimizer.zero_grad()
            accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
            optimizer.step()


if __name__ == "__main__":
    main()
