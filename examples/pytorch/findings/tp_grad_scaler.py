"""Do ranks that share a layer leave out the same step, where a gradient overflows? Prints what each of them did.

    torchrun --nproc-per-node 2 tp_grad_scaler.py fsdp
    torchrun --nproc-per-node 2 tp_grad_scaler.py        # parallel layers alone: right
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, h, large):
        h = self.first(h)
        again = self.last(h.detach())
        return self.last(h) + (again - again.detach()) * large


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = Model()
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "tp"))
    plan = {"last": ColwiseParallel(output_layouts=Replicate())}
    if "fsdp" not in sys.argv:
        plan["first"] = ColwiseParallel(output_layouts=Replicate())
    parallelize_module(model, mesh["tp"], plan)
    if "fsdp" in sys.argv:
        fully_shard(model, mesh=mesh["data"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    for step in range(2):
        large = torch.tensor([0.0, 0.0, 0.0, 2.0**127 if step == 0 else 0.0])  # a gradient overflows, which rank 1 has
        scaler.scale(model(torch.ones(3, 8), large).square().mean()).backward()
        before = [p.detach().clone() for p in model.parameters()]
        scaler.step(optimizer)
        moved = any(not torch.equal(a.to_local(), p.to_local()) for a, p in zip(before, model.parameters()))
        scaler.update()
        optimizer.zero_grad()
        done = "made" if moved else "left out"
        print(f"rank {dist.get_rank()} step {step}: {done}, scale {scaler.get_scale()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
