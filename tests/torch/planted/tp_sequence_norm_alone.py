"""SequenceParallel does not add up the gradients of a LayerNorm, of which each rank has its own samples."""
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import SequenceParallel

own = SequenceParallel._replicate_module_fn


def keep_own(p):
    p.grad = DTensor.from_local(p.grad._local_tensor, p.device_mesh, [Replicate()], run_check=False)


def replicate(self, name, module, mesh):
    own(self, name, module, mesh)
    for p in module.parameters():
        p.register_post_accumulate_grad_hook(keep_own)


SequenceParallel._replicate_module_fn = replicate
