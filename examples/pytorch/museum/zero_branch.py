"""A layer that every other batch uses, under DeepSpeed's engine: with --accumulate 2 the first of each step. --touch gives
it a gradient of zero in the others; --offload keeps the optimizer on the CPU."""
import argparse

import deepspeed
import torch
import torch.distributed as dist


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.sometimes = torch.nn.Linear(32, 32)
        self.head = torch.nn.Linear(32, 1)

    def forward(self, x, batch, touch):
        h = torch.tanh(self.first(x))
        if batch % 2 == 0:
            h = torch.tanh(self.sometimes(h))
        elif touch:
            h = h + 0 * self.sometimes(h)
        return self.head(h)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stage", type=int, default=3)
    parser.add_argument("--accumulate", type=int, default=1)
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--touch", action="store_true")
    args = parser.parse_args()
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(1)
    model = Model()
    config = {
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": args.accumulate,
        "gradient_clipping": 0.0,
        "zero_optimization": {
            "stage": args.stage,
            "memory_efficient_linear": False,
            "offload_optimizer": {"device": "cpu" if args.offload else "none"},
        },
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 1000,
    }
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    draw = torch.Generator().manual_seed(2 + dist.get_rank())
    for batch in range(8 * args.accumulate):
        x = torch.randn(4, 16, generator=draw)
        y = engine(x, batch, args.touch)
        engine.backward(torch.nn.functional.mse_loss(y, x.sum(1, keepdim=True)))
        engine.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
