"""Which parameters of a compiled model get a gradient, where a block is recomputed? Prints those that get none.

    torchrun --nproc-per-node 2 tp_compiled_checkpoint.py tp compile break checkpoint
    torchrun --nproc-per-node 2 tp_compiled_checkpoint.py tp compile hook checkpoint
    torchrun --nproc-per-node 2 tp_compiled_checkpoint.py tp break checkpoint    # and so on: right without one of these
"""
import sys

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 20), nn.Linear(20, 8)

    def forward(self, h):
        h = self.up(h)
        if "break" in sys.argv:
            torch._dynamo.graph_break()
        return self.down(h.tanh())


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.block, self.head = Block(), nn.Linear(8, 4)

    def forward(self, h):
        inner = checkpoint(self.block, h, use_reentrant=False) if "checkpoint" in sys.argv else self.block(h)
        return self.head(h + inner)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = Model()
    if "tp" in sys.argv:
        plan = {"block.up": ColwiseParallel(), "block.down": RowwiseParallel()}
        parallelize_module(model, init_device_mesh("cpu", (2,)), plan)
    if "hook" in sys.argv:
        nn.modules.module.register_module_forward_hook(torch._dynamo.disable(lambda module, args, output: None))
    if "compile" in sys.argv:
        model.compile(backend="aot_eager")
    model(torch.ones(3, 8)).square().mean().backward()
    without = [name for name, p in model.named_parameters() if p.grad is None]
    if dist.get_rank() == 0:
        print("without a gradient:", ", ".join(without) or "none")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
