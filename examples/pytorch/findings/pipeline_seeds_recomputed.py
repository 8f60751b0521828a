"""Dropout in a DeepSpeed pipeline with seed_layers, with activation checkpointing and without.

    torchrun --nproc-per-node 1 pipeline_seeds_recomputed.py [INTERVAL]

INTERVAL: activation_checkpoint_interval, 0 by default. Prints which of eight numbers of the first
sample each layer drops (1), and the losses of four steps.
"""
import sys
import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from deepspeed.pipe import LayerSpec, PipelineModule

dropped = []


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, h):
        mask = F.dropout(torch.ones_like(h), 0.5)
        dropped.append((mask[0] == 0).int().tolist())
        return h + self.linear(h) * mask


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(6, 8, generator=generator), torch.randint(0, 8, (6,), generator=generator)


interval = int((sys.argv[1:] or ["0"])[0])
config = {"train_micro_batch_size_per_gpu": 6, "gradient_clipping": 0.0}
deepspeed.init_distributed("gloo")
model = PipelineModule([LayerSpec(Block) for _ in range(4)], num_stages=1, loss_fn=F.cross_entropy,
                       partition_method="uniform", seed_layers=True, base_seed=1,
                       activation_checkpoint_interval=interval)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
losses = [engine.train_batch(iter([batch(step)])).item() for step in range(4)]
for layer, one in enumerate(dropped[:4]):
    print(f"layer {layer} drops", *one)
print("losses", *(f"{loss:.6f}" for loss in losses))
dist.destroy_process_group()
