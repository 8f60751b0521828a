"""Does a universal checkpoint of DeepSpeed keep frozen weights and buffers? Prints sums before and after.

    torchrun --nproc-per-node 2 universal_frozen.py 1 saved1         # ZeRO 1; 2 and 3 are the same
    torchrun --nproc-per-node 2 universal_frozen.py 1 plain1 plain   # right: a checkpoint of ZeRO itself
"""
import sys
from types import SimpleNamespace

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
from deepspeed.checkpoint import ds_to_universal

STAGE, FOLDER, UNIVERSAL = int(sys.argv[1]), sys.argv[2], sys.argv[3:] != ["plain"]


def engine_of(seed, universal):
    config = {
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": STAGE}, "checkpoint": {"load_universal": universal},
    }
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4))
    model[0].requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    return engine


def show(engine, when):
    model = engine.module
    with deepspeed.zero.GatheredParameters(list(model.parameters())):
        sums = [t.abs().sum().item() for t in (model[2].weight, model[0].weight, model[1].running_var)]
    if dist.get_rank() == 0:
        print("{}: trained {:.6f}, frozen {:.6f}, running_var {:.6f}".format(when, *sums))


def main():
    dist.init_process_group("gloo")
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(7))
    engine = engine_of(1, universal=False)
    engine.backward(engine(x).square().mean())
    engine.step()
    show(engine, "saved")
    engine.save_checkpoint(FOLDER, tag="one")
    if UNIVERSAL and dist.get_rank() == 0:
        ds_to_universal.main(SimpleNamespace(
            input_folder=FOLDER + "/one", output_folder=FOLDER + "/universal", strict=True, num_extract_workers=1,
            num_merge_workers=1, keep_temp_folder=False, inject_missing_state=True))
    dist.barrier()
    engine = engine_of(2, UNIVERSAL)
    engine.load_checkpoint(FOLDER)
    show(engine, "loaded")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
