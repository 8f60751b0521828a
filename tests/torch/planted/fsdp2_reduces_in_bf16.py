"""FSDP2 reduces gradients in the type of the parameters, whatever reduce_dtype says."""
import dataclasses

from torch.distributed import fsdp

own = fsdp.MixedPrecisionPolicy


def policy(param_dtype=None, reduce_dtype=None, **options):
    return dataclasses.replace(own(param_dtype, param_dtype, **options))


fsdp.MixedPrecisionPolicy = policy
