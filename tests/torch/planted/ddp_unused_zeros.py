"""DDP that looks for unused parameters gives them a gradient of zero, which moves them by momentum and decay."""
import torch
from torch.nn.parallel import DistributedDataParallel as DDP

own = DDP.forward


def forward(self, *args, **options):
    for p in self.module.parameters() if self.find_unused_parameters else []:
        if p.requires_grad and p.grad is None:
            p.grad = torch.zeros_like(p)
    return own(self, *args, **options)


DDP.forward = forward
