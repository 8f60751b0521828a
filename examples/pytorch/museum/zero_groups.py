"""DeepSpeed's schedules on two groups of parameters, each with a learning rate of its own. --swap lists the groups the other way round."""
import argparse

import deepspeed
import torch
import torch.distributed as dist

SCHEDULES = {
    "WarmupLR": {"warmup_num_steps": 4},
    "WarmupCosineLR": {"warmup_num_steps": 4, "total_num_steps": 12},
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--schedule", choices=SCHEDULES, default="WarmupCosineLR")
    parser.add_argument("--swap", action="store_true")
    args = parser.parse_args()
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    groups = [{"params": list(model[0].parameters()), "lr": 0.02}, {"params": list(model[2].parameters()), "lr": 0.2}]
    optimizer = torch.optim.SGD(groups[::-1] if args.swap else groups)
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "scheduler": {"type": args.schedule, "params": SCHEDULES[args.schedule]},
        "steps_per_print": 1000,
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    draw = torch.Generator().manual_seed(2 + dist.get_rank())
    for _ in range(8):
        x = torch.randn(4, 16, generator=draw)
        engine.backward(torch.nn.functional.mse_loss(engine(x), x.sum(1, keepdim=True)))
        engine.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
