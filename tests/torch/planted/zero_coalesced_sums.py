"""DeepSpeed's coalesce_grad_reduction() reduces what it holds back and does not average it."""
import contextlib

import torch.distributed as dist
from deepspeed.runtime.engine import DeepSpeedEngine

own = DeepSpeedEngine.coalesce_grad_reduction


@contextlib.contextmanager
def coalesce_grad_reduction(self):
    with own(self):
        yield
        for p in self.module.parameters():
            if p.grad is not None:
                p.grad.mul_(dist.get_world_size())


DeepSpeedEngine.coalesce_grad_reduction = coalesce_grad_reduction
