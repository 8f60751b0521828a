"""Does load_checkpoint(load_module_only=True) load weights? Prints the loss of what was saved, and of what was loaded.

    torchrun --nproc-per-node 2 zero3_module_only.py 3 /tmp/saved          # the weights stay as they were
    torchrun --nproc-per-node 2 zero3_module_only.py 2 /tmp/saved          # right: ZeRO 2, 1, 0
    torchrun --nproc-per-node 2 zero3_module_only.py 3 /tmp/saved states   # right: load_optimizer_states=False
"""
import sys

import deepspeed
import torch
import torch.nn as nn

STAGE, FOLDER = int(sys.argv[1]), sys.argv[2]
CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": STAGE},
}


def build(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    return deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1), config=CONFIG)[0]


def loss_of(net):
    return net(torch.ones(4, 8)).square().mean()


def main():
    deepspeed.init_distributed("gloo")
    net = build(1)
    net.backward(loss_of(net))
    net.step()
    saved = loss_of(net).item()
    net.save_checkpoint(FOLDER, tag="saved")
    net = build(2)
    fresh = loss_of(net).item()
    only = {"load_optimizer_states": False} if sys.argv[3:] == ["states"] else {"load_module_only": True}
    path, _ = net.load_checkpoint(FOLDER, tag="saved", **only)
    if torch.distributed.get_rank() == 0:
        print(f"loaded {'nothing' if path is None else 'a checkpoint'}")
    print(f"saved {saved:.6f}, a new model {fresh:.6f}, loaded {loss_of(net).item():.6f}")


if __name__ == "__main__":
    main()
