"""A layer that some batches use, the optimizer on the CPU or not. Only a step that uses the layer may move it.

torchrun --nproc-per-node 2 zero_offload_layer.py 2 cpu early   # the first of two micro-batches uses it
torchrun --nproc-per-node 2 zero_offload_layer.py 2 cpu late    # the second one does
torchrun --nproc-per-node 2 zero_offload_layer.py 2 cpu step    # every second step does, of one micro-batch
torchrun --nproc-per-node 2 zero_offload_layer.py 2 none early  # the optimizer where it was
"""
import sys

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn

STAGE, DEVICE, USED = int(sys.argv[1]), sys.argv[2], sys.argv[3]
ACCUMULATE = 1 if USED == "step" else 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.sometimes = nn.Linear(4, 4)

    def forward(self, x, batch):
        h = self.first(x)
        return self.sometimes(h) if (batch % 2 == 0) == (USED != "late") else h


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
    "zero_optimization": {"stage": STAGE, "offload_optimizer": {"device": DEVICE}},
}
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
before = model.sometimes.bias.detach().clone()
for batch in range(4 * ACCUMULATE):
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(batch))
    engine.backward(engine(x, batch).square().mean())
    engine.step()
    if (batch + 1) % ACCUMULATE == 0:
        now = model.sometimes.bias.detach().clone()
        if dist.get_rank() == 0:
            print(f"step {batch // ACCUMULATE}: moved by {(now - before).abs().max():.6f}")
        before = now
dist.destroy_process_group()
