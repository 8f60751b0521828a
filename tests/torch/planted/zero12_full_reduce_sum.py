"""ZeRO 1 and 2 without reduce_scatter sum gradients and do not average them."""
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer as Zero

own = Zero.gradient_reduction_w_predivide


def reduce(self, tensor, *args, **options):
    reduced = own(self, tensor, *args, **options)
    return reduced if self.reduce_scatter else reduced.mul_(2)


Zero.gradient_reduction_w_predivide = reduce
