"""DeepSpeed's layer of experts, eight of them with top-3 gating; each has room for twice its share of the tokens."""
import argparse

import deepspeed
import torch
import torch.distributed as dist
from deepspeed.moe.layer import MoE


class Model(torch.nn.Module):
    def __init__(self, drop):
        super().__init__()
        expert = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 16))
        self.moe = MoE(16, expert, num_experts=8, k=3, capacity_factor=2.0, drop_tokens=drop, use_rts=False)
        self.head = torch.nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.moe(x)[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--drop", action="store_true", help="drop tokens for which an expert has no room; there are none")
    args = parser.parse_args()
    deepspeed.init_distributed(dist_backend="gloo")
    torch.manual_seed(1)
    model = Model(args.drop)
    config = {"train_micro_batch_size_per_gpu": 64, "zero_allow_untested_optimizer": True, "steps_per_print": 1000}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    draw = torch.Generator().manual_seed(2 + dist.get_rank())
    for _ in range(6):
        x = torch.randn(64, 16, generator=draw)
        engine.backward(torch.nn.functional.mse_loss(engine(x), x.sum(1, keepdim=True)))
        engine.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
