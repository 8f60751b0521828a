"""DeepSpeed ZeRO 1 that saves and goes on by its engine's own checkpoints."""
import argparse

import deepspeed
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, DistributedSampler

from model import GPT, loss_of, samples

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "zero_optimization": {"stage": 1},
    "zero_allow_untested_optimizer": True,
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3, "warmup_num_steps": 4}},
    "steps_per_print": 1000000,
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--every", type=int, default=3, help="steps from one checkpoint to the next")
    parser.add_argument("--folder", required=True, help="of the checkpoints")
    args = parser.parse_args()

    deepspeed.init_distributed()
    torch.manual_seed(1)
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    engine.load_checkpoint(args.folder)
    done = engine.global_steps
    data = samples(args.steps * engine.train_batch_size())
    sampler = DistributedSampler(data, dist.get_world_size(), dist.get_rank(), shuffle=False)
    loader = DataLoader(data, batch_size=engine.train_micro_batch_size_per_gpu(), sampler=sampler)
    for tokens in (tokens for i, tokens in enumerate(loader) if i >= done):
        engine.backward(loss_of(engine, tokens))
        engine.step()
        if engine.global_steps % args.every == 0:
            engine.save_checkpoint(args.folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
