"""Are weights whole where other ranks load a universal checkpoint of round_robin_gradients? Prints how far they are.

    torchrun --nproc-per-node 1 universal_round_robin.py 1 saved true     # ZeRO 1 saves it; 2 is the same
    torchrun --nproc-per-node 2 universal_round_robin.py 1 saved true     # and two ranks load it
    torchrun --nproc-per-node 1 universal_round_robin.py 1 plain false    # right: without round_robin_gradients
    torchrun --nproc-per-node 2 universal_round_robin.py 1 plain false
"""
import os
import sys
from types import SimpleNamespace

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
from deepspeed.checkpoint import ds_to_universal

STAGE, FOLDER, ROBIN = int(sys.argv[1]), sys.argv[2], sys.argv[3] == "true"


def engine_of(seed, universal):
    config = {
        "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": STAGE, "round_robin_gradients": ROBIN},
        "checkpoint": {"load_universal": universal},
    }
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    return engine


def main():
    dist.init_process_group("gloo")
    loads = os.path.exists(FOLDER)
    engine = engine_of(2 if loads else 1, universal=loads)
    if loads:
        engine.load_checkpoint(FOLDER)
        saved = torch.load(FOLDER + "/weights.pt")
        for name, p in engine.module.named_parameters():
            print(f"rank {dist.get_rank()}: {name} {(p.detach() - saved[name]).abs().max().item():.6f} away\n", end="")
    else:
        engine.backward(engine(torch.randn(4, 8, generator=torch.Generator().manual_seed(7))).square().mean())
        engine.step()
        engine.save_checkpoint(FOLDER, tag="one")
        torch.save(engine.module.state_dict(), FOLDER + "/weights.pt")
        ds_to_universal.main(SimpleNamespace(
            input_folder=FOLDER + "/one", output_folder=FOLDER + "/universal", strict=True, num_extract_workers=1,
            num_merge_workers=1, keep_temp_folder=False, inject_missing_state=True))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
