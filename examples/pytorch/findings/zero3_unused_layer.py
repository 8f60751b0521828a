"""A layer that odd steps use. In even steps it gets no gradient: plain SGD must not move it.

torchrun --nproc-per-node 2 zero3_unused_layer.py 3   # the ZeRO stage
"""
import sys

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn

STAGE = int(sys.argv[1])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.sometimes = nn.Linear(4, 4)

    def forward(self, x, step):
        h = self.first(x)
        return self.sometimes(h) if step % 2 else h


dist.init_process_group("gloo")
torch.manual_seed(1)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
config = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": STAGE},
}
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
before = None
for step in range(6):
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(step))
    engine.backward(engine(x, step).square().mean())
    engine.step()
    with deepspeed.zero.GatheredParameters([model.sometimes.bias], enabled=STAGE == 3):
        now = model.sometimes.bias.detach().clone()
    if dist.get_rank() == 0 and before is not None:
        print(f"step {step}: {'used  ' if step % 2 else 'unused'} moved by {(now - before).abs().max():.6f}")
    before = now
dist.destroy_process_group()
