"""Does a step of DeepSpeed's fp16 move weights by its gradient? Each step's gradient is 1, and the rate is 0.25.

    torchrun --nproc-per-node 2 fp16_scale.py 0 2000    # stage 0: no, 1024 times too little
    torchrun --nproc-per-node 2 fp16_scale.py 1 2       # ZeRO 1 (2, 3): half, where the loss scale grows
    torchrun --nproc-per-node 2 fp16_scale.py 1 2000    # right: loss_scale_window 2000
"""
import sys

import deepspeed
import torch
import torch.nn as nn

STAGE, WINDOW, RATE = int(sys.argv[1]), int(sys.argv[2]), 0.25
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "fp16": {"enabled": True, "initial_scale_power": 10, "loss_scale_window": WINDOW, "hysteresis": 1},
    "zero_optimization": {"stage": STAGE, "stage3_param_persistence_threshold": 0},
}


def main():
    deepspeed.init_distributed("gloo")
    deepspeed.get_accelerator().is_fp16_supported = lambda: True  # also where a CPU has no fast fp16
    model = nn.Linear(4, 2, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    net = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)[0]
    before = 0.0
    for step in range(6):
        loss = net(torch.ones(1, 4, dtype=torch.half)).float().sum()  # the gradient of each weight is 1
        after = -loss.item() / 8
        if step and torch.distributed.get_rank() == 0:
            print(f"step {step}: moved by {after - before:.6f}, and the gradient times the rate is {RATE:.6f}")
        before = after
        net.backward(loss)
        net.step()


if __name__ == "__main__":
    main()
