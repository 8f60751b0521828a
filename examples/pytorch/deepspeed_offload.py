"""DeepSpeed ZeRO 2 with the optimizer's state in CPU memory and two micro-batches a step.

    deepspeed --num_accelerators 2 deepspeed_offload.py
"""
import argparse

import deepspeed
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from model import GPT, loss_of, samples

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,  # torch's AdamW: DeepSpeed's own has to be compiled first
    "steps_per_print": 1000000,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--local_rank", type=int, default=-1, help="given by the launcher")
    args = parser.parse_args()

    deepspeed.init_distributed()
    torch.manual_seed(1)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    world = dist.get_world_size()
    data = samples(args.steps * engine.train_batch_size())
    sampler = DistributedSampler(data, world, dist.get_rank(), shuffle=False)
    for tokens in DataLoader(data, batch_size=engine.train_micro_batch_size_per_gpu(), sampler=sampler):
        loss = loss_of(engine, tokens)
        engine.backward(loss)
        engine.step()
        if dist.get_rank() == 0:
            print(f"{engine.global_steps} steps: loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
