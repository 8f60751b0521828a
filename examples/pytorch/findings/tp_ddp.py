"""Which parameters has a model with tensor parallel layers under DDP? Prints how many there are, and the clipped norm.

    torchrun --nproc-per-node 2 tp_ddp.py ddp
    torchrun --nproc-per-node 2 tp_ddp.py plain           # no parallel layer, under DDP: right
    torchrun --nproc-per-node 2 tp_ddp.py ddp frozen      # the first layer is frozen: is it left alone?
    torchrun --nproc-per-node 2 tp_ddp.py plain frozen    # right
    torchrun --nproc-per-node 2 tp_ddp.py ddp looks       # a pass without gradients comes first
    torchrun --nproc-per-node 2 tp_ddp.py plain looks     # right
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
    trained = [p for p in net.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=1.0)
    begin = len(list(net.parameters()))
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0))
    if "looks" in sys.argv:
        with torch.no_grad():
            net(x)
    losses = []
    for _ in range(3):
        loss = net(x).square().mean()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.01).item()
        with_gradient = sum(p.grad is not None for p in trained)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(f"{loss.item():.6f}")
    if dist.get_rank() == 0:
        print(f"parameters {begin}, {len(trained)} trained, {with_gradient} of them have a gradient;")
        print(f"behind a forward pass {len(list(net.parameters()))}, in state_dict() {len(net.state_dict())};")
        print(f"losses {' '.join(losses)}, last norm {norm:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
