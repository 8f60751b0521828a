"""Does stage 0 go on from weights that were loaded without the optimizer's state? All weights are 1 in what is loaded.

    torchrun --nproc-per-node 1 zero0_weights_alone.py bf16            # a step later they are those of the new model, 5
    torchrun --nproc-per-node 1 zero0_weights_alone.py fp32            # right
    torchrun --nproc-per-node 1 zero0_weights_alone.py bf16 module     # right: load_module_only=True
    torchrun --nproc-per-node 1 zero0_weights_alone.py bf16 weights 1  # right: ZeRO 1
"""
import sys
import tempfile

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn

KIND, LOADS = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "weights"
CONFIG = {
    "train_micro_batch_size_per_gpu": 1,
    "zero_allow_untested_optimizer": True,
    "gradient_clipping": 0.0,
    "zero_optimization": {"stage": int(sys.argv[3]) if len(sys.argv) > 3 else 0},
}
if KIND == "bf16":
    CONFIG["bf16"] = {"enabled": True}


def build(value):
    model = nn.Linear(4, 1, bias=False)
    nn.init.constant_(model.weight, value)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    return deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)[0]


def main():
    deepspeed.init_distributed("gloo")
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder, 0)
    build(1.0).save_checkpoint(folder[0])
    net = build(5.0)
    if LOADS == "module":
        net.load_checkpoint(folder[0], load_module_only=True, load_optimizer_states=False)
    else:
        net.load_checkpoint(folder[0], load_optimizer_states=False)
    weight = next(net.module.parameters())
    loaded = weight.detach().float().mean().item()
    net.backward(net(torch.ones(1, 4, dtype=weight.dtype)).float().sum())
    net.step()
    print(f"loaded {loaded:.4f}, a step later {weight.detach().float().mean().item():.4f}, in place of 0.8750")


if __name__ == "__main__":
    main()
