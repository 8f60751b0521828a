"""Do DeepSpeed's pipelines clip by the norm of the whole model? Prints losses, and one as the whole model trains.

    torchrun --nproc-per-node 2 pipeline_clip.py 0    # each stage by a norm of its own
    torchrun --nproc-per-node 2 pipeline_clip.py 1    # right: ZeRO 1
"""
import sys

import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_clipping": 0.1,
    "zero_allow_untested_optimizer": True,
    "zero_force_ds_cpu_optimizer": False,
    "zero_optimization": {"stage": int(sys.argv[1])},
}
LAYERS, STEPS = 4, 6


def layer(i):
    torch.manual_seed(i)
    return nn.Sequential(nn.Linear(8, 8), nn.Tanh())


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(4, 8, generator=generator), torch.randint(0, 8, (4,), generator=generator)


def main():
    deepspeed.init_distributed("gloo")
    whole = nn.Sequential(*[layer(i) for i in range(LAYERS)])
    optimizer = torch.optim.SGD(whole.parameters(), lr=1.0)
    model = deepspeed.pipe.PipelineModule(
        [layer(i) for i in range(LAYERS)], num_stages=2, loss_fn=F.cross_entropy, partition_method="uniform")
    net = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0), config=CONFIG)[0]
    for step in range(STEPS):
        by_hand = F.cross_entropy(whole(batch(step)[0]), batch(step)[1])
        by_hand.backward()
        nn.utils.clip_grad_norm_(whole.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
        loss = net.train_batch(iter([batch(step)]))
        if dist.get_rank() == 0:
            print(f"step {step + 1}: loss {loss.item():.6f}, whole {by_hand.item():.6f}")


if __name__ == "__main__":
    main()
