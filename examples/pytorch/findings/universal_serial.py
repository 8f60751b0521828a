"""Can ZeRO 3 load a universal checkpoint with pipeline_loading_checkpoint? With 1 it waits for ever.

    torchrun --nproc-per-node 2 universal_serial.py 1 saved
    torchrun --nproc-per-node 2 universal_serial.py 0 other   # right: without the option
"""
import sys
from types import SimpleNamespace

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
from deepspeed.checkpoint import ds_to_universal

SERIAL, FOLDER = sys.argv[1] == "1", sys.argv[2]


def engine_of(universal):
    config = {
        "train_micro_batch_size_per_gpu": 4, "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": 3, "pipeline_loading_checkpoint": SERIAL},
        "checkpoint": {"load_universal": universal},
    }
    model = nn.Linear(8, 4)
    optimizer = torch.optim.AdamW(model.parameters())
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    return engine


def main():
    dist.init_process_group("gloo")
    engine = engine_of(universal=False)
    engine.backward(engine(torch.ones(4, 8)).square().mean())
    engine.step()
    engine.save_checkpoint(FOLDER, tag="one")
    if dist.get_rank() == 0:
        ds_to_universal.main(SimpleNamespace(
            input_folder=FOLDER + "/one", output_folder=FOLDER + "/universal", strict=True, num_extract_workers=1,
            num_merge_workers=1, keep_temp_folder=False, inject_missing_state=True))
    dist.barrier()
    print(f"rank {dist.get_rank()} loads\n", end="", flush=True)
    engine_of(universal=True).load_checkpoint(FOLDER)
    print(f"rank {dist.get_rank()} has loaded\n", end="", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
