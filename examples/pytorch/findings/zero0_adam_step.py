"""How far does Adam go in its first step under DeepSpeed? Prints how far a weight moved in each step.

    torchrun --nproc-per-node 2 zero0_adam_step.py 0          # stage 0 with bf16
    torchrun --nproc-per-node 2 zero0_adam_step.py 1          # any other stage
    torchrun --nproc-per-node 2 zero0_adam_step.py 0 mended   # the counter is set back from outside
"""
import sys

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn

STAGE, MENDED = int(sys.argv[1]), sys.argv[2:] == ["mended"]
CONFIG = {
    "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1, "gradient_clipping": 0.0,
    "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
    "bf16": {"enabled": True}, "zero_optimization": {"stage": STAGE},
}


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = nn.Linear(64, 64, bias=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    if MENDED:
        for state in optimizer.state.values():
            state["step"].zero_()
    generator = torch.Generator().manual_seed(dist.get_rank())
    x = torch.randn(4, 64, generator=generator).bfloat16()
    for step in range(4):
        before = model.weight.detach().float().clone()
        engine.backward(engine(x).float().square().mean())
        engine.step()
        moved = (model.weight.detach().float() - before).abs().mean()
        if dist.get_rank() == 0:
            print(f"step {step + 1}: moved by {moved:.5f} on average")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
