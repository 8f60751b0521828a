"""Does ZeRO 3 with hpZ compute with the weights that it loaded? Prints an output before and after.

    torchrun --nproc-per-node 2 zero3_hpz_load.py 2 saved
    torchrun --nproc-per-node 2 zero3_hpz_load.py 1 other   # right: without hpZ
"""
import sys

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn

HPZ, FOLDER = int(sys.argv[1]), sys.argv[2]


def engine_of(seed):
    config = {
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": 3, "zero_hpz_partition_size": HPZ, "stage3_param_persistence_threshold": 0},
    }
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))
    model[0].requires_grad_(False)
    optimizer = torch.optim.AdamW(model[1].parameters(), lr=0.01)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    return engine


def show(engine, x, when):
    with torch.no_grad():
        output = engine(x).sum().item()
    with deepspeed.zero.GatheredParameters(list(engine.module.parameters())):
        frozen = engine.module[0].weight.abs().sum().item()
    if dist.get_rank() == 0:
        print(f"{when}: output {output:.6f}, frozen weights {frozen:.6f}")


def main():
    dist.init_process_group("gloo")
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(7))
    engine = engine_of(1)
    for step in range(4):
        if step == 1:
            show(engine, x, "saved")
            engine.save_checkpoint(FOLDER, tag="one")
            dist.barrier()
            engine = engine_of(2)
            engine.load_checkpoint(FOLDER)
            show(engine, x, "loaded")
        engine.backward(engine(x).square().mean())
        engine.step()
    show(engine, x, "three steps on")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
