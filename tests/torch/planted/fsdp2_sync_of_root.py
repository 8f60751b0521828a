"""FSDP2 turns synchronisation on again for the root only."""
from torch.distributed.fsdp import FSDPModule

own = FSDPModule.set_requires_gradient_sync


def sync(self, wanted, *, recurse=True):
    own(self, wanted, recurse=recurse and not wanted)


FSDPModule.set_requires_gradient_sync = sync
