"""DDP sends its buffers as they were two passes ago."""
from torch.nn.parallel import DistributedDataParallel as DDP

own = DDP.forward


def forward(self, *args, **options):
    for buffer in self.module.buffers():
        if not buffer.is_floating_point():
            buffer.sub_(1).clamp_(min=0)
    return own(self, *args, **options)


DDP.forward = forward
