"""Does DeepSpeed give the weight that it is asked for with round_robin_gradients? Prints how far each one is away.

    torchrun --nproc-per-node 2 zero_round_robin_full.py 1 true     # ZeRO 1 (2): that of another layer
    torchrun --nproc-per-node 2 zero_round_robin_full.py 1 false    # right: without the option
"""
import sys

import deepspeed
import torch
import torch.nn as nn
from deepspeed.utils import safe_get_full_fp32_param, safe_set_full_fp32_param

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": int(sys.argv[1]), "round_robin_gradients": sys.argv[2] == "true"},
}


def main():
    deepspeed.init_distributed("gloo")
    torch.manual_seed(1)
    model = nn.Sequential(*[nn.Linear(4, 4, bias=False) for _ in range(4)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)  # nothing moves by itself
    net = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)[0]
    say = print if torch.distributed.get_rank() == 0 else lambda text: None
    for i, layer in enumerate(model):
        away = (safe_get_full_fp32_param(layer.weight) - layer.weight).abs().max().item()
        say(f"layer {i}: safe_get_full_fp32_param() is {away:.6f} away")
    safe_set_full_fp32_param(model[0].weight, torch.zeros(4, 4))
    net.backward(net(torch.ones(1, 4)).sum())
    net.step()
    for i, layer in enumerate(model):
        say(f"layer {i}: after layer 0 was set to zeros, the largest weight is {layer.weight.abs().max().item():.6f}")


if __name__ == "__main__":
    main()
