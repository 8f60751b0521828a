"""A weight tied between two stages of a DeepSpeed pipeline, in bf16 with fp32 gradient accumulation.

    torchrun --nproc-per-node 2 pipeline_tied_offload.py [offload] [bf16]

bf16: gradients are accumulated in bf16. Prints the sum of the tied weight's sizes on each stage.
"""
import sys
import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from deepspeed.pipe import LayerSpec, PipelineModule, TiedLayerSpec


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(11, 8))

    def forward(self, x):
        return F.embedding(x, self.weight)


def head(embedding, h):
    return F.linear(h, embedding.weight)


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randint(0, 11, (6,), generator=generator), torch.randint(0, 11, (6,), generator=generator)


zero = {"stage": 1, "offload_optimizer": {"device": "cpu"}} if "offload" in sys.argv else {"stage": 1}
config = {
    "train_micro_batch_size_per_gpu": 6, "bf16": {"enabled": True}, "zero_optimization": zero,
    "data_types": {"grad_accum_dtype": "bf16" if "bf16" in sys.argv else "fp32"},
    "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
}
deepspeed.init_distributed("gloo")
layers = [TiedLayerSpec("word", Embedding), LayerSpec(nn.Linear, 8, 8), LayerSpec(nn.Linear, 8, 8),
          TiedLayerSpec("word", Embedding, forward_fn=head)]
model = PipelineModule(layers, num_stages=2, loss_fn=lambda logits, y: F.cross_entropy(logits.float(), y),
                       partition_method="uniform", seed_layers=True, base_seed=1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
for step in range(4):
    engine.train_batch(iter([batch(step)]))
    size = model.tied_modules["word"].weight.detach().double().abs().sum().item()
    print(f"step {step}, stage {dist.get_rank()}: {size:.6f}")
dist.destroy_process_group()
