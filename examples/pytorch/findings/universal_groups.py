"""Does a universal checkpoint of DeepSpeed keep what groups of parameters have? Prints it before and after.

    torchrun --nproc-per-node 2 universal_groups.py 3 saved3
    torchrun --nproc-per-node 2 universal_groups.py 1 saved1   # right: ZeRO 1
"""
import sys
from types import SimpleNamespace

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
from deepspeed.checkpoint import ds_to_universal

STAGE, FOLDER = int(sys.argv[1]), sys.argv[2]


def engine_of(universal):
    config = {
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": STAGE}, "checkpoint": {"load_universal": universal},
    }
    torch.manual_seed(1)
    model = nn.Linear(8, 4)
    groups = [{"params": [model.weight], "lr": 0.01, "weight_decay": 0.1},
              {"params": [model.bias], "lr": 0.03, "weight_decay": 0.0}]
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=torch.optim.AdamW(groups), config=config)
    return engine


def show(engine, when):
    if dist.get_rank() == 0:
        for name, group in zip(("weight", "bias"), engine.optimizer.optimizer.param_groups):
            print(f"{when}: {name}: lr {group['lr']}, weight_decay {group['weight_decay']}")


def main():
    dist.init_process_group("gloo")
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
    engine = engine_of(universal=False)
    engine.backward(engine(x).square().mean())
    engine.step()
    show(engine, "saved")
    engine.save_checkpoint(FOLDER, tag="one")
    if dist.get_rank() == 0:
        ds_to_universal.main(SimpleNamespace(
            input_folder=FOLDER + "/one", output_folder=FOLDER + "/universal", strict=True, num_extract_workers=1,
            num_merge_workers=1, keep_temp_folder=False, inject_missing_state=True))
    dist.barrier()
    engine = engine_of(universal=True)
    engine.load_checkpoint(FOLDER)
    show(engine, "loaded")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
