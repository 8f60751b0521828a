"""Does ZeRO 3 go on with Muon's momentum after a resume? Prints how far a weight is from an undisturbed training.

    torchrun --nproc-per-node 2 zero3_muon_memory.py memory /tmp/saved    # save_muon_momentum_buffer_in_memory: no
    torchrun --nproc-per-node 2 zero3_muon_memory.py default /tmp/saved   # right: without the option
"""
import sys

import deepspeed
import torch
import torch.nn as nn

MEMORY, FOLDER = sys.argv[1] == "memory", sys.argv[2]
CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": 0.0,
    "optimizer": {"type": "Muon", "params": {"muon_lr": 0.02, "adam_lr": 0.01}},
    "zero_optimization": {
        "stage": 3, "reduce_scatter": False, "save_muon_momentum_buffer_in_memory": MEMORY,
        "stage3_param_persistence_threshold": 0,
    },
}


def build(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4))
    return model, deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=CONFIG)[0]


def train(resumes):
    model, net = build(1)
    for step in range(4):
        if resumes and step == 2:
            net.save_checkpoint(FOLDER, tag="saved")
            model, net = build(2)
            net.load_checkpoint(FOLDER, tag="saved")
        x = torch.randn(4, 8, generator=torch.Generator().manual_seed(step * 10 + torch.distributed.get_rank()))
        net.backward(net(x).square().mean())
        net.step()
    with deepspeed.zero.GatheredParameters([model[0].weight]):
        return model[0].weight.detach().clone()


def main():
    deepspeed.init_distributed("gloo")
    undisturbed, resumed = train(False), train(True)
    if torch.distributed.get_rank() == 0:
        print(f"after two steps more: at most {(undisturbed - resumed).abs().max().item():.6f} away")


if __name__ == "__main__":
    main()
