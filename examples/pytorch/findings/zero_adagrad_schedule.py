"""Does a schedule reach Adagrad under DeepSpeed? Prints the schedule's rate, Adagrad's, and how far a bias moved.

    torchrun --nproc-per-node 2 zero_adagrad_schedule.py 1          # ZeRO 1; 2 and 3 are the same
    torchrun --nproc-per-node 2 zero_adagrad_schedule.py 0          # right: without ZeRO
    torchrun --nproc-per-node 2 zero_adagrad_schedule.py 1 mended   # the schedule is led to the new optimizer
"""
import sys

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn

STAGE, MENDED = int(sys.argv[1]), sys.argv[2:] == ["mended"]
CONFIG = {
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True, "zero_optimization": {"stage": STAGE},
}


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.0 if step > 1 else 1.0)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, lr_scheduler=schedule, config=CONFIG)
    if MENDED:
        schedule.optimizer = engine.optimizer.optimizer
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(dist.get_rank()))
    for step in range(4):
        with deepspeed.zero.GatheredParameters([model.bias]):
            before = model.bias.detach().clone()
        rate = schedule.get_last_lr()[0]
        engine.backward(engine(x).square().mean())
        inner = getattr(engine.optimizer, "optimizer", engine.optimizer)
        of_adagrad = inner.param_groups[0]["lr"]
        engine.step()
        with deepspeed.zero.GatheredParameters([model.bias]):
            moved = (model.bias.detach() - before).abs().mean().item()
        if dist.get_rank() == 0:
            print(f"step {step + 1}: schedule {rate:.3f}, Adagrad {of_adagrad:.3f}, moved by {moved:.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
