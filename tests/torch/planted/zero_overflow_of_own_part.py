"""ZeRO 1 and 2 in fp16: each rank asks its own part of the gradient alone whether the step overflowed."""
import deepspeed.runtime.zero.stage_1_and_2 as stages

_right = stages.DeepSpeedZeroOptimizer.has_overflow


def _has_overflow(self, partition_gradients=True):
    if self.cpu_offload:
        return _right(self, partition_gradients)
    return bool(self.has_overflow_partitioned_grads_serial())


stages.DeepSpeedZeroOptimizer.has_overflow = _has_overflow
