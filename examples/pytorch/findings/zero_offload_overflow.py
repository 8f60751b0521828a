"""Does ZeRO train on behind an overflow in fp16, with the optimizer on the CPU? The gradient of step 1 overflows.

    torchrun --nproc-per-node 2 zero_offload_overflow.py 1 cpu fp32     # ZeRO 1 and 2: no step is made behind it
    torchrun --nproc-per-node 2 zero_offload_overflow.py 1 none fp32    # right; likewise with fp16 for fp32
"""
import sys

import deepspeed
import torch
import torch.nn as nn

STAGE, DEVICE, ADDED_AS = int(sys.argv[1]), sys.argv[2], sys.argv[3]
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "fp16": {"enabled": True, "initial_scale_power": 10, "hysteresis": 1},
    "data_types": {"grad_accum_dtype": ADDED_AS},
    "zero_optimization": {"stage": STAGE, "offload_optimizer": {"device": DEVICE}},
}
if not torch.cuda.is_available():
    deepspeed.get_accelerator().is_fp16_supported = lambda: True  # it is slow there, and not wrong


def main():
    deepspeed.init_distributed("gloo")
    model = nn.Linear(4, 2, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    net = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)[0]
    for step in range(8):
        loss = net(torch.ones(1, 4, dtype=torch.float16)).float().sum()  # the gradient of each weight is 1
        net.backward(loss * 2.0**40 if step == 1 else loss)
        net.step()
        if torch.distributed.get_rank() == 0:
            print(f"step {step}: a weight is {model.weight[0, 0].item():.4f}, the scale is {net.optimizer.loss_scale:.0f}, "
                  f"steps left out: {net.skipped_steps}")


if __name__ == "__main__":
    main()
