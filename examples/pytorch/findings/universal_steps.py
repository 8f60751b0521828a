"""Does Adam count steps right after a universal checkpoint of ZeRO 3? Prints the counter of each sub-group.

    torchrun --nproc-per-node 2 universal_steps.py saved          # a sub_group_size that makes several
    torchrun --nproc-per-node 2 universal_steps.py one one        # right: one sub-group
    torchrun --nproc-per-node 2 universal_steps.py own mended     # each gets a counter of its own
"""
import sys
from types import SimpleNamespace

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
from deepspeed.checkpoint import ds_to_universal

FOLDER, HOW = sys.argv[1], (sys.argv + ["plain"])[2]


def engine_of(universal):
    config = {
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": 3, "sub_group_size": 1000000 if HOW == "one" else 40},
        "checkpoint": {"load_universal": universal},
    }
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    return engine


def main():
    dist.init_process_group("gloo")
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
    engine = engine_of(universal=False)
    for step in range(4):
        if step == 2:
            engine.save_checkpoint(FOLDER, tag="one")
            if dist.get_rank() == 0:
                ds_to_universal.main(SimpleNamespace(
                    input_folder=FOLDER + "/one", output_folder=FOLDER + "/universal", strict=True,
                    num_extract_workers=1, num_merge_workers=1, keep_temp_folder=False, inject_missing_state=True))
            dist.barrier()
            engine = engine_of(universal=True)
            engine.load_checkpoint(FOLDER)
        states = engine.optimizer.optimizer.state
        for state in states.values() if HOW == "mended" and step == 2 else ():
            state["step"] = state["step"].clone()
        engine.backward(engine(x).square().mean())
        engine.step()
        if dist.get_rank() == 0:
            print(f"step {step + 1}: Adam counts {[int(state['step']) for state in states.values()]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
