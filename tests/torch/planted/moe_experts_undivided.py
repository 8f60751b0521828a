"""DeepSpeed averages an expert's gradient over the ranks that have it, and not over all whose tokens it saw."""
import deepspeed.comm as dist
from deepspeed.runtime.engine import DeepSpeedEngine

own = DeepSpeedEngine.allreduce_no_retain


def allreduce_no_retain(self, bucket, dp_group, numel_per_bucket=500000000, dp_world_size=None):
    own(self, bucket, dp_group, numel_per_bucket, dist.get_world_size(group=dp_group))


DeepSpeedEngine.allreduce_no_retain = allreduce_no_retain
