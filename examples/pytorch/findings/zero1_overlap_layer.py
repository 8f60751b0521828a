"""A layer that the first of two micro-batches uses, ZeRO 1, communication that overlaps backward or not.

torchrun --nproc-per-node 2 zero1_overlap_layer.py 1 on    # not averaged over ranks: each owner's own gradient
torchrun --nproc-per-node 2 zero1_overlap_layer.py 1 off   # right
torchrun --nproc-per-node 2 zero1_overlap_layer.py 2 on    # right
"""
import sys

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn

STAGE, OVERLAP = int(sys.argv[1]), sys.argv[2] == "on"


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.sometimes = nn.Linear(4, 4)

    def forward(self, x, batch):
        h = self.first(x)
        return self.sometimes(h) if batch % 2 == 0 else h


def data(batch, rank):
    return torch.randn(2, 4, generator=torch.Generator().manual_seed(2 * batch + rank))


dist.init_process_group("gloo")
torch.manual_seed(1)
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
config = {
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": STAGE, "overlap_comm": OVERLAP},
}
# What the first step has to make of the layer: the mean of both ranks' gradients, of which half counts.
for rank in range(2):
    (model(data(0, rank), 0).square().mean() / 4).backward()
wanted = model.sometimes.bias.detach() - 0.1 * model.sometimes.bias.grad
model.zero_grad()
engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
for batch in range(2):
    engine.backward(engine(data(batch, dist.get_rank()), batch).square().mean())
    engine.step()
if dist.get_rank() == 0:
    print("bias   ", model.sometimes.bias.tolist())
    print("wanted ", wanted.tolist())
dist.destroy_process_group()
