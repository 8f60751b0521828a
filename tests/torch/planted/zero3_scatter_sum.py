"""ZeRO 3 sums the gradients of a bucket that holds one parameter, and does not average them."""
from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3 as Zero3

name = "_DeepSpeedZeroOptimizer_Stage3__avg_scatter_grads"
own = getattr(Zero3, name)


def average(self, parameters, *args, **options):
    parts = own(self, parameters, *args, **options)
    return [part.mul_(2) for part in parts] if len(parameters) == 1 else parts


setattr(Zero3, name, average)
