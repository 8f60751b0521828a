"""DDP with gradient_as_bucket_view sums over ranks and does not divide."""
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

own = DDP.__init__


def total(_, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda done: done.value()[0])


def make(self, *args, **options):
    own(self, *args, **options)
    if options.get("gradient_as_bucket_view"):
        self.register_comm_hook(None, total)


DDP.__init__ = make
