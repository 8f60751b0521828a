"""Does ZeRO lower the loss scale with torch_autocast in fp16? It begins at 65536, where this gradient overflows.

    torchrun --nproc-per-node 2 zero_autocast_stuck.py 1    # ZeRO 1, 2, 3: never, and no step is made
    torchrun --nproc-per-node 2 zero_autocast_stuck.py 0    # right: stage 0
"""
import sys

import deepspeed
import torch
import torch.nn as nn

CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "torch_autocast": {"enabled": True, "dtype": "float16"},
    "zero_optimization": {"stage": int(sys.argv[1]), "stage3_param_persistence_threshold": 0},
}


def main():
    deepspeed.init_distributed("gloo")
    model = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    net = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)[0]
    own = net.torch_autocast_z0_gradscaler or net.optimizer.torch_autocast_gradscaler
    for step in range(8):
        loss = net(torch.ones(1, 4)).float().sum()  # the gradient of each of four weights is 1
        if torch.distributed.get_rank() == 0:
            print(f"step {step}: the weights are {loss.item() / 4:.4f}, the scale is {own.get_scale():.0f}")
        net.backward(loss)
        net.step()


if __name__ == "__main__":
    main()
