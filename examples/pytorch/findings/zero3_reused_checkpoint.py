"""A block that a step uses twice, once of them recomputed. How far its weight moves in the first step.

torchrun --nproc-per-node 2 zero3_reused_checkpoint.py 3        # the ZeRO stage
torchrun --nproc-per-node 2 zero3_reused_checkpoint.py 3 16     # reduce_bucket_size
torchrun --nproc-per-node 2 zero3_reused_checkpoint.py 3 16 not-reentrant
"""
import sys

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

STAGE = int(sys.argv[1])
BUCKET = int(sys.argv[2]) if len(sys.argv) > 2 else 500_000_000
RECOMPUTE = sys.argv[3] if len(sys.argv) > 3 else "reentrant"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.block = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        h = self.first(x)
        h = h + checkpoint(self.block, h, use_reentrant=RECOMPUTE == "reentrant")
        return h + self.block(h)


dist.init_process_group("gloo")
torch.manual_seed(1)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
config = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": STAGE, "reduce_bucket_size": BUCKET},
}
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
before = None
for step in range(3):
    with deepspeed.zero.GatheredParameters([model.block.weight], enabled=STAGE == 3):
        now = model.block.weight.detach().clone()
    if dist.get_rank() == 0 and before is not None:
        print(f"step {step}: moved by {(now - before).norm():.6f}")
    before = now
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(2 * step + dist.get_rank()))
    engine.backward(engine(x).square().mean())
    engine.step()
dist.destroy_process_group()
