"""Which parameters has a model with tensor parallel layers under DDP? Prints how many there are, and the clipped norm.

    torchrun --nproc-per-node 2 tp_ddp.py ddp
    torchrun --nproc-per-node 2 tp_ddp.py plain           # no parallel layer, under DDP: right
    torchrun --nproc-per-node 2 tp_ddp.py ddp frozen      # the first layer is frozen: is it left alone?
    torchrun --nproc-per-node 2 tp_ddp.py plain frozen    # right
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8), nn.Linear(8, 4))
    if "frozen" in sys.argv:
        model[0].requires_grad_(False)
    mesh = init_device_mesh("cpu", (1, 2), mesh_dim_names=("data", "tp"))
    if sys.argv[1] == "ddp":
        parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    net = nn.parallel.DistributedDataParallel(model, device_mesh=mesh["data"])
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=1.0)
    trained = sum(len(group["params"]) for group in optimizer.param_groups)
    begin = len(list(net.parameters()))
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    losses = []
    for _ in range(3):
        loss = net(x).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.01)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(f"{loss.item():.6f}")
    if dist.get_rank() == 0:
        print(f"parameters {begin}, of which {trained} trained; behind a forward pass {len(list(net.parameters()))},")
        print(f"in state_dict() {len(net.state_dict())}; losses {' '.join(losses)}, last norm {norm.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
