"""A CNN on drawn pictures: batch normalisation, augmentation, a learning rate that warms up, validation."""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

SIDE, CLASSES = 16, 4


class Stripes(Dataset):
    """Stripes in one of four directions, with noise. Drawn from the seed; the same picture for the same index."""

    def __init__(self, count, seed, augment):
        self.count, self.seed, self.augment = count, seed, augment

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        drawn = torch.Generator().manual_seed(self.seed * 100_000 + index)
        label = index % CLASSES
        across, down = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
        along = [across, down, across + down, across - down][label]
        picture = torch.sin(along + 6.28 * torch.rand(1, generator=drawn)) + 0.3 * torch.randn(
            SIDE, SIDE, generator=drawn
        )
        if self.augment and torch.rand(()) < 0.5:
            picture = picture.flip((0, 1))
        return picture.unsqueeze(0), label


def network():
    def block(inputs, outputs):
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)
        )

    return nn.Sequential(block(1, 8), block(8, 16), nn.Flatten(), nn.Dropout(0.1), nn.Linear(256, CLASSES))


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = torch.zeros(2)
    for pictures, labels in loader:
        right += torch.tensor([(model(pictures).argmax(1) == labels).sum(), len(labels)])
    dist.all_reduce(right)
    model.train()
    return float(right[0] / right[1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--pictures", type=int, default=64)
    parser.add_argument("--batch", type=int, default=16, help="pictures a step, all ranks together")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DDP(network())
    torch.manual_seed(10 + rank)  # each rank has noise of its own
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=4)
    data = Stripes(args.pictures, seed=1, augment=True)
    sampler = DistributedSampler(data, world, rank)
    loader = DataLoader(data, args.batch // world, sampler=sampler, num_workers=1)
    held_out = Stripes(32, seed=2, augment=False)
    validation = DataLoader(held_out, 16, sampler=DistributedSampler(held_out, world, rank, shuffle=False))
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for pictures, labels in loader:
            loss = F.cross_entropy(model(pictures), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
        right = accuracy(model.module, validation)
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.4f}, {right:.0%} right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
