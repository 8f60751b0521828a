"""Does stage 0 with torch_autocast in fp16 hold the schedule where it leaves a step out? The gradients of the first
three steps overflow.

    torchrun --nproc-per-node 2 zero0_autocast_schedule.py autocast    # the rate decays in steps that are not made
    torchrun --nproc-per-node 2 zero0_autocast_schedule.py fp16        # right: DeepSpeed's own fp16, ZeRO 1
"""
import sys

import deepspeed
import torch
import torch.nn as nn

AUTOCAST = sys.argv[1] == "autocast"
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": 0 if AUTOCAST else 1},
}
if AUTOCAST:
    CONFIG["torch_autocast"] = {"enabled": True, "dtype": "float16"}
else:
    CONFIG["fp16"] = {"enabled": True, "initial_scale_power": 16, "hysteresis": 1}
if not torch.cuda.is_available():
    deepspeed.get_accelerator().is_fp16_supported = lambda: True  # it is slow there, and not wrong


def main():
    deepspeed.init_distributed("gloo")
    model = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    net = deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=schedule, config=CONFIG)[0]
    for step in range(5):
        x = torch.ones(1, 4, dtype=torch.float32 if AUTOCAST else torch.float16)
        loss = net(x).float().sum() * 4.0  # the gradient of each weight is 4
        net.backward(loss)
        net.step()
        if torch.distributed.get_rank() == 0:
            print(f"step {step}: a weight is {model.weight[0, 0].item():.5f}, the rate of the next step is "
                  f"{optimizer.param_groups[0]['lr']:.5f}, steps left out: {net.skipped_steps}")


if __name__ == "__main__":
    main()
