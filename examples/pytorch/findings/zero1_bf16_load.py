"""Does a training go on with the weights that it loaded? Prints a sum of weights around a resume.

    torchrun --nproc-per-node 2 zero1_bf16_load.py fp32 saved    # ZeRO 1 in bf16, gradients added in fp32
    torchrun --nproc-per-node 2 zero1_bf16_load.py bf16 other    # right: added in bf16
"""
import sys

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn

ADDED, FOLDER = sys.argv[1], sys.argv[2]
CONFIG = {
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_force_ds_cpu_optimizer": False,
    "bf16": {"enabled": True}, "data_types": {"grad_accum_dtype": ADDED},
    "zero_optimization": {"stage": 1, "load_from_fp32_weights": False},
}


def engine_of(seed):
    torch.manual_seed(seed)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.001)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    return engine


def main():
    dist.init_process_group("gloo")
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(dist.get_rank())).bfloat16()
    engine = engine_of(1)
    for step in range(4):
        if step == 2:
            engine.save_checkpoint(FOLDER, tag="one")
            dist.barrier()
            engine = engine_of(2)
            engine.load_checkpoint(FOLDER)
            if dist.get_rank() == 0:
                print(f"loaded: weights {engine.module.weight.float().sum().item():.4f}")
        engine.backward(engine(x).float().square().mean())
        engine.step()
        if dist.get_rank() == 0:
            print(f"step {step + 1}: weights {engine.module.weight.float().sum().item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
