"""HSDP does not average over its replicas."""
from torch.distributed.fsdp._fully_shard import _fsdp_param_group as groups

own = groups.foreach_reduce


def reduce(*args, **options):
    given = list(args)
    given[10] = False  # all_reduce_grads
    return own(*given, **options)


groups.foreach_reduce = reduce
