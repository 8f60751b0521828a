"""Does ZeRO train a layer that is frozen when the engine is made, and thawed later? Prints how it moves.

    torchrun --nproc-per-node 2 zero_thawed.py 2    # ZeRO 1, 2, 3: never
    torchrun --nproc-per-node 2 zero_thawed.py 0    # right: stage 0
"""
import sys

import deepspeed
import torch
import torch.nn as nn

STAGE, STEPS, THAWS = int(sys.argv[1]), 4, 2
CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": STAGE, "stage3_param_persistence_threshold": 0},
}


def main():
    deepspeed.init_distributed("gloo")
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    model[0].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # has all parameters
    net = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)[0]
    first, last = weights(model[0]), weights(model[2])
    for step in range(STEPS):
        if step == THAWS:
            model[0].requires_grad_(True)
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(step * 10 + torch.distributed.get_rank()))
        net.backward(net(x).square().mean())
        net.step()
        moved = [(weights(layer) - was).abs().max().item() for layer, was in ((model[0], first), (model[2], last))]
        first, last = weights(model[0]), weights(model[2])
        if torch.distributed.get_rank() == 0:
            what = "frozen" if step < THAWS else "thawed"
            print(f"step {step + 1}: {what} layer moved by {moved[0]:.6f}, the other one by {moved[1]:.6f}")


def weights(layer):
    with deepspeed.zero.GatheredParameters([layer.weight], enabled=STAGE == 3):
        return layer.weight.detach().clone()


if __name__ == "__main__":
    main()
