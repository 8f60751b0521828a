"""FSDP2 divides gradients by the square of the factor that set_gradient_divide_factor() names."""
from torch.distributed.fsdp import FSDPModule

own = FSDPModule.set_gradient_divide_factor
FSDPModule.set_gradient_divide_factor = lambda self, factor: own(self, factor * factor)
