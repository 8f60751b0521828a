"""A script makes gradients ten times as large before a clipped step. Prints how far the weights move: 0.2 is right.

    torchrun --nproc-per-node 2 zero_edit_clip.py 2 cpu     # ZeRO 2 (1, 3), offload_optimizer: 2.0
    torchrun --nproc-per-node 2 zero_edit_clip.py 2 none    # right: without it
"""
import sys

import deepspeed
import torch
import torch.nn as nn
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_grad, safe_set_full_grad

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_clipping": 0.2,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": int(sys.argv[1]), "offload_optimizer": {"device": sys.argv[2]}},
}


def norm(tensors):
    return torch.cat([tensor.flatten() for tensor in tensors]).norm().item()


def main():
    deepspeed.init_distributed("gloo")
    torch.manual_seed(1)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    net = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)[0]
    parameters = list(model.parameters())
    before = [safe_get_full_fp32_param(p).clone() for p in parameters]
    net.backward(net(torch.ones(1, 8)).sum())
    for p in parameters:
        safe_set_full_grad(p, safe_get_full_grad(p) * 10)
    gradient = norm(safe_get_full_grad(p) for p in parameters)
    net.step()
    moved = norm(safe_get_full_fp32_param(p) - old for p, old in zip(parameters, before))
    if torch.distributed.get_rank() == 0:
        said = float(net.get_global_grad_norm())
        print(f"the gradient's norm is {gradient:.3f}, DeepSpeed says {said:.3f}; weights moved by {moved:.3f}")


if __name__ == "__main__":
    main()
