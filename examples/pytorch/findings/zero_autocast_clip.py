"""Does ZeRO clip the gradient with torch_autocast in fp16? The gradient's norm is 0.5, and it is clipped at 0.25.

    torchrun --nproc-per-node 2 zero_autocast_clip.py 1 float16     # no: 65536 times too little
    torchrun --nproc-per-node 2 zero_autocast_clip.py 1 bfloat16    # right
    torchrun --nproc-per-node 2 zero_autocast_clip.py 0 float16     # right: stage 0
"""
import sys

import deepspeed
import torch
import torch.nn as nn

STAGE, DTYPE = int(sys.argv[1]), sys.argv[2]
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "gradient_clipping": 0.25,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "torch_autocast": {"enabled": True, "dtype": DTYPE},
    "zero_optimization": {"stage": STAGE, "stage3_param_persistence_threshold": 0},
}


def main():
    deepspeed.init_distributed("gloo")
    model = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    net = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)[0]
    before = 0.0
    for step in range(4):
        loss = net(torch.ones(1, 4)).float().sum() / 4  # the gradient of each of four weights is 0.25
        after = -loss.item()
        if step and torch.distributed.get_rank() == 0:
            print(f"step {step}: weights moved by {after - before:.9f} each, and should by 0.125")
        before = after
        net.backward(loss)
        net.step()


if __name__ == "__main__":
    main()
