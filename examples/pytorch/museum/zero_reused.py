"""A block that each step uses twice, recomputed the first time, under DeepSpeed's engine."""
import argparse

import deepspeed
import torch
import torch.distributed as dist
from torch.utils.checkpoint import checkpoint


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.block = torch.nn.Linear(32, 32)
        self.head = torch.nn.Linear(32, 1)

    def forward(self, x, reentrant):
        h = torch.tanh(self.first(x))
        h = h + checkpoint(lambda h: torch.tanh(self.block(h)), h, use_reentrant=reentrant)
        return self.head(h + torch.tanh(self.block(h)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", type=int, default=3)
    parser.add_argument("--not-reentrant", action="store_true")
    args = parser.parse_args()
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(1)
    model = Model()
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_clipping": 0.0,
        "zero_optimization": {"stage": args.stage, "reduce_bucket_size": 256, "memory_efficient_linear": False},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1000,
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    draw = torch.Generator().manual_seed(2 + dist.get_rank())
    for _ in range(8):
        x = torch.randn(4, 16, generator=draw)
        y = engine(x, not args.not_reentrant)
        engine.backward(torch.nn.functional.mse_loss(y, x.sum(1, keepdim=True)))
        engine.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
