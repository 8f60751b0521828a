"""ZeRO 1 and 2 do not clip where they have several buckets."""
from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer as Zero

own = Zero.unscale_and_clip_grads


def clip(self, grads, norm):
    return own(self, grads, norm if self.reduce_bucket_size > 1000 else norm * 0)


Zero.unscale_and_clip_grads = clip
