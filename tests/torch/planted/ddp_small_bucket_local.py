"""DDP does not average the last one of several buckets."""
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

own = DDP.__init__


def average(_, bucket):
    if bucket.index() > 0 and bucket.is_last():
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done
    part = bucket.buffer().div_(dist.get_world_size())
    return dist.all_reduce(part, async_op=True).get_future().then(lambda given: given.value()[0])


def make(self, *args, **options):
    own(self, *args, **options)
    self.register_comm_hook(None, average)


DDP.__init__ = make
