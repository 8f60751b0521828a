"""A layer that every second batch uses. Without a gradient of its own plain SGD must not move it.

torchrun --nproc-per-node 2 zero3_unused_layer.py 3     # the ZeRO stage; odd steps use the layer
torchrun --nproc-per-node 2 zero3_unused_layer.py 3 2   # two micro-batches a step; the second uses it
"""
import sys

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn

STAGE = int(sys.argv[1])
ACCUMULATE = int(sys.argv[2]) if len(sys.argv) > 2 else 1


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.sometimes = nn.Linear(4, 4)

    def forward(self, x, batch):
        h = self.first(x)
        return self.sometimes(h) if batch % 2 else h


dist.init_process_group("gloo")
torch.manual_seed(1)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
config = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": ACCUMULATE,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": STAGE},
}
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
before = None
for batch in range(6 * ACCUMULATE):
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(batch))
    engine.backward(engine(x, batch).square().mean())
    engine.step()
    if (batch + 1) % ACCUMULATE:
        continue
    with deepspeed.zero.GatheredParameters([model.sometimes.bias], enabled=STAGE == 3):
        now = model.sometimes.bias.detach().clone()
    if dist.get_rank() == 0 and before is not None:
        how = "used  " if batch % 2 else "unused"
        print(f"step {batch // ACCUMULATE}: {how} moved by {(now - before).abs().max():.6f}")
    before = now
dist.destroy_process_group()
